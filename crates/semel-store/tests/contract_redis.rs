//! The Redis store keeps the contract: on a server, on a cluster, and on a server that forgets its scripts; and the
//! suites notice when it does not.

#![cfg(feature = "redis")]

#[path = "redis/harness.rs"]
mod harness;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use harness::Server;
use semel::testing::contract::{claim, list, repeat, retain};
use semel::testing::mutant::MutantHarness;
use semel::testing::random::each_seed;
use semel::testing::{Harness, Mutant, model, run};

mod single {
    use super::*;

    semel::contract_suite!(Server::single().await);
    semel::inspect_suite!(Server::single().await);
    semel::history_suite!(Server::single().await);
}

mod cluster {
    use super::*;

    semel::contract_suite!(Server::cluster().await);
    semel::inspect_suite!(Server::cluster().await);
    semel::history_suite!(Server::cluster().await);
}

mod forgetful {
    use super::*;

    semel::contract_suite!(Server::forgetful().await);
}

/// One history. The model's clock stands still and Redis's runs: where a machine was so busy that it ran further than the
/// comparison bears, a difference says nothing, and the history is executed again.
fn compare(server: &Server, seed: u64) {
    for _ in 0..10 {
        server.leave_all();
        let started = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| run(model::compare(server, seed)))) {
            Ok(()) => return,
            Err(difference) if started.elapsed() < server.tolerance() => resume_unwind(difference),
            Err(_) => {}
        }
    }
    panic!("the machine is too busy: ten times a history took longer than {:?}", server.tolerance());
}

#[test]
fn random_histories_answer_as_the_model_does() {
    let server = run(Server::single());
    each_seed(200, |seed| compare(&server, seed));
}

#[test]
fn random_histories_on_a_cluster_answer_as_the_model_does() {
    let server = run(Server::cluster());
    each_seed(50, |seed| compare(&server, seed));
}

#[test]
fn the_model_notices_every_mutant_that_is_one_of_stores() {
    let server = run(Server::single());
    for mutant in Mutant::ALL.into_iter().filter(|mutant| *mutant != Mutant::ReleaseOnDrop) {
        let harness = MutantHarness::new(mutant, &server);
        let differs = |seed| {
            server.leave_all();
            catch_unwind(AssertUnwindSafe(|| run(model::compare(&harness, seed)))).is_err()
        };
        assert!((0..100).any(differs), "{mutant:?} is not told from the model in 100 histories");
    }
}

/// The clause passes on the store and fails on its mutant.
fn clause_kills(mutant: Mutant, clause: impl AsyncFn(&dyn Harness)) {
    let server = run(Server::single());
    run(clause(&server));
    let harness = MutantHarness::new(mutant, &server);
    let noticed = catch_unwind(AssertUnwindSafe(|| run(clause(&harness))));
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
