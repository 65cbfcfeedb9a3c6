//! Other transactions on the same keys: READ COMMITTED's blind spot, locks, conflicts.

use std::sync::Arc;
use std::time::Duration;

use semel::testing::sample::{complete, key, lease, name, run, scope};
use semel::{Store, StoreError};
use tokio_postgres::Client;

use super::harness::{Mode, Opened, control, opened};
use super::{acquire, answer, blocked};

const CLAIM: &str = "SELECT claim, fence FROM semel.claim('test:contract', 'k', gen_random_uuid(), \
     (SELECT digest FROM semel.records WHERE key = 'pattern'))";

/// A database in which the fingerprint of every sample is known, and a connection of somebody else's.
async fn with_other(mode: Mode) -> (Opened, Client) {
    let database = semel_testbed::postgres().await;
    // For the other's claims.
    super::harness::open(database.url()).await;
    let opened = opened(database, mode).await;
    acquire(opened.store.as_ref(), &run("pattern", 1)).await;
    let other = control(opened.database.url()).await;
    (opened, other)
}

/// The INSERT waits for a row that is younger than its snapshot, and meets it: what follows must see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_younger_than_the_snapshot_is_seen() {
    for mode in [Mode::Functions, Mode::Tables] {
        for (end, expected) in [("COMMIT", "in-flight"), ("ROLLBACK", "acquired")] {
            let (here, other) = with_other(mode).await;
            other.batch_execute("BEGIN").await.expect("begun");
            other.query_one(CLAIM, &[]).await.expect("the other has it");
            let store = Arc::clone(&here.store);
            let claiming = tokio::spawn(async move { answer(store.as_ref(), &run("k", 2)).await });
            blocked(&here.control, 1, "transactionid").await;
            other.batch_execute(end).await.expect("ended");
            assert_eq!(claiming.await.expect("no panic"), expected, "{mode:?} after {end}");
        }
    }
}

/// The INSERT meets a row, and it is gone before anybody looks: the statement's end is held up until it was swept.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_gone_after_the_conflict_is_made_anew() {
    for mode in [Mode::Functions, Mode::Tables] {
        let (here, other) = with_other(mode).await;
        acquire(here.store.as_ref(), &run("k", 1)).await;
        let pause = "CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS \
                     $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END $$; \
                     CREATE TRIGGER pause AFTER INSERT ON semel.records FOR EACH STATEMENT EXECUTE FUNCTION pause(); \
                     SELECT pg_advisory_lock(42)";
        other.batch_execute(pause).await.expect("a pause");
        let store = Arc::clone(&here.store);
        let claiming = tokio::spawn(async move { store.claim(&run("k", 2)).await });
        blocked(&here.control, 1, "advisory").await;
        other.batch_execute("DELETE FROM semel.records WHERE key = 'k'").await.expect("it is gone");
        other.batch_execute("SELECT pg_advisory_unlock(42)").await.expect("on");
        let claim = claiming.await.expect("no panic").expect("an answer");
        assert_eq!(lease(claim).fence.0, 1, "{mode:?}");
    }
}

/// A key that somebody's own transaction holds fails alone, and says that nothing was written.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_held_for_long_fails_alone() {
    for mode in [Mode::Functions, Mode::Tables] {
        let (here, other) = with_other(mode).await;
        other.batch_execute("BEGIN").await.expect("begun");
        other.query_one(CLAIM, &[]).await.expect("the other has it");
        let all = (0..20).map(|number| {
            let store = Arc::clone(&here.store);
            let name = if number == 7 { "k".to_owned() } else { format!("free-{number}") };
            tokio::spawn(async move { store.claim(&run(&name, 2)).await })
        });
        let all: Vec<_> = all.collect();
        for (number, claim) in all.into_iter().enumerate() {
            match claim.await.expect("no panic") {
                Ok(claim) => assert!(number != 7 && name(&claim) == "acquired"),
                Err(StoreError::Unavailable(_)) => assert_eq!(number, 7, "{mode:?}"),
                Err(error) => panic!("{error:?}"),
            }
        }
        other.batch_execute("ROLLBACK").await.expect("ended");
        acquire(here.store.as_ref(), &run("k", 2)).await;
    }
}

/// Two stores, as two processes, on the same keys at once, in batches that overlap: nobody fails, one wins each.
#[tokio::test(flavor = "multi_thread")]
async fn c83_overlapping_batches_of_two_processes_have_one_winner_each() {
    for mode in [Mode::Functions, Mode::Tables] {
        let (here, _other) = with_other(mode).await;
        let there = super::harness::open(&super::harness::with_mode(here.database.url(), mode)).await;
        let mut tasks = Vec::new();
        for number in 0..200_u64 {
            let store = if number % 2 == 0 { Arc::clone(&here.store) } else { Arc::clone(&there) };
            tasks.push(tokio::spawn(async move {
                let mut won = 0;
                for round in 0..10 {
                    // From both ends, so that unsorted batches would wait for each other crosswise.
                    let at = if number % 4 < 2 { round } else { 9 - round };
                    let request = run(&format!("k{at}"), number);
                    if let semel::Claim::Acquired(lease) = store.claim(&request).await.expect("an answer") {
                        store
                            .settle(&lease, &complete(&format!("{number}")))
                            .await
                            .expect("the winner settles");
                        won += 1;
                    }
                }
                won
            }));
        }
        let mut won = 0;
        for task in tasks {
            won += task.await.expect("no panic");
        }
        assert_eq!(won, 10, "{mode:?}");
    }
}

/// A sweep passes over what somebody has locked, and is not held up (case C73).
#[tokio::test(flavor = "multi_thread")]
async fn c73_a_sweep_waits_for_nobody() {
    let (here, other) = with_other(Mode::Functions).await;
    for number in 0..3 {
        let lease = acquire(here.store.as_ref(), &run(&format!("old-{number}"), number)).await;
        here.store.settle(&lease, &complete("done")).await.expect("it settles");
    }
    let age = "UPDATE semel.records SET replay_until = 1, forget_at = 2 WHERE state = 3";
    here.control.batch_execute(age).await.expect("they are old");
    other
        .batch_execute("BEGIN; SELECT FROM semel.records WHERE key = 'old-1' FOR UPDATE")
        .await
        .expect("locked");
    let swept = tokio::time::timeout(Duration::from_secs(20), here.store.sweep(100)).await;
    assert_eq!(swept.expect("it waits for nobody").expect("a sweep").records, 2);
    assert!(
        here.store.find(&scope(), &key("old-1")).await.expect("a look").is_none(),
        "expired all the same"
    );
    other.batch_execute("ROLLBACK").await.expect("ended");
    assert_eq!(here.store.sweep(100).await.expect("a sweep").records, 1);
    let left = "SELECT count(*) FROM semel.outcomes";
    assert_eq!(here.database.run(left).await.trim(), "0", "outcomes go with their records");
}
