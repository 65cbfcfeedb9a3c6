//! A whole operation in a transaction of its own, and what may go wrong around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::{Done, Once, Outcome, Ran, Rerun, Twin, Whole, WholeError};

use crate::database::{Conflict, Database, takes};
use crate::run::operation;

type Answer = Result<Once<Ran<&'static str>, ()>, WholeError>;

/// Pays, as often as it is called. Fails so often, with a conflict, before that.
async fn pay(whole: &Whole<Database>, conflicts: u32) -> (Answer, u32) {
    let calls = Arc::new(AtomicU32::new(0));
    let (counted, left) = (Arc::clone(&calls), AtomicU32::new(conflicts));
    let answer = whole
        .once(operation("key"), Twin::Refuse, move |tx, _lease| {
            counted.fetch_add(1, Ordering::SeqCst);
            let conflict = takes(&left);
            Box::pin(async move {
                tx.draft.effects.push("paid".to_owned());
                if conflict {
                    Err(Conflict.into())
                } else {
                    Ok(Done::Keep(Outcome::value("receipt"), "paid"))
                }
            })
        })
        .await;
    (answer, calls.load(Ordering::SeqCst))
}

fn ran(answer: &Answer) -> bool {
    matches!(answer, Ok(Once::Run(Ran { value: "paid", kept: true, .. })))
}

fn set(fault: &AtomicU32, times: u32) {
    fault.store(times, Ordering::SeqCst);
}

#[tokio::test(start_paused = true)]
async fn x1_it_runs_once_and_is_replayed() {
    let database = Database::default();
    let whole = Whole::new(database.clone());
    let (first, calls) = pay(&whole, 0).await;
    assert!(ran(&first) && calls == 1, "{first:?}");
    let (again, calls) = pay(&whole, 0).await;
    assert!(matches!(again, Ok(Once::Replay { .. })) && calls == 0);
    assert_eq!(database.effects().await, ["paid"]);
}

