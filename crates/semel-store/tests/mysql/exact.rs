//! Keys are bytes, clocks are the server's, and a statement writes what the rule says.

use std::time::Duration;

use semel::testing::sample::{self, complete, run};
use semel::{Claim, FOREVER, Outcome, Settlement, Store, View};

use super::{Other, acquire, open};

/// In a database whose collation calls all of them alike.
#[tokio::test]
async fn keys_that_a_collation_calls_alike_are_apart() {
    let database = semel_testbed::mariadb().await;
    let mut other = Other::connect(database.url()).await;
    other.run("SET @name = CONCAT('ALTER DATABASE ', DATABASE(), ' COLLATE utf8mb4_general_ci')").await;
    other.run("EXECUTE IMMEDIATE @name").await;
    let store = open(database.url()).await;
    let keys =
        ["key", "KEY", "kéy", "ke\u{301}y", "key ", " key", "key  ", "ｋey", "ke%", "ke_", "ſey", "sey"];
    for (number, key) in keys.iter().enumerate() {
        let lease = acquire(&store, &run(key, number as u64)).await;
        assert_eq!(lease.fence.0, 1, "{key:?}");
        store.settle(&lease, &complete(key)).await.expect("an end");
    }
    for key in keys {
        match store.claim(&run(key, 99)).await.expect("a claim is answered") {
            Claim::Completed { outcome, .. } => assert_eq!(outcome, Outcome::value(key.to_owned())),
            other => panic!("{key:?}: {other:?}"),
        }
    }
}

/// The session's time zone, the server's, and `@@timestamp` of other connections change nothing.
#[tokio::test]
async fn a_time_zone_changes_no_lease() {
    let server = semel_testbed::Mariadb::start_with(
        semel_testbed::Settings::fast().set("default-time-zone", "+09:30"),
    )
    .await;
    let database = server.database().await;
    let store = open(database.url()).await;
    acquire(&store, &run("k", 1)).await;
    let mut other = Other::connect(database.url()).await;
    let apart =
        "SELECT ABS(CAST(first_at AS SIGNED) - CAST(UNIX_TIMESTAMP() AS SIGNED) * 1000) FROM semel_records";
    assert!(other.number(apart).await < 120_000, "it is the time in UTC");
    other.run("SET GLOBAL time_zone = '-11:00'").await;
    let another = open(database.url()).await;
    match another.claim(&run("k", 2)).await.expect("a claim is answered") {
        Claim::InFlight { retry_after, .. } => {
            assert!(retry_after <= sample::LEASE && retry_after > Duration::ZERO, "{retry_after:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// Alone and with others, in the statement and in the transaction: the same rows.
#[tokio::test]
async fn a_completion_alone_and_in_a_batch_writes_the_same_row() {
    let database = semel_testbed::mariadb().await;
    let store = open(&format!("{}?pool=2", database.url())).await;
    let end = |text: &str| Settlement::Complete {
        outcome: Outcome { format: 9, bytes: text.to_owned().into_bytes().into() },
        replay_for: Duration::from_secs(3_600),
        remember_for: FOREVER,
    };
    let mut leases = Vec::new();
    for number in 0..40u64 {
        leases.push(acquire(&store, &run(&format!("k{number:02}"), number)).await);
    }
    store.settle(&leases[0], &end("k00")).await.expect("an end");
    let ends: Vec<_> = leases[1..].iter().map(|lease| (lease, end(lease.key.as_str()))).collect();
    let settling = ends.iter().map(|(lease, end)| store.settle(lease, end));
    for ended in futures(settling).await {
        ended.expect("an end");
    }
    let mut other = Other::connect(database.url()).await;
    let odd = "SELECT COUNT(*) FROM semel_records WHERE NOT (state = 3 AND lease_until IS NULL AND was IS NULL \
               AND settles IS NULL AND not_before IS NULL AND cause IS NULL AND doubt = 0 AND outcome = `key` \
               AND outcome_format = 9 AND replay_until - since = 3600000 AND due_at = replay_until \
               AND forget_at = 9223372036854775807)";
    assert_eq!(other.number(odd).await, 0);
    for lease in &leases {
        let entry = store.find(&lease.scope, &lease.key).await.expect("a look").expect("a record");
        assert!(matches!(entry.view, View::Completed { .. }), "{entry:?}");
        store.settle(lease, &end(lease.key.as_str())).await.expect("a repetition succeeds");
        let another = store.settle(lease, &end("another")).await;
        assert!(matches!(another, Err(semel::StoreError::Refused(_))), "{another:?}");
    }
}

/// All at once, so that they come in batches.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in all.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(context) {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// A row that another program wrote is an error for its key, and for no other one of the batch.
#[tokio::test]
async fn a_row_that_cannot_be_read_is_corrupt_and_hurts_no_other() {
    let database = semel_testbed::mariadb().await;
    let store = open(&format!("{}?pool=2", database.url())).await;
    for key in ["good", "bad"] {
        acquire(&store, &run(key, 1)).await;
    }
    Other::connect(database.url()).await.run("UPDATE semel_records SET state = 9 WHERE `key` = 'bad'").await;
    let requests = [run("bad", 2), run("good", 2), run("new", 2)];
    let answers = futures(requests.iter().map(|request| store.claim(request))).await;
    assert!(matches!(answers[0], Err(semel::StoreError::Corrupt(_))), "{answers:?}");
    assert!(matches!(answers[1], Ok(Claim::InFlight { .. })), "{answers:?}");
    assert!(matches!(answers[2], Ok(Claim::Acquired(_))), "{answers:?}");
    let found = store.find(&sample::scope(), &sample::key("bad")).await;
    assert!(matches!(found, Err(semel::StoreError::Corrupt(_))), "{found:?}");
}
