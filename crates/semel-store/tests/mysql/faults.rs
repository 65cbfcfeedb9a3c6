//! What happens when the server does not answer: it happened and the answer was lost, it did not happen, nobody knows.

use std::time::{Duration, Instant};

use semel::testing::sample::{self, complete, run};
use semel::{Claim, Store, StoreError, View};
use semel_testbed::{Fault, Mariadb, Plan, Proxy};

use super::{HASTY, PATIENT, acquire, open, open_within};

/// The first time that the answer is lost, the store asks again by itself.
#[tokio::test]
async fn an_answer_that_is_lost_once_is_asked_for_again() {
    for fault in [Fault::CutAfterAnswer, Fault::CutBeforeRequest, Fault::ResetAfter(3)] {
        let database = semel_testbed::mariadb().await;
        let proxy = Proxy::before(database.addr());
        let store = open(&format!("{}?pool=2", database.url_at(proxy.addr()))).await;
        let lost = proxy.arm_on(fault, "the-key");
        let lease = acquire(&store, &run("the-key", 1)).await;
        lost.happened().await;
        assert_eq!(
            (lease.fence.0, lease.attempts),
            (1, 1),
            "{fault:?}: one claim, however often it was sent"
        );
        let lost = proxy.arm_on(fault, "the-key");
        store.settle(&lease, &complete("done")).await.expect("an end");
        lost.happened().await;
        let again = store.claim(&run("the-key", 2)).await.expect("a claim is answered");
        assert!(matches!(again, Claim::Completed { attempts: 1, .. }), "{fault:?}: {again:?}");
    }
}

/// Every answer is lost until the call has waited long enough: nobody knows, and the repetition finds out.
#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_indeterminate_and_its_repetition_gets_the_same_lease() {
    let database = semel_testbed::mariadb().await;
    let proxy = Proxy::before(database.addr());
    let store =
        open_within(&format!("{}?pool=2", database.url_at(proxy.addr())), HASTY).await.expect("a store");
    proxy.arm_plan(Plan::of(Fault::CutAfterAnswer).on("the-key").always());
    let error = store.claim(&run("the-key", 1)).await.expect_err("no answer");
    assert!(matches!(error, StoreError::Indeterminate(_)), "{error:?}");
    proxy.disarm();
    let lease = acquire(&store, &run("the-key", 1)).await;
    assert_eq!((lease.fence.0, lease.attempts), (1, 1));
    proxy.arm_plan(Plan::of(Fault::CutAfterAnswer).on("the-key").always());
    let error = store.settle(&lease, &complete("done")).await.expect_err("no answer");
    assert!(matches!(error, StoreError::Indeterminate(_)), "{error:?}");
    proxy.disarm();
    let entry =
        store.find(&sample::scope(), &sample::key("the-key")).await.expect("a look").expect("a record");
    assert!(matches!(entry.view, View::Completed { .. }), "{entry:?}");
    store.settle(&lease, &complete("done")).await.expect("a repetition succeeds");
}

