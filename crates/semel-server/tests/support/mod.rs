//! What the tests of the program share: the real binary as a child process, a service behind it that counts its
//! effects, and a client that sends exact bytes.
//!
//! 1. Everything listens on 127.0.0.1 and lives in a directory that goes away with the test.
//! 2. A test waits for an event, with a deadline. The only sleeps are between two looks, and where time itself is
//!    what is tested.
//! 3. No process stays behind: whoever started it kills it by its own id when it is dropped, also on a panic.

#![allow(dead_code, reason = "each test uses its part")]

use std::io::Write;
use std::time::{Duration, Instant};

mod client;
mod gateway;
mod ledger;
mod lock;
mod operator;
mod random;
mod service;

#[allow(unused_imports, reason = "each test uses its part")]
pub(crate) use self::{
    client::{Answer, Call, Client},
    gateway::{Gateway, Launch, free_address, semel},
    ledger::{Ledger, Received},
    lock::WriteLock,
    operator::{Operator, Record},
    random::Random,
    service::{Gate, Plan, Reply, Service},
};

/// How long anything may take that should take moments. Long, because the machine may be busy with other tests.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Looks until there is something to see.
///
/// # Panics
///
/// When there is nothing for [`DEADLINE`].
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Says something on the terminal, whether the test fails or not: the test runner holds back what is printed.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
