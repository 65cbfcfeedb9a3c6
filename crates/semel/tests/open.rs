//! What waits for somebody, as it is shown: counted by cause, the oldest first, within a bound. And what is counted of
//! each decision.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use semel::observe::Meters;
use semel::testing::{Fault, FaultyStore, Random, VirtualClock, sample};
use semel::{
    Cause, Engine, MemoryStore, OnUnknown, Open, Operation, Outcome, Policy, Store, Verdict, Waiting,
};
use tokio::time::advance;

const SECOND: Duration = Duration::from_secs(1);

fn engine(store: Arc<dyn Store>) -> Engine {
    Engine::new(store, Random::new(7).entropy())
}

fn operation(key: &str, content: &str) -> Operation {
    let policy = Policy { attempts_max: 2, ..Policy::new(OnUnknown::Park) };
    Operation::new(sample::scope(), sample::key(key), sample::fingerprint(content), Arc::new(policy))
}

async fn ends(engine: &Engine, key: &str, verdict: Verdict) {
    engine.once(operation(key, "same"), |_| async { (verdict, ()) }).await;
}

fn waiting(causes: &[(&str, u32)], oldest: u64) -> Waiting {
    let by_cause = causes.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
    Waiting { by_cause, oldest: Some(Duration::from_secs(oldest)) }
}

#[tokio::test(start_paused = true)]
async fn v1_what_is_open_is_counted_by_cause_with_the_age_of_the_oldest() {
    let engine = engine(Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new()))));
    assert_eq!(engine.open(100).await.unwrap(), Open::default());
    ends(&engine, "a", Verdict::Unknown(Cause::CUT)).await;
    advance(5 * SECOND).await;
    ends(&engine, "b", Verdict::Unknown(Cause::CUT)).await;
    ends(&engine, "c", Verdict::Unknown(Cause::TIMEOUT)).await;
    ends(&engine, "d", Verdict::Bury(Cause::ATTEMPTS_EXHAUSTED)).await;
    ends(&engine, "e", Verdict::Keep(Outcome::value("done"))).await;
    ends(&engine, "f", Verdict::NotRun).await;
    advance(2 * SECOND).await;
    let unknown = waiting(&[("cut", 2), ("timeout", 1)], 7);
    let open = engine.open(100).await.unwrap();
    assert_eq!(open, Open { unknown, dead: waiting(&[("attempts-exhausted", 1)], 2), more: false });
    assert_eq!((open.unknown.total(), open.dead.total()), (3, 1));
}

/// More than it may look at is said, and the oldest is among what was looked at.
#[tokio::test(start_paused = true)]
async fn v1_the_look_is_bounded_and_says_so() {
    let engine = engine(Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new()))));
    for number in 0..600 {
        ends(&engine, &format!("k{number:03}"), Verdict::Unknown(Cause::CUT)).await;
        advance(SECOND).await;
    }
    for (at_most, counted, more) in
        [(599, 599, true), (600, 600, false), (601, 600, false), (250, 250, true), (0, 0, true)]
    {
        let open = engine.open(at_most).await.unwrap();
        assert_eq!((open.unknown.total(), open.more), (counted, more), "{at_most}");
        assert_eq!(open.unknown.oldest, (at_most > 0).then_some(600 * SECOND));
    }
}

#[tokio::test(start_paused = true)]
async fn v1_a_look_that_fails_is_an_error_and_no_nought() {
    let store = FaultyStore::deciding(Arc::new(MemoryStore::new()), |_| Some(Fault::Before));
    assert!(engine(Arc::new(store)).open(100).await.is_err());
}

/// Counters by name and labels.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Counts {
    /// Of those that are not nought.
    fn all(&self) -> BTreeMap<String, u64> {
        let counts = self.0.lock().unwrap();
        let read = counts.iter().map(|(name, count)| (name.clone(), count.load(Ordering::SeqCst)));
        read.filter(|(_, count)| *count > 0).collect()
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<String> = key.labels().map(|label| label.value().to_owned()).collect();
        let name = format!("{} {}", key.name(), labels.join(" "));
        Counter::from_arc(self.0.lock().unwrap().entry(name).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// V1: each decision once, by its surface and route; a retry of what was released is a duplicate too, and a mismatch none.
#[tokio::test(start_paused = true)]
async fn v1_each_decision_is_counted_once_and_duplicates_beside_them() {
    let counts = Counts::default();
    let _recording = metrics::set_default_local_recorder(&counts);
    let engine = engine(Arc::new(MemoryStore::new()));
    let meters = Arc::new(Meters::new("gateway", "POST /charges"));
    let call = async |key, content, verdict| {
        let operation = operation(key, content).meters(meters.clone());
        engine.once(operation, |_| async { (verdict, ()) }).await;
    };
    let done = || Verdict::Keep(Outcome::value("done"));
    let failed = || Verdict::Release { not_before: None, unbind: false, cause: None };
    call("a", "same", done()).await;
    call("a", "same", done()).await;
    call("a", "other", done()).await;
    call("b", "same", failed()).await;
    call("b", "same", done()).await;
    call("c", "same", Verdict::Unknown(Cause::CUT)).await;
    call("c", "same", done()).await;
    engine.drain(SECOND).await;
    call("a", "same", done()).await;
    let of_route = |name: &str, result: &str, count| (format!("{name} {result}gateway POST /charges"), count);
    let expected = [
        of_route("semel_claims_total", "run ", 4),
        of_route("semel_claims_total", "replay ", 1),
        of_route("semel_claims_total", "mismatch ", 1),
        of_route("semel_claims_total", "unknown ", 1),
        of_route("semel_claims_total", "stopping ", 1),
        of_route("semel_duplicates_total", "", 3),
        ("semel_settlements_total completed".to_owned(), 2),
        ("semel_settlements_total released".to_owned(), 1),
        ("semel_settlements_total unknown".to_owned(), 1),
    ];
    assert_eq!(counts.all(), expected.into());
}

/// Where what is unavailable passes by, that is what it is counted as.
#[tokio::test(start_paused = true)]
async fn v1_what_passes_by_is_no_unavailable_claim() {
    let counts = Counts::default();
    let _recording = metrics::set_default_local_recorder(&counts);
    let engine =
        engine(Arc::new(FaultyStore::deciding(Arc::new(MemoryStore::new()), |_| Some(Fault::Before))));
    for (lets_by, result) in [(true, "bypass"), (false, "unavailable")] {
        let meters = Arc::new(Meters::new("gateway", result).letting_by(lets_by));
        engine.once(operation("a", "same").meters(meters), |_| async { (Verdict::NotRun, ()) }).await;
        assert_eq!(counts.all().get(&format!("semel_claims_total {result} gateway {result}")), Some(&1));
    }
}
