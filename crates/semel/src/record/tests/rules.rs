//! The numbered rules of [`record`](crate::record), and the clauses of the specification, one by one.

use std::time::Duration;

use super::Life;
use crate::record::{SPENT_MAX, State, Unfit, entry, is_expired};
use crate::store::{Cause, Claim, ClaimRequest, Cursor, Fence, Lease, Settlement, View, Was};
use crate::testing::sample::{
    self, LEASE, REMEMBER, REPLAY, attempt, bury, complete, fingerprint, forcing, park, release, release_for,
    release_unbound, rerun, run, run_at_most, run_for, settling,
};

const KEY: &str = "k";
const INSTANT: Duration = Duration::from_millis(1);

fn begun() -> (Life, Lease) {
    let mut life = Life::new();
    let lease = life.acquire(&run(KEY, 1));
    (life, lease)
}

fn ended(settlement: &Settlement) -> (Life, Lease) {
    let (mut life, lease) = begun();
    life.settle(&lease, settlement).unwrap();
    (life, lease)
}

#[test]
fn rule_1_a_lease_ends_at_its_instant() {
    let (mut life, _) = begun();
    life.wait(LEASE - INSTANT);
    assert_eq!(life.view(), Some(View::Running { lease_left: INSTANT }));
    life.wait(INSTANT);
    assert_eq!(life.view(), Some(View::Unknown { cause: Cause::LAPSED }));
}

#[test]
fn rule_1_replay_and_memory_end_at_their_instants_counted_from_completion() {
    let (mut life, lease) = begun();
    life.wait(LEASE / 2);
    life.settle(&lease, &complete("done")).unwrap();
    life.wait(REPLAY - INSTANT);
    assert_eq!(life.reads_as(), "completed");
    life.wait(INSTANT);
    assert_eq!(life.reads_as(), "forgotten");
    life.wait(REMEMBER - REPLAY - INSTANT);
    assert_eq!(life.reads_as(), "forgotten");
    life.wait(INSTANT);
    assert_eq!(life.reads_as(), "absent");
    assert!(is_expired(life.record.as_ref().unwrap(), life.now));
}

#[test]
fn rule_1_a_key_is_remembered_at_least_as_long_as_it_is_replayed() {
    let (mut life, lease) = begun();
    let Settlement::Complete { outcome, .. } = complete("done") else { unreachable!() };
    let short = Settlement::Complete { outcome, replay_for: REPLAY, remember_for: Duration::ZERO };
    life.settle(&lease, &short).unwrap();
    assert_eq!(life.reads_as(), "completed");
    life.wait(REPLAY);
    assert_eq!(life.reads_as(), "absent");
}

#[test]
fn rule_1_for_ever_is_for_ever() {
    let (mut life, lease) = begun();
    let Settlement::Complete { outcome, .. } = complete("done") else { unreachable!() };
    let replay_for = Duration::from_secs(1);
    life.settle(&lease, &Settlement::Complete { outcome, replay_for, remember_for: Duration::MAX }).unwrap();
    life.wait(Duration::from_secs(100 * 365 * 86_400));
    assert_eq!(life.reads_as(), "forgotten");
}

#[test]
fn rule_1_lapsing_writes_nothing_so_the_owner_goes_on() {
    let (mut life, lease) = begun();
    life.wait(3 * LEASE);
    assert_eq!(sample::name(&life.claim(&run(KEY, 2))), "unknown");
    assert_eq!(life.renew(&lease, LEASE), Ok(()));
    assert_eq!(life.reads_as(), "running");
    life.wait(3 * LEASE);
    assert_eq!(life.settle(&lease, &complete("late")), Ok(()));
    assert_eq!(life.reads_as(), "completed");
}

#[test]
fn rule_1_unknown_and_dead_never_expire() {
    for settlement in [park(), bury()] {
        let (mut life, _) = ended(&settlement);
        let before = life.reads_as();
        life.wait(1_000 * REMEMBER);
        assert_eq!(life.reads_as(), before);
    }
}