#[tokio::test(start_paused = true)]
async fn c72_work_that_may_reach_outside_is_never_repeated() {
    let database = Database::default();
    let (answer, calls) = pay(&Whole::new(database.clone()), 2).await;
    assert!(matches!(answer, Err(WholeError::Work(_))) && calls == 1, "{answer:?}");
    set(&database.faults.serialize, 1);
    let (answer, calls) = pay(&Whole::new(database.clone()), 0).await;
    assert!(matches!(answer, Err(WholeError::Transaction(_))) && calls == 1, "{answer:?}");
    assert!(database.is_empty().await && database.effects().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c72_pure_work_is_repeated_after_a_wait() {
    let database = Database::default();
    let whole = Whole::new(database.clone()).rerun(Rerun::Pure);
    set(&database.faults.serialize, 1);
    let begun = tokio::time::Instant::now();
    let (answer, calls) = pay(&whole, 2).await;
    assert!(ran(&answer) && calls == 4, "{answer:?}");
    assert!(begun.elapsed() > Duration::ZERO, "no try follows at once");
    assert_eq!(database.effects().await, ["paid"]);
    let tired = Whole::new(Database::default()).rerun(Rerun::Pure).tries_max(3);
    let (answer, calls) = pay(&tired, 9).await;
    assert!(matches!(answer, Err(WholeError::Work(_))) && calls == 3);
}

#[tokio::test(start_paused = true)]
async fn what_comes_before_the_work_is_always_tried_again() {
    let database = Database::default();
    set(&database.faults.begin, 4);
    let (answer, calls) = pay(&Whole::new(database.clone()), 0).await;
    assert!(ran(&answer) && calls == 1, "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn x6_a_commit_that_happened_is_found_out() {
    let database = Database::default();
    set(&database.faults.answer_lost, 1);
    let (answer, calls) = pay(&Whole::new(database.clone()), 0).await;
    assert!(ran(&answer) && calls == 1, "{answer:?}");
    assert_eq!(database.effects().await, ["paid"]);
}

#[tokio::test(start_paused = true)]
async fn x6_a_commit_that_did_not_happen_is_found_out() {
    let database = Database::default();
    set(&database.faults.commit_lost, 1);
    let (answer, calls) = pay(&Whole::new(database.clone()), 0).await;
    assert!(matches!(answer, Err(WholeError::Transaction(_))) && calls == 1, "{answer:?}");
    assert!(database.is_empty().await && database.effects().await.is_empty());
    set(&database.faults.commit_lost, 1);
    let (answer, calls) = pay(&Whole::new(database.clone()).rerun(Rerun::Pure), 0).await;
    assert!(ran(&answer) && calls == 2, "{answer:?}");
    assert_eq!(database.effects().await, ["paid"]);
}

#[tokio::test(start_paused = true)]
async fn x6_a_commit_that_nobody_can_say_anything_about_is_unknown() {
    let database = Database::default();
    set(&database.faults.answer_lost, 1);
    let whole = Whole::new(database.clone());
    let faults = Arc::clone(&database.faults);
    let answer = whole
        .once(operation("key"), Twin::Refuse, move |tx, _| {
            tx.draft.effects.push("paid".to_owned());
            // From here on nobody gets a transaction.
            set(&faults.begin, u32::MAX);
            Box::pin(async { Ok(Done::Keep(Outcome::value("receipt"), "paid")) })
        })
        .await;
    assert!(matches!(answer, Err(WholeError::Unknown(_))), "{answer:?}");
    set(&database.faults.begin, 0);
    let (again, calls) = pay(&whole, 0).await;
    assert!(matches!(again, Ok(Once::Replay { .. })) && calls == 0, "the same key says");
}

#[tokio::test(start_paused = true)]
async fn x6_a_refusal_undoes_the_work_and_keeps_the_answer() {
    let database = Database::default();
    let whole = Whole::new(database.clone());
    let refused = whole
        .once(operation("key"), Twin::Refuse, |tx, _| {
            tx.draft.effects.push("half".to_owned());
            Box::pin(async { Ok(Done::Refuse(Outcome::value("no"), ())) })
        })
        .await;
    assert!(matches!(refused, Ok(Once::Run(Ran { kept: true, .. }))), "{refused:?}");
    assert!(database.effects().await.is_empty());
    let (again, calls) = pay(&whole, 0).await;
    assert!(
        matches!(again, Ok(Once::Replay { outcome, .. }) if outcome == Outcome::value("no")) && calls == 0
    );
}

#[tokio::test(start_paused = true)]
async fn x6_what_is_not_kept_undoes_everything() {
    let database = Database::default();
    let whole = Whole::new(database.clone());
    let undone = whole
        .once(operation("key"), Twin::Refuse, |tx, _| {
            tx.draft.effects.push("half".to_owned());
            Box::pin(async { Ok(Done::RollBack("try again")) })
        })
        .await;
    assert!(matches!(undone, Ok(Once::Run(Ran { kept: false, .. }))));
    assert!(database.is_empty().await && database.effects().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn k9_a_caller_that_goes_away_changes_nothing() {
    let database = Database::default();
    let whole = Whole::new(database.clone());
    let (begun, waits) = tokio::sync::oneshot::channel();
    let (goes_on, may_go_on) = tokio::sync::oneshot::channel::<()>();
    let mut once = (Some(begun), Some(may_go_on));
    let caller = tokio::spawn({
        let whole = whole.clone();
        async move {
            whole
                .once(operation("key"), Twin::Refuse, move |tx, _| {
                    let (begun, may_go_on) = (once.0.take(), once.1.take());
                    tx.draft.effects.push("paid".to_owned());
                    Box::pin(async move {
                        begun.expect("once").send(()).expect("it waits");
                        may_go_on.expect("once").await.expect("the word");
                        Ok(Done::Keep(Outcome::value("receipt"), ()))
                    })
                })
                .await
        }
    });
    waits.await.expect("begun");
    caller.abort();
    assert!(caller.await.expect_err("aborted").is_cancelled());
    goes_on.send(()).expect("it still runs");
    let (again, calls) = pay(&whole, 0).await;
    assert!(matches!(again, Ok(Once::Replay { .. })) && calls == 0, "{again:?}");
    assert_eq!(database.effects().await, ["paid"]);
}
