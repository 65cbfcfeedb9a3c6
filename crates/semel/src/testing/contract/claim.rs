//! What a claim answers.

use super::{Harness, Trial, is_lost};
use crate::key::Scope;
use crate::store::{Cause, Claim, ClaimRequest, Fence, Was};
use crate::testing::sample::{
    LEASE, REPLAY, bury, complete, fingerprint, forcing, park, release, release_for, rerun, run, run_at_most,
    run_for, settling,
};
use std::time::Duration;

/// A first claim gets the lease, with fence and attempt 1.
pub async fn a_first_claim_is_granted(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let request = run("k", 1);
    let lease = trial.acquire(&request).await;
    assert_eq!((lease.scope, lease.key), (request.scope, request.key));
    assert_eq!((lease.fence, lease.attempt, lease.attempts), (Fence(1), request.attempt, 1));
    assert_eq!((lease.was, lease.doubt), (Was::New, false));
    trial.reads("k", "running").await;
}

/// While it runs, another attempt is told so, with the lease's rest and the key's age.
pub async fn a_second_claim_is_in_flight(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE / 4).await;
    let answer = trial.claim(&rerun("k", 2)).await;
    let Claim::InFlight { retry_after, age } = answer else { panic!("{answer:?}") };
    trial.remaining(retry_after, LEASE / 4 * 3);
    trial.elapsed(age, LEASE / 4);
}

/// Another request under a running key is a mismatch, not in flight.
pub async fn k6_mismatch_is_said_before_in_flight(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.acquire(&run("k", 1)).await;
    let answer = trial.claim(&run_for("k", 2, "other")).await;
    assert_eq!(answer, Claim::Mismatch { algorithm: fingerprint("same").algorithm });
}

/// Another request is a mismatch whatever state the key is in.
pub async fn k6_mismatch_is_said_in_every_state(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("released", 1), &release()).await;
    trial.ended(&run("waiting", 1), &release_for(LEASE * 10)).await;
    trial.ended(&run("completed", 1), &complete("done")).await;
    trial.ended(&run("unknown", 1), &park()).await;
    trial.ended(&run("dead", 1), &bury()).await;
    trial.acquire(&run("lapsed", 1)).await;
    trial.advance(LEASE).await;
    for key in ["released", "waiting", "completed", "unknown", "dead", "lapsed"] {
        trial.answers(&run_for(key, 2, "other"), "mismatch").await;
    }
    trial.advance(REPLAY).await;
    trial.answers(&run_for("completed", 2, "other"), "mismatch").await;
}

/// A refused claim leaves the fingerprint, the holder and the fence as they were.
pub async fn c106_a_claim_that_is_refused_overwrites_nothing(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&run("k", 1)).await;
    let before = trial.entry("k").await;
    trial.answers(&run_for("k", 2, "other"), "mismatch").await;
    trial.answers(&run("k", 3), "in-flight").await;
    trial.answers(&settling("k", 4, Fence(1)), "moved").await;
    let after = trial.entry("k").await;
    assert_eq!(
        (after.fingerprint, after.fence, after.attempt),
        (before.fingerprint, lease.fence, lease.attempt)
    );
    assert_eq!((after.attempts, after.label, after.input), (1, before.label, before.input));
}

/// When the lease is over, nobody knows.
pub async fn a_lapsed_key_is_unknown(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE * 2).await;
    let answer = trial.claim(&run("k", 2)).await;
    let Claim::Unknown { fence, cause, age } = answer else { panic!("{answer:?}") };
    assert_eq!((fence, cause), (Fence(1), Cause::LAPSED));
    trial.elapsed(age, LEASE * 2);
}

/// An attempt that may rerun takes a lapsed key; the fence and the attempts go up.
pub async fn a_rerun_takes_a_lapsed_key(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE).await;
    let lease = trial.acquire(&rerun("k", 2)).await;
    assert_eq!((lease.fence, lease.attempts, lease.was), (Fence(2), 2, Was::Lapsed));
    trial.answers(&rerun("k", 3), "in-flight").await;
}

