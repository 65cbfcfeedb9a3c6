//! How an attempt ends, and what may follow.

use super::{Harness, Trial, is_lost, is_refused};
use crate::store::{Cause, Claim, Fence, Outcome, Settlement, View};
use crate::testing::sample::{
    LEASE, REMEMBER, bury, complete, park, release, release_for, release_not_run, release_unbound, run,
    run_at_most, run_for, settling,
};

/// A retry of a completed key gets the outcome, the key's age and the number of attempts.
pub async fn a_completed_key_is_replayed(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &release()).await;
    trial.ended(&run("k", 2), &complete("done")).await;
    trial.advance(LEASE).await;
    let answer = trial.claim(&run("k", 3)).await;
    let Claim::Completed { outcome, age, attempts } = answer else { panic!("{answer:?}") };
    assert_eq!((outcome, attempts), (Outcome::value("done"), 2));
    trial.elapsed(age, LEASE);
}

/// Whoever lost the answer to a completion repeats it; the retention counts from the first.
pub async fn a_repeated_completion_succeeds(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.ended(&run("k", 1), &complete("done")).await;
    trial.advance(LEASE).await;
    trial.end(&lease, &complete("done")).await;
    trial.advance(REMEMBER - LEASE).await;
    trial.reads("k", "absent").await;
}

/// Another outcome is refused, also from the owner.
pub async fn a_completed_outcome_never_changes(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.ended(&run("k", 1), &complete("done")).await;
    is_refused(trial.store.settle(&lease, &complete("otherwise")).await);
    let Settlement::Complete { outcome, replay_for, remember_for } = complete("done") else { unreachable!() };
    let outcome = Outcome { format: Outcome::HTTP, ..outcome };
    is_refused(trial.store.settle(&lease, &Settlement::Complete { outcome, replay_for, remember_for }).await);
    assert_eq!(trial.entry("k").await.view, View::Completed { outcome: Outcome::value("done") });
}

/// So are the other ends repeated; the first one stands.
pub async fn a_repeated_end_succeeds(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for (key, settlement) in [("r", release()), ("p", park()), ("b", bury())] {
        let lease = trial.ended(&run(key, 1), &settlement).await;
        let before = trial.entry(key).await.view;
        trial.end(&lease, &settlement).await;
        assert_eq!(trial.entry(key).await.view, before);
    }
    let lease = trial.ended(&run("again", 1), &release()).await;
    trial.end(&lease, &release_for(LEASE)).await;
    trial.acquire(&run("again", 2)).await;
}

/// Another end than the first is refused, and changes nothing.
pub async fn another_end_is_refused(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let ends = [("c", complete("done")), ("r", release()), ("p", park()), ("b", bury())];
    for (key, first) in &ends {
        let lease = trial.ended(&run(key, 1), first).await;
        let before = trial.entry(key).await.view;
        for (name, second) in &ends {
            let truth_follows_a_park = *key == "p" && (*name == "c" || *name == "r");
            if key == name || truth_follows_a_park {
                continue;
            }
            is_refused(trial.store.settle(&lease, second).await);
            assert_eq!(trial.entry(key).await.view, before, "{second:?} after {first:?}");
        }
    }
}

/// The owner may find out late what became of the attempt that it parked.
pub async fn k7_the_truth_may_follow_the_owners_own_park(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for (key, truth, reads) in [("c", complete("late"), "completed"), ("r", release(), "released")] {
        let lease = trial.ended(&run(key, 1), &park()).await;
        trial.advance(LEASE * 5).await;
        trial.end(&lease, &truth).await;
        trial.reads(key, reads).await;
        is_refused(trial.store.settle(&lease, &park()).await);
    }
}

/// A lapsed lease settles as if it had not, while the fence has not moved.
pub async fn k7_the_truth_may_follow_a_lapse(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for (key, end) in [("c", complete("late")), ("r", release()), ("p", park()), ("b", bury())] {
        let lease = trial.acquire(&run(key, 1)).await;
        trial.advance(LEASE * 2).await;
        trial.answers(&run(key, 2), "unknown").await;
        trial.end(&lease, &end).await;
    }
    trial.answers(&run("c", 2), "completed").await;
}

