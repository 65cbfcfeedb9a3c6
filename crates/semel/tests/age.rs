//! A key that is too old to be new (H15), in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::testing::random::each_seed;
use semel::testing::{Fault, FaultyStore, Random, VirtualClock, sample};
use semel::{
    Age, Answer, Cause, Clock, Engine, Entry, FOREVER, MemoryStore, OnUnknown, Operation, Outcome, Policy,
    StoreError, Timestamp, Verdict,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const OLD: Age = Age::Ago(Duration::from_secs(40 * 24 * 60 * 60));

/// One process over a store, whose clock the test sets.
struct Process {
    engine: Engine,
    store: FaultyStore,
    clock: VirtualClock,
    effects: Arc<AtomicU32>,
    policy: Policy,
}

impl Process {
    fn new() -> Process {
        let clock = VirtualClock::new();
        Process::over(FaultyStore::new(Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())))), clock)
    }

    fn over(store: FaultyStore, clock: VirtualClock) -> Process {
        let engine = Engine::new(Arc::new(store.clone()), Random::new(7).entropy());
        let policy = Policy::new(OnUnknown::Park);
        Process { engine, store, clock, effects: Arc::default(), policy }
    }

    fn operation(&self) -> Operation {
        let policy = Arc::new(self.policy.clone());
        Operation::new(sample::scope(), sample::key("k"), sample::fingerprint("same"), policy)
    }

    async fn once(&self, operation: Operation, verdict: Verdict) -> Answer<()> {
        let effects = self.effects.clone();
        let run = |_| async move {
            effects.fetch_add(1, Ordering::SeqCst);
            (verdict, ())
        };
        self.engine.once(operation, run).await
    }

    /// A request whose key is so old.
    async fn aged(&self, age: Age) -> Answer<()> {
        self.once(self.operation().aged(age), keep()).await
    }

    /// An earlier request, which ended so.
    async fn ended(&self, verdict: Verdict) {
        let answer = self.once(self.operation(), verdict).await;
        assert!(matches!(answer, Answer::Ran { .. }), "{answer:?}");
    }

    fn later(&self, by: Duration) {
        self.clock.step(i64::try_from(by.as_millis()).unwrap());
    }

    fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    async fn entry(&self) -> Option<Entry> {
        self.store.inner().find(&sample::scope(), &sample::key("k")).await.expect("it is read")
    }
}

fn keep() -> Verdict {
    Verdict::Keep(Outcome::value("done"))
}

fn released() -> Verdict {
    Verdict::Release { not_before: None, unbind: false, cause: None }
}

