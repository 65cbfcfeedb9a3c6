//! The rules of the engine, one by one, in virtual time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use semel::testing::{Fault, FaultyStore, Random, VirtualClock, sample};
use semel::{
    Algorithm, Answer, Bounds, Cause, Engine, Entry, Fingerprint, Lease, MemoryStore, OnUnknown, Operation,
    Outcome, Policy, Resolved, Settlement, Store, StoreError, Verdict, View,
};
use tokio::time::{advance, sleep};

/// One process over a store that the test can take away.
struct Process {
    engine: Engine,
    store: Arc<dyn Store>,
    is_down: Arc<AtomicBool>,
    effects: Arc<AtomicU32>,
    policy: Policy,
}

const SECOND: Duration = Duration::from_secs(1);

impl Process {
    fn new() -> Process {
        Process::failing_with(Fault::Before)
    }

    /// While `is_down` is set, every call fails so.
    fn failing_with(fault: Fault) -> Process {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new())));
        let is_down = Arc::new(AtomicBool::new(false));
        let down = is_down.clone();
        let faulty =
            FaultyStore::deciding(store.clone(), move |_| down.load(Ordering::SeqCst).then_some(fault));
        let engine = Engine::new(Arc::new(faulty), Random::new(7).entropy());
        let policy = Policy { answer_within: Some(30 * SECOND), ..Policy::new(OnUnknown::Park) };
        Process { engine, store, is_down, effects: Arc::default(), policy }
    }

    fn down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    fn operation(&self) -> Operation {
        let policy = Arc::new(self.policy.clone());
        Operation::new(sample::scope(), sample::key("k"), sample::fingerprint("same"), policy)
    }

    /// A run that takes so long, takes effect, and has an outcome.
    async fn once(&self, takes: Duration) -> Answer<&'static str> {
        let effects = self.effects.clone();
        let run = move |_: Lease| async move {
            sleep(takes).await;
            effects.fetch_add(1, Ordering::SeqCst);
            (Verdict::Keep(Outcome::value("done")), "mine")
        };
        self.engine.once(self.operation(), run).await
    }

    /// The same, as a caller of its own.
    fn spawn(self: &Arc<Self>, takes: Duration) -> tokio::task::JoinHandle<Answer<&'static str>> {
        let process = self.clone();
        tokio::spawn(async move { process.once(takes).await })
    }

    async fn entry(&self) -> Entry {
        let found = self.store.find(&sample::scope(), &sample::key("k")).await;
        found.expect("it is read").expect("there is a record")
    }

    async fn reads(&self) -> &'static str {
        self.entry().await.view.name()
    }

    fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    async fn resolve(&self, settlement: &Settlement, force: bool) -> Resolved {
        self.engine.resolve(&self.entry().await, settlement, force).await.expect("the store answers")
    }
}

fn parked(cause: &Cause) -> View {
    View::Unknown { cause: cause.clone() }
}

