//! The story of one seed: the storm, the calm after it, and the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::callers::Ending;
use super::ledger::{Ledger, Value};
use super::process::Process;
use super::witness::Witness;
use super::{Check, Report, Scenario};
use crate::engine::{Answer, Resolved};
use crate::key::Key;
use crate::policy::{OnUnknown, Policy};
use crate::store::{Entry, Settlement, Store, View};
use crate::testing::clock::VirtualClock;
use crate::testing::mutant::MutantStore;
use crate::testing::random::Random;
use crate::testing::sample;

const PROCESSES: usize = 3;
const CALLERS: usize = 6;
const KEYS: usize = 14;
/// For so long there are faults.
const STORM: Duration = Duration::from_secs(60);
/// Longer than everything that a run, a settlement or a delayed call may take after the storm.
const AFTERMATH: Duration = Duration::from_secs(200);
/// And as long as it takes until everything was asked about, with pauses that grew while nobody knew.
const FINDING_OUT: Duration = Duration::from_secs(1_000);

/// Everything that the players share.
#[derive(Clone)]
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) random: Random,
    pub(super) clock: VirtualClock,
    pub(super) ledger: Ledger,
    pub(super) store: Arc<dyn Store>,
    pub(super) mutant: Option<Arc<MutantStore>>,
    pub(super) keys: Arc<Vec<Key>>,
    pub(super) policy: Arc<Policy>,
    processes: Arc<Mutex<Vec<Process>>>,
    faults: Arc<AtomicBool>,
    begun: Instant,
}

impl World {
    pub(super) fn new(
        scenario: Scenario,
        seed: u64,
        clock: VirtualClock,
        store: Arc<dyn Store>,
        mutant: Option<Arc<MutantStore>>,
    ) -> World {
        let random = Random::new(seed);
        let ledger = Ledger::new(scenario.on_unknown != OnUnknown::Rerun || scenario.is_calm());
        let store = Arc::new(Witness::new(store, clock.clone(), ledger.clone()));
        let world = World {
            scenario,
            policy: Arc::new(scenario.policy(&random)),
            random,
            clock,
            ledger,
            store,
            mutant,
            keys: Arc::new((0..KEYS).map(|number| sample::key(&format!("k{number}"))).collect()),
            processes: Arc::default(),
            faults: Arc::new(AtomicBool::new(true)),
            begun: Instant::now(),
        };
        for number in 0..PROCESSES {
            let process = world.process(number);
            world.processes().push(process);
        }
        world
    }

    /// A process that has just started.
    pub(super) fn process(&self, number: usize) -> Process {
        let (store, faults) = (self.store.clone(), self.faults.clone());
        Process::start(number, store, self.scenario.weather, faults, self.ledger.clone(), &self.random)
    }

    pub(super) fn processes(&self) -> MutexGuard<'_, Vec<Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of the few keys that are in use now. As time goes on old ones give way to new ones, so that there is
    /// always something undecided.
    pub(super) fn any_key(&self, random: &Random) -> Key {
        let behind = self.begun.elapsed().as_secs() / 5;
        let number = usize::try_from(behind + random.below(3)).expect("a small number");
        let number =
            if number < KEYS { number } else { usize::try_from(random.below(KEYS as u64)).expect("small") };
        self.keys[number].clone()
    }

    pub(super) async fn play(self) -> Report {
        let callers: Vec<_> =
            (0..CALLERS).map(|_| tokio::spawn(self.clone().caller(self.random.fork()))).collect();
        let chaos = self.chaos();
        let probers = self.probers();
        sleep(STORM).await;
        self.calm_down(&chaos);
        for caller in callers {
            caller.await.expect("no caller panics");
        }
        sleep(if probers.is_empty() { AFTERMATH } else { FINDING_OUT }).await;
        probers.iter().for_each(JoinHandle::abort);
        self.end().await;
        Report {
            violations: self.ledger.violations(),
            trace: self.ledger.trace(),
            effects: self.ledger.effects(),
            counts: self.ledger.counts(),
        }
    }

    /// Whether there are faults.
    pub(super) fn is_stormy(&self) -> bool {
        self.faults.load(Ordering::SeqCst)
    }

