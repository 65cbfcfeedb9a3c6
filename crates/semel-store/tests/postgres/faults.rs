//! Connections that break, at every point of a call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::testing::sample::{complete, run};
use semel::{Store, StoreError};
use semel_testbed::{Fault, Postgres, Proxy};

use super::harness::{Mode, with_mode};
use super::{HASTY, acquire, answer, claim_until_known, open_within};

/// What only a claim's and only a settlement's request holds.
fn needles(mode: Mode) -> (&'static str, &'static str) {
    match mode {
        Mode::Functions => ("semel.claim_", "semel.settle_"),
        Mode::Tables => ("ON CONFLICT", "WITH done"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c03_a_call_whose_connection_breaks_is_indeterminate_and_its_repetition_right() {
    for mode in [Mode::Functions, Mode::Tables] {
        for fault in [Fault::CutBeforeRequest, Fault::CutAfterAnswer, Fault::ResetAfter(1)] {
            let database = semel_testbed::postgres().await;
            let proxy = Proxy::before(database.addr());
            let url = with_mode(&database.url_at(proxy.addr()), mode);
            let store = open_within(&url, Duration::from_secs(30)).await.expect("a store");
            let (claims, settles) = needles(mode);

            let armed = proxy.arm_on(fault, claims);
            let error = store.claim(&run("k", 1)).await.expect_err("the answer is lost");
            assert!(matches!(error, StoreError::Indeterminate(_)), "{mode:?} {fault:?}: {error:?}");
            armed.happened().await;
            let lease = acquire(&store, &run("k", 1)).await;
            assert_eq!((lease.fence.0, lease.attempts), (1, 1), "{mode:?} {fault:?}");
            assert_eq!(answer(&store, &run("k", 2)).await, "in-flight");

            let armed = proxy.arm_on(fault, settles);
            let error = store.settle(&lease, &complete("done")).await.expect_err("the answer is lost");
            assert!(matches!(error, StoreError::Indeterminate(_)), "{mode:?} {fault:?}: {error:?}");
            armed.happened().await;
            store.settle(&lease, &complete("done")).await.expect("the repetition succeeds");
            assert_eq!(answer(&store, &run("k", 2)).await, "completed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_unavailable_within_the_time_and_comes_back() {
    let database = semel_testbed::postgres().await;
    let proxy = Proxy::before(database.addr());
    let store = open_within(&database.url_at(proxy.addr()), HASTY).await.expect("a store");
    acquire(&store, &run("before", 1)).await;
    proxy.refuse();
    proxy.cut_all();
    // The first call may find the connection breaking under it; from then on nothing is sent.
    let _ = store.claim(&run("k", 1)).await;
    let begun = Instant::now();
    let error = store.claim(&run("k", 1)).await.expect_err("no server");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(matches!(store.unsettled(None, 1).await, Err(StoreError::Unavailable(_))));
    proxy.accept();
    let claim = claim_until_known(&store, &run("k", 1)).await;
    assert_eq!(semel::testing::sample::lease(claim).fence.0, 1);
    store.unsettled(None, 1).await.expect("reads too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_restarted_under_load_loses_nothing() {
    for mode in [Mode::Functions, Mode::Tables] {
        let server = Postgres::start().await;
        let database = server.database().await;
        let store =
            open_within(&with_mode(database.url(), mode), Duration::from_secs(60)).await.expect("a store");
        let store = Arc::new(store);
        let tasks = (0..40_u64).map(|caller| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..25 {
                    let request = run(&format!("{caller}-{round}"), caller);
                    let lease =
                        semel::testing::sample::lease(claim_until_known(store.as_ref(), &request).await);
                    assert_eq!(lease.fence.0, 1, "the repetition is given the same lease");
                    loop {
                        match store.settle(&lease, &complete(&format!("{caller}-{round}"))).await {
                            Ok(()) => break,
                            Err(StoreError::Indeterminate(_) | StoreError::Unavailable(_)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();
        for _ in 0..2 {
            server.restart().await;
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(
            database.run("SELECT count(*) FROM semel.records WHERE state = 3").await.trim(),
            "1000",
            "{mode:?}"
        );
        assert_eq!(database.run("SELECT count(*) FROM semel.outcomes").await.trim(), "1000", "{mode:?}");
    }
}

/// A caller that goes away cancels nothing: the call is made, and its repetition hears the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_is_made_all_the_same() {
    let database = semel_testbed::postgres().await;
    let proxy = Proxy::before(database.addr());
    let store = open_within(&database.url_at(proxy.addr()), Duration::from_secs(30)).await.expect("a store");
    let delayed = proxy.arm_on(Fault::Delay(Duration::from_millis(300)), "semel.claim_");
    let (store, request) = (Arc::new(store), run("k", 1));
    let calling = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.claim(&request).await }
    });
    delayed.happened().await;
    calling.abort();
    let seen = async { while database.run("SELECT count(*) FROM semel.records").await.trim() != "1" {} };
    tokio::time::timeout(semel_testbed::DEADLINE, seen).await.expect("the record is made");
    assert_eq!(acquire(store.as_ref(), &run("k", 1)).await.fence.0, 1);
}
