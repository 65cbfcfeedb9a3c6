//! A program from `examples/` as a child process of its own test, and a client that sends it exact bytes.
//!
//! It is started on port 0, and says where it listens in its first line. It is stopped by its own id.

#![allow(dead_code, unused_imports, reason = "each test uses its part")]

#[path = "../crates/semel-server/tests/support/client.rs"]
mod client;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

pub(crate) use client::{Answer, Call, Client};

/// How long anything may take that should take moments.
const DEADLINE: Duration = Duration::from_secs(30);

/// A running program. Killed when it is dropped, also on a panic.
#[derive(Debug)]
pub(crate) struct Example {
    child: Child,
    errors: BufReader<ChildStderr>,
    address: SocketAddr,
}

impl Example {
    /// Starts it, and waits until it says where it listens.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub(crate) fn start(program: &str, args: &[&str]) -> Example {
        let mut child = Command::new(program).args(args).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut errors = BufReader::new(child.stderr.take().expect("standard error"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a first line");
        let address = line.trim_end().strip_prefix("http://").and_then(|address| address.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{program}: no address in its first line: {line:?}");
        };
        Example { child, errors, address }
    }

    /// A request on a connection of its own.
    pub(crate) fn call(&self, call: &Call) -> Answer {
        Client::connect(self.address).expect("a connection").call(call).expect("an answer")
    }

    /// Asks it to stop (SIGTERM), and waits for it; gives what it said meanwhile.
    ///
    /// # Panics
    ///
    /// When it ends with another code than 0.
    pub(crate) fn stop(mut self) -> String {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(told.expect("kill is there").success());
        let mut said = String::new();
        self.errors.read_to_string(&mut said).expect("text");
        let ended = self.child.wait().expect("it ends");
        assert!(ended.success(), "{ended}: {said}");
        said
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
