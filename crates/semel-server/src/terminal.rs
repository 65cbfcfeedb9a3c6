//! Lines, and one line that is written anew in its place while something goes on.
//!
//! Piped, there are lines only: one when something begins, and the status that stands at its end. Colours are for a terminal, and not with
//! `NO_COLOR` (<https://no-color.org>) or `TERM=dumb`. What is written for programs (`--json`) has standard output for
//! itself; the progress then goes to standard error.

use std::cell::Cell;
use std::env;
use std::io::{self, IsTerminal, Write};

use crate::Failure;

/// The narrowest terminal that the status must fit in, less one for the cursor.
const COLUMNS: usize = 79;

/// Where progress and report are written.
#[derive(Debug)]
pub struct Terminal {
    to_stderr: bool,
    in_place: bool,
    coloured: bool,
    /// Whether the last line is a status that is to be overwritten.
    status: Cell<bool>,
}

impl Terminal {
    pub fn new(to_stderr: bool) -> Terminal {
        let is_terminal = if to_stderr { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let plain = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Terminal {
            to_stderr,
            in_place: is_terminal && !plain,
            coloured: is_terminal && !plain && !is_set("NO_COLOR"),
            status: Cell::new(false),
        }
    }

    /// A line that stays.
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        let clear = if self.status.replace(false) { "\r\x1b[K" } else { "" };
        self.write(&format!("{clear}{text}\n"))
    }

    /// The line of something that begins; nothing where a status will stand.
    pub fn begins(&self, text: &str) -> Result<(), Failure> {
        if self.in_place { Ok(()) } else { self.line(text) }
    }

    /// A line that the next one overwrites; nothing where lines stay.
    pub fn status(&self, text: &str) -> Result<(), Failure> {
        if !self.in_place {
            return Ok(());
        }
        self.status.set(true);
        let text: String = text.chars().take(COLUMNS).collect();
        self.write(&format!("\r\x1b[K{text}"))
    }

    /// Leaves a status that is on the screen where it is.
    pub fn end_status(&self) {
        if self.status.replace(false) {
            let _ = self.write("\n");
        }
    }

    /// In red, where there are colours.
    pub fn red(&self, text: &str) -> String {
        self.painted("31", text)
    }

    /// In green, where there are colours.
    pub fn green(&self, text: &str) -> String {
        self.painted("32", text)
    }

    /// In bold, where there are colours.
    pub fn bold(&self, text: &str) -> String {
        self.painted("1", text)
    }

    fn painted(&self, code: &str, text: &str) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        let mut out: Box<dyn Write> =
            if self.to_stderr { Box::new(io::stderr().lock()) } else { Box::new(io::stdout().lock()) };
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(unwritten)
    }
}

/// How far something has come.
pub fn bar(tried: usize, all: usize) -> String {
    const WIDTH: usize = 30;
    let full = (tried * WIDTH / all.max(1)).min(WIDTH);
    format!("[{}{}] {tried} of {all}", "#".repeat(full), ".".repeat(WIDTH - full))
}

/// Whoever read it may have read enough.
pub fn unwritten(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::Failed(format!("standard output: {error}")),
    }
}
