//! The command line from outside: mistakes, settings, the operator's commands.

#[path = "../support/mod.rs"]
mod support;

mod check_config;
mod mistakes;
mod openapi;
mod operator;
mod records;
mod resolving;
mod settings;
mod stores;
mod timeline;

use std::process::{Command, Output};

/// What a command that ended has said.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// The program with these arguments, and nothing from the environment of the tests.
fn semel(args: &[&str]) -> Command {
    let mut command = support::semel();
    command.args(args);
    command
}

fn said(command: &mut Command) -> Said {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Said { code: status.code(), out: text(stdout), err: text(stderr) }
}

fn run(args: &[&str]) -> Said {
    said(&mut semel(args))
}

impl Said {
    /// One line of an error, and nothing else; gives the line without the program's name.
    #[track_caller]
    fn error(&self, code: i32) -> &str {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        self.err.trim_end().strip_prefix("semel: ").unwrap_or_else(|| panic!("whose error: {}", self.err))
    }
}
