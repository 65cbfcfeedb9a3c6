//! A store, gateways over it, and somebody to ask.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::testing::{FaultyStore, Random, VirtualClock, sample};
use semel::{
    Answer, Asked, Cause, Engine, Entry, Lease, MemoryStore, OnUnknown, Operation, Outcome, Policy, Probe,
    Probed, Probing, Store, Verdict, View,
};
use tokio::time::sleep;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// The default of `probe_after`.
pub(crate) const DUE: Duration = Duration::from_secs(30);

/// What the probe does when it is asked.
#[derive(Debug, Clone)]
pub(crate) enum Says {
    /// Answers after so long.
    This(Probed, Duration),
    Nothing,
    Panics,
}

/// Somebody to ask, who counts.
#[derive(Debug)]
pub(crate) struct Oracle {
    says: Mutex<Says>,
    pub(crate) asked: AtomicU32,
    pub(crate) answered: AtomicU32,
    at_once: AtomicU32,
    pub(crate) at_once_max: AtomicU32,
    pub(crate) heard: Mutex<Vec<Probing>>,
}

impl Oracle {
    pub(crate) fn new(says: Says) -> Arc<Oracle> {
        Arc::new(Oracle {
            says: Mutex::new(says),
            asked: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            at_once: AtomicU32::new(0),
            at_once_max: AtomicU32::new(0),
            heard: Mutex::default(),
        })
    }

    pub(crate) fn says(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    pub(crate) fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Probe for Oracle {
    async fn ask(&self, probing: &Probing) -> Probed {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once_max.fetch_max(at_once, Ordering::SeqCst);
        self.heard.lock().unwrap().push(probing.clone());
        let says = self.says.lock().unwrap().clone();
        let probed = match says {
            Says::This(probed, after) => {
                sleep(after).await;
                probed
            }
            Says::Nothing => std::future::pending().await,
            Says::Panics => std::panic::resume_unwind(Box::new("planned")),
        };
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        self.answered.fetch_add(1, Ordering::SeqCst);
        probed
    }
}

pub(crate) fn completed() -> Says {
    Says::This(Probed::Completed(Outcome::value("found out")), SECOND)
}

pub(crate) fn no_effect() -> Says {
    Says::This(Probed::NoEffect, SECOND)
}

pub(crate) fn still_unknown() -> Says {
    Says::This(Probed::StillUnknown, SECOND)
}

/// One process. Several are over one store.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) engine: Engine,
    pub(crate) store: FaultyStore,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) policy: Policy,
    effects: Arc<AtomicU32>,
}

pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new())))
}

impl Gateway {
    pub(crate) fn new(says: Says) -> Gateway {
        Gateway::over(FaultyStore::new(memory()), Oracle::new(says))
    }

    pub(crate) fn over(store: FaultyStore, oracle: Arc<Oracle>) -> Gateway {
        let engine = Engine::new(Arc::new(store.clone()), Random::new(7).entropy());
        let policy = Policy::new(OnUnknown::Probe);
        Gateway { engine, store, oracle, policy, effects: Arc::default() }
    }

    /// Another process over the same records, with nothing in memory.
    pub(crate) fn another(&self) -> Gateway {
        let store = FaultyStore::new(self.store.inner().clone());
        let other = Engine::new(Arc::new(store.clone()), Random::new(8).entropy());
        Gateway { engine: other, store, ..self.clone() }
    }

    pub(crate) fn operation(&self) -> Operation {
        let policy = Arc::new(self.policy.clone());
        Operation::new(sample::scope(), sample::key("k"), sample::fingerprint("same"), policy)
            .probe(self.oracle.clone())
    }

    /// A request whose run takes so long, takes effect, and ends so.
    pub(crate) async fn run(&self, takes: Duration, verdict: Verdict) -> Answer<&'static str> {
        let effects = self.effects.clone();
        let run = move |_: Lease| async move {
            sleep(takes).await;
            effects.fetch_add(1, Ordering::SeqCst);
            (verdict, "mine")
        };
        self.engine.once(self.operation(), run).await
    }

    pub(crate) async fn once(&self) -> Answer<&'static str> {
        self.run(Duration::ZERO, Verdict::Keep(Outcome::value("done"))).await
    }

    /// One page of the background's questions.
    pub(crate) async fn probe(&self) -> Asked {
        let (oracle, policy) = (self.oracle.clone(), Arc::new(self.policy.clone()));
        let choose = move |_: &Entry| Some((oracle.clone() as Arc<dyn Probe>, policy.clone()));
        self.engine.probe_unsettled(None, 100, choose).await.expect("the store answers")
    }

    pub(crate) fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    pub(crate) async fn entry(&self) -> Entry {
        let found = self.store.inner().find(&sample::scope(), &sample::key("k")).await;
        found.expect("it is read").expect("there is a record")
    }

    pub(crate) async fn reads(&self, name: &str) {
        let entry = self.entry().await;
        assert_eq!(entry.view.name(), name, "{entry:?}");
    }

    pub(crate) async fn is_unknown(&self, cause: Cause) {
        assert_eq!(self.entry().await.view, View::Unknown { cause });
    }
}

/// A record that was parked just now by an attempt of somebody else's. Gives its lease.
pub(crate) async fn parked(store: &FaultyStore) -> Lease {
    parked_as(store, "k").await
}

pub(crate) async fn parked_as(store: &FaultyStore, key: &str) -> Lease {
    let lease = running(store, key).await;
    store.inner().settle(&lease, &sample::park()).await.unwrap();
    lease
}

/// A record that runs, for the sample's lease.
pub(crate) async fn running(store: &FaultyStore, key: &str) -> Lease {
    sample::lease(store.inner().claim(&sample::run(key, 1)).await.unwrap())
}

/// Longer than every repetition and every delayed call.
pub(crate) async fn settle_down() {
    sleep(20 * SECOND).await;
}
