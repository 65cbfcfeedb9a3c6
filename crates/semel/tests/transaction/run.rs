//! What a run does to its transaction.

use std::sync::Arc;

use semel::testing::sample;
use semel::{Cause, OnUnknown, Once, Operation, Outcome, Policy, Run, Twin, transaction};

use crate::database::{Database, In, Tx};

pub(crate) fn operation(key: &str) -> Operation {
    let policy = Arc::new(Policy::new(OnUnknown::Park));
    Operation::new(sample::scope(), sample::key(key), sample::fingerprint("same"), policy)
}

async fn once(database: &Database, key: &str) -> Once<Run<In>, Tx> {
    let tx = database.begin().await;
    transaction::once(In(tx), &operation(key), Twin::Refuse).await.expect("an answer")
}

async fn run(database: &Database, key: &str) -> Run<In> {
    match once(database, key).await {
        Once::Run(run) => run,
        other => panic!("it may run, not {other:?}"),
    }
}

#[tokio::test]
async fn x1_effect_and_outcome_are_committed_together() {
    let database = Database::default();
    let mut run = run(&database, "key").await;
    run.draft.effects.push("paid".to_owned());
    run.complete("receipt").await.expect("completed").commit();
    assert_eq!(database.effects().await, ["paid"]);
    let again = once(&database, "key").await;
    assert!(
        matches!(again, Once::Replay { ref outcome, attempts: 1, .. } if *outcome == Outcome::value("receipt"))
    );
}

#[tokio::test]
async fn x1_a_run_that_is_dropped_never_was() {
    let database = Database::default();
    let mut dropped = run(&database, "key").await;
    dropped.draft.effects.push("paid".to_owned());
    drop(dropped);
    assert!(database.is_empty().await && database.effects().await.is_empty());
    assert_eq!(run(&database, "key").await.lease().attempts, 1, "not even the attempt was counted");
}

#[tokio::test]
async fn x2_a_duplicate_leaves_what_was_written_before_it() {
    let database = Database::default();
    run(&database, "key").await.complete("receipt").await.expect("completed").commit();
    let mut tx = database.begin().await;
    tx.draft.effects.push("before".to_owned());
    let Ok(Once::Replay { mut tx, .. }) = transaction::once(In(tx), &operation("key"), Twin::Wait).await
    else {
        panic!("a duplicate is replayed");
    };
    tx.draft.effects.push("after".to_owned());
    tx.commit();
    assert_eq!(database.effects().await, ["before", "after"]);
}

#[tokio::test]
async fn a_transaction_holds_several_operations_one_after_another() {
    let database = Database::default();
    let tx = run(&database, "one").await.complete("1").await.expect("completed");
    let Ok(Once::Run(second)) = transaction::once(In(tx), &operation("two"), Twin::Wait).await else {
        panic!("another key runs");
    };
    second.complete("2").await.expect("completed").commit();
    assert!(matches!(once(&database, "one").await, Once::Replay { .. }));
    assert!(matches!(once(&database, "two").await, Once::Replay { .. }));
}

#[tokio::test]
async fn a_release_counts_the_attempt_and_a_burial_ends_the_key() {
    let database = Database::default();
    run(&database, "key").await.release(None).await.expect("released").commit();
    let second = run(&database, "key").await;
    assert_eq!(second.lease().attempts, 2);
    second.bury(Cause::new("impossible")).await.expect("buried").commit();
    let dead = once(&database, "key").await;
    assert!(matches!(dead, Once::Dead { ref cause, .. } if cause.as_str() == "impossible"));
}
