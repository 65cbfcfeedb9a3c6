//! Scenarios of the engine with each of their store calls failed in every way: the effect takes place as often as
//! it should, the answer is the true one, and the record ends right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use semel::testing::fault::at_every_call;
use semel::testing::{Fault, FaultyStore, Harness, Random, VirtualClock, sample};
use semel::{
    Answer, Cause, Engine, Entry, MemoryStore, OnUnknown, Operation, Outcome, Policy, Resolved, Settlement,
    Store, StoreError, Verdict, View,
};

struct Memory;

#[async_trait]
impl Harness for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new())))
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        panic!("nothing here asks for a second handle")
    }

    async fn advance(&self, by: Duration) {
        tokio::time::advance(by).await;
    }
}

/// One process: an engine over the failing store, and how often its effect took place.
struct Process {
    engine: Engine,
    store: FaultyStore,
    effects: Arc<AtomicU32>,
}

impl Process {
    fn new(store: FaultyStore) -> Process {
        let engine = Engine::new(Arc::new(store.clone()), Random::new(1).entropy());
        Process { engine, store, effects: Arc::default() }
    }

    /// One run that takes so long, takes effect, and ends so.
    async fn once(&self, takes: Duration, verdict: Verdict) -> Answer<&'static str> {
        self.once_by(OnUnknown::Park, takes, verdict).await
    }

    async fn once_by(
        &self,
        on_unknown: OnUnknown,
        takes: Duration,
        verdict: Verdict,
    ) -> Answer<&'static str> {
        let effects = self.effects.clone();
        let run = move |_| async move {
            tokio::time::sleep(takes).await;
            effects.fetch_add(1, Ordering::SeqCst);
            (verdict, "mine")
        };
        self.engine.once(operation(on_unknown), run).await
    }

    fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    async fn entry(&self) -> Entry {
        let found = self.store.inner().find(&sample::scope(), &sample::key("k")).await;
        found.expect("a record is read").expect("there is a record")
    }

    async fn reads(&self, name: &str) {
        let entry = self.entry().await;
        assert_eq!(entry.view.name(), name, "{entry:?}");
    }
}

fn operation(on_unknown: OnUnknown) -> Operation {
    let policy = Arc::new(Policy::new(on_unknown));
    Operation::new(sample::scope(), sample::key("k"), sample::fingerprint("same"), policy)
}

fn keep() -> Verdict {
    Verdict::Keep(Outcome::value("done"))
}

fn released() -> Verdict {
    Verdict::Release { not_before: None, unbind: false, cause: None }
}

fn ran(answer: Answer<&'static str>) -> bool {
    match answer {
        Answer::Ran { value: "mine", recorded, .. } => recorded,
        other => panic!("expected the run's own value, got {other:?}"),
    }
}

/// Longer than every repetition and every delayed call.
async fn settle_down() {
    tokio::time::sleep(Duration::from_secs(20)).await;
}

const BRIEF: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn a_fresh_run() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let process = Process::new(store);
        if ran(process.once(BRIEF, keep()).await) {
            process.reads("completed").await;
        }
        settle_down().await;
        assert_eq!(process.entry().await.view, View::Completed { outcome: Outcome::value("done") });
        assert_eq!((process.effects(), process.entry().await.attempts), (1, 1));
    })
    .await;
    assert_eq!(calls, ["claim", "settle"]);
}

#[tokio::test(start_paused = true)]
async fn a_replay() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let lease = sample::lease(store.inner().claim(&sample::run("k", 1)).await.unwrap());
        store.inner().settle(&lease, &sample::complete("done")).await.unwrap();
        let process = Process::new(store);
        match process.once(BRIEF, keep()).await {
            Answer::Replay { outcome, attempts: 1, .. } => assert_eq!(outcome, Outcome::value("done")),
            other => panic!("{other:?}"),
        }
        settle_down().await;
        assert_eq!(process.effects(), 0);
        process.reads("completed").await;
    })
    .await;
    assert_eq!(calls, ["claim"]);
}

#[tokio::test(start_paused = true)]
async fn a_release_and_the_retry_after_it() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let process = Process::new(store);
        if ran(process.once(BRIEF, released()).await) {
            process.reads("released").await;
        } else {
            settle_down().await;
        }
        ran(process.once(BRIEF, keep()).await);
        settle_down().await;
        process.reads("completed").await;
        assert_eq!((process.effects(), process.entry().await.attempts), (2, 2));
    })
    .await;
    assert_eq!(calls, ["claim", "settle", "claim", "settle"]);
}

