//! Writes that replicas must have.

use semel::testing::sample::{complete, name, run};
use semel::{Store, StoreError};
use semel_testbed::{Fault, Proxy, Redis};

use super::{PATIENT, acquire, control, open, open_within, tell};

/// A primary and its replica, in step.
async fn pair() -> (Redis, Redis) {
    let (primary, replica) = (Redis::start().await, Redis::start().await);
    let (host, port) = (primary.addr().ip(), primary.addr().port());
    tell::<()>(&mut control(&replica.url()), &format!("REPLICAOF {host} {port}"));
    let started = std::time::Instant::now();
    let mut control = control(&primary.url());
    tell::<()>(&mut control, "SET in step");
    while tell::<u32>(&mut control, "WAIT 1 100") == 0 {
        assert!(started.elapsed() < semel_testbed::DEADLINE, "the replica does not follow");
    }
    (primary, replica)
}

#[tokio::test]
async fn a_write_that_no_replica_has_is_perhaps_and_is_repeated() {
    let (primary, replica) = pair().await;
    let store = open(&format!("{}?wait=1", primary.url())).await;
    let lease = acquire(&store, &run("k", 1)).await;
    replica.pause();
    for _ in 0..2 {
        let perhaps = store.settle(&lease, &complete("done")).await;
        assert!(
            matches!(perhaps, Err(StoreError::Indeterminate(_))),
            "a repetition is no proof either: {perhaps:?}"
        );
    }
    replica.resume();
    store.settle(&lease, &complete("done")).await.expect("the replica has it");
    tell::<()>(&mut control(&replica.url()), "REPLICAOF NO ONE");
    let promoted = open(&replica.url()).await;
    assert_eq!(name(&promoted.claim(&run("k", 2)).await.expect("an answer")), "completed");
}

/// A repetition over a new connection, which has written nothing yet, waits for the replicas all the same.
#[tokio::test]
async fn a_repetition_over_a_new_connection_waits_too() {
    let (primary, replica) = pair().await;
    let lease = acquire(&open(&primary.url()).await, &run("k", 1)).await;
    replica.pause();
    open(&primary.url()).await.settle(&lease, &complete("done")).await.expect("nobody asked to wait");
    // Opening writes too, and would wait: so it is opened with the replica at work, and then paused.
    replica.resume();
    let fresh = open(&format!("{}?wait=1", primary.url())).await;
    replica.pause();
    let perhaps = fresh.settle(&lease, &complete("done")).await;
    replica.resume();
    assert!(matches!(perhaps, Err(StoreError::Indeterminate(_))), "{perhaps:?}");
}

#[tokio::test]
async fn an_answer_that_is_lost_on_the_way_from_both_is_asked_for_again() {
    let (primary, _replica) = pair().await;
    let proxy = Proxy::before(primary.addr());
    let store = open(&format!("{}?wait=1", primary.url_at(proxy.addr()))).await;
    acquire(&store, &run("known", 1)).await;
    let armed = proxy.arm_on(Fault::CutAfterAnswer, "k1");
    let lost = store.claim(&run("k1", 1)).await;
    assert!(matches!(lost, Err(StoreError::Indeterminate(_))), "{lost:?}");
    armed.happened().await;
    assert_eq!(acquire(&store, &run("k1", 1)).await.attempts, 1);
}

#[tokio::test]
async fn more_replicas_than_there_are_are_refused_at_the_start() {
    let server = Redis::start().await;
    let said = open_within(&format!("{}?wait=1", server.url()), PATIENT).await.expect_err("it has none");
    assert!(said.contains("0 replicas"), "{said}");
}
