//! `semel`: the idempotency gateway, the bridge from a broker, and the operator's commands.

#![allow(unreachable_pub, reason = "nothing outside can reach into a program")]

use std::io::{self, Write};
use std::process::ExitCode;

use semel_store::ConnectError;

mod admin;
mod bridge;
mod check_config;
mod cli;
mod config;
mod demo;
mod dlq;
mod failpoint;
mod gateway;
mod log;
mod openapi;
mod operator;
mod origin;
mod terminal;
mod values;

/// A request makes some forty small allocations that end on another thread than they began on.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why a command failed: a mistake in what was asked, or something that went wrong while doing it.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 2.
    Usage(String),
    /// Exit code 1.
    Failed(String),
    /// Whoever read the output has read enough, as `head` does. Exit code 0.
    Unread,
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        let text = format!("--store: {error}");
        match error {
            ConnectError::Url(_) | ConnectError::NotBuilt { .. } => Failure::Usage(text),
            _ => Failure::Failed(text),
        }
    }
}

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli.command,
        Err((text, code)) => return say(&text, code),
    };
    let done = match command {
        cli::Command::Gateway(args) => gateway::run(*args),
        cli::Command::Bridge(args) => bridge::run(*args),
        cli::Command::CheckConfig(args) => check_config::run(*args),
        cli::Command::Openapi(args) => openapi::run(*args),
        cli::Command::Keys(args) => operator::run(operator::keys(args)),
        cli::Command::Show(args) => operator::run(operator::show(args)),
        cli::Command::Resolve(args) => operator::run(operator::resolve(args)),
        cli::Command::Sweep(args) => operator::run(operator::sweep(args)),
        cli::Command::Migrate(args) => operator::run(operator::migrate(args)),
        cli::Command::Dlq(args) => operator::run(dlq::run(args.what)),
        cli::Command::Demo(args) => demo::run(args),
        cli::Command::DemoChild(args) => demo::child(args),
    };
    match done {
        Ok(()) | Err(Failure::Unread) => ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => say(&format!("semel: {text}"), 2),
        Err(Failure::Failed(text)) => say(&format!("semel: {text}"), 1),
    }
}

/// Help and version are output, everything else is an error. Where neither can be written there is nobody to tell.
fn say(text: &str, code: u8) -> ExitCode {
    let text = text.trim_end();
    let said = if code == 0 { writeln!(io::stdout(), "{text}") } else { writeln!(io::stderr(), "{text}") };
    match said {
        Err(error) if code == 0 && error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("semel: standard output: {error}"), 1)
        }
        _ => ExitCode::from(code),
    }
}
