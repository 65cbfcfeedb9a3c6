//! The MySQL store keeps the contract, at both isolation levels; and the suites notice when it does not.

#![cfg(feature = "mysql")]

#[path = "mysql/harness.rs"]
mod harness;

use std::panic::{AssertUnwindSafe, catch_unwind};

use harness::Server;
use semel::testing::contract::{claim, list, repeat, retain};
use semel::testing::mutant::MutantHarness;
use semel::testing::random::each_seed;
use semel::testing::{Harness, Mutant, model, run};

mod read_committed {
    use super::*;

    semel::contract_suite!(Server::new(""));
    semel::inspect_suite!(Server::new(""));
    semel::history_suite!(Server::new(""));
}

mod repeatable_read {
    use super::*;

    semel::contract_suite!(Server::new("?isolation=repeatable-read"));
    semel::inspect_suite!(Server::new("?isolation=repeatable-read"));
    semel::history_suite!(Server::new("?isolation=repeatable-read"));
}

#[test]
fn random_histories_answer_as_the_model_does() {
    let server = Server::reused("?pool=2");
    each_seed(200, |seed| run(model::compare(&server, seed)));
}

#[test]
fn random_histories_at_repeatable_read_answer_as_the_model_does() {
    let server = Server::reused("?pool=2&isolation=repeatable-read");
    each_seed(100, |seed| run(model::compare(&server, seed)));
}

#[test]
fn the_model_notices_every_mutant_that_is_one_of_stores() {
    let server = Server::reused("?pool=2");
    for mutant in Mutant::ALL.into_iter().filter(|mutant| *mutant != Mutant::ReleaseOnDrop) {
        let harness = MutantHarness::new(mutant, &server);
        let differs = |seed| catch_unwind(AssertUnwindSafe(|| run(model::compare(&harness, seed)))).is_err();
        assert!((0..100).any(differs), "{mutant:?} is not told from the model in 100 histories");
    }
}

/// The clause passes on the store and fails on its mutant.
fn clause_kills(mutant: Mutant, clause: impl AsyncFn(&dyn Harness)) {
    let server = Server::reused("?pool=2");
    run(clause(&server));
    let harness = MutantHarness::new(mutant, &server);
    let noticed = catch_unwind(AssertUnwindSafe(|| run(clause(&harness))));
    assert!(noticed.is_err(), "{mutant:?} passes the clause");
}

#[test]
fn the_contract_suite_notices_every_mutant_that_is_one_of_stores() {
    clause_kills(Mutant::NoFence, async |harness| repeat::c04_a_zombie_cannot_settle(harness).await);
    clause_kills(Mutant::NoFence, async |harness| repeat::c04_a_zombie_cannot_renew(harness).await);
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
        claim::settling_takes_what_was_seen(harness).await;
    });
}