/// An attempt that may rerun takes a parked key; one that may not is told why nobody knows.
pub async fn a_rerun_takes_a_parked_key(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &park()).await;
    trial.answers(&run("k", 2), "unknown").await;
    let lease = trial.acquire(&rerun("k", 3)).await;
    assert_eq!((lease.fence, lease.attempts, lease.was), (Fence(2), 2, Was::Unknown));
}

/// A lease holds until its last instant and not in it.
pub async fn a_lease_ends_at_its_instant(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE - Duration::from_millis(1) - harness.tolerance()).await;
    trial.answers(&rerun("k", 2), "in-flight").await;
    trial.advance(Duration::from_millis(1) + harness.tolerance()).await;
    trial.answers(&run("k", 3), "unknown").await;
}

/// A lease of no length can be taken over at once; it is not one without an end.
pub async fn c94_a_lease_of_no_length_has_lapsed_at_once(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let first = trial.acquire(&ClaimRequest { lease_for: Duration::ZERO, ..run("k", 1) }).await;
    trial.reads("k", "unknown").await;
    let second = trial.acquire(&rerun("k", 2)).await;
    assert_eq!((second.fence, second.was), (Fence(2), Was::Lapsed));
    is_lost(trial.store.settle(&first, &complete("zombie")).await);
}

/// What was released may be claimed again, at once.
pub async fn a_released_key_is_granted_again(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &release()).await;
    trial.reads("k", "released").await;
    let lease = trial.acquire(&run("k", 2)).await;
    assert_eq!((lease.fence, lease.attempts, lease.was), (Fence(2), 2, Was::Released));
    assert!(!lease.doubt);
}

/// Until the backoff of a release is over, a claim is told when to come back.
pub async fn a_backoff_reads_as_in_flight(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &release_for(LEASE * 2)).await;
    trial.advance(LEASE).await;
    let answer = trial.claim(&run("k", 2)).await;
    let Claim::InFlight { retry_after, .. } = answer else { panic!("{answer:?}") };
    trial.remaining(retry_after, LEASE);
    trial.advance(LEASE).await;
    trial.acquire(&run("k", 2)).await;
}

/// With as many attempts behind it as are allowed a key is dead, and stays so for those who allow more.
pub async fn k8_attempts_run_out(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run_at_most("k", 1, 2), &release()).await;
    trial.ended(&run_at_most("k", 2, 2), &release()).await;
    trial.advance(LEASE).await;
    let answer = trial.claim(&run_at_most("k", 3, 2)).await;
    let Claim::Dead { fence, cause, age } = answer else { panic!("{answer:?}") };
    assert_eq!((fence, cause), (Fence(2), Cause::ATTEMPTS_EXHAUSTED));
    trial.elapsed(age, LEASE);
    trial.answers(&run_at_most("k", 4, 100), "dead").await;
    trial.reads("k", "dead").await;
}

/// The same key in two scopes is two operations.
pub async fn c58_c69_scopes_are_apart(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let elsewhere =
        ClaimRequest { scope: Scope::new("test:other").expect("a scope"), ..run_for("k", 2, "other") };
    trial.ended(&run("k", 1), &complete("done")).await;
    let lease = trial.acquire(&elsewhere).await;
    assert_eq!((lease.fence, lease.was), (Fence(1), Was::New));
    trial.answers(&run("k", 3), "completed").await;
}

/// Once an unknown was taken over, later attempts know that an earlier one may have taken effect, until somebody
/// who looked releases the key.
pub async fn doubt_is_told(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &park()).await;
    let second = trial.acquire(&rerun("k", 2)).await;
    assert!(second.doubt);
    trial.end(&second, &release()).await;
    let third = trial.acquire(&run("k", 3)).await;
    assert!(third.doubt, "the release says nothing of the first");
    trial.end(&third, &park()).await;
    let probe = trial.acquire(&settling("k", 4, third.fence)).await;
    trial.end(&probe, &release()).await;
    assert!(!trial.acquire(&run("k", 5)).await.doubt);
}