/// Lets tasks that are ready run, without moving the time.
async fn others_run() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn c01_a_caller_that_hangs_up_changes_nothing() {
    let process = Arc::new(Process::new());
    let caller = process.spawn(5 * SECOND);
    sleep(SECOND).await;
    caller.abort();
    sleep(10 * SECOND).await;
    assert_eq!((process.effects(), process.reads().await), (1, "completed"));
    assert!(matches!(process.once(SECOND).await, Answer::Replay { .. }));
    assert_eq!(process.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_hangs_up_before_the_claim_is_answered_leaves_no_lease_behind() {
    let process = Arc::new(Process::failing_with(Fault::Later(SECOND)));
    process.down(true);
    let caller = process.spawn(SECOND);
    others_run().await;
    caller.abort();
    process.down(false);
    sleep(20 * SECOND).await;
    assert_eq!((process.effects(), process.reads().await), (1, "completed"));
}

/// The first step of an operation, made by hand: whether it was the last.
fn first_step(
    once: &mut Pin<Box<impl Future<Output = Answer<&'static str>>>>,
) -> Option<Answer<&'static str>> {
    match once.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_store_answers_at_once_needs_no_task() {
    let process = Process::new();
    assert!(matches!(process.once(Duration::ZERO).await, Answer::Ran { .. }));
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let answer = first_step(&mut Box::pin(process.once(SECOND)));
    assert!(matches!(answer, Some(Answer::Replay { .. })), "{answer:?}");
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), tasks);
    assert_eq!(process.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn c01_a_caller_that_is_gone_after_one_step_changes_nothing() {
    for fault in [None, Some(Fault::Later(SECOND))] {
        let process = Process::failing_with(fault.unwrap_or(Fault::Before));
        process.down(fault.is_some());
        let mut caller = Box::pin(process.once(5 * SECOND));
        assert!(first_step(&mut caller).is_none());
        drop(caller);
        process.down(false);
        sleep(30 * SECOND).await;
        assert_eq!((process.effects(), process.reads().await), (1, "completed"), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_ends_no_caller() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new())));
    let panics = FaultyStore::deciding(store, |verb| panic!("the store panics: {verb}"));
    let process =
        Process { engine: Engine::new(Arc::new(panics), Random::new(7).entropy()), ..Process::new() };
    let answer = process.once(SECOND).await;
    assert!(matches!(&answer, Answer::Unknown { cause, .. } if *cause == Cause::SHUTDOWN), "{answer:?}");
    assert_eq!((process.effects(), process.engine.drain(SECOND).await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_long_run_keeps_its_lease() {
    let mut process = Process::new();
    process.policy.lease_for = SECOND;
    process.policy.answer_within = None;
    let process = Arc::new(process);
    let caller = process.spawn(60 * SECOND);
    for _ in 0..55 {
        sleep(SECOND).await;
        assert!(matches!(process.once(SECOND).await, Answer::InFlight { .. }));
    }
    assert!(matches!(caller.await.unwrap(), Answer::Ran { recorded: true, .. }));
    assert_eq!(process.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn c86_a_renewed_lease_is_never_longer_than_it_should_be() {
    let mut process = Process::new();
    process.policy.lease_for = SECOND;
    let process = Arc::new(process);
    let caller = process.spawn(5 * SECOND);
    sleep(Duration::from_millis(50)).await;
    for _ in 0..40 {
        let View::Running { lease_left } = process.entry().await.view else { panic!("it runs") };
        assert!(lease_left > Duration::ZERO && lease_left <= SECOND, "{lease_left:?}");
        sleep(SECOND / 10).await;
    }
    assert!(matches!(caller.await.unwrap(), Answer::Ran { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_lease_is_lost_is_stopped_and_the_record_is_the_answer() {
    let process = Arc::new(Process::new());
    let caller = process.spawn(25 * SECOND);
    sleep(SECOND).await;
    assert_eq!(process.resolve(&sample::complete("the operator's"), false).await, Resolved::Moved);
    assert_eq!(process.resolve(&sample::complete("the operator's"), true).await, Resolved::Done);
    let Answer::Replay { outcome, .. } = caller.await.unwrap() else { panic!("the record is the answer") };
    assert_eq!(outcome, Outcome::value("the operator's"));
    sleep(60 * SECOND).await;
    assert_eq!(process.effects(), 0, "the run was stopped at the next renewal");
}

#[tokio::test(start_paused = true)]
async fn a_caller_waits_so_long_and_the_late_answer_still_counts() {
    let process = Arc::new(Process::new());
    let caller = process.spawn(45 * SECOND);
    assert!(matches!(caller.await.unwrap(), Answer::Late { .. }));
    assert!(matches!(process.once(SECOND).await, Answer::InFlight { .. }));
    sleep(20 * SECOND).await;
    assert!(matches!(process.once(SECOND).await, Answer::Replay { .. }));
    assert_eq!(process.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_never_answered_is_parked_when_the_late_answer_is_over() {
    let process = Arc::new(Process::new());
    let caller = process.spawn(Duration::MAX);
    assert!(matches!(caller.await.unwrap(), Answer::Late { .. }));
    sleep(299 * SECOND).await;
    assert_eq!(process.reads().await, "running");
    sleep(2 * SECOND).await;
    assert_eq!(process.entry().await.view, parked(&Cause::TIMEOUT));
    assert!(matches!(process.once(SECOND).await, Answer::Unknown { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_settlement_is_repeated_past_the_lease_and_the_caller_is_not_held_for_it() {
    let mut process = Process::new();
    process.policy.lease_for = 5 * SECOND;
    let process = Arc::new(process);
    let caller = process.spawn(SECOND);
    sleep(SECOND / 2).await;
    process.down(true);
    assert!(matches!(caller.await.unwrap(), Answer::Ran { value: "mine", recorded: false, .. }));
    sleep(60 * SECOND).await;
    assert_eq!(process.entry().await.view, parked(&Cause::LAPSED));
    process.down(false);
    sleep(2 * SECOND).await;
    assert_eq!(process.reads().await, "completed");
    assert!(matches!(process.once(SECOND).await, Answer::Replay { .. }));
}

#[tokio::test(start_paused = true)]
async fn c81_without_a_store_nothing_runs_and_it_recovers_by_itself() {
    let process = Arc::new(Process::new());
    process.down(true);
    let answer = process.once(SECOND).await;
    assert!(matches!(answer, Answer::Unavailable(StoreError::Unavailable(_))), "{answer:?}");
    process.down(false);
    assert!(matches!(process.once(SECOND).await, Answer::Ran { .. }));
    assert_eq!(process.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_never_came_is_given_back() {
    let process = Arc::new(Process::failing_with(Fault::HangAfter));
    process.down(true);
    let answer = process.once(SECOND).await;
    assert!(matches!(answer, Answer::Unavailable(StoreError::Indeterminate(_))), "{answer:?}");
    assert_eq!(process.reads().await, "running", "the claim was made all the same");
    process.down(false);
    sleep(10 * SECOND).await;
    assert_eq!((process.reads().await, process.effects()), ("released", 0));
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_what_runs_and_refuses_what_is_new() {
    let process = Arc::new(Process::new());
    let caller = process.spawn(5 * SECOND);
    others_run().await;
    let stopping = {
        let engine = process.engine.clone();
        tokio::spawn(async move { engine.drain(10 * SECOND).await })
    };
    others_run().await;
    assert!(matches!(process.once(SECOND).await, Answer::Stopping));
    assert_eq!(stopping.await.unwrap(), 0);
    assert!(matches!(caller.await.unwrap(), Answer::Ran { recorded: true, .. }));
}

#[tokio::test(start_paused = true)]
async fn stopping_parks_what_still_runs_and_its_late_settlement_counts() {
    let process = Arc::new(Process::new());
    let caller = process.spawn(20 * SECOND);
    others_run().await;
    assert_eq!(process.engine.drain(5 * SECOND).await, 1);
    assert_eq!(process.entry().await.view, parked(&Cause::SHUTDOWN));
    assert!(matches!(caller.await.unwrap(), Answer::Broke { cause, .. } if cause == Cause::SHUTDOWN));
    sleep(20 * SECOND).await;
    assert_eq!(process.reads().await, "completed");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_panics_is_unknown() {
    let process = Process::new();
    let run = |_: Lease| async { panic!("this test's own panic") };
    let answer: Answer<()> = process.engine.once(process.operation(), run).await;
    assert!(matches!(answer, Answer::Broke { cause, .. } if cause == Cause::PANIC));
    assert_eq!(process.entry().await.view, parked(&Cause::PANIC));
}

fn print(algorithm: u8, what: &str) -> Fingerprint {
    Fingerprint::builder(Algorithm(algorithm)).part(what.as_bytes()).finish()
}

#[tokio::test(start_paused = true)]
async fn a_record_of_an_older_algorithm_is_compared_by_that_algorithm() {
    let process = Process::new();
    let policy = Arc::new(process.policy.clone());
    let by = |algorithm, what: &'static str| {
        Operation::new(sample::scope(), sample::key("k"), print(algorithm, what), policy.clone())
            .fingerprint_by(move |older| (older.0 <= 2).then(|| print(older.0, what)))
    };
    let run = |_: Lease| async { (Verdict::Keep(Outcome::value("done")), ()) };
    assert!(matches!(process.engine.once(by(1, "same"), run).await, Answer::Ran { .. }));
    assert!(matches!(process.engine.once(by(2, "same"), run).await, Answer::Replay { .. }));
    assert!(matches!(process.engine.once(by(2, "other"), run).await, Answer::Mismatch));
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_newer_algorithm_is_never_called_another_request() {
    let process = Process::new();
    let policy = Arc::new(process.policy.clone());
    let by = |algorithm| {
        Operation::new(sample::scope(), sample::key("k"), print(algorithm, "same"), policy.clone())
    };
    let run = |_: Lease| async { (Verdict::Keep(Outcome::value("done")), ()) };
    assert!(matches!(process.engine.once(by(9), run).await, Answer::Ran { .. }));
    let answer = process.engine.once(by(1), run).await;
    assert!(matches!(answer, Answer::Unavailable(StoreError::Corrupt(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn doubt_survives_a_release_until_somebody_has_looked() {
    let mut process = Process::new();
    process.policy.on_unknown = OnUnknown::Rerun;
    let end = async |verdict: Verdict| {
        let run = |lease: Lease| async move { (verdict, lease.doubt) };
        match process.engine.once(process.operation(), run).await {
            Answer::Ran { value, .. } => value,
            other => panic!("{other:?}"),
        }
    };
    let release = || Verdict::Release { not_before: None, unbind: false, cause: None };
    assert!(!end(Verdict::Unknown(Cause::CUT)).await, "the first attempt");
    assert!(end(release()).await, "the second took over what was unknown");
    assert!(end(Verdict::Unknown(Cause::CUT)).await, "and the third still does not know of the first");
    assert_eq!(process.resolve(&sample::release(), false).await, Resolved::Done);
    assert!(!end(release()).await, "an operator has looked");
}

#[tokio::test(start_paused = true)]
async fn an_operator_settles_what_is_unknown_and_nothing_else() {
    let process = Process::new();
    let run = |_: Lease| async { (Verdict::Unknown(Cause::CUT), ()) };
    let _ = process.engine.once(process.operation(), run).await;
    assert_eq!(process.resolve(&sample::complete("seen"), false).await, Resolved::Done);
    assert_eq!(process.resolve(&sample::release(), true).await, Resolved::Moved);
    advance(SECOND).await;
    let Answer::Replay { outcome, .. } = process.once(SECOND).await else { panic!("it is completed") };
    assert_eq!(outcome, Outcome::value("seen"));
}

#[tokio::test(start_paused = true)]
async fn a_scope_that_has_too_much_going_on_is_refused_before_the_store_is_asked() {
    let mut process = Process::new();
    process.engine = process.engine.with_bounds(Bounds { open_claims_max: 1, ..Bounds::default() });
    let process = Arc::new(process);
    let caller = process.spawn(10 * SECOND);
    others_run().await;
    process.down(true);
    assert!(matches!(process.once(SECOND).await, Answer::TooMany), "and not: the store is unavailable");
    process.down(false);
    assert!(matches!(caller.await.unwrap(), Answer::Ran { .. }));
    others_run().await;
    assert!(matches!(process.once(SECOND).await, Answer::Replay { .. }), "the place is free again");
}

#[tokio::test(start_paused = true)]
async fn replays_are_no_new_keys() {
    let mut process = Process::new();
    process.engine = process.engine.with_bounds(Bounds { new_keys_a_second_max: 2, ..Bounds::default() });
    assert!(matches!(process.once(Duration::ZERO).await, Answer::Ran { .. }));
    for _ in 0..10 {
        assert!(matches!(process.once(Duration::ZERO).await, Answer::Replay { .. }));
    }
}