#[test]
fn rule_2_the_fingerprint_outlives_release_completion_and_forgetting() {
    for (settlement, wait) in [(release(), LEASE), (complete("done"), LEASE), (complete("done"), REPLAY)] {
        let (mut life, _) = ended(&settlement);
        life.wait(wait);
        assert_eq!(sample::name(&life.claim(&run_for(KEY, 2, "other"))), "mismatch");
        assert_eq!(life.record.as_ref().unwrap().fingerprint, Some(fingerprint("same")));
    }
}

#[test]
fn rule_2_k6_mismatch_is_said_before_in_flight() {
    let (mut life, _) = begun();
    let expected = Claim::Mismatch { algorithm: fingerprint("same").algorithm };
    assert_eq!(life.claim(&run_for(KEY, 2, "other")), expected);
}

#[test]
fn rule_2_k6_unbinding_by_the_claim_that_bound_it() {
    let (mut life, _) = ended(&release_unbound());
    assert_eq!(life.record.as_ref().unwrap().fingerprint, None);
    let lease = life.acquire(&run_for(KEY, 2, "other"));
    assert_eq!(lease.fence, Fence(2), "fence and settled attempt stay");
    assert_eq!(sample::name(&life.claim(&run(KEY, 3))), "mismatch", "the next claim binds");
    life.settle(&lease, &release_unbound()).unwrap();
    assert_eq!(life.record.as_ref().unwrap().fingerprint, None, "and may unbind, since it bound");
}

#[test]
fn rule_2_k6_no_later_claim_unbinds() {
    let (mut life, _) = ended(&release());
    let second = life.acquire(&run(KEY, 2));
    life.settle(&second, &release_unbound()).unwrap();
    assert_eq!(sample::name(&life.claim(&run_for(KEY, 3, "other"))), "mismatch");
}

#[test]
fn rule_3_k2_an_attempt_that_is_over_never_claims_again() {
    for settlement in [release(), park(), complete("done"), bury()] {
        let (mut life, _) = ended(&settlement);
        assert_ne!(sample::name(&life.claim(&rerun(KEY, 1))), "acquired", "{settlement:?}");
    }
    let (mut life, _) = ended(&release());
    let second = life.acquire(&run(KEY, 2));
    life.settle(&second, &release()).unwrap();
    assert_eq!(sample::name(&life.claim(&rerun(KEY, 1))), "in-flight", "nor one further back");
}

#[test]
fn rule_3_as_many_spent_attempts_are_remembered_as_it_says() {
    let mut life = Life::new();
    let last = SPENT_MAX as u64 + 2;
    for number in 1..=last {
        let lease = life.acquire(&run(KEY, number));
        life.settle(&lease, &release()).unwrap();
    }
    let spent = &life.record.as_ref().unwrap().spent;
    assert_eq!((spent.len(), spent[0]), (SPENT_MAX, attempt(2)), "the oldest one went");
    assert_eq!(sample::name(&life.claim(&run(KEY, 2))), "in-flight");
}

#[test]
fn rule_4_k3_a_zombie_changes_nothing() {
    let (mut life, zombie) = begun();
    life.wait(LEASE);
    let owner = life.acquire(&rerun(KEY, 2));
    let before = life.record.clone();
    assert_eq!(life.renew(&zombie, LEASE), Err(Unfit::LeaseLost));
    for settlement in [complete("zombie"), release(), park(), bury()] {
        assert_eq!(life.settle(&zombie, &settlement), Err(Unfit::LeaseLost));
    }
    assert_eq!(life.record, before);
    assert_eq!(life.settle(&owner, &complete("owner")), Ok(()));
}

#[test]
fn rule_4_the_fence_alone_is_not_enough() {
    let (mut life, first) = ended(&complete("done"));
    life.wait(REMEMBER);
    let second = life.acquire(&run(KEY, 2));
    assert_eq!(first.fence, second.fence, "a record that is made anew counts from 1 again");
    assert_eq!(life.settle(&first, &complete("done")), Err(Unfit::LeaseLost));
    assert_eq!(life.renew(&first, LEASE), Err(Unfit::LeaseLost));
    let forged = Lease { fence: Fence(7), ..second };
    assert_eq!(life.settle(&forged, &complete("done")), Err(Unfit::LeaseLost), "nor the attempt alone");
}

