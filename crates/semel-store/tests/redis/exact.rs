//! Numbers, and what Redis keeps for how long.

use std::time::Duration;

use semel::testing::sample::{complete, key, park, release, rerun, run, scope};
use semel::{Event, Fence, History, Lease, Settlement, Store, StoreError, Through, What};
use semel_testbed::Redis;

use super::{acquire, control, open, tell};

const RECORD: &str = "{semel:0}:r:k\0test:contract";
const HISTORY: &str = "{semel:0}:h:k\0test:contract";

fn time_left(control: &mut ::redis::Connection, name: &str) -> i64 {
    ::redis::cmd("PTTL").arg(name).query(control).expect("a time")
}

/// Lua counts in doubles: a fence that would be rounded to the record's is not the record's.
#[tokio::test]
async fn a_fence_is_compared_exactly() {
    let server = Redis::start().await;
    let store = open(&server.url()).await;
    let lease = acquire(&store, &run("k", 1)).await;
    // As after so many claims: the last fences that are exact.
    let raise = "local record = cmsgpack.unpack(redis.call('GET', KEYS[1])) record[3] = 9007199254740990 \
                 redis.call('SET', KEYS[1], cmsgpack.pack(record))";
    let mut control = control(&server.url());
    ::redis::cmd("EVAL").arg(raise).arg(1).arg(RECORD).exec(&mut control).expect("it is raised");
    let found = store.find(&scope(), &key("k")).await.expect("a record is read").expect("it is there");
    assert_eq!(found.fence, Fence((1 << 53) - 2));
    for fence in [1, (1 << 53) - 3, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, u64::MAX] {
        let forged = Lease { fence: Fence(fence), ..lease.clone() };
        let refused = store.settle(&forged, &complete("done")).await;
        assert!(matches!(refused, Err(StoreError::LeaseLost)), "{fence}: {refused:?}");
    }
    let held = Lease { fence: found.fence, ..lease };
    store.settle(&held, &complete("done")).await.expect("the holder settles");
}

#[tokio::test]
async fn what_is_settled_expires_by_itself_and_what_is_open_does_not() {
    let server = Redis::start().await;
    let store = open(&server.url()).await;
    let mut control = control(&server.url());
    let hour = Duration::from_secs(3_600);
    // Ten minutes longer than it is remembered, so that a sweep finds it with its ids.
    let expires = |left: i64| (3_600_000..=3_600_000 + 600_000).contains(&left);
    let event = |lease: &Lease| Event {
        fence: lease.fence,
        attempt: lease.attempt,
        attempts: 1,
        what: What::Released,
        through: Through::Run,
        cause: None,
        ran_for: None,
        by: None,
        reason: None,
    };
    let first = acquire(&store, &run("k", 1)).await;
    assert_eq!(time_left(&mut control, RECORD), -1, "it runs");
    let free = Settlement::Release { not_before: None, unbind: false, ran: true, remember_for: hour };
    store.settle(&first, &free).await.expect("the holder settles");
    store.append(&scope(), &key("k"), &event(&first)).await.expect("an event");
    assert!(expires(time_left(&mut control, RECORD)) && expires(time_left(&mut control, HISTORY)));
    let second = acquire(&store, &run("k", 2)).await;
    assert_eq!([RECORD, HISTORY].map(|name| time_left(&mut control, name)), [-1, -1], "it runs again");
    store.settle(&second, &park()).await.expect("the holder settles");
    assert_eq!([RECORD, HISTORY].map(|name| time_left(&mut control, name)), [-1, -1], "it is unknown");
    let third = acquire(&store, &rerun("k", 3)).await;
    let done =
        Settlement::Complete { outcome: semel::Outcome::value("x"), replay_for: hour, remember_for: hour };
    store.settle(&third, &done).await.expect("the holder settles");
    assert!(expires(time_left(&mut control, RECORD)) && expires(time_left(&mut control, HISTORY)));
    let history = store.history(&scope(), &key("k")).await.expect("a history");
    assert_eq!(history.len(), 1);
}

#[tokio::test]
async fn for_ever_never_expires() {
    let server = Redis::start().await;
    let store = open(&server.url()).await;
    let lease = acquire(&store, &run("k", 1)).await;
    let always = Settlement::Complete {
        outcome: semel::Outcome::value("x"),
        replay_for: Duration::MAX,
        remember_for: Duration::MAX,
    };
    store.settle(&lease, &always).await.expect("the holder settles");
    let mut control = control(&server.url());
    assert_eq!(time_left(&mut control, RECORD), -1);
    let due: usize = tell(&mut control, "ZCARD {semel:0}:due");
    assert_eq!(due, 0, "there is nothing to sweep, ever");
}

/// What Redis let go by itself leaves ids, which a sweep takes away.
#[tokio::test]
async fn a_sweep_takes_away_the_ids_of_what_has_expired() {
    let server = Redis::start().await;
    let store = open(&server.url()).await;
    for name in ["a", "b"] {
        let lease = acquire(&store, &run(name, 1)).await;
        let brief =
            Settlement::Release { not_before: None, unbind: false, ran: true, remember_for: Duration::ZERO };
        store.settle(&lease, &brief).await.expect("the holder settles");
    }
    let kept = acquire(&store, &run("kept", 1)).await;
    store.settle(&kept, &release()).await.expect("the holder settles");
    let mut control = control(&server.url());
    ::redis::cmd("DEL").arg("{semel:0}:r:a\0test:contract").exec(&mut control).expect("it expires");
    assert_eq!(store.sweep(10).await.expect("a sweep").records, 2);
    let ids: Vec<String> = tell(&mut control, "ZRANGE {semel:0}:index 0 -1");
    assert_eq!(ids, ["kept\0test:contract"]);
}

/// A key that expired and was claimed anew before the sweep came by is left alone by it.
#[tokio::test]
async fn a_sweep_leaves_what_was_made_anew() {
    let server = Redis::start().await;
    let store = open(&server.url()).await;
    for was_there in [true, false] {
        let name = format!("k{was_there}");
        let lease = acquire(&store, &run(&name, 1)).await;
        let brief =
            Settlement::Release { not_before: None, unbind: false, ran: true, remember_for: Duration::ZERO };
        store.settle(&lease, &brief).await.expect("the holder settles");
        if !was_there {
            let record = format!("{{semel:0}}:r:{name}\0test:contract");
            ::redis::cmd("DEL").arg(record).exec(&mut control(&server.url())).expect("it expires");
        }
        let again = acquire(&store, &run(&name, 2)).await;
        assert_eq!(again.fence, Fence(1));
        assert_eq!(store.sweep(10).await.expect("a sweep").total(), 0);
        store.settle(&again, &complete("done")).await.expect("the holder settles");
    }
}

#[tokio::test]
async fn two_prefixes_are_two_stores() {
    let server = Redis::start().await;
    let (one, other) = (open(&server.url()).await, open(&format!("{}?prefix=other", server.url())).await);
    acquire(&one, &run("k", 1)).await;
    acquire(&other, &run("k", 2)).await;
    assert_eq!(one.unsettled(None, 10).await.expect("a list"), []);
    let names: Vec<String> = tell(&mut control(&server.url()), "KEYS {other:*");
    assert_eq!(names.len(), 3, "{names:?}");
}
