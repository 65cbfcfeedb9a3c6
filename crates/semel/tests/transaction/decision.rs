//! The engine decides in two places of code: for a run under a lease, and for one in a transaction. They say the same.

use std::sync::Arc;
use std::time::Duration;

use semel::testing::clock::ManualClock;
use semel::testing::sample;
use semel::{
    Age, Algorithm, Answer, Asking, Claim, ClaimRequest, Engine, Entropy, Fingerprint, Heard, MemoryStore,
    OnUnknown, Once, Operation, Outcome, Policy, Purpose, Settlement, Store, Verdict,
};

/// What each of the two says, in one word.
fn word<T>(answer: &Answer<T>) -> String {
    let text = match answer {
        Answer::Ran { .. } => "run",
        Answer::Replay { .. } => "replay",
        Answer::InFlight { .. } => "in flight",
        Answer::Mismatch => "mismatch",
        Answer::Unknown { .. } => "unknown",
        Answer::Dead { .. } => "dead",
        Answer::Forgotten { .. } => "forgotten",
        Answer::OutOfAge => "out of age",
        Answer::Unavailable(_) => "error",
        _ => "another",
    };
    text.to_owned()
}

fn word_of(once: &Once<(), ()>) -> String {
    let text = match once {
        Once::Run(()) => "run",
        Once::Replay { .. } => "replay",
        Once::InFlight { .. } => "in flight",
        Once::Mismatch { .. } => "mismatch",
        Once::Unknown { .. } => "unknown",
        Once::Dead { .. } => "dead",
        Once::Forgotten { .. } => "forgotten",
        Once::OutOfAge { .. } => "out of age",
    };
    text.to_owned()
}

/// Asks as a transaction does, of a store that has none.
async fn in_transaction(store: &dyn Store, operation: &Operation) -> String {
    let mut asking = Asking::of(operation, sample::attempt(1_000));
    loop {
        let claim = store.claim(asking.request()).await.expect("an answer");
        match asking.hear(claim) {
            Ok(Heard::Again) => {}
            Ok(Heard::Run(_)) => return word_of(&Once::Run(())),
            Ok(Heard::GiveBack(lease, settlement)) => {
                store.settle(&lease, &settlement).await.expect("given back");
                return word_of(&Once::OutOfAge { tx: () });
            }
            Ok(Heard::Told(told)) => return word_of(&told.with(())),
            Err(_) => return "error".to_owned(),
        }
    }
}

async fn under_a_lease(store: Arc<MemoryStore>, operation: Operation) -> String {
    let engine = Engine::new(store, Entropy::system());
    word(&engine.once(operation, |_| async { (Verdict::Keep(Outcome::value("done")), ()) }).await)
}

/// A record in each state, and what may be asked of it.
async fn prepared(state: &str) -> Arc<MemoryStore> {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let claim = async |request: ClaimRequest| sample::lease(store.claim(&request).await.expect("a claim"));
    let settle = async |settlement: Settlement| {
        let lease = claim(sample::run("key", 1)).await;
        store.settle(&lease, &settlement).await.expect("settled");
    };
    match state {
        "absent" => {}
        "running" => drop(claim(sample::run("key", 1)).await),
        "lapsed" => {
            claim(sample::run("key", 1)).await;
            clock.advance(sample::LEASE);
        }
        "completed" => settle(sample::complete("done")).await,
        "forgotten" => {
            settle(sample::complete("done")).await;
            clock.advance(sample::REPLAY);
        }
        "released" => settle(sample::release()).await,
        "unknown" => settle(Settlement::Park { cause: semel::Cause::CUT }).await,
        "dead" => settle(Settlement::Bury { cause: semel::Cause::SAID }).await,
        "older" | "ancient" => {
            let number = if state == "older" { 7 } else { 9 };
            let made = Fingerprint::builder(Algorithm(number)).part(b"same").finish();
            let purpose = Purpose::Run { fingerprint: made, rerun: false, attempts_max: 9 };
            claim(ClaimRequest { purpose, ..sample::run("key", 1) }).await;
        }
        other => panic!("no such state: {other}"),
    }
    store
}

fn operations() -> Vec<(&'static str, Operation)> {
    let plain = |on_unknown| {
        let fingerprint = sample::fingerprint("same");
        Operation::new(sample::scope(), sample::key("key"), fingerprint, Arc::new(Policy::new(on_unknown)))
            .fingerprint_by(|algorithm| {
                (algorithm == Algorithm(7)).then(|| Fingerprint::builder(algorithm).part(b"same").finish())
            })
    };
    let other = Operation::new(
        sample::scope(),
        sample::key("key"),
        sample::fingerprint("other"),
        Arc::new(Policy::new(OnUnknown::Park)),
    );
    let once = Policy { attempts_max: 1, ..Policy::new(OnUnknown::Rerun) };
    let tired =
        Operation::new(sample::scope(), sample::key("key"), sample::fingerprint("same"), Arc::new(once));
    let day = Duration::from_secs(24 * 60 * 60);
    vec![
        ("park", plain(OnUnknown::Park)),
        ("rerun", plain(OnUnknown::Rerun)),
        ("probe", plain(OnUnknown::Probe)),
        ("another request", other),
        ("one attempt", tired),
        ("too old", plain(OnUnknown::Park).aged(Age::Ago(31 * day))),
        ("too far ahead", plain(OnUnknown::Rerun).aged(Age::Ahead(2 * day))),
    ]
}

#[tokio::test]
async fn x1_a_transaction_is_told_what_a_run_under_a_lease_is_told() {
    let mut seen = std::collections::BTreeSet::new();
    let states = [
        "absent",
        "running",
        "lapsed",
        "completed",
        "forgotten",
        "released",
        "unknown",
        "dead",
        "older",
        "ancient",
    ];
    for state in states {
        for (name, operation) in operations() {
            let leased = under_a_lease(prepared(state).await, operation.clone()).await;
            let asked = in_transaction(prepared(state).await.as_ref(), &operation).await;
            assert_eq!(leased, asked, "{state}, {name}");
            seen.insert(asked);
        }
    }
    assert_eq!(seen.len(), 9, "every answer was compared, not only {seen:?}");
}

#[test]
fn a_run_is_never_told_that_the_record_has_moved() {
    let (_, operation) = operations().swap_remove(0);
    let mut asking = Asking::of(&operation, sample::attempt(1));
    assert!(asking.hear(Claim::Moved).is_err());
}
