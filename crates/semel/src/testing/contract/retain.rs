//! How long outcomes and keys are kept, with and without a sweep.

use std::time::Duration;

use super::{Harness, Trial, is_lost};
use crate::store::{Outcome, Settlement, Was};
use crate::testing::sample::{
    LEASE, REMEMBER, REPLAY, bury, complete, fingerprint, name, park, release, run, run_for,
};

fn complete_for(replay_for: Duration, remember_for: Duration) -> Settlement {
    Settlement::Complete { outcome: Outcome::value("done"), replay_for, remember_for }
}

/// An outcome is replayed until `replay_for` from its completion, and not in that instant.
pub async fn an_outcome_is_replayed_for_its_time(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE / 2).await;
    trial.end(&lease, &complete("done")).await;
    let last = Duration::from_millis(1) + harness.tolerance();
    trial.advance(REPLAY - last).await;
    trial.answers(&run("k", 2), "completed").await;
    trial.advance(last).await;
    trial.answers(&run("k", 2), "forgotten").await;
    trial.reads("k", "forgotten").await;
}

/// The key is remembered, and a late retry refused, until `remember_for` from its completion.
pub async fn a_key_is_remembered_for_its_time(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &complete("done")).await;
    let last = Duration::from_millis(1) + harness.tolerance();
    trial.advance(REMEMBER - last).await;
    trial.answers(&run("k", 2), "forgotten").await;
    trial.advance(last).await;
    trial.reads("k", "absent").await;
    let lease = trial.acquire(&run_for("k", 2, "other")).await;
    assert_eq!((lease.was, lease.fence.0, lease.attempts), (Was::New, 1, 1));
}

/// A released key is remembered for its own time, counted from its release.
pub async fn a_released_key_is_remembered_for_its_time(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE / 2).await;
    trial.end(&lease, &release()).await;
    let last = Duration::from_millis(1) + harness.tolerance();
    trial.advance(REMEMBER - last).await;
    trial.answers(&run_for("k", 2, "other"), "mismatch").await;
    trial.advance(last).await;
    assert_eq!(trial.acquire(&run_for("k", 2, "other")).await.was, Was::New);
}

/// A `remember_for` shorter than `replay_for` is as long as that.
pub async fn a_key_is_remembered_at_least_as_long_as_it_is_replayed(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &complete_for(REPLAY, Duration::ZERO)).await;
    trial.advance(REPLAY / 2).await;
    trial.answers(&run("k", 2), "completed").await;
    trial.advance(REPLAY / 2).await;
    trial.reads("k", "absent").await;
}

/// A key that is remembered for ever is, whatever is swept.
pub async fn for_ever_is_for_ever(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &complete_for(REPLAY, Duration::MAX)).await;
    trial.ended(&run("always", 1), &complete_for(Duration::MAX, Duration::MAX)).await;
    trial.advance(REMEMBER * 10_000).await;
    trial.sweep().await;
    trial.answers(&run("k", 2), "forgotten").await;
    trial.answers(&run("always", 2), "completed").await;
}

/// What is open stays open until somebody ends it.
pub async fn unknown_and_dead_never_expire(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("unknown", 1), &park()).await;
    trial.ended(&run("dead", 1), &bury()).await;
    trial.acquire(&run("lapsed", 1)).await;
    trial.advance(REMEMBER * 1_000).await;
    trial.sweep().await;
    trial.answers(&run("unknown", 2), "unknown").await;
    trial.answers(&run("dead", 2), "dead").await;
    trial.answers(&run("lapsed", 2), "unknown").await;
}

/// The fingerprint of the first claim is there in every state, also behind a sweep.
pub async fn c117_the_fingerprint_outlives_everything(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let bound = Some(fingerprint("same"));
    let first = trial.ended(&run("k", 1), &release()).await;
    assert_eq!((trial.entry("k").await.fingerprint, first.fence.0), (bound, 1));
    let second = trial.ended(&run("k", 2), &park()).await;
    assert_eq!(trial.entry("k").await.fingerprint, bound);
    trial.end(&second, &complete("done")).await;
    assert_eq!(trial.entry("k").await.fingerprint, bound);
    trial.advance(REPLAY).await;
    trial.sweep().await;
    assert_eq!(trial.entry("k").await.fingerprint, bound);
    trial.answers(&run("k", 3), "forgotten").await;
    trial.answers(&run_for("k", 3, "other"), "mismatch").await;
}