/// The connection stays open and says nothing: the call ends in its time, and the next one has another connection.
#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    for fault in [Fault::Blackhole, Fault::HalfOpen] {
        let database = semel_testbed::mariadb().await;
        let proxy = Proxy::before(database.addr());
        let url = format!("{}?pool=2", database.url_at(proxy.addr()));
        let store = open_within(&url, HASTY).await.expect("a store");
        acquire(&store, &run("before", 1)).await;
        let silent = proxy.arm_on(fault, "the-key");
        let begun = Instant::now();
        let error = store.claim(&run("the-key", 1)).await.expect_err("no answer");
        silent.happened().await;
        assert!(begun.elapsed() < HASTY + Duration::from_secs(10), "{:?}", begun.elapsed());
        assert!(matches!(error, StoreError::Indeterminate(_)), "{fault:?}: {error:?}");
        assert_eq!(acquire(&store, &run("the-key", 1)).await.fence.0, 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_started_again_under_load_loses_nothing_that_was_acknowledged() {
    let server = Mariadb::start().await;
    let store = std::sync::Arc::new(open(&format!("{}?pool=4", server.url())).await);
    let work: Vec<_> = (0..8u64)
        .map(|worker| {
            let store = std::sync::Arc::clone(&store);
            tokio::spawn(async move {
                let mut ended = Vec::new();
                for step in 0..150u64 {
                    let request = run(&format!("{worker}-{step}"), worker * 1_000 + step);
                    let lease = acquire(&store, &request).await;
                    assert_eq!((lease.fence.0, lease.attempts), (1, 1), "nobody else asks for it");
                    store.settle(&lease, &complete("done")).await.expect("an end");
                    ended.push(lease);
                }
                ended
            })
        })
        .collect();
    // Once something is acknowledged, and killed: nothing is said to anybody.
    while store.find(&sample::scope(), &sample::key("0-20")).await.expect("a look").is_none() {
        tokio::task::yield_now().await;
    }
    server.kill().await;
    server.restart().await;
    for work in work {
        for lease in work.await.expect("every call is answered") {
            let entry = store.find(&lease.scope, &lease.key).await.expect("a look").expect("a record");
            assert!(matches!(entry.view, View::Completed { .. }), "{entry:?}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_said_in_time_and_used_again_when_it_is_back() {
    let server = Mariadb::start().await;
    let store = open_within(&format!("{}?pool=2", server.url()), HASTY).await.expect("a store");
    let lease = acquire(&store, &run("k", 1)).await;
    server.stop().await;
    let begun = Instant::now();
    for error in [
        store.claim(&run("away", 1)).await.expect_err("away"),
        store.settle(&lease, &complete("done")).await.expect_err("away"),
        store.sweep(1).await.map(drop).expect_err("away"),
    ] {
        assert!(error.is_transient(), "{error:?}");
        assert!(!error.to_string().contains("semel-test"), "a password: {error}");
    }
    // Its connections are known to be gone by now, so what was never sent was certainly not written.
    let error = store.claim(&run("away", 1)).await.expect_err("away");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(begun.elapsed() < HASTY * 4 + Duration::from_secs(20), "{:?}", begun.elapsed());
    server.restart().await;
    store.settle(&lease, &complete("done")).await.expect("an end");
    assert_eq!(acquire(&store, &run("away", 1)).await.attempts, 1);
}

/// A primary that became a replica refuses to write; the connections are made anew, which may lead to another one.
#[tokio::test]
async fn a_server_that_only_reads_is_waited_for() {
    let server = Mariadb::start().await;
    let database = server.database().await;
    let hasty = open_within(&format!("{}?pool=2", database.url()), HASTY).await.expect("a store");
    // Who may do everything may also write to a server that only reads.
    let name = database.url().rsplit('/').next().expect("a name").to_owned();
    database.run("CREATE USER writer IDENTIFIED BY 'semel-test'").await;
    database.run(&format!("GRANT ALL ON {name}.* TO writer")).await;
    let url = format!("{}?pool=2", database.url().replacen("semel:", "writer:", 1));
    let writer = open_within(&url, HASTY).await.expect("a store");
    let lease = acquire(&writer, &run("k", 1)).await;
    database.run("SET GLOBAL read_only = ON").await;
    for error in [
        writer.claim(&run("new", 1)).await.expect_err("it only reads"),
        writer.settle(&lease, &complete("done")).await.expect_err("it only reads"),
    ] {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        assert!(error.to_string().contains("read-only"), "{error}");
    }
    let patient = open_within(&url, PATIENT).await.expect("a store");
    let waiting = tokio::spawn(async move { patient.claim(&run("new", 2)).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    database.run("SET GLOBAL read_only = OFF").await;
    assert!(matches!(waiting.await.expect("a claim"), Ok(Claim::Acquired(_))));
    drop(hasty);
}

/// Callers that hang up change nothing: the connection is not left in the middle of an answer.
#[tokio::test]
async fn a_call_that_is_dropped_leaves_a_sound_connection() {
    let database = semel_testbed::mariadb().await;
    let store = open(&format!("{}?pool=2", database.url())).await;
    for number in 0..200u64 {
        let key = format!("k{number}");
        let request = run(&key, number);
        // Sent or not, answered or not: at every distance.
        let patience = Duration::from_micros(number * 20);
        let _ = tokio::time::timeout(patience, store.claim(&request)).await;
        let lease = acquire(&store, &request).await;
        assert_eq!((lease.key.as_str(), lease.attempts), (key.as_str(), 1));
    }
}
