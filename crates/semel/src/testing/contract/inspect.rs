//! Listing records, for people.

use std::sync::Arc;

use super::{InspectHarness, Trial};
use crate::inspect::{Filter, Inspect, StateName};
use crate::key::Scope;
use crate::store::{ClaimRequest, Entry};
use crate::testing::sample::{LEASE, REPLAY, bury, complete, key, park, release, run, scope};

async fn begin<'a>(harness: &'a dyn InspectHarness) -> (Trial<'a>, Arc<dyn Inspect>) {
    let store = harness.open_inspect().await;
    (Trial { harness, store: store.clone() }, store)
}

async fn list(store: &Arc<dyn Inspect>, filter: &Filter) -> Vec<String> {
    texts(&store.list(filter, None, 100).await.expect("a list"))
}

fn texts(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.key.as_str().to_owned()).collect()
}

fn elsewhere(key: &str) -> ClaimRequest {
    ClaimRequest { scope: Scope::new("test:a").expect("a scope"), ..run(key, 1) }
}

/// Records come in the order of their keys' bytes.
pub async fn a_list_is_in_the_order_of_keys(harness: &dyn InspectHarness) {
    let (trial, store) = begin(harness).await;
    for text in ["b", "a", "B", "é", "a ", "z"] {
        trial.acquire(&run(text, 1)).await;
    }
    assert_eq!(list(&store, &Filter::default()).await, ["B", "a", "a ", "b", "z", "é"]);
}

/// A page goes on behind the last entry of the one before, also among the scopes of one key.
pub async fn a_list_comes_in_pages(harness: &dyn InspectHarness) {
    let (trial, store) = begin(harness).await;
    for number in 0..8 {
        trial.acquire(&run(&format!("k{number}"), 1)).await;
        trial.acquire(&elsewhere(&format!("k{number}"))).await;
    }
    let place = |entry: &Entry| (entry.key.clone(), entry.scope.clone());
    let all = store.list(&Filter::default(), None, 100).await.expect("a list");
    assert_eq!(all.len(), 16);
    for limit in [1, 3, 16] {
        let mut paged: Vec<Entry> = Vec::new();
        loop {
            let after = paged.last().map(|entry| entry.cursor.clone());
            let page = store.list(&Filter::default(), after.as_ref(), limit).await.expect("a list");
            assert!(page.len() <= limit as usize);
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        let places = |entries: &[Entry]| entries.iter().map(place).collect::<Vec<_>>();
        assert_eq!(places(&paged), places(&all), "in pages of {limit}");
    }
}

/// A state is what the record reads as now; what counts as absent is not listed.
pub async fn a_list_is_filtered_by_state(harness: &dyn InspectHarness) {
    let (trial, store) = begin(harness).await;
    trial.ended(&run("released", 1), &release()).await;
    trial.ended(&run("forgotten", 1), &complete("done")).await;
    trial.acquire(&run("lapsed", 1)).await;
    trial.advance(REPLAY).await;
    trial.ended(&run("completed", 1), &complete("done")).await;
    trial.ended(&run("unknown", 1), &park()).await;
    trial.ended(&run("dead", 1), &bury()).await;
    trial.acquire(&run("running", 1)).await;
    for state in StateName::ALL {
        let filter = Filter { state: Some(state), ..Filter::default() };
        let expected = match state {
            StateName::Unknown => vec!["lapsed", "unknown"],
            other => vec![other.as_str()],
        };
        assert_eq!(list(&store, &filter).await, expected);
    }
    trial.advance(REPLAY * 1_000).await;
    let names = list(&store, &Filter::default()).await;
    assert_eq!(names, ["dead", "lapsed", "running", "unknown"], "the others are forgotten");
}

/// Only the records of one scope, exactly.
pub async fn a_list_is_filtered_by_scope(harness: &dyn InspectHarness) {
    let (trial, store) = begin(harness).await;
    trial.acquire(&run("here", 1)).await;
    trial.acquire(&elsewhere("there")).await;
    let filter = Filter { scope: Some(scope()), ..Filter::default() };
    assert_eq!(list(&store, &filter).await, ["here"]);
}

/// Only keys that begin so, together with the other conditions, in pages too.
pub async fn a_list_is_filtered_by_prefix(harness: &dyn InspectHarness) {
    let (trial, store) = begin(harness).await;
    for text in ["order-1", "order-2", "order-3", "Order-4", "orde"] {
        trial.ended(&run(text, 1), &park()).await;
    }
    trial.acquire(&run("order-5", 1)).await;
    let prefix = Some("order-".to_owned());
    let filter = Filter { prefix: prefix.clone(), ..Filter::default() };
    assert_eq!(list(&store, &filter).await, ["order-1", "order-2", "order-3", "order-5"]);
    let filter = Filter { prefix, state: Some(StateName::Unknown), ..Filter::default() };
    assert_eq!(list(&store, &filter).await, ["order-1", "order-2", "order-3"]);
    let first = store.list(&filter, None, 2).await.expect("a list");
    let rest = store.list(&filter, Some(&first[1].cursor), 2).await.expect("a list");
    assert_eq!(
        (texts(&first), texts(&rest)),
        (vec!["order-1".into(), "order-2".into()], vec!["order-3".into()])
    );
}

/// A prefix is text: nothing in it is a wildcard, and it need not end at a character that a key can end with.
pub async fn a_prefix_is_no_pattern(harness: &dyn InspectHarness) {
    let (trial, store) = begin(harness).await;
    for text in ["a%b", "a_b", "axb", "a\\b", "a'b", "a*b", "\u{10ffff}", "\u{10ffff}\u{10ffff}"] {
        trial.acquire(&run(text, 1)).await;
    }
    for (prefix, expected) in [("a%", "a%b"), ("a_", "a_b"), ("a\\", "a\\b"), ("a'", "a'b"), ("a*", "a*b")] {
        let filter = Filter { prefix: Some(prefix.to_owned()), ..Filter::default() };
        assert_eq!(list(&store, &filter).await, [expected]);
    }
    let filter = Filter { prefix: Some("\u{10ffff}".to_owned()), ..Filter::default() };
    assert_eq!(list(&store, &filter).await.len(), 2);
    let filter = Filter { prefix: Some(String::new()), ..Filter::default() };
    assert_eq!(list(&store, &filter).await.len(), 8);
}

/// One key in all its scopes, in their order; what counts as absent is not found.
pub async fn a_key_is_found_in_every_scope(harness: &dyn InspectHarness) {
    let (trial, store) = begin(harness).await;
    trial.acquire(&run("k", 1)).await;
    trial.acquire(&elsewhere("k")).await;
    trial.acquire(&elsewhere("k2")).await;
    trial.ended(&run("gone", 1), &complete("done")).await;
    let found = store.find_key(&key("k"), 10).await.expect("a list");
    let scopes: Vec<_> = found.iter().map(|entry| entry.scope.as_str()).collect();
    assert_eq!(scopes, ["test:a", "test:contract"]);
    assert_eq!(store.find_key(&key("k"), 1).await.expect("a list").len(), 1);
    trial.advance(LEASE + REPLAY * 1_000).await;
    assert_eq!(store.find_key(&key("gone"), 10).await.expect("a list"), []);
}