/// Two stores with the same life, one swept at every step, answer alike.
pub async fn a_sweep_changes_no_answer(harness: &dyn Harness) {
    let (swept, unswept) = (Trial::new(harness).await, Trial::new(harness).await);
    for trial in [&swept, &unswept] {
        trial.ended(&run("completed", 1), &complete("done")).await;
        trial.ended(&run("brief", 1), &complete_for(LEASE, LEASE * 2)).await;
        trial.ended(&run("released", 1), &release()).await;
        trial.ended(&run("unknown", 1), &park()).await;
        trial.ended(&run("dead", 1), &bury()).await;
        trial.acquire(&run("lapsed", 1)).await;
    }
    let keys = ["completed", "brief", "released", "unknown", "dead", "lapsed"];
    for wait in [Duration::ZERO, LEASE, LEASE, REPLAY, REMEMBER] {
        harness.advance(wait).await;
        swept.sweep().await;
        for key in keys {
            let (one, other) = (swept.find(key).await, unswept.find(key).await);
            let reads = |entry: &Option<crate::Entry>| entry.as_ref().map(|entry| entry.view.name());
            assert_eq!(reads(&one), reads(&other), "{key}");
            let (one, other) = (
                swept.claim(&run_for(key, 2, "other")).await,
                unswept.claim(&run_for(key, 2, "other")).await,
            );
            assert_eq!(name(&one), name(&other), "{key}");
        }
        let open = |trial: &Trial<'_>| {
            let store = trial.store.clone();
            async move { store.unsettled(None, 100).await.expect("a list").len() }
        };
        assert_eq!(open(&swept).await, open(&unswept).await);
    }
}

/// A late repetition of a settlement is answered alike too.
pub async fn a_sweep_changes_no_answer_to_a_settlement(harness: &dyn Harness) {
    let (swept, unswept) = (Trial::new(harness).await, Trial::new(harness).await);
    let one = swept.ended(&run("k", 1), &complete("done")).await;
    let other = unswept.ended(&run("k", 1), &complete("done")).await;
    harness.advance(REPLAY).await;
    swept.sweep().await;
    for (trial, lease) in [(&swept, &one), (&unswept, &other)] {
        trial.end(lease, &complete("done")).await;
        trial.end(lease, &complete("what it was is not known any more")).await;
    }
    harness.advance(REMEMBER).await;
    swept.sweep().await;
    for (trial, lease) in [(&swept, &one), (&unswept, &other)] {
        is_lost(trial.store.settle(lease, &complete("done")).await);
    }
}

/// Outcomes go when they are no longer replayed, records when they are no longer remembered.
pub async fn a_sweep_frees_what_has_expired(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for key in ["a", "b"] {
        trial.ended(&run(key, 1), &complete("done")).await;
    }
    trial.ended(&run("c", 1), &release()).await;
    assert_eq!(trial.store.sweep(100).await.expect("a sweep").total(), 0);
    trial.advance(REPLAY).await;
    let swept = trial.store.sweep(100).await.expect("a sweep");
    assert_eq!((swept.outcomes, swept.records), (2, 0));
    assert_eq!(trial.store.sweep(100).await.expect("a sweep").total(), 0, "nothing is freed twice");
    trial.advance(REMEMBER).await;
    let swept = trial.store.sweep(100).await.expect("a sweep");
    assert_eq!((swept.outcomes, swept.records), (0, 3));
    assert_eq!(trial.store.sweep(100).await.expect("a sweep").total(), 0);
}

/// One call frees at most `limit` records, and calling on frees the rest.
pub async fn a_sweep_is_bounded(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for number in 0..7 {
        trial.ended(&run(&format!("k{number}"), 1), &complete("done")).await;
    }
    trial.advance(REMEMBER).await;
    let (mut total, mut calls) = (0, 0);
    loop {
        let swept = trial.store.sweep(3).await.expect("a sweep").total();
        assert!(swept <= 3, "{swept}");
        total += swept;
        calls += 1;
        if swept == 0 {
            break;
        }
    }
    assert_eq!(total, 7);
    assert!(calls >= 4, "{calls}");
}

/// What is still needed survives, whatever lies around it.
pub async fn a_sweep_leaves_the_rest_alone(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("old", 1), &complete_for(LEASE, LEASE)).await;
    trial.ended(&run("kept", 1), &complete("done")).await;
    let running = trial.acquire(&run("running", 1)).await;
    trial.advance(LEASE * 2).await;
    trial.store.renew(&running, LEASE).await.expect("the holder renews");
    trial.sweep().await;
    trial.answers(&run("kept", 2), "completed").await;
    trial.answers(&run("running", 2), "in-flight").await;
    trial.end(&running, &complete("done")).await;
    trial.acquire(&run("old", 2)).await;
}
