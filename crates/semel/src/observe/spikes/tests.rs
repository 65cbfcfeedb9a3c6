//! Synthetic traffic of each kind, in virtual time.

use std::sync::Arc;

use tokio::time::{advance, sleep};

use super::*;
use crate::environment::Entropy;
use crate::fingerprint::{Algorithm, Fingerprint};
use crate::{Engine, MemoryStore, OnUnknown, Operation, Outcome, Policy, Verdict};

fn scope(name: &str) -> Scope {
    Scope::new(name).unwrap()
}

fn key(number: u32) -> Key {
    Key::new(format!("key-{number}")).unwrap()
}

fn saw(spikes: &Spikes, number: u32, seen: Seen) -> Option<Spike> {
    spikes.watch(&scope("http:shop:a"), &key(number), seen, Instant::now())
}

/// So many claims, one after the other at that gap, over so many keys in turn. What is said.
async fn traffic(spikes: &Spikes, claims: u32, keys: u32, gap: Duration, seen: Seen) -> Vec<Spike> {
    let mut said = Vec::new();
    for number in 0..claims {
        said.extend(saw(spikes, number % keys, seen));
        advance(gap).await;
    }
    said
}

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn v3_in_flight_at_short_gaps_is_a_client_without_backoff() {
    let said = traffic(&Spikes::default(), 200, 4, 50 * MS, Seen::InFlight).await;
    let [spike] = &said[..] else { panic!("said once: {said:?}") };
    assert_eq!(
        (spike.likely, spike.duplicates, spike.claims, spike.scope.as_str()),
        (Likely::NoBackoff, 50, 50, "http:shop:a")
    );
    assert_eq!(spike.lasts, 49 * 50 * MS, "since its first duplicate");
}

#[tokio::test(start_paused = true)]
async fn v3_in_flight_at_long_gaps_is_a_slow_handler() {
    let said = traffic(&Spikes::default(), 60, 3, 900 * MS, Seen::InFlight).await;
    assert_eq!(said.iter().map(|spike| spike.likely).collect::<Vec<_>>(), [Likely::SlowHandler]);
}

#[tokio::test(start_paused = true)]
async fn v3_replays_right_after_slow_runs_are_a_slow_handler() {
    let spikes = Spikes::default();
    saw(&spikes, 0, Seen::InFlight);
    spikes.ran(&scope("http:shop:a"), 5_000 * MS);
    let said = traffic(&spikes, 50, 50, 100 * MS, Seen::Replay { age: 6_000 * MS }).await;
    assert_eq!(said.iter().map(|spike| spike.likely).collect::<Vec<_>>(), [Likely::SlowHandler]);
}

/// The same replays without a slow run before them, and after one that is long ago.
#[tokio::test(start_paused = true)]
async fn v3_replays_are_no_slow_handlers_where_nothing_was_slow() {
    let young = Seen::Replay { age: 6_000 * MS };
    let said = traffic(&Spikes::default(), 50, 50, 100 * MS, young).await;
    assert_eq!(said.iter().map(|spike| spike.likely).collect::<Vec<_>>(), [Likely::Unclear]);
    let spikes = Spikes::default();
    saw(&spikes, 0, Seen::InFlight);
    spikes.ran(&scope("http:shop:a"), 5_000 * MS);
    let said = traffic(&spikes, 50, 50, 100 * MS, Seen::Replay { age: 60_000 * MS }).await;
    assert_eq!(said.iter().map(|spike| spike.likely).collect::<Vec<_>>(), [Likely::Unclear]);
}

#[tokio::test(start_paused = true)]
async fn v3_mismatches_are_a_key_that_is_used_again() {
    let said = traffic(&Spikes::default(), 50, 1, 200 * MS, Seen::Mismatch).await;
    assert_eq!(said.iter().map(|spike| spike.likely).collect::<Vec<_>>(), [Likely::KeyReused]);
}

#[tokio::test(start_paused = true)]
async fn v3_replays_at_even_intervals_are_a_loop_that_ignores_success() {
    for gap in [500, 2_000] {
        // Five keys in turn, so each of them comes back at even intervals.
        let spikes = Spikes::default();
        let said = traffic(&spikes, 60, 5, gap / 5 * MS, Seen::Replay { age: 3_600_000 * MS }).await;
        assert_eq!(said.iter().map(|spike| spike.likely).collect::<Vec<_>>(), [Likely::RetryLoop], "{gap}");
    }
}