#[tokio::test(start_paused = true)]
async fn a_park_and_the_retry_after_it() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let process = Process::new(store);
        if !ran(process.once(BRIEF, Verdict::Unknown(Cause::CUT)).await) {
            settle_down().await;
        }
        match process.once(BRIEF, keep()).await {
            Answer::Unknown { cause, .. } => assert_eq!(cause, Cause::CUT),
            other => panic!("{other:?}"),
        }
        settle_down().await;
        assert_eq!(process.entry().await.view, View::Unknown { cause: Cause::CUT });
        assert_eq!(process.effects(), 1);
    })
    .await;
    assert_eq!(calls, ["claim", "settle", "claim"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_of_many_leases() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let process = Process::new(store);
        let (mine, other) = (process.once(Duration::from_secs(75), keep()), async {
            tokio::time::sleep(Duration::from_secs(70)).await;
            process.once_by(OnUnknown::Rerun, BRIEF, keep()).await
        });
        let (mine, other) = futures_util::join!(mine, other);
        ran(mine);
        assert!(matches!(other, Answer::InFlight { .. }), "{other:?}");
        settle_down().await;
        process.reads("completed").await;
        assert_eq!((process.effects(), process.entry().await.attempts), (1, 1));
    })
    .await;
    assert_eq!(calls.iter().filter(|call| **call == "renew").count(), 7, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let process = Process::new(store);
        let answer = tokio::time::timeout(BRIEF, process.once(BRIEF * 4, keep())).await;
        assert!(answer.is_err(), "{answer:?}");
        settle_down().await;
        process.reads("completed").await;
        assert_eq!(process.effects(), 1);
    })
    .await;
    assert_eq!(calls, ["claim", "settle"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_panics() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let process = Process::new(store);
        let run = |_| async { std::panic::resume_unwind(Box::new("planned")) };
        let answer: Answer<()> = process.engine.once(operation(OnUnknown::Park), run).await;
        assert!(matches!(&answer, Answer::Broke { cause, .. } if *cause == Cause::PANIC), "{answer:?}");
        settle_down().await;
        assert_eq!(process.entry().await.view, View::Unknown { cause: Cause::PANIC });
    })
    .await;
    assert_eq!(calls, ["claim", "settle"]);
}

#[tokio::test(start_paused = true)]
async fn a_rerun_of_what_lapsed() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        store.inner().claim(&sample::run("k", 1)).await.unwrap();
        tokio::time::sleep(sample::LEASE).await;
        let process = Process::new(store);
        ran(process.once_by(OnUnknown::Rerun, BRIEF, keep()).await);
        settle_down().await;
        process.reads("completed").await;
        assert_eq!((process.effects(), process.entry().await.attempts), (1, 2));
    })
    .await;
    assert_eq!(calls, ["claim", "settle"]);
}

#[tokio::test(start_paused = true)]
async fn an_operator_resolves_what_is_unknown() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let lease = sample::lease(store.inner().claim(&sample::run("k", 1)).await.unwrap());
        store.inner().settle(&lease, &sample::park()).await.unwrap();
        let process = Process::new(store);
        let seen = process.entry().await;
        let resolved = process.engine.resolve(&seen, &sample::complete("found out"), false).await;
        assert_eq!(resolved.expect("one fault is borne"), Resolved::Done);
        settle_down().await;
        assert_eq!(process.entry().await.view, View::Completed { outcome: Outcome::value("found out") });
    })
    .await;
    assert_eq!(calls, ["claim", "settle"]);
}

