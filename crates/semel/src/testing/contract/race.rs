//! Calls at the same time. The tests run on two threads, so that they are.

use std::sync::Arc;

use tokio::sync::Barrier;

use super::{Harness, Trial};
use crate::store::{Claim, ClaimRequest, Fence, Lease, Settlement, Store, StoreError, View};
use crate::testing::sample::{LEASE, complete, lease, name, park, release, rerun, run, settling};

const CALLERS: u64 = 50;

/// Sends every request in a task of its own, all at once, and gives the answers in the order of the requests.
async fn all_at_once(stores: &[Arc<dyn Store>], requests: Vec<ClaimRequest>) -> Vec<Claim> {
    let barrier = Arc::new(Barrier::new(requests.len()));
    let send = |(number, request): (usize, ClaimRequest)| {
        let (store, barrier) = (stores[number % stores.len()].clone(), barrier.clone());
        tokio::spawn(async move {
            barrier.wait().await;
            store.claim(&request).await.expect("a lost race is an answer, no error")
        })
    };
    let tasks: Vec<_> = requests.into_iter().enumerate().map(send).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no claim panics"));
    }
    answers
}

fn one_winner(answers: &[Claim], others: &str) -> Lease {
    let (won, lost): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| matches!(answer, Claim::Acquired(_)));
    assert_eq!(won.len(), 1, "exactly one is granted");
    assert!(lost.iter().all(|answer| name(answer) == others), "{lost:?}");
    lease(won[0].clone())
}

/// Fifty first claims: one is granted, forty-nine are in flight, none is an error.
pub async fn c83_fifty_claims_of_one_key_have_one_winner(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for round in 0..4 {
        let key = format!("k{round}");
        let requests = (1..=CALLERS).map(|number| run(&key, number)).collect();
        let answers = all_at_once(std::slice::from_ref(&trial.store), requests).await;
        let winner = one_winner(&answers, "in-flight");
        assert_eq!((winner.fence, winner.attempts), (Fence(1), 1));
        trial.end(&winner, &complete("done")).await;
    }
}

/// Fifty takeovers of a lapsed key: one is granted.
pub async fn c83_fifty_reruns_of_a_lapsed_key_have_one_winner(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE).await;
    let requests = (2..2 + CALLERS).map(|number| rerun("k", number)).collect();
    let winner = one_winner(&all_at_once(std::slice::from_ref(&trial.store), requests).await, "in-flight");
    assert_eq!((winner.fence, winner.attempts), (Fence(2), 2));
}

/// Fifty settlers that saw the same fence: one is granted, the others see that it has moved.
pub async fn fifty_settlers_have_one_winner(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &park()).await;
    let requests = (2..2 + CALLERS).map(|number| settling("k", number, Fence(1))).collect();
    let winner = one_winner(&all_at_once(std::slice::from_ref(&trial.store), requests).await, "moved");
    assert_eq!(winner.fence, Fence(2));
}

/// Claims of different keys do not disturb each other.
pub async fn claims_of_different_keys_all_win(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let requests = (1..=CALLERS).map(|number| run(&format!("k{number}"), number)).collect();
    let answers = all_at_once(std::slice::from_ref(&trial.store), requests).await;
    assert!(answers.iter().all(|answer| matches!(answer, Claim::Acquired(_))), "{answers:?}");
}

/// Two handles on the same data are one store.
pub async fn a_race_through_two_handles_has_one_winner(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let stores = [trial.store.clone(), harness.reopen().await];
    for round in 0..4 {
        let key = format!("k{round}");
        let requests = (1..=CALLERS).map(|number| run(&key, number)).collect();
        one_winner(&all_at_once(&stores, requests).await, "in-flight");
    }
}

/// One attempt that asks many times at once gets one lease, each time.
pub async fn one_claim_repeated_at_once_has_one_lease(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let requests = (1..=CALLERS).map(|_| run("k", 1)).collect();
    let answers = all_at_once(std::slice::from_ref(&trial.store), requests).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(lease(answers[0].clone()).fence, Fence(1));
}

async fn settle_at_once(store: &Arc<dyn Store>, lease: &Lease, ends: [Settlement; 2]) -> [bool; 2] {
    let barrier = Arc::new(Barrier::new(2));
    let tasks = ends.map(|end| {
        let (store, lease, barrier) = (store.clone(), lease.clone(), barrier.clone());
        tokio::spawn(async move {
            barrier.wait().await;
            store.settle(&lease, &end).await
        })
    });
    let mut stood = [false; 2];
    for (stood, task) in stood.iter_mut().zip(tasks) {
        let result = task.await.expect("no settlement panics");
        assert!(matches!(result, Ok(()) | Err(StoreError::Refused(_))), "{result:?}");
        *stood = result.is_ok();
    }
    stood
}

/// Of two different ends by one lease, exactly one stands, and the record says which.
pub async fn one_of_two_ends_stands(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for round in 0..20 {
        let key = format!("k{round}");
        let lease = trial.acquire(&run(&key, 1)).await;
        let stood = settle_at_once(&trial.store, &lease, [complete("done"), release()]).await;
        assert_ne!(stood[0], stood[1], "one end, not none and not both");
        let completed = matches!(trial.entry(&key).await.view, View::Completed { .. });
        assert_eq!(completed, stood[0]);
    }
}

/// A late settlement races a takeover: either the settlement stands and the claim is told so, or the claim is
/// granted and the lease is lost.
pub async fn a_late_end_and_a_takeover_agree(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for round in 0..20 {
        let key = format!("k{round}");
        let owner = trial.acquire(&run(&key, 1)).await;
        trial.advance(LEASE).await;
        let barrier = Arc::new(Barrier::new(2));
        let (store, held, gate) = (trial.store.clone(), owner.clone(), barrier.clone());
        let settles = tokio::spawn(async move {
            gate.wait().await;
            store.settle(&held, &complete("late")).await
        });
        barrier.wait().await;
        let claimed = trial.claim(&rerun(&key, 2)).await;
        let settled = settles.await.expect("no settlement panics");
        match (&claimed, &settled) {
            (Claim::Completed { .. }, Ok(())) | (Claim::Acquired(_), Err(StoreError::LeaseLost)) => {}
            other => panic!("they do not agree: {other:?}"),
        }
    }
}
