//! Waiting for another attempt of the same operation (H8), in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use semel::testing::{Fault, FaultyStore, Random, VirtualClock, sample};
use semel::{
    Answer, Bounds, Cause, Engine, Lease, MemoryStore, OnUnknown, Operation, Outcome, Policy, Verdict,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Process {
    engine: Engine,
    store: FaultyStore,
    effects: Arc<AtomicU32>,
}

impl Process {
    fn new() -> Process {
        let memory = Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new())));
        Process::over(FaultyStore::new(memory))
    }

    fn over(store: FaultyStore) -> Process {
        let engine = Engine::new(Arc::new(store.clone()), Random::new(7).entropy());
        Process { engine, store, effects: Arc::default() }
    }

    /// A request that waits so long for another, and whose own run takes so long and ends so.
    async fn once(&self, wait: Duration, takes: Duration, verdict: Verdict) -> Answer<()> {
        let effects = self.effects.clone();
        let run = move |_: Lease| async move {
            sleep(takes).await;
            effects.fetch_add(1, Ordering::SeqCst);
            (verdict, ())
        };
        let policy = Arc::new(Policy::new(OnUnknown::Park));
        let operation =
            Operation::new(sample::scope(), sample::key("k"), sample::fingerprint("same"), policy);
        self.engine.once(operation.wait(wait), run).await
    }

    /// Somebody else's run, which has its lease when this returns.
    async fn runs(&self, takes: Duration, verdict: Verdict) -> JoinHandle<Answer<()>> {
        let process = self.clone();
        let other = tokio::spawn(async move { process.once(Duration::ZERO, takes, verdict).await });
        sleep(Duration::from_millis(1)).await;
        other
    }

    /// A caller that waits, of its own.
    fn waits(&self, wait: Duration) -> JoinHandle<Answer<()>> {
        let process = self.clone();
        tokio::spawn(async move { process.once(wait, SECOND, keep()).await })
    }

    fn claims(&self) -> usize {
        self.store.calls().iter().filter(|verb| **verb == "claim").count()
    }

    fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }
}

fn keep() -> Verdict {
    Verdict::Keep(Outcome::value("done"))
}

fn released() -> Verdict {
    Verdict::Release { not_before: None, unbind: false, cause: None }
}

#[tokio::test(start_paused = true)]
async fn h8_without_a_wait_nobody_is_held() {
    let process = Process::new();
    let other = process.runs(10 * SECOND, keep()).await;
    let begun = Instant::now();
    assert!(matches!(process.once(Duration::ZERO, SECOND, keep()).await, Answer::InFlight { .. }));
    assert_eq!((begun.elapsed(), process.claims()), (Duration::ZERO, 2));
    other.abort();
}

