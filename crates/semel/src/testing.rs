//! For people who write a store, and for this crate's own proof. Feature `testing`.
//!
//! - [`contract`]: one named test for every clause of the [`Store`](crate::Store) contract. A store's own tests
//!   say `semel::contract_suite!(harness)` and get them all.
//! - [`model`]: random histories, executed on a store and on the memory store, compared answer by answer.
//! - [`fault`]: a store whose calls fail, and a runner that fails each call of a scenario in turn.
//! - [`simulation`]: several engines over one store, in virtual time, with everything going wrong that a seed can
//!   think of.
//! - [`mutant`]: stores with one rule broken each, which all of this must notice.
//! - [`sample`]: requests and settlements to write tests with.
//!
//! Everything random comes from a seed that is printed when a test fails; `SEMEL_SEED=… cargo test` runs that
//! one again.

pub mod clock;
pub mod contract;
pub mod fault;
pub mod model;
pub mod mutant;
pub mod random;
pub mod sample;
pub mod simulation;

pub use clock::{ManualClock, VirtualClock};
pub use contract::{Harness, HistoryHarness, InspectHarness};
pub use fault::{Fault, FaultyStore};
pub use mutant::{Mutant, MutantStore};
pub use random::Random;
pub use simulation::{Scenario, simulate};

/// Runs one test on a runtime of its own, with two threads: a race is one only when two things happen at once.
///
/// # Panics
///
/// When the test does, or when the machine gives no threads.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().expect("the machine gives threads").block_on(test)
}
