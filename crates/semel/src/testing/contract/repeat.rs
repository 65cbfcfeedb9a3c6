//! What repeated calls and zombies get.

use super::{Harness, Trial, is_lost};
use crate::store::{Fence, Lease, Was};
use crate::testing::sample::{
    LEASE, REMEMBER, attempt, bury, complete, park, release, release_unbound, rerun, run, run_for, settling,
};

/// The holder whose answer was lost asks again and gets the same lease, its full length from now.
pub async fn c03_the_holder_asking_again_gets_its_lease(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let first = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE / 2).await;
    assert_eq!(trial.acquire(&run("k", 1)).await, first);
    trial.advance(LEASE / 4 * 3).await;
    trial.answers(&run("k", 2), "in-flight").await;
    trial.end(&first, &complete("done")).await;
}

/// Another attempt in between is told in flight, and disturbs nothing.
pub async fn c03_another_attempt_in_between_is_told_in_flight(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let first = trial.acquire(&run("k", 1)).await;
    trial.answers(&run("k", 2), "in-flight").await;
    assert_eq!(trial.acquire(&run("k", 1)).await, first);
    trial.answers(&run("k", 2), "in-flight").await;
}

/// A lapsed lease is the asker's again while the fence has not moved.
pub async fn the_holder_asking_again_revives_a_lapsed_lease(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let first = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE * 2).await;
    assert_eq!(trial.acquire(&run("k", 1)).await, first);
    trial.answers(&rerun("k", 2), "in-flight").await;
}

/// A settler's claim may be repeated as well, although the fence that it saw has moved by its own doing.
pub async fn a_settler_asking_again_gets_its_lease(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &park()).await;
    let first = trial.acquire(&settling("k", 2, Fence(1))).await;
    trial.advance(LEASE / 2).await;
    assert_eq!(trial.acquire(&settling("k", 2, Fence(1))).await, first);
}

/// A claim that the network delivers after its attempt has ended takes nothing.
pub async fn k2_an_attempt_that_is_over_never_claims_again(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for (key, settlement) in [("r", release()), ("u", release_unbound()), ("p", park()), ("b", bury())] {
        trial.ended(&run(key, 1), &settlement).await;
        let before = trial.entry(key).await;
        trial.claim(&rerun(key, 1)).await;
        let after = trial.entry(key).await;
        assert_eq!((&after.view, after.fence), (&before.view, Fence(1)), "{settlement:?}");
    }
    trial.answers(&run("r", 1), "in-flight").await;
    trial.answers(&run_for("u", 1, "other"), "in-flight").await;
    trial.answers(&rerun("p", 1), "unknown").await;
    trial.answers(&rerun("b", 1), "dead").await;
}

/// Nor does one that many attempts lie behind.
pub async fn k2_an_attempt_long_over_never_claims_again(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for number in 1..=20 {
        trial.ended(&run("k", number), &release()).await;
    }
    for number in 1..=20 {
        trial.answers(&run("k", number), "in-flight").await;
    }
    let last = trial.acquire(&run("k", 21)).await;
    trial.advance(LEASE).await;
    trial.answers(&rerun("k", 5), "unknown").await;
    assert_eq!(last.fence, Fence(21));
}

/// A renewal gives the lease its length from now, longer or shorter.
pub async fn a_renewal_extends(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE / 2).await;
    trial.store.renew(&lease, LEASE).await.expect("the holder renews");
    trial.advance(LEASE / 4 * 3).await;
    trial.answers(&rerun("k", 2), "in-flight").await;
    trial.store.renew(&lease, LEASE / 4).await.expect("the holder renews");
    trial.advance(LEASE / 4).await;
    trial.answers(&run("k", 2), "unknown").await;
}

/// A renewal that comes late is good while the fence has not moved.
pub async fn a_renewal_revives_a_lapsed_lease(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE * 3).await;
    trial.answers(&run("k", 2), "unknown").await;
    trial.store.renew(&lease, LEASE).await.expect("nobody has taken it");
    trial.answers(&rerun("k", 2), "in-flight").await;
}