#[tokio::test(start_paused = true)]
async fn h15_an_old_key_of_which_nothing_is_known_is_refused_and_leaves_nothing_behind() {
    for age in
        [OLD, Age::Ago(30 * DAY), Age::Ahead(DAY + Duration::from_millis(1)), Age::Ahead(Duration::MAX)]
    {
        let process = Process::new();
        assert!(matches!(process.aged(age).await, Answer::OutOfAge), "{age:?}");
        assert_eq!(process.store.calls(), ["find"], "{age:?}");
        assert_eq!((process.entry().await, process.effects()), (None, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn h15_a_key_that_is_young_enough_runs_without_a_look() {
    for age in [Age::Ago(Duration::ZERO), Age::Ago(30 * DAY - Duration::from_millis(1)), Age::Ahead(DAY)] {
        let process = Process::new();
        assert!(matches!(process.aged(age).await, Answer::Ran { recorded: true, .. }), "{age:?}");
        assert_eq!(process.store.calls(), ["claim", "settle"], "{age:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn h15_where_keys_are_remembered_for_ever_none_is_too_old() {
    for age in [OLD, Age::Ago(Duration::MAX), Age::Ahead(Duration::MAX)] {
        let mut process = Process::new();
        process.policy.remember_for = FOREVER;
        assert!(matches!(process.aged(age).await, Answer::Ran { .. }), "{age:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn h15_a_known_record_wins_over_age() {
    let process = Process::new();
    process.ended(keep()).await;
    assert!(matches!(process.aged(OLD).await, Answer::Replay { .. }));
    assert!(matches!(process.aged(Age::Ahead(2 * DAY)).await, Answer::Replay { .. }));
    let other = Operation::new(
        sample::scope(),
        sample::key("k"),
        sample::fingerprint("other"),
        Arc::new(process.policy.clone()),
    );
    assert!(matches!(process.once(other.aged(OLD), keep()).await, Answer::Mismatch));
    process.later(2 * DAY);
    assert!(matches!(process.aged(OLD).await, Answer::Forgotten { .. }));
    process.later(28 * DAY);
    assert!(matches!(process.aged(OLD).await, Answer::OutOfAge), "it is forgotten altogether");
    assert_eq!(process.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn h15_what_is_open_wins_over_age() {
    let process = Process::new();
    process.ended(Verdict::Unknown(Cause::CUT)).await;
    process.later(100 * DAY);
    assert!(matches!(process.aged(OLD).await, Answer::Unknown { .. }));

    let process = Process::new();
    process.ended(Verdict::Bury(Cause::new("rejected"))).await;
    process.later(100 * DAY);
    assert!(matches!(process.aged(OLD).await, Answer::Dead { .. }));

    let process = Process::new();
    process.ended(released()).await;
    assert!(matches!(process.aged(OLD).await, Answer::Ran { .. }), "a retry of what is known to have failed");
    assert_eq!(process.effects(), 2);
}

/// Of such a record nothing says that the operation was not done before.
#[tokio::test(start_paused = true)]
async fn h15_a_record_under_which_nothing_ran_is_none() {
    let process = Process::new();
    process.ended(Verdict::NotRun).await;
    assert!(matches!(process.aged(OLD).await, Answer::OutOfAge));
    assert!(matches!(process.aged(Age::Ago(DAY)).await, Answer::Ran { .. }), "a young key may run");
}

/// A process whose record is forgotten between the look and the claim.
fn forgetting() -> Process {
    let clock = VirtualClock::new();
    let memory = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let steps = clock.clone();
    let looked = AtomicU32::new(0);
    let store = FaultyStore::deciding(memory, move |verb| {
        match verb {
            "find" => looked.store(1, Ordering::SeqCst),
            "claim" if looked.swap(0, Ordering::SeqCst) == 1 => steps.step(31 * 24 * 60 * 60 * 1_000),
            _ => {}
        }
        None
    });
    Process::over(store, clock)
}

#[tokio::test(start_paused = true)]
async fn h15_forgotten_between_the_look_and_the_claim_it_is_given_back_and_does_not_run() {
    let process = forgetting();
    process.ended(keep()).await;
    let answer = process.aged(OLD).await;
    assert!(matches!(answer, Answer::OutOfAge), "{answer:?}");
    let entry = process.entry().await.expect("the claim left a record");
    assert_eq!((entry.view.name(), entry.attempts, process.effects()), ("released", 0, 1));
    assert!(matches!(process.aged(OLD).await, Answer::OutOfAge), "and what it left lets nobody run");
    assert_eq!(process.effects(), 1);
}

/// The other one has claimed and given back between our look and our claim: what we get was not new, and nothing
/// had run all the same.
#[tokio::test(start_paused = true)]
async fn h15_two_late_retries_at_the_instant_of_forgetting_both_do_not_run() {
    let process = forgetting();
    process.ended(keep()).await;
    let (one, other) = futures_util::join!(process.aged(OLD), process.aged(OLD));
    assert!(matches!(one, Answer::OutOfAge), "{one:?}");
    assert!(matches!(other, Answer::OutOfAge | Answer::InFlight { .. }), "{other:?}");
    assert_eq!(process.effects(), 1);

    // The same in the other order, step by step: forgotten, claimed anew, given back, claimed.
    let process = Process::new();
    process.ended(keep()).await;
    let memory = process.store.inner().clone();
    let clock = process.clock.clone();
    let store = FaultyStore::deciding(memory.clone(), move |verb| {
        if verb == "claim" {
            clock.step(31 * 24 * 60 * 60 * 1_000);
            let memory = memory.clone();
            // A store of memory answers at once.
            futures_util::FutureExt::now_or_never(async move {
                let lease = sample::lease(memory.claim(&sample::run("k", 77)).await.unwrap());
                memory.settle(&lease, &sample::release_not_run()).await.unwrap();
            })
            .expect("at once");
        }
        None
    });
    let late = Process::over(store, process.clock.clone());
    assert!(matches!(late.aged(OLD).await, Answer::OutOfAge));
    assert_eq!(late.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn h15_without_a_store_an_old_key_is_not_refused_for_good() {
    let process = Process::new();
    for number in 1..1_000 {
        process.store.fail(number, Fault::Before);
    }
    let answer = process.aged(OLD).await;
    assert!(matches!(answer, Answer::Unavailable(StoreError::Unavailable(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn h15_a_look_whose_answer_is_lost_is_repeated() {
    for fault in Fault::ALL {
        let process = Process::new();
        process.ended(keep()).await;
        process.store.fail(1, fault);
        assert!(matches!(process.aged(OLD).await, Answer::Replay { .. }), "{fault:?}");
    }
}

/// The settlement that gives back gets through late: the caller is not held for it.
#[tokio::test(start_paused = true)]
async fn h15_what_is_given_back_late_holds_no_caller() {
    let process = forgetting();
    process.ended(keep()).await;
    for number in 3..30 {
        process.store.fail(number, Fault::Before);
    }
    let begun = tokio::time::Instant::now();
    assert!(matches!(process.aged(OLD).await, Answer::OutOfAge));
    assert!(begun.elapsed() <= Duration::from_secs(4), "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(process.entry().await.expect("a record").view.name(), "released");
}

/// The rule's purpose: whatever the client's clock and the gateway's show, as long as they stay so, a retry never
/// runs a second time, however late; and a first request with clocks that are right always runs.
#[test]
fn h15_there_is_no_hole_between_forgetting_and_a_very_late_retry() {
    each_seed(200, |seed| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let random = Random::new(seed);
            let skew = |days: u64| {
                let millis = i64::try_from(random.below(2 * days * 86_400_000)).unwrap();
                millis - i64::try_from(days * 86_400_000).unwrap()
            };
            let (client, gateway) = (skew(3), skew(3));
            let process = Process::new();
            let made = Timestamp(process.clock.now().0 + client);
            process.later(Duration::from_millis(random.below(5 * 86_400_000)));
            for _ in 0..40 {
                let age = Age::between(made, Timestamp(process.clock.now().0 + gateway));
                process.aged(age).await;
                process.later(Duration::from_millis(random.below(3 * 86_400_000)));
            }
            assert!(
                process.effects() <= 1,
                "client {client} ms, gateway {gateway} ms: {}",
                process.effects()
            );
            let right = Process::new();
            let age = Age::between(right.clock.now(), right.clock.now());
            assert!(matches!(right.aged(age).await, Answer::Ran { .. }));
        });
    });
}
