//! Answers that are lost, servers that go away, and callers who do.

use std::time::{Duration, Instant};

use semel::testing::sample::{complete, name, run};
use semel::{Claim, Fence, Store, StoreError, View};
use semel_testbed::{Fault, Proxy, Redis, Settings};

use super::{HASTY, PATIENT, acquire, control, open, open_within, tell};

/// Every record of the tests' own scope and key.
async fn fence_of(store: &semel_store::redis::RedisStore, key: &str) -> Option<Fence> {
    let (scope, key) = (semel::testing::sample::scope(), semel::testing::sample::key(key));
    store.find(&scope, &key).await.expect("a record is read").map(|entry| entry.fence)
}

#[tokio::test]
async fn c03_the_answer_of_a_claim_is_lost_and_the_repetition_gets_the_same_lease() {
    let server = Redis::start().await;
    let proxy = Proxy::before(server.addr());
    let store = open(&server.url_at(proxy.addr())).await;
    acquire(&store, &run("known", 1)).await;
    for (round, fault) in [Fault::CutAfterAnswer, Fault::ResetAfter(3)].into_iter().enumerate() {
        let key = format!("k{round}");
        let armed = proxy.arm_on(fault, &key);
        let lost = store.claim(&run(&key, 1)).await;
        assert!(matches!(lost, Err(StoreError::Indeterminate(_))), "{lost:?}");
        assert_eq!(armed.count(), 1);
        assert_eq!(fence_of(&store, &key).await, Some(Fence(1)), "the script has run");
        let lease = acquire(&store, &run(&key, 1)).await;
        assert_eq!((lease.fence, lease.attempts), (Fence(1), 1));
        assert_eq!(name(&store.claim(&run(&key, 2)).await.expect("an answer")), "in-flight");
    }
}

#[tokio::test]
async fn the_answer_of_a_settlement_is_lost_and_the_repetition_succeeds() {
    let server = Redis::start().await;
    let proxy = Proxy::before(server.addr());
    let store = open(&server.url_at(proxy.addr())).await;
    let lease = acquire(&store, &run("k", 1)).await;
    store.renew(&lease, Duration::from_secs(60)).await.expect("the holder renews");
    let armed = proxy.arm_on(Fault::CutAfterAnswer, "complete");
    // The first settlement loads the script: it is sent by its hash, and then in full.
    let lost = store.settle(&lease, &complete("done")).await;
    assert!(matches!(lost, Err(StoreError::Indeterminate(_))), "{lost:?}");
    armed.happened().await;
    store.settle(&lease, &complete("done")).await.expect("it stands, or is made now");
    let other = store.settle(&lease, &complete("other")).await;
    assert!(matches!(other, Err(StoreError::Refused(_))), "{other:?}");
    assert_eq!(name(&store.claim(&run("k", 2)).await.expect("an answer")), "completed");
}

#[tokio::test]
async fn a_claim_that_did_not_arrive_is_perhaps_and_the_repetition_is_the_first() {
    let server = Redis::start().await;
    let proxy = Proxy::before(server.addr());
    let store = open(&server.url_at(proxy.addr())).await;
    proxy.arm_on(Fault::CutBeforeRequest, "k\0");
    let lost = store.claim(&run("k", 1)).await;
    assert!(matches!(lost, Err(StoreError::Indeterminate(_))), "nobody can tell: {lost:?}");
    assert_eq!(fence_of(&store, "k").await, None);
    assert_eq!(acquire(&store, &run("k", 1)).await.fence, Fence(1));
}

#[tokio::test]
async fn a_server_that_falls_silent_is_bounded_and_the_next_call_connects_anew() {
    let server = Redis::start().await;
    let proxy = Proxy::before(server.addr());
    let store = open_within(&server.url_at(proxy.addr()), Duration::from_secs(2)).await.expect("a store");
    for fault in [Fault::Blackhole, Fault::HalfOpen] {
        let armed = proxy.arm(fault);
        let started = Instant::now();
        let lost = store.claim(&run("k", 1)).await;
        assert!(matches!(lost, Err(StoreError::Indeterminate(_))), "{lost:?}");
        assert!(started.elapsed() < PATIENT);
        armed.happened().await;
        assert_eq!(acquire(&store, &run("k", 1)).await.fence, Fence(1));
    }
}

#[tokio::test]
async fn a_server_that_is_paused_is_waited_for_and_then_given_up() {
    let server = Redis::start().await;
    let store = open_within(&server.url(), HASTY * 4).await.expect("a store");
    let lease = acquire(&store, &run("k", 1)).await;
    server.pause();
    let lost = store.settle(&lease, &complete("done")).await;
    server.resume();
    assert!(matches!(lost, Err(StoreError::Indeterminate(_))), "{lost:?}");
    let patient = open(&server.url()).await;
    patient.settle(&lease, &complete("done")).await.expect("it stands, or is made now");
}

