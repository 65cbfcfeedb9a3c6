//! One process: an engine, its faulty way to the store, and the gate that stops it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::Weather;
use super::ledger::Ledger;
use crate::engine::Engine;
use crate::key::{Key, Scope};
use crate::store::{Claim, ClaimRequest, Cursor, Entry, Lease, Settlement, Store, StoreError, Swept};
use crate::testing::fault::{Fault, FaultyStore};
use crate::testing::random::Random;

/// Whether a process gets on. Everything that it does passes here: every call, before and after, and every step
/// of a run. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub(super) struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// Wakes in the order of arrival; a channel that does not would make two runs of one seed differ.
    opened: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Runs,
    Sleeps,
    Dead,
}

impl Gate {
    /// Waits while the process sleeps; for ever when it is dead.
    pub(super) async fn pass(&self) {
        while *self.state() != State::Runs {
            self.0.opened.notified().await;
        }
    }

    pub(super) fn sleep(&self) {
        self.set(State::Sleeps);
    }

    pub(super) fn wake(&self) {
        self.set(State::Runs);
        self.0.opened.notify_waiters();
    }

    pub(super) fn kill(&self) {
        self.set(State::Dead);
    }

    fn set(&self, state: State) {
        let mut now = self.state();
        // Nobody wakes from the dead.
        if *now != State::Dead {
            *now = state;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) engine: Engine,
    pub(super) gate: Gate,
}

impl Process {
    pub(super) fn start(
        number: usize,
        store: Arc<dyn Store>,
        weather: Weather,
        faults: Arc<AtomicBool>,
        ledger: Ledger,
        random: &Random,
    ) -> Process {
        let gate = Gate::default();
        let link = Link::new(store, gate.clone(), weather, faults, ledger, random.fork());
        Process { number, engine: Engine::new(Arc::new(link), random.fork().entropy()), gate }
    }
}

/// A process's way to the store: slow, lossy, and shut while the process does not run.
#[derive(Debug)]
struct Link {
    store: FaultyStore,
    gate: Gate,
    weather: Weather,
    ledger: Ledger,
    random: Random,
}

impl Link {
    fn new(
        store: Arc<dyn Store>,
        gate: Gate,
        weather: Weather,
        on: Arc<AtomicBool>,
        ledger: Ledger,
        random: Random,
    ) -> Link {
        let dice = random.fork();
        let decide = move |_verb| {
            let bad = on.load(Ordering::SeqCst) && dice.chance(weather.faults_percent);
            bad.then(|| weather.fault(&dice))
        };
        Link { store: FaultyStore::deciding(store, decide), gate, weather, ledger, random }
    }

    async fn travel(&self) {
        self.gate.pass().await;
        let delay = self.random.below(self.weather.delay_millis_max + 1);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        self.gate.pass().await;
    }

    /// There and back. What the caller does not wait for may still have happened.
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.travel().await;
        let answer = call.await;
        self.travel().await;
        answer
    }
}

impl Weather {
    fn fault(self, dice: &Random) -> Fault {
        let pause = Duration::from_millis(dice.below(20_000));
        let delayed = [Fault::Again(pause), Fault::Later(pause)];
        let plain = [Fault::Before, Fault::After, Fault::After, Fault::HangBefore, Fault::HangAfter];
        if self.delays && dice.chance(30) { *dice.pick(&delayed) } else { *dice.pick(&plain) }
    }
}

#[async_trait]
impl Store for Link {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.call(self.store.claim(request)).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        let renewed = self.call(self.store.renew(lease, lease_for)).await;
        if matches!(renewed, Err(StoreError::LeaseLost)) {
            self.ledger.told_lost(lease);
        }
        renewed
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        self.call(self.store.settle(lease, settlement)).await
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.call(self.store.find(scope, key)).await
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.call(self.store.unsettled(after, limit)).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        self.call(self.store.sweep(limit)).await
    }
}