/// A claim that settles takes what is unknown, lapsed or dead, raises the fence and counts no attempt.
pub async fn settling_takes_what_was_seen(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("unknown", 1), &park()).await;
    trial.ended(&run("dead", 1), &bury()).await;
    trial.acquire(&run("lapsed", 1)).await;
    trial.advance(LEASE).await;
    for (key, was) in [("unknown", Was::Unknown), ("dead", Was::Dead), ("lapsed", Was::Lapsed)] {
        let lease = trial.acquire(&settling(key, 2, Fence(1))).await;
        assert_eq!((lease.fence, lease.attempts, lease.was), (Fence(2), 1, was), "{key}");
        trial.reads(key, "running").await;
        trial.answers(&rerun(key, 3), "in-flight").await;
        trial.end(&lease, &complete("found out")).await;
        trial.answers(&run(key, 4), "completed").await;
    }
}

/// A claim that settles takes nothing when the fence is another, or when there is nothing to settle.
pub async fn settling_refuses_what_was_not_seen(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("unknown", 1), &park()).await;
    trial.ended(&run("released", 1), &release()).await;
    trial.ended(&run("completed", 1), &complete("done")).await;
    assert_eq!(trial.claim(&forcing("absent", 2, Fence(0))).await, Claim::Moved);
    assert_eq!(trial.claim(&forcing("unknown", 2, Fence(0))).await, Claim::Moved);
    assert_eq!(trial.claim(&forcing("unknown", 2, Fence(2))).await, Claim::Moved);
    assert_eq!(trial.claim(&forcing("released", 2, Fence(1))).await, Claim::Moved);
    assert_eq!(trial.claim(&forcing("completed", 2, Fence(1))).await, Claim::Moved);
    trial.reads("absent", "absent").await;
    trial.reads("unknown", "unknown").await;
}

/// What runs is taken by force, and by nothing else. Its holder has then lost the lease.
pub async fn settling_takes_what_runs_only_by_force(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let owner = trial.acquire(&run("k", 1)).await;
    assert_eq!(trial.claim(&settling("k", 2, Fence(1))).await, Claim::Moved);
    let forced = trial.acquire(&forcing("k", 2, Fence(1))).await;
    assert_eq!((forced.fence, forced.was), (Fence(2), Was::Running));
    is_lost(trial.store.renew(&owner, LEASE).await);
    is_lost(trial.store.settle(&owner, &complete("late")).await);
}

/// A settler that finds nothing out parks the key again; whoever saw the old fence is refused.
pub async fn a_settler_may_park_again(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &park()).await;
    trial.ended(&settling("k", 2, Fence(1)), &park()).await;
    trial.reads("k", "unknown").await;
    assert_eq!(trial.claim(&settling("k", 3, Fence(1))).await, Claim::Moved);
    trial.acquire(&settling("k", 3, Fence(2))).await;
}

/// What a settler releases after it was dead begins to count anew.
pub async fn a_redrive_counts_anew(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &release()).await;
    trial.answers(&run_at_most("k", 2, 1), "dead").await;
    trial.ended(&settling("k", 3, Fence(1)), &release()).await;
    let lease = trial.acquire(&run_at_most("k", 4, 1)).await;
    assert_eq!((lease.attempts, lease.fence), (1, Fence(3)));
}

/// A redrive whose settler died waits for a person, and the next one does what it should have done.
pub async fn a_redrive_that_died_is_repeated(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &bury()).await;
    trial.acquire(&settling("k", 2, Fence(1))).await;
    trial.advance(LEASE).await;
    trial.answers(&rerun("k", 3), "unknown").await;
    let lease = trial.acquire(&settling("k", 4, Fence(2))).await;
    assert_eq!(lease.was, Was::Dead);
    trial.end(&lease, &release()).await;
    assert_eq!(trial.acquire(&run_at_most("k", 5, 1)).await.attempts, 1);
}

/// Two handles judge a lease alike: by the store's clock.
pub async fn k5_c13_the_stores_clock_decides(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let contender = Trial { harness, store: harness.reopen().await };
    let owner = trial.acquire(&run("k", 1)).await;
    for _ in 0..4 {
        trial.advance(LEASE / 2).await;
        contender.answers(&rerun("k", 2), "in-flight").await;
        trial.store.renew(&owner, LEASE).await.expect("the owner renews");
    }
    trial.advance(LEASE).await;
    contender.acquire(&rerun("k", 2)).await;
}