#[test]
fn rule_5_the_first_settlement_stands() {
    let (mut life, lease) = ended(&complete("done"));
    let before = life.record.clone();
    life.wait(INSTANT);
    assert_eq!(life.settle(&lease, &complete("done")), Ok(()));
    assert_eq!(life.record, before, "a repetition does not renew the retention");

    let (mut life, lease) = ended(&release());
    let before = life.record.clone();
    assert_eq!(life.settle(&lease, &release_for(LEASE)), Ok(()));
    assert_eq!(life.record, before, "nor the time before which nobody may try");
}

#[test]
fn rule_5_k7_the_truth_may_follow_the_owners_own_park() {
    for (truth, reads) in [(complete("late"), "completed"), (release(), "released")] {
        let (mut life, lease) = ended(&park());
        life.wait(10 * LEASE);
        assert_eq!(life.settle(&lease, &truth), Ok(()));
        assert_eq!(life.reads_as(), reads);
        assert_eq!(life.settle(&lease, &park()), Err(Unfit::Settled), "but doubt does not follow the truth");
    }
}

#[test]
fn rule_5_k7_nothing_follows_once_a_probe_moved_the_fence() {
    let (mut life, owner) = ended(&park());
    let probe = life.acquire(&settling(KEY, 2, owner.fence));
    assert_eq!(life.settle(&owner, &complete("late")), Err(Unfit::LeaseLost));
    life.settle(&probe, &park()).unwrap();
    assert_eq!(life.settle(&owner, &complete("late")), Err(Unfit::LeaseLost));
}

#[test]
fn rule_5_k7_the_truth_counts_although_a_last_claim_found_the_attempts_exhausted() {
    for begin in [begun, || ended(&park())] {
        let (mut life, owner) = begin();
        life.wait(LEASE);
        assert_eq!(sample::name(&life.claim(&run_at_most(KEY, 2, 1))), "dead");
        assert_eq!(life.reads_as(), "dead");
        assert_eq!(life.settle(&owner, &complete("late")), Ok(()), "no fence has moved");
        assert_eq!(life.reads_as(), "completed");
    }
    let (mut life, owner) = ended(&release());
    assert_eq!(sample::name(&life.claim(&run_at_most(KEY, 2, 1))), "dead");
    assert_eq!(life.settle(&owner, &complete("late")), Err(Unfit::Settled), "it had said: no effect");
    assert_eq!(life.settle(&owner, &release()), Err(Unfit::Settled));
}

#[test]
fn rule_6_doubt_stays_until_the_key_completes() {
    let (mut life, first) = begun();
    assert!(!first.doubt);
    life.wait(LEASE);
    let second = life.acquire(&rerun(KEY, 2));
    assert!(second.doubt, "the first may have taken effect");
    life.settle(&second, &release()).unwrap();
    let third = life.acquire(&run(KEY, 3));
    assert!(third.doubt, "and it still may, whatever the second says of itself");
    life.settle(&third, &complete("done")).unwrap();
    assert!(!life.record.unwrap().doubt);
}

#[test]
fn rule_6_a_release_by_somebody_who_looked_ends_doubt() {
    let (mut life, _) = ended(&park());
    let second = life.acquire(&rerun(KEY, 2));
    assert!(second.doubt);
    life.settle(&second, &park()).unwrap();
    let probe = life.acquire(&settling(KEY, 3, second.fence));
    assert!(probe.doubt);
    life.settle(&probe, &release()).unwrap();
    assert!(!life.acquire(&run(KEY, 4)).doubt);
}

#[test]
fn rule_6_an_owners_late_release_leaves_no_doubt_behind() {
    let (mut life, owner) = ended(&park());
    life.settle(&owner, &release()).unwrap();
    assert!(!life.acquire(&run(KEY, 2)).doubt);
}

