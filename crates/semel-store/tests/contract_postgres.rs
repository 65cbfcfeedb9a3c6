//! The PostgreSQL store keeps the contract, with functions and without; and the suites notice when it does not.

#![cfg(feature = "postgres")]

#[path = "postgres/harness.rs"]
mod harness;

use std::panic::{AssertUnwindSafe, catch_unwind};

use harness::{Mode, Pg};
use semel::testing::contract::{claim, list, repeat, retain};
use semel::testing::mutant::MutantHarness;
use semel::testing::random::each_seed;
use semel::testing::{Harness, Mutant, model};
use tokio::runtime::{Builder, Runtime};

mod functions {
    use super::*;

    semel::contract_suite!(Pg::new(Mode::Functions));
    semel::inspect_suite!(Pg::new(Mode::Functions));
    semel::history_suite!(Pg::new(Mode::Functions));

    #[test]
    fn random_histories_answer_as_the_model_does() {
        histories(Mode::Functions);
    }
}

mod tables {
    use super::*;

    semel::contract_suite!(Pg::new(Mode::Tables));
    semel::inspect_suite!(Pg::new(Mode::Tables));
    semel::history_suite!(Pg::new(Mode::Tables));

    #[test]
    fn random_histories_answer_as_the_model_does() {
        histories(Mode::Tables);
    }
}

/// One for all of a test: a store's connections live in the runtime that it was opened in.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("the machine gives threads")
}

fn histories(mode: Mode) {
    let runtime = runtime();
    let harness = Pg::reusing(mode);
    each_seed(200, |seed| runtime.block_on(model::compare(&harness, seed)));
}

#[test]
fn the_model_notices_every_mutant_that_is_one_of_stores() {
    let runtime = runtime();
    for pg in [Pg::reusing(Mode::Functions), Pg::reusing(Mode::Tables)] {
        for mutant in Mutant::ALL.into_iter().filter(|mutant| *mutant != Mutant::ReleaseOnDrop) {
            let harness = MutantHarness::new(mutant, &pg);
            let differs = |seed| {
                catch_unwind(AssertUnwindSafe(|| runtime.block_on(model::compare(&harness, seed)))).is_err()
            };
            assert!((0..100).any(differs), "{mutant:?} is not told from the model in 100 histories");
        }
    }
}

/// The clause passes on the store and fails on its mutant.
fn clause_kills(mutant: Mutant, clause: impl AsyncFn(&dyn Harness)) {
    let runtime = runtime();
    let pg = Pg::new(Mode::Functions);
    runtime.block_on(clause(&pg));
    let harness = MutantHarness::new(mutant, &pg);
    let noticed = catch_unwind(AssertUnwindSafe(|| runtime.block_on(clause(&harness))));
    assert!(noticed.is_err(), "{mutant:?} passes the clause");
}

#[test]
fn the_contract_suite_notices_every_mutant_that_is_one_of_stores() {
    clause_kills(Mutant::NoFence, async |harness| repeat::c04_a_zombie_cannot_settle(harness).await);
    clause_kills(Mutant::NoAttempt, async |harness| {
        repeat::c03_the_holder_asking_again_gets_its_lease(harness).await;
    });
    clause_kills(Mutant::NoRenewal, async |harness| repeat::a_renewal_extends(harness).await);
    clause_kills(Mutant::MismatchAfterInFlight, async |harness| {
        claim::k6_mismatch_is_said_before_in_flight(harness).await;
    });
    clause_kills(Mutant::FingerprintLostOnRelease, async |harness| {
        claim::k6_mismatch_is_said_in_every_state(harness).await;
    });
    clause_kills(Mutant::ExpiryOnlyBySweep, async |harness| {
        retain::an_outcome_is_replayed_for_its_time(harness).await;
    });
    clause_kills(Mutant::UnknownForLong, async |harness| list::an_entry_shows_every_state(harness).await);
    clause_kills(Mutant::SettlesWithoutFence, async |harness| {
        claim::settling_takes_what_was_seen(harness).await
    });
}