#[tokio::test]
async fn nothing_is_written_while_there_is_no_server_and_it_is_found_again() {
    let server = Redis::start_with(Settings::durable()).await;
    let store = open(&server.url()).await;
    let lease = acquire(&store, &run("k", 1)).await;
    server.kill().await;
    // The first call may still have gone into the connection that died.
    let first = store.claim(&run("k2", 1)).await;
    assert!(first.expect_err("nobody is there").is_transient());
    let second = store.claim(&run("k2", 1)).await;
    assert!(matches!(second, Err(StoreError::Unavailable(_))), "{second:?}");
    server.restart().await;
    // It has read its log, and knows no script.
    store.settle(&lease, &complete("done")).await.expect("the record has survived");
    assert_eq!(acquire(&store, &run("k2", 1)).await.fence, Fence(1));
}

#[tokio::test]
async fn scripts_that_are_forgotten_are_sent_again() {
    let server = Redis::start().await;
    let store = open(&server.url()).await;
    let mut control = control(&server.url());
    let lease = acquire(&store, &run("k", 1)).await;
    tell::<()>(&mut control, "SCRIPT FLUSH");
    store.renew(&lease, Duration::from_secs(60)).await.expect("the holder renews");
    tell::<()>(&mut control, "SCRIPT FLUSH");
    store.settle(&lease, &complete("done")).await.expect("the holder settles");
    tell::<()>(&mut control, "SCRIPT FLUSH");
    assert_eq!(name(&store.claim(&run("k", 2)).await.expect("an answer")), "completed");
}

#[tokio::test]
async fn a_server_that_became_a_replica_wrote_nothing_and_is_left() {
    let (server, other) = (Redis::start().await, Redis::start().await);
    let store = open(&server.url()).await;
    acquire(&store, &run("k", 1)).await;
    let mut admin = control(&server.url());
    tell::<()>(&mut admin, &format!("REPLICAOF {} {}", other.addr().ip(), other.addr().port()));
    for _ in 0..2 {
        let refused = store.claim(&run("k2", 1)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    tell::<()>(&mut admin, "REPLICAOF NO ONE");
    assert_eq!(acquire(&store, &run("k2", 1)).await.fence, Fence(1));
}

/// Callers who go away in the middle of a call leave the connection in step: every later answer is that of its call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_go_away_mix_up_no_answers() {
    let server = Redis::start().await;
    let store = std::sync::Arc::new(open(&server.url()).await);
    for round in 0..500_u64 {
        let (gone, key) = (store.clone(), format!("gone{round}"));
        let caller = tokio::spawn(async move { gone.claim(&run(&key, 1)).await });
        if round % 3 > 0 {
            tokio::task::yield_now().await;
        }
        caller.abort();
        let key = format!("k{round}");
        let lease = acquire(&store, &run(&key, round)).await;
        let outcome = format!("outcome of {key}");
        store.settle(&lease, &complete(&outcome)).await.expect("the holder settles");
        let answer = store.claim(&run(&key, round + 1)).await.expect("an answer");
        let Claim::Completed { outcome: replayed, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(replayed.bytes, outcome.as_bytes());
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_said_and_nothing_is_written_over_it() {
    let server = Redis::start().await;
    let store = open(&server.url()).await;
    acquire(&store, &run("k", 1)).await;
    let mut control = control(&server.url());
    let names: Vec<Vec<u8>> = tell(&mut control, "KEYS *:r:*");
    for garbage in [&b"garbage"[..], b"", b"\xdc\x00\x13", b"\x91\x02"] {
        ::redis::cmd("SET").arg(&names[0]).arg(garbage).exec(&mut control).expect("it is set");
        let answer = store.claim(&run("k", 1)).await;
        assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{answer:?}");
        let kept: Vec<u8> = ::redis::cmd("GET").arg(&names[0]).query(&mut control).expect("it is there");
        assert_eq!(kept, garbage);
    }
    tell::<()>(&mut control, "FLUSHDB");
    ::redis::cmd("RPUSH").arg(&names[0]).arg("x").exec(&mut control).expect("it is set");
    let answer = store.claim(&run("k", 1)).await;
    assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{answer:?}");
}

/// An eviction takes a record and leaves its id: it is passed over.
#[tokio::test]
async fn c34_a_record_that_is_gone_disturbs_no_list() {
    let server = Redis::start().await;
    let store = open(&server.url()).await;
    for key in ["a", "b", "c"] {
        let lease = acquire(&store, &run(key, 1)).await;
        let park = semel::testing::sample::park();
        store.settle(&lease, &park).await.expect("the holder settles");
    }
    tell::<()>(&mut control(&server.url()), "DEL {semel:0}:r:b\0test:contract");
    let open = store.unsettled(None, 10).await.expect("a list");
    assert_eq!(open.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert!(open.iter().all(|entry| matches!(entry.view, View::Unknown { .. })));
}