#[tokio::test(start_paused = true)]
async fn two_callers_at_once() {
    at_every_call(&Memory, &Fault::ALL, async |store| {
        let process = Process::new(store);
        let (one, other) = futures_util::join!(process.once(BRIEF, keep()), process.once(BRIEF, keep()));
        let runs = [&one, &other].into_iter().filter(|answer| matches!(answer, Answer::Ran { .. })).count();
        let told = |answer: &Answer<_>| match answer {
            Answer::Ran { .. } | Answer::InFlight { .. } => true,
            Answer::Replay { outcome, .. } => *outcome == Outcome::value("done"),
            _ => false,
        };
        assert!(runs == 1 && told(&one) && told(&other), "{one:?}, {other:?}");
        settle_down().await;
        process.reads("completed").await;
        assert_eq!((process.effects(), process.entry().await.attempts), (1, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_parks() {
    at_every_call(&Memory, &Fault::ALL, async |store| {
        let process = Process::new(store);
        let (answer, parked) = futures_util::join!(process.once(Duration::from_secs(60), keep()), async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            process.engine.drain(BRIEF).await
        });
        assert!(matches!(&answer, Answer::Broke { cause, .. } if *cause == Cause::SHUTDOWN), "{answer:?}");
        assert_eq!((parked, process.effects()), (1, 0));
        // The process happens to live on: its truth, found out late, counts.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(process.effects(), 1);
        settle_down().await;
        process.reads("completed").await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_outlasts_a_drain_is_given_back() {
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        let process = Process::new(FaultyStore::new(Memory.open().await));
        process.store.fail(1, fault);
        let (answer, parked) = futures_util::join!(process.once(BRIEF, keep()), async {
            tokio::time::sleep(BRIEF).await;
            process.engine.drain(BRIEF).await
        });
        assert!(matches!(answer, Answer::Stopping), "{answer:?}");
        settle_down().await;
        process.reads("released").await;
        assert_eq!((parked, process.effects()), (0, 0));
    }
}

/// Every claim of the caller's is lost for longer than its patience: it is told so, and what it got is given back.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_answers_never_come_is_given_back() {
    let store = FaultyStore::new(Memory.open().await);
    for number in 1..200 {
        store.fail(number, Fault::After);
    }
    let process = Process::new(store.clone());
    let answer = process.once(BRIEF, keep()).await;
    assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
    let tried = store.calls().len();
    for number in 1..200 {
        store.fail(number, Fault::After);
    }
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert!(store.calls().len() > tried, "it asks on");
    process.reads("released").await;
    assert_eq!(process.effects(), 0);
    assert!(ran(process.once(BRIEF, keep()).await));
}

/// What such a claim took over was unknown, so that is what is given back.
#[tokio::test(start_paused = true)]
async fn a_claim_of_something_unknown_whose_answers_never_come_gives_back_the_unknown() {
    let store = FaultyStore::new(Memory.open().await);
    let lease = sample::lease(store.inner().claim(&sample::run("k", 1)).await.unwrap());
    store.inner().settle(&lease, &sample::park()).await.unwrap();
    for number in 1..200 {
        store.fail(number, Fault::After);
    }
    let process = Process::new(store);
    let answer = process.once_by(OnUnknown::Rerun, BRIEF, keep()).await;
    assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
    tokio::time::sleep(Duration::from_secs(600)).await;
    process.reads("unknown").await;
    assert_eq!((process.effects(), process.entry().await.attempts), (0, 2));
    assert!(ran(process.once_by(OnUnknown::Rerun, BRIEF, keep()).await));
}

/// The one claim that arrived is given back although the last of its repetitions certainly did nothing.
#[tokio::test(start_paused = true)]
async fn a_claim_that_arrived_once_is_given_back_whatever_its_repetitions_say() {
    let store = FaultyStore::new(Memory.open().await);
    store.fail(1, Fault::After);
    for number in 2..30 {
        store.fail(number, Fault::Before);
    }
    let process = Process::new(store);
    let answer = process.once(BRIEF, keep()).await;
    assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
    tokio::time::sleep(Duration::from_secs(100)).await;
    process.reads("released").await;
    assert_eq!(process.effects(), 0);
}

/// The store says "never" to the repetition of a claim that was made: nothing ran, so nothing may be left unknown.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_made_is_given_back_although_its_repetition_is_refused_for_good() {
    for refusals in [1, 20] {
        let store = FaultyStore::new(Memory.open().await);
        store.fail(1, Fault::After);
        for number in 2..2 + refusals {
            store.fail(number, Fault::Refused);
        }
        let process = Process::new(store);
        let answer = process.once(BRIEF, keep()).await;
        assert!(matches!(answer, Answer::Unavailable(StoreError::Refused(_))), "{answer:?}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        process.reads("released").await;
        assert_eq!((process.effects(), process.entry().await.attempts), (0, 0));
        assert!(ran(process.once(BRIEF, keep()).await));
    }
}

/// Nothing was made, so nothing is asked for again: what is refused for good is not repeated.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_refused_for_good_at_once_is_not_repeated() {
    let store = FaultyStore::new(Memory.open().await);
    store.fail(1, Fault::Before);
    store.fail(2, Fault::Refused);
    let process = Process::new(store.clone());
    let answer = process.once(BRIEF, keep()).await;
    assert!(matches!(answer, Answer::Unavailable(StoreError::Refused(_))), "{answer:?}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(store.calls(), ["claim", "claim"]);
}

/// What a person found out about why it is open is not lost because a store took no answer.
#[tokio::test(start_paused = true)]
async fn what_could_not_be_resolved_is_open_for_the_reason_that_it_was() {
    for (settlement, view) in [
        (Settlement::Park { cause: Cause::CUT }, View::Unknown { cause: Cause::CUT }),
        (Settlement::Bury { cause: Cause::new("no") }, View::Dead { cause: Cause::new("no") }),
    ] {
        let store = FaultyStore::new(Memory.open().await);
        let lease = sample::lease(store.inner().claim(&sample::run("k", 1)).await.unwrap());
        store.inner().settle(&lease, &settlement).await.unwrap();
        let process = Process::new(store);
        process.store.fail(2, Fault::Refused);
        let seen = process.entry().await;
        let resolved = process.engine.resolve(&seen, &sample::complete("found out"), false).await;
        assert!(matches!(resolved, Err(StoreError::Refused(_))), "{resolved:?}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let entry = process.entry().await;
        assert_eq!((&entry.view, process.store.calls()), (&view, vec!["claim", "settle", "settle"]));
        let resolved = process.engine.resolve(&entry, &sample::complete("found out"), false).await;
        assert_eq!(resolved.unwrap(), Resolved::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_without_force_does_not_take_what_runs_again() {
    let process = Process::new(FaultyStore::new(Memory.open().await));
    let owner = sample::lease(process.store.inner().claim(&sample::run("k", 1)).await.unwrap());
    tokio::time::sleep(sample::LEASE).await;
    let seen = process.entry().await;
    assert_eq!(seen.view.name(), "unknown");
    process.store.inner().renew(&owner, sample::LEASE).await.unwrap();
    let resolved = process.engine.resolve(&seen, &sample::release(), false).await;
    assert_eq!(resolved.unwrap(), Resolved::Moved);
    process.reads("running").await;
    let resolved = process.engine.resolve(&seen, &sample::release(), true).await;
    assert_eq!(resolved.unwrap(), Resolved::Done);
    process.reads("released").await;
}

/// A limit, and why it is harmless: a claim that was told "in flight" and is carried out once more after the key was
/// released takes the lease for nobody. The key ends unknown, which somebody must resolve; nothing runs twice.
#[tokio::test(start_paused = true)]
async fn a_refused_claim_that_the_network_repeats_later_ends_unknown_and_runs_nothing() {
    let process = Process::new(FaultyStore::new(Memory.open().await));
    let (first, second) = futures_util::join!(process.once(Duration::from_secs(2), released()), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        process.store.fail(1, Fault::Again(Duration::from_secs(5)));
        process.once(BRIEF, keep()).await
    });
    ran(first);
    assert!(matches!(second, Answer::InFlight { .. }), "{second:?}");
    process.reads("released").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    process.reads("unknown").await;
    assert_eq!(process.effects(), 1);
    let resolved = process.engine.resolve(&process.entry().await, &sample::release(), false).await;
    assert_eq!(resolved.unwrap(), Resolved::Done);
    assert!(ran(process.once(BRIEF, keep()).await));
}

/// The settlement does not get through for longer than the caller is held: it gets its true answer, marked, and
/// the record follows.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_comes_through_late() {
    let store = FaultyStore::new(Memory.open().await);
    let process = Process::new(store.clone());
    for number in 2..40 {
        store.fail(number, Fault::Before);
    }
    assert!(!ran(process.once(BRIEF, keep()).await), "it is not recorded yet");
    process.reads("running").await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    process.reads("completed").await;
    assert_eq!(process.effects(), 1);
}
