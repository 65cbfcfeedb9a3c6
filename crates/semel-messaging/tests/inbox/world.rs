//! A broker, a database, a store, and processes that consume and can be killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use semel::testing::fault::{Fault, FaultyStore};
use semel::{Key, MemoryStore, Scope, Store};
use semel_messaging::memory::MemoryBroker;
use semel_messaging::testing::{Faults, FaultySource};
use semel_messaging::{
    Builder, Consumer, Drained, Failure, Grave, Inbox, Message, Retry, Sink, Source, SourceError, Work,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::databases::{Books, Tx};

/// Everything that outlives a process.
pub(crate) struct World<D> {
    pub(crate) books: D,
    pub(crate) broker: MemoryBroker,
    pub(crate) store: Arc<MemoryStore>,
    /// No transaction can be had.
    pub(crate) away: Arc<AtomicBool>,
    pub(crate) faults: Faults,
    /// The ids that handlers were given, in order.
    runs: Arc<Mutex<Vec<String>>>,
}

/// How many messages one transaction has, and how the handler is called.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Alone,
    Savepoints,
    SetWise,
}

/// A consumer in a process of its own.
pub(crate) struct Process {
    stop: CancellationToken,
    /// Nothing reaches the store any more.
    dead: Arc<AtomicBool>,
    source: Arc<dyn Source>,
    task: JoinHandle<Result<Drained, SourceError>>,
}

/// What the handler says, after the effect.
type Says = fn(&Work) -> Result<(), Failure>;

pub(crate) fn fine(_: &Work) -> Result<(), Failure> {
    Ok(())
}

impl<D: Books> World<D> {
    pub(crate) async fn new() -> World<D> {
        let (broker, store) = (MemoryBroker::new("orders"), Arc::new(MemoryStore::new()));
        let (away, faults, runs) = (Arc::default(), Faults::default(), Arc::default());
        World { books: D::new().await, broker, store, away, faults, runs }
    }

    pub(crate) fn start(&self, how: How, says: Says) -> Process {
        let (stop, dead) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let is_dead = dead.clone();
        let store = FaultyStore::deciding(self.store.clone(), move |_| {
            is_dead.load(Ordering::SeqCst).then_some(Fault::HangBefore)
        });
        let source = FaultySource::new(Arc::new(self.broker.source()), self.faults.clone());
        let source: Arc<dyn Source> = Arc::new(source);
        let inbox = self.inbox(how, says);
        let consumer = builder().build(Arc::new(store), source.clone(), inbox).expect("the settings fit");
        let stopped = stop.clone();
        let task = tokio::spawn(consumer.run(async move { stopped.cancelled().await }));
        Process { stop, dead, source, task }
    }

    fn inbox(&self, how: How, says: Says) -> Inbox<D::From> {
        let (from, runs) = (self.books.transactions(self.away.clone()), self.runs.clone());
        match how {
            How::Alone => {
                Inbox::new(from, move |tx, work| does::<D>(tx, vec![work], says, runs.clone()).boxed())
            }
            How::Savepoints => Inbox::in_batches(from, 10, move |tx, work| {
                does::<D>(tx, vec![work], says, runs.clone()).boxed()
            }),
            How::SetWise => {
                Inbox::set_wise(from, 10, move |tx, works| does::<D>(tx, works, says, runs.clone()).boxed())
            }
        }
    }

    pub(crate) async fn send(&self, id: &str) {
        self.send_with(id, id).await;
    }

    pub(crate) async fn send_with(&self, id: &str, body: &str) {
        let message = Message::new("orders", body.to_owned()).with_id(id);
        self.broker.sink().send(&message).await.expect("it is sent");
    }

    /// Waits until nothing is left in the queue.
    pub(crate) async fn empty(&self) {
        let empty = async {
            while self.broker.left() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), empty)
            .await
            .expect("the queue empties within a minute");
    }

    /// How often a handler was given this message.
    pub(crate) fn runs(&self, id: &str) -> usize {
        self.runs.lock().unwrap().iter().filter(|run| *run == id).count()
    }

    /// Of the consumer's own record.
    pub(crate) async fn attempts(&self, id: &str) -> Option<u32> {
        let (scope, key) = (Scope::new("message:billing").unwrap(), Key::new(id).unwrap());
        self.store.find(&scope, &key).await.unwrap().map(|entry| entry.attempts)
    }

    /// Ids and reasons of the dead letters.
    pub(crate) fn dead(&self) -> Vec<(String, String)> {
        let reason = |dead: &Message| dead.headers.text(Grave::REASON).expect("a reason").to_owned();
        let dead = self.broker.dead();
        dead.iter().map(|dead| (dead.id.clone().expect("an id"), reason(dead))).collect()
    }
}

async fn does<D: Books>(
    tx: &mut Tx<D>,
    works: Vec<Work>,
    says: Says,
    runs: Arc<Mutex<Vec<String>>>,
) -> Result<(), Failure> {
    for work in &works {
        runs.lock().unwrap().push(work.key.as_str().to_owned());
        D::book(tx, work.key.as_str()).await?;
        says(work)?;
    }
    Ok(())
}

impl Process {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it ends by itself").expect("it ends in good order");
    }

    pub(crate) async fn kill(self) {
        self.dead.store(true, Ordering::SeqCst);
        self.task.abort();
        self.source.close().await;
    }
}

fn builder() -> Builder {
    let retry = Retry { first: Duration::from_millis(20), max: Duration::from_millis(100) };
    Consumer::inbox("billing").retry(retry).lease_for(Duration::from_millis(500))
}