#[tokio::test(start_paused = true)]
async fn h8_who_waits_gets_the_replay_soon_after_the_other_has_ended() {
    let process = Process::new();
    process.runs(5 * SECOND, keep()).await;
    let begun = Instant::now();
    assert!(matches!(process.once(30 * SECOND, SECOND, keep()).await, Answer::Replay { .. }));
    assert!(begun.elapsed() <= 6 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(process.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn h8_a_short_run_is_not_waited_for_much_longer_than_it_takes() {
    let process = Process::new();
    process.runs(Duration::from_millis(20), keep()).await;
    let begun = Instant::now();
    assert!(matches!(process.once(30 * SECOND, SECOND, keep()).await, Answer::Replay { .. }));
    assert!(begun.elapsed() <= Duration::from_millis(100), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn h8_who_waits_runs_when_the_other_was_released() {
    let process = Process::new();
    process.runs(5 * SECOND, released()).await;
    assert!(matches!(process.once(30 * SECOND, SECOND, keep()).await, Answer::Ran { .. }));
    assert_eq!(process.effects(), 2);
}

#[tokio::test(start_paused = true)]
async fn h8_what_becomes_unknown_is_told_and_not_waited_for() {
    let process = Process::new();
    process.runs(5 * SECOND, Verdict::Unknown(Cause::CUT)).await;
    let begun = Instant::now();
    assert!(matches!(process.once(30 * SECOND, SECOND, keep()).await, Answer::Unknown { .. }));
    assert!(begun.elapsed() <= 6 * SECOND, "{:?}", begun.elapsed());
}

/// To the end of its time and not beyond, with pauses that grow.
#[tokio::test(start_paused = true)]
async fn h8_the_wait_is_bounded_and_the_pauses_grow() {
    let process = Process::new();
    let other = process.runs(100 * SECOND, keep()).await;
    let begun = Instant::now();
    let answer = process.once(20 * SECOND, SECOND, keep()).await;
    assert!(matches!(answer, Answer::InFlight { age, .. } if age >= 20 * SECOND), "{answer:?}");
    assert_eq!(begun.elapsed(), 20 * SECOND);
    let claims = process.claims();
    assert!((20..80).contains(&claims), "{claims} claims in 20 s");
    other.abort();
}

#[tokio::test(start_paused = true)]
async fn h8_who_has_gone_away_waits_no_longer() {
    let process = Process::new();
    process.runs(100 * SECOND, keep()).await;
    let waiter = process.waits(60 * SECOND);
    sleep(5 * SECOND).await;
    waiter.abort();
    sleep(2 * SECOND).await;
    let claims = process.claims();
    sleep(30 * SECOND).await;
    assert_eq!(process.claims(), claims);
}

/// The claim is on its way when the caller goes: what it gets is run (K9).
#[tokio::test(start_paused = true)]
async fn h8_k9_a_waiter_whose_claim_was_just_given_is_run_although_it_has_gone_away() {
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = is_slow.clone();
    let memory = Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new())));
    // Done, and the answer is lost after the engine's patience with one call; the next one is as ever.
    let store = FaultyStore::deciding(memory, move |verb| {
        (verb == "claim" && slow.swap(false, Ordering::SeqCst)).then_some(Fault::HangAfter)
    });
    let process = Process::over(store);
    process.runs(5 * SECOND, released()).await;
    let waiter = process.waits(60 * SECOND);
    sleep(5 * SECOND).await;
    is_slow.store(true, Ordering::SeqCst);
    while is_slow.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(10)).await;
    }
    waiter.abort();
    sleep(10 * SECOND).await;
    assert_eq!(process.effects(), 2);
    assert!(matches!(process.once(Duration::ZERO, SECOND, keep()).await, Answer::Replay { .. }));
}

#[tokio::test(start_paused = true)]
async fn h8_so_many_wait_and_the_next_is_told_at_once() {
    let mut process = Process::new();
    process.engine = process.engine.with_bounds(Bounds { waiters_max: 2, ..Bounds::default() });
    process.runs(10 * SECOND, keep()).await;
    let waiters = [process.waits(30 * SECOND), process.waits(30 * SECOND)];
    sleep(SECOND).await;
    let begun = Instant::now();
    assert!(matches!(process.once(30 * SECOND, SECOND, keep()).await, Answer::InFlight { .. }));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    for waiter in waiters {
        assert!(matches!(waiter.await.unwrap(), Answer::Replay { .. }));
    }
    process.runs(10 * SECOND, keep()).await;
    assert!(matches!(process.once(30 * SECOND, SECOND, keep()).await, Answer::Replay { .. }));
}

/// A place is for waiting: it is free again when the waiter's own run begins.
#[tokio::test(start_paused = true)]
async fn h8_a_waiter_that_runs_holds_no_place() {
    let mut process = Process::new();
    process.engine = process.engine.with_bounds(Bounds { waiters_max: 1, ..Bounds::default() });
    process.runs(SECOND, released()).await;
    let running = {
        let process = process.clone();
        tokio::spawn(async move { process.once(10 * SECOND, 10 * SECOND, keep()).await })
    };
    sleep(3 * SECOND).await;
    let waiter = process.once(30 * SECOND, SECOND, keep()).await;
    assert!(matches!(waiter, Answer::Replay { .. }), "{waiter:?}");
    assert!(matches!(running.await.unwrap(), Answer::Ran { .. }));
}

#[tokio::test(start_paused = true)]
async fn h8_nobody_waits_while_the_process_stops() {
    let process = Process::new();
    let other = process.runs(10 * SECOND, keep()).await;
    let waiter = process.waits(60 * SECOND);
    sleep(SECOND).await;
    let begun = Instant::now();
    let stopping = {
        let engine = process.engine.clone();
        tokio::spawn(async move { engine.drain(30 * SECOND).await })
    };
    assert!(matches!(waiter.await.unwrap(), Answer::InFlight { .. }));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(stopping.await.unwrap(), 0);
    assert!(matches!(other.await.unwrap(), Answer::Ran { .. }));
}

#[tokio::test(start_paused = true)]
async fn h8_a_wait_for_ever_is_one_for_a_very_long_time() {
    let process = Process::new();
    process.runs(3_000 * SECOND, keep()).await;
    assert!(matches!(process.once(Duration::MAX, SECOND, keep()).await, Answer::Replay { .. }));
}