#[test]
fn rule_7_k8_attempts_are_counted_at_the_claim() {
    let (mut life, first) = begun();
    assert_eq!(first.attempts, 1);
    life.wait(LEASE);
    assert_eq!(life.acquire(&rerun(KEY, 2)).attempts, 2, "an attempt that died counts");
    life.wait(LEASE);
    assert_eq!(sample::name(&life.claim(&run_at_most(KEY, 3, 2))), "dead");
    assert_eq!(life.view(), Some(View::Dead { cause: Cause::ATTEMPTS_EXHAUSTED }));
}

#[test]
fn rule_7_an_attempt_under_which_nothing_ran_is_taken_off_again() {
    let (mut life, first) = begun();
    life.settle(&first, &sample::release_not_run()).unwrap();
    let second = life.acquire(&run_at_most(KEY, 2, 1));
    assert_eq!((second.attempts, second.fence), (1, Fence(2)));
    life.settle(&second, &release()).unwrap();
    assert_eq!(sample::name(&life.claim(&run_at_most(KEY, 3, 1))), "dead");
}

#[test]
fn rule_7_a_claim_that_settles_counts_none() {
    let (mut life, owner) = ended(&park());
    assert_eq!(life.acquire(&settling(KEY, 2, owner.fence)).attempts, 1);
}

#[test]
fn rule_7_a_redrive_counts_anew() {
    let (mut life, _) = ended(&release());
    assert_eq!(sample::name(&life.claim(&run_at_most(KEY, 2, 1))), "dead");
    let redrive = life.acquire(&settling(KEY, 3, life.fence()));
    assert_eq!(redrive.was, Was::Dead);
    life.settle(&redrive, &release()).unwrap();
    assert_eq!(life.acquire(&run_at_most(KEY, 4, 1)).attempts, 1);
}

#[test]
fn rule_7_a_redrive_that_follows_one_that_died_counts_anew_too() {
    let (mut life, _) = ended(&bury());
    life.acquire(&settling(KEY, 2, life.fence()));
    life.wait(LEASE);
    assert_eq!(sample::name(&life.claim(&rerun(KEY, 3))), "unknown", "what was dead waits for a person");
    let redrive = life.acquire(&settling(KEY, 4, life.fence()));
    assert_eq!(redrive.was, Was::Dead);
    life.settle(&redrive, &release()).unwrap();
    assert_eq!(life.acquire(&run_at_most(KEY, 5, 1)).attempts, 1);
}

#[test]
fn k2_the_holder_asking_again_gets_the_same_lease_longer() {
    let (mut life, first) = begun();
    life.wait(LEASE / 2);
    assert_eq!(life.acquire(&run(KEY, 1)), first);
    assert_eq!(life.view(), Some(View::Running { lease_left: LEASE }));
    life.wait(2 * LEASE);
    assert_eq!(life.acquire(&run(KEY, 1)), first, "lapsed, and the fence has not moved");
    assert_eq!(life.reads_as(), "running");
}

#[test]
fn k2_a_claim_that_settles_may_be_repeated_too() {
    let (mut life, owner) = ended(&park());
    let first = life.acquire(&settling(KEY, 2, owner.fence));
    assert_eq!(life.acquire(&settling(KEY, 2, owner.fence)), first);
}

#[test]
fn k4_a_released_record_is_kept_for_remember_for_from_its_release() {
    let (mut life, _) = ended(&release());
    life.wait(REMEMBER - INSTANT);
    assert_eq!(sample::name(&life.claim(&run_for(KEY, 2, "other"))), "mismatch");
    life.wait(INSTANT);
    assert_eq!(life.acquire(&run_for(KEY, 2, "other")).was, Was::New);
}