#[tokio::test(start_paused = true)]
async fn v3_what_waits_and_what_fails_have_names_too() {
    for (seen, likely) in [(Seen::Waiting, Likely::Waiting), (Seen::Again, Likely::Failing)] {
        let said = traffic(&Spikes::default(), 50, 10, 100 * MS, seen).await;
        assert_eq!(said.iter().map(|spike| spike.likely).collect::<Vec<_>>(), [likely]);
    }
}

#[tokio::test(start_paused = true)]
async fn v3_few_duplicates_and_a_small_share_are_no_spike() {
    assert_eq!(traffic(&Spikes::default(), 49, 1, MS, Seen::InFlight).await, []);
    // More than fifty, but not in one minute.
    assert_eq!(traffic(&Spikes::default(), 200, 1, 1_300 * MS, Seen::InFlight).await, []);
    // Many, and one in six.
    let spikes = Spikes::default();
    for number in 0..100 {
        assert_eq!(saw(&spikes, number, Seen::InFlight), None);
        assert_eq!(traffic(&spikes, 5, 5, 10 * MS, Seen::First).await, []);
    }
    // One in five is a spike.
    let spikes = Spikes::default();
    saw(&spikes, 0, Seen::InFlight);
    let mut said = Vec::new();
    for number in 0..100 {
        traffic(&spikes, 4, 4, 10 * MS, Seen::First).await;
        said.extend(saw(&spikes, number, Seen::InFlight));
    }
    assert_eq!(said.len(), 1, "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn v3_a_spike_that_goes_on_is_said_every_ten_minutes_with_its_beginning() {
    let spikes = Spikes::default();
    let said = traffic(&spikes, 25 * 60 * 10, 2, 100 * MS, Seen::InFlight).await;
    let lasts: Vec<_> = said.iter().map(|spike| spike.lasts.as_secs() / 60).collect();
    assert_eq!(lasts, [0, 10, 20]);
    // It ends, and the next one is a new one.
    advance(MINUTE * 5).await;
    let said = traffic(&spikes, 100, 2, 100 * MS, Seen::InFlight).await;
    assert_eq!(said.iter().map(|spike| spike.lasts.as_secs()).collect::<Vec<_>>(), [4]);
}

#[tokio::test(start_paused = true)]
async fn v3_memory_is_bounded_and_a_busy_scope_keeps_its_place() {
    let spikes = Spikes::default();
    let busy = scope("busy");
    let mut said = 0;
    for number in 0..4_000 {
        let other = scope(&format!("scope-{number}"));
        assert_eq!(spikes.watch(&other, &key(1), Seen::InFlight, Instant::now()), None);
        said += u32::from(spikes.watch(&busy, &key(number), Seen::InFlight, Instant::now()).is_some());
        advance(MS).await;
    }
    assert_eq!(said, 1);
    let scopes = spikes.scopes.lock().unwrap();
    assert_eq!(scopes.len(), SCOPES_MAX);
    assert_eq!(scopes[&busy].keys.len(), KEYS_MAX);
    assert!(!scopes.contains_key(&scope("scope-0")));
}

/// A scope without duplicates costs a look, and no memory.
#[tokio::test(start_paused = true)]
async fn v3_first_claims_take_no_place() {
    let spikes = Spikes::default();
    traffic(&spikes, 1_000, 1_000, MS, Seen::First).await;
    assert!(spikes.scopes.lock().unwrap().is_empty());
}

/// Through the engine: what it decided is what is seen, and a run's length too.
#[tokio::test(start_paused = true)]
async fn v3_the_engine_tells_what_it_decided() {
    let engine = Engine::new(Arc::new(MemoryStore::new()), Entropy::system());
    let operation = |number: u32| {
        let fingerprint = Fingerprint::builder(Algorithm(1)).finish();
        let policy = Arc::new(Policy::new(OnUnknown::Park));
        Operation::new(scope("http:shop:a"), key(number), fingerprint, policy)
    };
    let run = async |number| {
        let slow = |_| async {
            sleep(3_000 * MS).await;
            (Verdict::Keep(Outcome::value("done")), ())
        };
        engine.once(operation(number), slow).await
    };
    // Its caller gives up after a second, is told in flight, and then gets the replay.
    for number in 0..15 {
        let first = run(number);
        let retry = async {
            sleep(1_000 * MS).await;
            run(number).await;
            sleep(2_500 * MS).await;
            run(number).await;
        };
        tokio::join!(first, retry);
    }
    let scopes = engine.spikes.scopes.lock().unwrap();
    let watched = &scopes[&scope("http:shop:a")];
    let Tally { replays, after_slow, in_flight, .. } = watched.seen;
    assert_eq!((replays, after_slow, in_flight, watched.claims), (15, 15, 15, 44));
    assert_eq!(watched.seen.likely(), Likely::SlowHandler);
}
