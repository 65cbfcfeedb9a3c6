//! Checks of the checks: a store with one rule broken is noticed by the simulation, by a clause of the contract
//! suite and by the comparison with the model; the store with no rule broken passes the same seeds.

mod memory;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use memory::Memory;
use semel::testing::contract::{claim, list, repeat, retain};
use semel::testing::mutant::MutantHarness;
use semel::testing::simulation::{Check, simulate, simulate_mutant};
use semel::testing::{Harness, Mutant, Scenario, model, run};

/// Within so many seeds the simulation notices the mutant by one of the checks.
fn killed(mutant: Mutant, scenario: &Scenario, seeds_max: u64, by: &[Check]) {
    for seed in 0..seeds_max {
        simulate(scenario, seed).assert_clean(scenario, seed);
        let violations = simulate_mutant(scenario, seed, mutant).violations;
        if by.iter().all(|check| violations.iter().any(|violation| violation.check == *check)) {
            return;
        }
    }
    panic!("{mutant:?} lives through {seeds_max} seeds of {}", scenario.name);
}

#[test]
fn no_fence_compare_is_noticed() {
    killed(Mutant::NoFence, &Scenario::lossy(), 20, &[Check::Fenced]);
    killed(Mutant::NoFence, &Scenario::lossy(), 40, &[Check::EffectOnce]);
    killed(Mutant::NoFence, &Scenario::stormy(), 40, &[Check::Fenced]);
}

#[test]
fn no_attempt_id_is_noticed() {
    killed(Mutant::NoAttempt, &Scenario::lossy(), 10, &[Check::NothingUnknown]);
    killed(Mutant::NoAttempt, &Scenario::stormy(), 40, &[Check::AttemptOver]);
}

#[test]
fn no_renewal_is_noticed() {
    killed(Mutant::NoRenewal, &Scenario::calm(), 10, &[Check::NoTakeover, Check::EffectOnce]);
    killed(Mutant::NoRenewal, &Scenario::stormy(), 20, &[Check::Expiry]);
}

#[test]
fn release_on_drop_is_noticed() {
    killed(Mutant::ReleaseOnDrop, &Scenario::calm(), 20, &[Check::NoTakeover, Check::EffectOnce]);
    killed(Mutant::ReleaseOnDrop, &Scenario::lossy(), 20, &[Check::NoInvitation, Check::EffectOnce]);
}

#[test]
fn mismatch_after_in_flight_is_noticed() {
    killed(Mutant::MismatchAfterInFlight, &Scenario::calm(), 10, &[Check::MismatchFirst]);
    killed(Mutant::MismatchAfterInFlight, &Scenario::stormy(), 20, &[Check::MismatchFirst]);
}

#[test]
fn a_fingerprint_lost_on_release_is_noticed() {
    killed(Mutant::FingerprintLostOnRelease, &Scenario::calm(), 20, &[Check::OneRequest]);
    killed(Mutant::FingerprintLostOnRelease, &Scenario::stormy(), 40, &[Check::OneRequest]);
}

#[test]
fn expiry_only_by_sweep_is_noticed() {
    killed(Mutant::ExpiryOnlyBySweep, &Scenario::forgetful(), 10, &[Check::Expiry]);
    killed(Mutant::ExpiryOnlyBySweep, &Scenario::stormy(), 40, &[Check::Expiry]);
}

#[test]
fn asking_at_once_is_noticed() {
    let mutant = Mutant::UnknownForLong;
    killed(mutant, &Scenario::probing(), 20, &[Check::AsksInTime]);
    killed(mutant, &Scenario::probing_sleepers(), 100, &[Check::AsksInTime, Check::EffectOnce]);
}

#[test]
fn asking_without_a_fence_is_noticed() {
    let mutant = Mutant::SettlesWithoutFence;
    killed(mutant, &Scenario::probing(), 20, &[Check::OneAsks, Check::OneHolder]);
    killed(mutant, &Scenario::probing(), 40, &[Check::OneAsks, Check::AsHeard]);
    killed(mutant, &Scenario::probing_sleepers(), 20, &[Check::OneAsks, Check::Fenced]);
}

/// The hazard itself: true answers that come too soon. Nothing here breaks a rule but the time.
#[test]
fn a_probe_after_that_is_too_short_lets_an_effect_happen_twice() {
    let hasty = Scenario { probe_after: Duration::from_millis(1), ..Scenario::probing_sleepers() };
    let twice = (0..100).any(|seed| {
        let violations = simulate(&hasty, seed).violations;
        violations.iter().any(|violation| violation.check == Check::EffectOnce)
    });
    assert!(twice, "no effect is on its way when somebody asks");
}

/// The clause passes on the store and fails on its mutant.
async fn clause_kills(mutant: Mutant, clause: impl AsyncFn(&dyn Harness)) {
    let memory = Memory::default();
    clause(&memory).await;
    let harness = MutantHarness::new(mutant, &memory);
    let noticed = futures_util::FutureExt::catch_unwind(AssertUnwindSafe(clause(&harness))).await;
    assert!(noticed.is_err(), "{mutant:?} passes the clause");
}

#[tokio::test]
async fn the_contract_suite_notices_every_mutant_that_is_one_of_stores() {
    clause_kills(Mutant::NoFence, async |harness| repeat::c04_a_zombie_cannot_settle(harness).await).await;
    clause_kills(Mutant::NoFence, async |harness| repeat::c04_a_zombie_cannot_renew(harness).await).await;
    clause_kills(Mutant::NoAttempt, async |harness| {
        repeat::c03_the_holder_asking_again_gets_its_lease(harness).await;
    })
    .await;
    clause_kills(Mutant::NoAttempt, async |harness| {
        repeat::c04_a_zombie_of_a_forgotten_record_cannot_settle(harness).await;
    })
    .await;
    clause_kills(Mutant::NoRenewal, async |harness| repeat::a_renewal_extends(harness).await).await;
    clause_kills(Mutant::MismatchAfterInFlight, async |harness| {
        claim::k6_mismatch_is_said_before_in_flight(harness).await;
    })
    .await;
    clause_kills(Mutant::FingerprintLostOnRelease, async |harness| {
        claim::k6_mismatch_is_said_in_every_state(harness).await;
    })
    .await;
    clause_kills(Mutant::ExpiryOnlyBySweep, async |harness| {
        retain::an_outcome_is_replayed_for_its_time(harness).await;
    })
    .await;
    clause_kills(Mutant::UnknownForLong, async |harness| list::an_entry_shows_every_state(harness).await)
        .await;
    clause_kills(Mutant::SettlesWithoutFence, async |harness| {
        claim::settling_takes_what_was_seen(harness).await;
    })
    .await;
    clause_kills(Mutant::ExpiryOnlyBySweep, async |harness| claim::a_lapsed_key_is_unknown(harness).await)
        .await;
}

#[test]
fn the_model_notices_every_mutant_that_is_one_of_stores() {
    for mutant in Mutant::ALL.into_iter().filter(|mutant| *mutant != Mutant::ReleaseOnDrop) {
        let memory = Memory::default();
        let harness = MutantHarness::new(mutant, &memory);
        let differs =
            |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(model::compare(&harness, *seed)))).is_err();
        assert!(
            (0..100).any(|seed| differs(&seed)),
            "{mutant:?} is not told from the model in 100 histories"
        );
    }
}