    fn calm_down(&self, chaos: &[JoinHandle<()>]) {
        self.ledger.note("the storm is over".to_owned());
        self.faults.store(false, Ordering::SeqCst);
        chaos.iter().for_each(JoinHandle::abort);
        let mut processes = self.processes();
        processes.iter().for_each(|process| process.gate.wake());
        // What was stopped or died without a successor gets one: callers go on.
        for number in 0..processes.len() {
            let fresh = self.process(number);
            processes[number] = fresh;
        }
    }

    async fn end(&self) {
        for key in self.keys.iter() {
            self.has_ended(key).await;
            self.can_be_resolved(key).await;
        }
        if self.scenario.brief_retention {
            self.is_forgotten().await;
        }
    }

    async fn entry(&self, key: &Key) -> Option<Entry> {
        self.store.find(&sample::scope(), key).await.expect("the faults are over")
    }

    async fn has_ended(&self, key: &Key) {
        let Some(entry) = self.entry(key).await else { return };
        let text = format!("{} reads {:?}", key.as_str(), entry.view);
        self.ledger.note(text.clone());
        match entry.view {
            View::Running { .. } => self.ledger.violated(Check::Ends, text),
            View::Unknown { .. } if self.scenario.on_unknown == OnUnknown::Probe => {
                self.ledger.violated(Check::Ends, format!("{text}, and nobody found out"));
            }
            View::Unknown { .. } if self.scenario.is_steady() => {
                self.ledger.violated(Check::NothingUnknown, text);
            }
            _ => {}
        }
    }

    /// An operator, and then a caller, bring the key to its outcome.
    async fn can_be_resolved(&self, key: &Key) {
        // Two rounds: a key that was unknown may be found exhausted when it is tried again.
        for _ in 0..3 {
            let entry = self.entry(key).await;
            if let Some(entry) = &entry
                && matches!(entry.view, View::Unknown { .. } | View::Dead { .. })
            {
                self.resolve(entry).await;
            }
            let asked = entry.and_then(|entry| entry.fingerprint).unwrap_or(sample::fingerprint("same"));
            let answer = self.ask(&self.process(0), key, asked, Ending::Keep).await;
            match answer {
                Answer::Ran { recorded: true, .. } | Answer::Replay { .. } | Answer::Forgotten { .. } => {
                    return;
                }
                Answer::InFlight { retry_after, .. } => sleep(retry_after).await,
                Answer::Dead { .. } => {}
                _ => break,
            }
        }
        let entry = self.entry(key).await;
        self.ledger.violated(Check::Ends, format!("{} cannot be brought to an end: {entry:?}", key.as_str()));
    }

    async fn resolve(&self, entry: &Entry) {
        let remember_for = self.policy.remember_for;
        let settlement = if self.random.chance(50) {
            Settlement::Release { not_before: None, unbind: false, ran: true, remember_for }
        } else {
            self.operators_outcome(&entry.key)
        };
        let resolved = self.process(0).engine.resolve(entry, &settlement, false).await;
        if !matches!(resolved, Ok(Resolved::Done)) {
            let text = format!("{} cannot be resolved: {resolved:?}", entry.key.as_str());
            self.ledger.violated(Check::Ends, text);
        }
    }

    pub(super) fn operators_outcome(&self, key: &Key) -> Settlement {
        Settlement::Complete {
            outcome: self.ledger.outcome(key, "operator", None),
            replay_for: self.policy.replay_for,
            remember_for: self.policy.remember_for,
        }
    }

    /// Nothing is swept here, and still everything is forgotten in its time.
    async fn is_forgotten(&self) {
        // A few: the first must not be due again before the last was asked.
        let keys = &self.keys[..3];
        sleep(self.policy.remember_for).await;
        for key in keys {
            let answer = self.ask_as_bound(key).await;
            if !matches!(answer, Answer::Ran { .. }) {
                self.ledger.violated(Check::Expiry, format!("{} is not new: {answer:?}", key.as_str()));
            }
        }
        sleep(self.policy.replay_for).await;
        for key in keys {
            let answer = self.ask_as_bound(key).await;
            if !matches!(answer, Answer::Forgotten { .. }) {
                self.ledger.violated(Check::Expiry, format!("{} is not forgotten: {answer:?}", key.as_str()));
            }
        }
    }

    async fn ask_as_bound(&self, key: &Key) -> Answer<Value> {
        let bound = self.entry(key).await.and_then(|entry| entry.fingerprint);
        self.ask(&self.process(0), key, bound.unwrap_or(sample::fingerprint("same")), Ending::Keep).await
    }
}