#[test]
fn k4_a_backoff_longer_than_the_memory_is_kept() {
    let (mut life, lease) = begun();
    let remember_for = Duration::ZERO;
    life.settle(
        &lease,
        &Settlement::Release { not_before: Some(LEASE), unbind: false, ran: true, remember_for },
    )
    .unwrap();
    assert_eq!(sample::name(&life.claim(&run(KEY, 2))), "in-flight");
    life.wait(LEASE);
    assert_eq!(life.acquire(&run(KEY, 2)).was, Was::New);
}

#[test]
fn k5_a_clock_that_steps_back_makes_no_time_negative() {
    let (mut life, _) = begun();
    life.now.0 -= 5_000;
    let expected = Claim::InFlight { retry_after: LEASE + Duration::from_secs(5), age: Duration::ZERO };
    assert_eq!(life.claim(&run(KEY, 2)), expected);
}

#[test]
fn c94_a_lease_of_no_length_has_lapsed_at_once() {
    let mut life = Life::new();
    life.acquire(&ClaimRequest { lease_for: Duration::ZERO, ..run(KEY, 1) });
    assert_eq!(life.view(), Some(View::Unknown { cause: Cause::LAPSED }));
    assert_eq!(life.acquire(&rerun(KEY, 2)).was, Was::Lapsed);
}

#[test]
fn a_released_record_says_when_it_may_be_tried() {
    let (mut life, _) = ended(&release_for(LEASE));
    life.wait(LEASE / 2);
    let Claim::InFlight { retry_after, age } = life.claim(&run(KEY, 2)) else { panic!("in flight") };
    assert_eq!((retry_after, age), (LEASE / 2, LEASE / 2));
    life.wait(LEASE / 2);
    life.acquire(&run(KEY, 2));
}

#[test]
fn a_claim_by_force_takes_what_runs_and_only_what_was_seen() {
    let (mut life, owner) = begun();
    assert_eq!(life.claim(&forcing(KEY, 2, Fence(9))), Claim::Moved);
    let forced = life.acquire(&forcing(KEY, 2, owner.fence));
    assert_eq!((forced.was, forced.fence), (Was::Running, Fence(2)));
    assert_eq!(life.settle(&owner, &complete("late")), Err(Unfit::LeaseLost));
}

#[test]
fn an_entry_shows_the_record_as_it_reads_now() {
    let (mut life, owner) = begun();
    life.wait(LEASE + Duration::from_secs(5));
    let record = life.record.as_ref().unwrap();
    let shown = entry(record, &sample::scope(), &sample::key(KEY), Cursor(vec![1]), life.now).unwrap();
    assert_eq!(shown.view, View::Unknown { cause: Cause::LAPSED });
    assert_eq!((shown.fence, shown.attempt, shown.attempts), (owner.fence, owner.attempt, 1));
    assert_eq!((shown.age, shown.since), (LEASE + Duration::from_secs(5), Duration::from_secs(5)));
    assert_eq!(shown.fingerprint, Some(fingerprint("same")));
    assert_eq!((shown.label, shown.input), (run(KEY, 1).label, run(KEY, 1).input));
}

#[test]
fn a_record_keeps_the_label_and_input_of_the_claim_that_bound_it() {
    let (mut life, _) = ended(&release());
    let label = crate::store::Label::new("PATCH /other");
    life.acquire(&ClaimRequest { label, input: None, ..run(KEY, 2) });
    let record = life.record.unwrap();
    assert_eq!((record.label, record.input), (run(KEY, 1).label, run(KEY, 1).input));
}

#[test]
fn a_record_notes_whether_a_run_or_a_settler_holds_it() {
    let (mut life, owner) = ended(&park());
    let probe = life.acquire(&settling(KEY, 2, owner.fence));
    let settles = |life: &Life| match life.record.as_ref().unwrap().state {
        State::Running { settles, .. } => settles,
        ref other => panic!("{other:?}"),
    };
    assert!(settles(&life));
    life.renew(&probe, LEASE).unwrap();
    assert!(settles(&life), "a renewal keeps that");
    life.settle(&probe, &release()).unwrap();
    life.acquire(&run(KEY, 3));
    assert!(!settles(&life));
}
