//! A broker, a store, and processes that consume and can be killed.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::testing::fault::{Fault, FaultyStore};
use semel::testing::{Random, VirtualClock};
use semel::{Entry, Key, MemoryStore, OnUnknown, Scope, Store};
use semel_messaging::memory::MemoryBroker;
use semel_messaging::testing::{Faults, FaultySource};
use semel_messaging::{
    Builder, Consumer, Drained, Failure, Field, Grave, Message, Sink, Source, SourceError, Work,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Everything that outlives a process.
pub(crate) struct World {
    pub(crate) broker: MemoryBroker,
    pub(crate) store: Arc<MemoryStore>,
    /// The store does not answer.
    pub(crate) away: Arc<AtomicBool>,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    /// Each process draws its own: two with the same attempt ids would be one.
    random: Random,
}

/// What handlers did, in order. Clones share it.
#[derive(Clone)]
pub(crate) struct Journal(Arc<watch::Sender<Vec<String>>>);

/// A consumer in a process of its own.
pub(crate) struct Process {
    stop: CancellationToken,
    dead: Arc<AtomicBool>,
    source: Arc<dyn Source>,
    task: JoinHandle<Result<Drained, SourceError>>,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(MemoryBroker::new("orders"))
    }

    pub(crate) fn with(broker: MemoryBroker) -> World {
        let store = Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new())));
        let (away, faults) = (Arc::default(), Faults::default());
        let journal = Journal(Arc::new(watch::Sender::new(Vec::new())));
        World { broker, store, away, faults, journal, random: Random::new(7) }
    }

    /// The same, where receipts fail no more.
    pub(crate) fn without_faults(&self) -> World {
        let (broker, store, away) = (self.broker.clone(), self.store.clone(), self.away.clone());
        let (faults, journal, random) = (Faults::default(), self.journal.clone(), self.random.fork());
        World { broker, store, away, faults, journal, random }
    }

    /// A consumer that may be set up further: `Rerun`, order by the header `lane`, and seeded.
    pub(crate) fn builder(&self) -> Builder {
        Consumer::builder("billing", OnUnknown::Rerun)
            .lane(Field::Header("lane".into()))
            .entropy(self.random.fork().entropy())
    }

    /// Starts a process.
    pub(crate) fn start<F, Fut>(&self, builder: Builder, handle: F) -> Process
    where
        F: Fn(Work) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let source: Arc<dyn Source> =
            Arc::new(FaultySource::new(Arc::new(self.broker.source()), self.faults.clone()));
        let (stop, dead) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let (is_dead, is_away) = (dead.clone(), self.away.clone());
        let store = FaultyStore::deciding(self.store.clone(), move |_| {
            let hangs = is_dead.load(Ordering::SeqCst).then_some(Fault::HangBefore);
            hangs.or_else(|| is_away.load(Ordering::SeqCst).then_some(Fault::Before))
        });
        let consumer = builder.build(Arc::new(store), source.clone(), handle).expect("the settings fit");
        let stopped = stop.clone();
        let task = tokio::spawn(consumer.run(async move { stopped.cancelled().await }));
        Process { stop, dead, source, task }
    }

    pub(crate) async fn send(&self, message: Message) {
        self.broker.sink().send(&message).await.expect("it is sent");
    }

    /// Waits until nothing is left in the queue.
    pub(crate) async fn empty(&self) {
        let empty = async {
            while self.broker.left() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(3_600), empty)
            .await
            .expect("the queue empties within an hour");
    }

    /// The reasons of the dead letters.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let reason = |dead: Message| dead.headers.text(Grave::REASON).expect("a reason").to_owned();
        self.broker.dead().into_iter().map(reason).collect()
    }

    pub(crate) async fn entry(&self, id: &str) -> Option<Entry> {
        let (scope, key) = (Scope::new("message:billing").unwrap(), Key::new(id).unwrap());
        self.store.find(&scope, &key).await.unwrap()
    }
}

impl Process {
    /// In good order.
    pub(crate) async fn stop(self) -> Drained {
        self.stop.cancel();
        self.task.await.expect("it ends by itself").expect("it ends in good order")
    }

    /// At once: nothing that it does reaches anybody any more.
    pub(crate) async fn kill(self) {
        self.dead.store(true, Ordering::SeqCst);
        self.task.abort();
        self.source.close().await;
    }
}

impl Journal {
    pub(crate) fn write(&self, line: impl Into<String>) {
        self.0.send_modify(|lines| lines.push(line.into()));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.0.borrow().iter().filter(|one| *one == line).count()
    }

    /// Waits until a line was written so often.
    pub(crate) async fn wait_for(&self, line: &str, times: usize) {
        let mut lines = self.0.subscribe();
        let written = lines.wait_for(|lines| lines.iter().filter(|one| *one == line).count() >= times);
        let waited = tokio::time::timeout(Duration::from_secs(3_600), written).await;
        waited.expect("it is written within an hour").expect("the journal lives");
    }
}

/// A message that is named by its body.
pub(crate) fn order(id: &str) -> Message {
    Message::new("orders", id.to_owned()).with_id(id)
}

pub(crate) fn in_lane(lane: &str, id: &str) -> Message {
    order(id).with_header("lane", lane.to_owned())
}

pub(crate) fn text(work: &Work) -> String {
    String::from_utf8_lossy(&work.message.body).into_owned()
}
