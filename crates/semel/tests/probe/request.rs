//! A request that meets an unknown attempt of its own key.

use std::sync::Arc;
use std::time::Duration;

use semel::testing::sample;
use semel::{
    Answer, Cause, Engine, Fence, OnUnknown, Outcome, Policy, Probed, Resolved, StoreError, Verdict,
};
use tokio::time::sleep;

use super::support::*;

#[tokio::test(start_paused = true)]
async fn g5_what_took_effect_is_replayed() {
    let gateway = Gateway::new(completed());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let Answer::Replay { outcome, attempts, .. } = gateway.once().await else { panic!("it took effect") };
    assert_eq!((outcome, attempts), (Outcome::value("found out"), 1));
    assert_eq!((gateway.oracle.asked(), gateway.effects()), (1, 0));
    assert!(matches!(gateway.once().await, Answer::Replay { .. }));
    assert_eq!(gateway.oracle.asked(), 1, "what is known is not asked");
}

#[tokio::test(start_paused = true)]
async fn g5_what_took_no_effect_runs_again() {
    let gateway = Gateway::new(no_effect());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let Answer::Ran { lease, recorded: true, .. } = gateway.once().await else { panic!("it runs") };
    assert_eq!((lease.attempts, lease.fence, lease.doubt), (2, Fence(3), false));
    assert_eq!((gateway.oracle.asked(), gateway.effects()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn g5_what_nobody_knows_stays_as_it_was_and_is_asked_again_after_a_pause_that_grows() {
    let gateway = Gateway::new(still_unknown());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let begun = tokio::time::Instant::now();
    let mut asked_at = Vec::new();
    for _ in 0..4_000 {
        let answer = gateway.once().await;
        assert!(matches!(&answer, Answer::Unknown { cause, .. } if *cause == Cause::CUT), "{answer:?}");
        gateway.is_unknown(Cause::CUT).await;
        if asked_at.len() < gateway.oracle.asked() as usize {
            asked_at.push(begun.elapsed().as_secs());
        }
        sleep(SECOND).await;
    }
    let pauses: Vec<_> = asked_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() >= 5 && pauses[0] >= 30, "{pauses:?}");
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
    assert_eq!(gateway.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn g5_nobody_asks_before_probe_after() {
    let gateway = Gateway::new(no_effect());
    parked(&gateway.store).await;
    for _ in 0..29 {
        assert!(matches!(gateway.once().await, Answer::Unknown { .. }));
        assert_eq!(gateway.probe().await.released, 0);
        sleep(SECOND).await;
    }
    assert_eq!(gateway.oracle.asked(), 0);
    sleep(SECOND).await;
    assert!(matches!(gateway.once().await, Answer::Ran { .. }));
}

/// The owner of a lapsed lease may be at work still, so the time counts from the lapse, not from the claim.
#[tokio::test(start_paused = true)]
async fn g5_for_a_lapsed_lease_probe_after_counts_from_the_lapse() {
    let gateway = Gateway::new(no_effect());
    running(&gateway.store, "k").await;
    sleep(sample::LEASE - SECOND).await;
    assert!(matches!(gateway.once().await, Answer::InFlight { .. }));
    sleep(SECOND + DUE - SECOND).await;
    let answer = gateway.once().await;
    assert!(matches!(&answer, Answer::Unknown { cause, .. } if *cause == Cause::LAPSED), "{answer:?}");
    assert_eq!(gateway.oracle.asked(), 0);
    sleep(SECOND).await;
    assert!(matches!(gateway.once().await, Answer::Ran { .. }));
}

/// An owner that renews after its lease had lapsed is nobody to ask about.
#[tokio::test(start_paused = true)]
async fn k7_a_lease_that_is_renewed_late_is_not_asked_about() {
    let gateway = Gateway::new(no_effect());
    let owner = running(&gateway.store, "k").await;
    sleep(sample::LEASE + DUE).await;
    gateway.store.inner().renew(&owner, sample::LEASE).await.unwrap();
    assert!(matches!(gateway.once().await, Answer::InFlight { .. }));
    assert_eq!((gateway.probe().await.released, gateway.oracle.asked()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn k7_until_a_question_begins_the_owners_late_settlement_is_the_truth() {
    let gateway = Gateway::new(still_unknown());
    let owner = parked(&gateway.store).await;
    sleep(DUE).await;
    gateway.store.inner().settle(&owner, &sample::complete("late")).await.unwrap();
    let Answer::Replay { outcome, .. } = gateway.once().await else { panic!("it is known") };
    assert_eq!((outcome, gateway.oracle.asked()), (Outcome::value("late"), 0));
}

/// And from then on it is not, even if the answer was that nobody knows: the fence has moved for good.
#[tokio::test(start_paused = true)]
async fn k7_after_a_question_the_owner_may_do_nothing_any_more() {
    let gateway = Gateway::new(still_unknown());
    let owner = parked(&gateway.store).await;
    sleep(DUE).await;
    assert!(matches!(gateway.once().await, Answer::Unknown { .. }));
    let store = gateway.store.inner();
    for settlement in [sample::complete("late"), sample::release(), sample::park(), sample::bury()] {
        let refused = store.settle(&owner, &settlement).await;
        assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
    }
    assert!(matches!(store.renew(&owner, sample::LEASE).await, Err(StoreError::LeaseLost)));
    gateway.is_unknown(Cause::CUT).await;
    // A later question finds it out.
    gateway.oracle.says(completed());
    sleep(2 * DUE).await;
    assert!(matches!(gateway.once().await, Answer::Replay { .. }));
}

/// A run whose lease had lapsed, and which somebody else asks about, is stopped when it can reach the store again.
#[tokio::test(start_paused = true)]
async fn k7_a_run_that_was_asked_about_is_stopped_at_its_next_renewal() {
    let asleep = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_asleep = asleep.clone();
    let store = semel::testing::FaultyStore::deciding(memory(), move |_| {
        is_asleep.load(std::sync::atomic::Ordering::SeqCst).then_some(semel::testing::Fault::Before)
    });
    let owner = Gateway::over(store, Oracle::new(no_effect()));
    let other = owner.another();
    let run = {
        let owner = owner.clone();
        tokio::spawn(async move { owner.run(200 * SECOND, Verdict::Keep(Outcome::value("done"))).await })
    };
    sleep(SECOND).await;
    asleep.store(true, std::sync::atomic::Ordering::SeqCst);
    sleep(30 * SECOND + DUE).await;
    assert!(matches!(other.once().await, Answer::Ran { .. }), "absent, and released");
    asleep.store(false, std::sync::atomic::Ordering::SeqCst);
    assert!(matches!(run.await.unwrap(), Answer::Replay { .. }), "the record is the answer");
    sleep(200 * SECOND).await;
    assert_eq!(owner.effects(), 1, "the stopped run took no effect");
}

#[tokio::test(start_paused = true)]
async fn g5_the_question_names_the_record_and_its_own_fence() {
    let gateway = Gateway::new(completed());
    let owner = parked(&gateway.store).await;
    sleep(DUE).await;
    gateway.once().await;
    let heard = gateway.oracle.heard.lock().unwrap().pop().expect("it was asked");
    assert_eq!(
        (heard.entry.key, heard.entry.fence, heard.lease.fence),
        (sample::key("k"), owner.fence, Fence(2))
    );
    assert_eq!((heard.entry.label.as_str(), heard.entry.attempts), ("POST /charges", 1));
    assert!(heard.entry.input.is_some());
}

#[tokio::test(start_paused = true)]
async fn g5_while_one_asks_others_are_told_in_flight_and_do_not_ask() {
    let gateway = Gateway::new(completed());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let others = async {
        sleep(SECOND / 2).await;
        let answer = gateway.another().once().await;
        assert!(
            matches!(answer, Answer::InFlight { retry_after, .. } if retry_after < 10 * SECOND),
            "{answer:?}"
        );
        let answer = gateway.another().engine.once(gateway.operation().wait(5 * SECOND), never).await;
        assert!(matches!(answer, Answer::Replay { .. }), "{answer:?}");
    };
    let (answer, ()) = futures_util::join!(gateway.once(), others);
    assert!(matches!(answer, Answer::Replay { .. }), "{answer:?}");
    assert_eq!(gateway.oracle.asked(), 1);
}

async fn never(_: semel::Lease) -> (Verdict, ()) {
    panic!("it does not run")
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_is_waited_for_so_long_and_the_key_stays_as_it_was() {
    let mut gateway = Gateway::new(Says::Nothing);
    gateway.policy.probe_within = 3 * SECOND;
    parked(&gateway.store).await;
    sleep(DUE).await;
    let begun = tokio::time::Instant::now();
    let answer = gateway.once().await;
    assert!(matches!(&answer, Answer::Unknown { cause, .. } if *cause == Cause::CUT), "{answer:?}");
    assert_eq!(begun.elapsed(), 3 * SECOND);
    gateway.is_unknown(Cause::CUT).await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_leaves_the_key_as_it_was() {
    let gateway = Gateway::new(Says::Panics);
    parked(&gateway.store).await;
    sleep(DUE).await;
    assert!(matches!(gateway.once().await, Answer::Unknown { .. }));
    gateway.is_unknown(Cause::CUT).await;
    gateway.oracle.says(completed());
    sleep(2 * DUE).await;
    assert!(matches!(gateway.once().await, Answer::Replay { .. }));
}

#[tokio::test(start_paused = true)]
async fn without_somebody_to_ask_or_under_another_policy_nobody_asks() {
    let mut gateway = Gateway::new(completed());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let policy = Arc::new(gateway.policy.clone());
    let alone = semel::Operation::new(sample::scope(), sample::key("k"), sample::fingerprint("same"), policy);
    assert!(matches!(gateway.engine.once(alone, never).await, Answer::Unknown { .. }));
    gateway.policy = Policy::new(OnUnknown::Park);
    assert!(matches!(gateway.once().await, Answer::Unknown { .. }));
    assert_eq!(gateway.oracle.asked(), 0);
    gateway.policy = Policy::new(OnUnknown::Rerun);
    assert!(matches!(gateway.once().await, Answer::Ran { .. }));
    assert_eq!(gateway.oracle.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn another_request_under_an_unknown_key_is_a_mismatch_and_asks_nobody() {
    let gateway = Gateway::new(completed());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let policy = Arc::new(gateway.policy.clone());
    let other =
        semel::Operation::new(sample::scope(), sample::key("k"), sample::fingerprint("other"), policy)
            .probe(gateway.oracle.clone());
    assert!(matches!(gateway.engine.once(other, never).await, Answer::Mismatch));
    assert_eq!(gateway.oracle.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_released_with_no_attempts_left_is_dead() {
    let mut gateway = Gateway::new(no_effect());
    gateway.policy.attempts_max = 1;
    parked(&gateway.store).await;
    sleep(DUE).await;
    assert!(matches!(gateway.once().await, Answer::Dead { .. }));
    assert_eq!(gateway.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_while_it_is_asked_changes_nothing() {
    let gateway = Gateway::new(no_effect());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let answer = tokio::time::timeout(SECOND / 2, gateway.once()).await;
    assert!(answer.is_err(), "{answer:?}");
    settle_down().await;
    gateway.reads("completed").await;
    assert_eq!((gateway.oracle.asked(), gateway.effects()), (1, 1));
}

/// An operator comes first: without force while somebody asks there is nothing to take; with force the operator's
/// word stands, and the probe's is refused.
#[tokio::test(start_paused = true)]
async fn an_operator_who_resolves_meanwhile_has_the_last_word() {
    let gateway = Gateway::new(no_effect());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let operator = async |engine: &Engine| {
        sleep(SECOND / 2).await;
        let seen = gateway.entry().await;
        let taken = engine.resolve(&seen, &sample::complete("the operator's"), false).await.unwrap();
        assert_eq!(taken, Resolved::Moved);
        engine.resolve(&seen, &sample::complete("the operator's"), true).await.unwrap()
    };
    let other = gateway.another().engine;
    let (answer, resolved) = futures_util::join!(gateway.once(), operator(&other));
    assert_eq!(resolved, Resolved::Done);
    let Answer::Replay { outcome, .. } = answer else { panic!("{answer:?}") };
    assert_eq!((outcome, gateway.effects()), (Outcome::value("the operator's"), 0));
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_a_question_and_begins_none() {
    let gateway = Gateway::new(completed());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let stop = async {
        sleep(SECOND / 2).await;
        gateway.engine.drain(10 * SECOND).await
    };
    let (answer, parked) = futures_util::join!(gateway.once(), stop);
    assert!(matches!(answer, Answer::Replay { .. }), "{answer:?}");
    assert_eq!((parked, gateway.oracle.asked()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn stopping_breaks_off_a_question_at_the_limit_and_leaves_the_key_as_it_was() {
    let mut gateway = Gateway::new(Says::This(Probed::NoEffect, 60 * SECOND));
    gateway.policy.probe_within = 100 * SECOND;
    parked(&gateway.store).await;
    sleep(DUE).await;
    let stop = async {
        sleep(SECOND).await;
        let parked = gateway.engine.drain(2 * SECOND).await;
        // As soon as it has ended: the process may be gone now.
        gateway.is_unknown(Cause::CUT).await;
        parked
    };
    let (answer, parked) = futures_util::join!(gateway.once(), stop);
    assert!(matches!(&answer, Answer::Unknown { cause, .. } if *cause == Cause::CUT), "{answer:?}");
    assert_eq!((parked, gateway.effects()), (0, 0), "a question is no run");
    sleep(Duration::from_secs(200)).await;
    gateway.is_unknown(Cause::CUT).await;
}