/// After its end an attempt renews nothing.
pub async fn a_renewal_after_the_end_is_lost(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for (key, settlement) in [("c", complete("done")), ("r", release()), ("p", park()), ("b", bury())] {
        let lease = trial.ended(&run(key, 1), &settlement).await;
        let before = trial.entry(key).await.view;
        is_lost(trial.store.renew(&lease, LEASE).await);
        assert_eq!(trial.entry(key).await.view, before);
    }
}

/// A renewal touches nothing but the lease's end: a settler stays one, and the record is as old as before.
pub async fn a_renewal_keeps_everything_else(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &bury()).await;
    let settler = trial.acquire(&settling("k", 2, Fence(1))).await;
    trial.advance(LEASE / 2).await;
    trial.store.renew(&settler, LEASE).await.expect("the settler renews");
    let entry = trial.entry("k").await;
    trial.elapsed(entry.age, LEASE / 2);
    trial.elapsed(entry.since, LEASE / 2);
    assert_eq!(trial.acquire(&settling("k", 2, Fence(1))).await.was, Was::Dead);
}

/// A lease on a key that has no record is lost.
pub async fn a_lease_of_nothing_is_lost(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&run("k", 1)).await;
    let foreign = Lease { key: crate::testing::sample::key("other"), ..lease };
    is_lost(trial.store.renew(&foreign, LEASE).await);
    is_lost(trial.store.settle(&foreign, &complete("done")).await);
    trial.reads("other", "absent").await;
}

/// The first of two holders wakes up after the takeover and settles: refused, and the second one's outcome stays.
pub async fn c04_a_zombie_cannot_settle(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let zombie = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE).await;
    let owner = trial.acquire(&rerun("k", 2)).await;
    for settlement in [complete("A"), release(), park(), bury()] {
        is_lost(trial.store.settle(&zombie, &settlement).await);
    }
    trial.reads("k", "running").await;
    trial.end(&owner, &complete("B")).await;
    for settlement in [complete("A"), complete("B"), release()] {
        is_lost(trial.store.settle(&zombie, &settlement).await);
    }
    let answer = trial.claim(&run("k", 3)).await;
    assert!(
        matches!(answer, crate::Claim::Completed { ref outcome, .. } if outcome.bytes == "B"),
        "{answer:?}"
    );
}

/// Nor does it extend the lease that is another's now.
pub async fn c04_a_zombie_cannot_renew(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let zombie = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE).await;
    trial.acquire(&rerun("k", 2)).await;
    trial.advance(LEASE / 2).await;
    is_lost(trial.store.renew(&zombie, LEASE).await);
    trial.advance(LEASE / 2).await;
    trial.answers(&run("k", 3), "unknown").await;
}

/// A record that was forgotten and made anew counts its fences from 1; the old lease of that number is lost.
pub async fn c04_a_zombie_of_a_forgotten_record_cannot_settle(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let old = trial.ended(&run("k", 1), &complete("old")).await;
    trial.advance(REMEMBER).await;
    let new = trial.acquire(&run("k", 2)).await;
    assert_eq!((new.was, new.fence), (Was::New, old.fence));
    is_lost(trial.store.settle(&old, &complete("old")).await);
    is_lost(trial.store.renew(&old, LEASE).await);
    trial.end(&new, &complete("new")).await;
    is_lost(trial.store.settle(&old, &complete("old")).await);
}

/// A lease with the right fence and another attempt is lost, and so is one the other way round.
pub async fn fence_and_attempt_are_both_compared(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&run("k", 1)).await;
    let others = [Lease { attempt: attempt(2), ..lease.clone() }, Lease { fence: Fence(2), ..lease.clone() }];
    for other in others {
        is_lost(trial.store.renew(&other, LEASE).await);
        is_lost(trial.store.settle(&other, &complete("forged")).await);
    }
    trial.end(&lease, &complete("done")).await;
}
