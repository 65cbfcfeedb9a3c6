//! Timelines, for people.

use std::sync::Arc;
use std::time::Duration;

use super::{HistoryHarness, Trial};
use crate::history::{EVENTS_MAX, Event, History, Past, Through, What};
use crate::store::{Cause, Entry, Fence};
use crate::testing::sample::{LEASE, REMEMBER, REPLAY, attempt, complete, key, park, release, run, scope};

async fn begin<'a>(harness: &'a dyn HistoryHarness) -> (Trial<'a>, Arc<dyn History>) {
    let store = harness.open_history().await;
    (Trial { harness, store: store.clone() }, store)
}

fn event(number: u64, what: What) -> Event {
    Event {
        fence: Fence(number),
        attempt: attempt(number),
        attempts: 1,
        what,
        through: Through::Run,
        cause: None,
        ran_for: None,
        by: None,
        reason: None,
    }
}

async fn append(store: &Arc<dyn History>, event: &Event) {
    store.append(&scope(), &key("k"), event).await.expect("an event is added");
}

async fn past(store: &Arc<dyn History>) -> Vec<Past> {
    store.history(&scope(), &key("k")).await.expect("a history")
}

async fn fences(store: &Arc<dyn History>) -> Vec<u64> {
    past(store).await.iter().map(|past| past.event.fence.0).collect()
}

/// Every field comes back, with the time since it was written.
pub async fn events_are_read_as_they_were_written_oldest_first(harness: &dyn HistoryHarness) {
    let (trial, store) = begin(harness).await;
    trial.acquire(&run("k", 1)).await;
    let whole = Event {
        attempts: 3,
        cause: Some(Cause::CUT),
        ran_for: Some(Duration::from_millis(1_234)),
        by: Some("ann@host".into()),
        reason: Some("the ledger has it: é".into()),
        ..event(1, What::Parked)
    };
    append(&store, &whole).await;
    trial.advance(LEASE).await;
    for (number, (what, through)) in
        What::ALL.iter().flat_map(|what| Through::ALL.iter().map(move |by| (*what, *by))).enumerate()
    {
        append(&store, &Event { through, ..event(2 + number as u64, what) }).await;
    }
    let past = past(&store).await;
    assert_eq!(past[0].event, whole);
    trial.elapsed(past[0].ago, LEASE);
    trial.elapsed(past[1].ago, Duration::ZERO);
    assert_eq!(past.len(), 1 + What::ALL.len() * Through::ALL.len());
    let words: Vec<_> = past[1..].iter().map(|past| (past.event.what, past.event.through)).collect();
    let all = What::ALL.iter().flat_map(|what| Through::ALL.iter().map(move |by| (*what, *by)));
    assert!(words.into_iter().eq(all));
}

/// An attempt ends in one way once, so a call that is repeated adds nothing; another end of the same attempt does.
pub async fn an_event_written_again_is_one(harness: &dyn HistoryHarness) {
    let (trial, store) = begin(harness).await;
    trial.acquire(&run("k", 1)).await;
    for what in [What::Parked, What::Parked, What::Completed, What::Parked] {
        append(&store, &event(1, what)).await;
    }
    let whats: Vec<_> = past(&store).await.iter().map(|past| past.event.what).collect();
    assert_eq!(whats, [What::Parked, What::Completed]);
}

/// The bound.
pub async fn the_last_hundred_are_kept(harness: &dyn HistoryHarness) {
    let (trial, store) = begin(harness).await;
    trial.acquire(&run("k", 1)).await;
    let last = u64::from(EVENTS_MAX) + 20;
    for number in 1..=last {
        append(&store, &event(number, What::Released)).await;
    }
    assert_eq!(fences(&store).await, (21..=last).collect::<Vec<_>>());
}

/// Nothing is added where there is nothing to tell of, and other keys and scopes are not told of it.
pub async fn a_key_without_a_record_has_no_history(harness: &dyn HistoryHarness) {
    let (trial, store) = begin(harness).await;
    append(&store, &event(1, What::Parked)).await;
    assert!(past(&store).await.is_empty());
    trial.acquire(&run("k", 1)).await;
    assert!(past(&store).await.is_empty(), "what came before it is not its own");
    append(&store, &event(1, What::Parked)).await;
    trial.acquire(&run("other", 2)).await;
    assert!(store.history(&scope(), &key("other")).await.expect("a history").is_empty());
}

/// Expired it is not read, and swept it is gone.
pub async fn the_history_goes_with_the_record(harness: &dyn HistoryHarness) {
    let (trial, store) = begin(harness).await;
    trial.ended(&run("k", 1), &complete("done")).await;
    append(&store, &event(1, What::Completed)).await;
    trial.advance(REPLAY).await;
    trial.sweep().await;
    assert_eq!(fences(&store).await, [1], "as long as the key is remembered");
    trial.advance(REMEMBER).await;
    assert!(past(&store).await.is_empty(), "expired");
    trial.sweep().await;
    assert!(past(&store).await.is_empty(), "swept");
}

/// Swept in between or not.
pub async fn a_key_that_is_made_anew_begins_with_none(harness: &dyn HistoryHarness) {
    for swept in [false, true] {
        let (trial, store) = begin(harness).await;
        trial.ended(&run("k", 1), &release()).await;
        append(&store, &event(1, What::Released)).await;
        trial.advance(REMEMBER).await;
        if swept {
            trial.sweep().await;
        }
        trial.acquire(&run("k", 2)).await;
        assert!(past(&store).await.is_empty());
        append(&store, &event(2, What::Released)).await;
        assert_eq!(fences(&store).await, [2]);
    }
}

/// For people, never for a decision.
pub async fn events_change_nothing_of_the_record(harness: &dyn HistoryHarness) {
    let (trial, store) = begin(harness).await;
    trial.ended(&run("k", 1), &park()).await;
    let before = trial.entry("k").await;
    append(&store, &event(7, What::Completed)).await;
    let entry = trial.entry("k").await;
    trial.elapsed(entry.age, before.age);
    trial.elapsed(entry.since, before.since);
    assert_eq!(Entry { age: before.age, since: before.since, ..entry }, before);
    trial.answers(&run("k", 2), "unknown").await;
}