/// It also may when a claim found the attempts exhausted meanwhile, but not when the owner had released the key.
pub async fn k7_the_truth_may_follow_exhaustion(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lapsed = trial.acquire(&run("lapsed", 1)).await;
    let parked = trial.ended(&run("parked", 1), &park()).await;
    let released = trial.ended(&run("released", 1), &release()).await;
    trial.advance(LEASE).await;
    for key in ["lapsed", "parked", "released"] {
        trial.answers(&run_at_most(key, 2, 1), "dead").await;
    }
    trial.end(&lapsed, &complete("late")).await;
    trial.end(&parked, &release()).await;
    is_refused(trial.store.settle(&released, &complete("late")).await);
    trial.reads("lapsed", "completed").await;
    trial.reads("parked", "released").await;
    trial.reads("released", "dead").await;
}

/// Once a settler has moved the fence, the owner comes too late.
pub async fn k7_nothing_follows_a_settler(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let owner = trial.ended(&run("k", 1), &park()).await;
    let settler = trial.acquire(&settling("k", 2, Fence(1))).await;
    is_lost(trial.store.settle(&owner, &complete("late")).await);
    trial.end(&settler, &release()).await;
    is_lost(trial.store.settle(&owner, &complete("late")).await);
    trial.reads("k", "released").await;
}

/// A parked key answers with its cause, and is unknown since it was parked.
pub async fn a_parked_key_says_why(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE / 2).await;
    trial.end(&lease, &Settlement::Park { cause: Cause::TIMEOUT }).await;
    trial.advance(LEASE).await;
    let answer = trial.claim(&run("k", 2)).await;
    let Claim::Unknown { fence, cause, age } = answer else { panic!("{answer:?}") };
    assert_eq!((fence, cause), (Fence(1), Cause::TIMEOUT));
    trial.elapsed(age, LEASE + LEASE / 2);
    let entry = trial.entry("k").await;
    trial.elapsed(entry.since, LEASE);
}

/// A buried key answers with its cause, to everybody.
pub async fn a_buried_key_says_why(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &Settlement::Bury { cause: Cause::new("card stolen") }).await;
    let answer = trial.claim(&run_at_most("k", 2, 100)).await;
    let Claim::Dead { fence, cause, .. } = answer else { panic!("{answer:?}") };
    assert_eq!((fence, cause.as_str()), (Fence(1), "card stolen"));
}

/// A release may loosen the fingerprint that its own claim bound; the fence goes on.
pub async fn k6_unbinding_by_the_claim_that_bound(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &release_unbound()).await;
    assert_eq!(trial.entry("k").await.fingerprint, None);
    let lease = trial.acquire(&run_for("k", 2, "other")).await;
    assert_eq!(lease.fence, Fence(2));
    trial.answers(&run("k", 3), "mismatch").await;
    trial.end(&lease, &release_unbound()).await;
    trial.acquire(&run("k", 4)).await;
}

/// A later claim's release does not loosen it, nor does a settler's.
pub async fn k6_unbinding_by_no_other_claim(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &release()).await;
    trial.ended(&run("k", 2), &release_unbound()).await;
    trial.answers(&run_for("k", 3, "other"), "mismatch").await;
    trial.ended(&run("k", 4), &park()).await;
    trial.ended(&settling("k", 5, Fence(3)), &release_unbound()).await;
    trial.answers(&run_for("k", 6, "other"), "mismatch").await;
}

/// It may also be loosened by the release that follows the owner's park.
pub async fn k6_unbinding_after_a_park(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.ended(&run("k", 1), &park()).await;
    trial.answers(&run_for("k", 2, "other"), "mismatch").await;
    trial.end(&lease, &release_unbound()).await;
    trial.acquire(&run_for("k", 3, "other")).await;
}

/// A claim under which nothing ran wears out no key, raises the fence all the same, and is over.
pub async fn k8_an_attempt_under_which_nothing_ran_is_not_counted(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for number in 1..=5 {
        let lease = trial.acquire(&run_at_most("k", number, 2)).await;
        assert_eq!((lease.attempts, lease.fence), (1, Fence(number)));
        trial.end(&lease, &release_not_run()).await;
        trial.end(&lease, &release_not_run()).await;
        let again = trial.claim(&run_at_most("k", number, 2)).await;
        assert!(matches!(again, Claim::InFlight { .. }), "{again:?}");
    }
    let entry = trial.entry("k").await;
    assert_eq!((entry.attempts, entry.fingerprint.is_some()), (0, true));
    trial.ended(&run_at_most("k", 6, 2), &release()).await;
    assert_eq!(trial.acquire(&run_at_most("k", 7, 2)).await.attempts, 2);
}
