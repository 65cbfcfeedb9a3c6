//! `semel`: the idempotency gateway and the operator's commands.

#![allow(unreachable_pub, reason = "nothing outside can reach into a program")]

use std::process::ExitCode;

use semel_store::ConnectError;

mod admin;
mod cli;
mod config;
mod failpoint;
mod gateway;
mod log;
mod operator;
mod values;

/// Why a command failed: a mistake in what was asked, or something that went wrong while doing it.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 2.
    Usage(String),
    /// Exit code 1.
    Failed(String),
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
        cli::Command::Gateway(args) => gateway::run(args),
        cli::Command::Keys(args) => operator::run(operator::keys(args)),
        cli::Command::Show(args) => operator::run(operator::show(args)),
        cli::Command::Resolve(args) => operator::run(operator::resolve(args)),
        cli::Command::Sweep(args) => operator::run(operator::sweep(args)),
        cli::Command::Migrate(args) => operator::run(operator::migrate(args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => say(&format!("semel: {text}"), 2),
        Err(Failure::Failed(text)) => say(&format!("semel: {text}"), 1),
    }
}

#[allow(clippy::print_stdout, reason = "help and version are this command's output")]
fn say(text: &str, code: u8) -> ExitCode {
    if code == 0 {
        println!("{}", text.trim_end());
    } else {
        eprintln!("{}", text.trim_end());
    }
    ExitCode::from(code)
}
