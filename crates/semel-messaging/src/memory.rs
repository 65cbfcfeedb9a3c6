//! A broker in this process: the smallest correct reading of [`source`](crate::source) and [`sink`](crate::sink).
//!
//! For tests and examples. One queue, named as the subject that it takes; nothing survives the process.
//!
//! 1. Ready messages are in the order in which they were sent. What a consumer gives back or loses goes back to its
//!    place; what it gives back for later joins at the end when its time has come.
//! 2. A delivery is counted when it is handed out, before anybody sees it.
//! 3. With a deadline ([`MemoryBroker::with_deadline`]) a delivery that is not settled in time is lost.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::grave::Grave;
use crate::message::Message;
use crate::sink::{SendError, Sent, Sink};
use crate::source::{
    Abilities, Deadline, Delivery, Later, Order, Receipt, ReceiptError, Source, SourceError,
};

/// One queue and its dead letters. Clones share them.
#[derive(Clone)]
pub struct MemoryBroker(Arc<Queue>);

struct Queue {
    name: Arc<str>,
    deadline: Option<Duration>,
    state: Mutex<State>,
    /// Something became ready, or a place became free.
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// By the place in the queue.
    ready: BTreeMap<u64, Queued>,
    later: Vec<(Instant, Queued)>,
    held: BTreeMap<u64, Held>,
    dead: VecDeque<Message>,
    last_place: u64,
    last_tag: u64,
    last_source: u64,
}

struct Queued {
    place: u64,
    message: Arc<Message>,
    deliveries: u32,
}

struct Held {
    source: u64,
    queued: Queued,
    until: Option<Instant>,
    lost: CancellationToken,
}

impl MemoryBroker {
    /// A broker with an empty queue.
    #[must_use]
    pub fn new(name: &str) -> MemoryBroker {
        MemoryBroker::with(name, None)
    }

    /// The same, where a delivery must be settled in time.
    #[must_use]
    pub fn with_deadline(name: &str, deadline: Duration) -> MemoryBroker {
        MemoryBroker::with(name, Some(deadline))
    }

    fn with(name: &str, deadline: Option<Duration>) -> MemoryBroker {
        let (state, changed) = (Mutex::default(), Notify::new());
        MemoryBroker(Arc::new(Queue { name: name.into(), deadline, state, changed }))
    }

    /// A connection that consumes.
    #[must_use]
    pub fn source(&self) -> MemorySource {
        let mut state = self.0.state();
        state.last_source += 1;
        let (id, held_max) = (state.last_source, AtomicU32::new(0));
        MemorySource { queue: self.0.clone(), id, held_max, closed: CancellationToken::new() }
    }

    /// A connection that sends.
    #[must_use]
    pub fn sink(&self) -> MemorySink {
        MemorySink(self.0.clone())
    }

    /// Cuts every connection: what is held is lost, and delivered again.
    pub fn cut(&self) {
        self.0.state().lose(|_| true);
        self.0.changed.notify_waiters();
    }

    /// The dead letters, the oldest first.
    #[must_use]
    pub fn dead(&self) -> Vec<Message> {
        self.0.state().dead.iter().cloned().collect()
    }

    /// Messages that are neither acknowledged nor buried.
    #[must_use]
    pub fn left(&self) -> usize {
        let state = self.0.state();
        state.ready.len() + state.later.len() + state.held.len()
    }
}

impl Queue {
    /// Each step under the lock is whole, so a panic elsewhere leaves it right.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a delivery out of what is held, if it still is.
    fn settled(&self, tag: u64) -> Result<Queued, ReceiptError> {
        let mut state = self.state();
        state.lose(|held| held.until.is_some_and(|until| until <= Instant::now()));
        let held = state.held.remove(&tag).ok_or(ReceiptError::Lost)?;
        drop(state);
        self.changed.notify_waiters();
        Ok(held.queued)
    }
}

impl State {
    fn enqueue(&mut self, message: Arc<Message>, deliveries: u32) {
        self.last_place += 1;
        let place = self.last_place;
        self.ready.insert(place, Queued { place, message, deliveries });
    }

    /// Puts what is lost back to its place.
    fn lose(&mut self, is_lost: impl Fn(&Held) -> bool) {
        for (_, held) in self.held.extract_if(.., |_, held| is_lost(held)) {
            held.lost.cancel();
            self.ready.insert(held.queued.place, held.queued);
        }
    }

    /// What falls due. Gives when the next does.
    fn advance(&mut self, now: Instant) -> Option<Instant> {
        self.lose(|held| held.until.is_some_and(|until| until <= now));
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        let due: Vec<(Instant, Queued)> = due;
        for (_, queued) in due {
            self.enqueue(queued.message, queued.deliveries);
        }
        let deadlines = self.held.values().filter_map(|held| held.until);
        self.later.iter().map(|(at, _)| *at).chain(deadlines).min()
    }
}

/// A consumer's connection to a [`MemoryBroker`].
pub struct MemorySource {
    queue: Arc<Queue>,
    id: u64,
    held_max: AtomicU32,
    closed: CancellationToken,
}

impl MemorySource {
    fn take(&self) -> (Option<Delivery>, Option<Instant>) {
        let mut state = self.queue.state();
        let next = state.advance(Instant::now());
        let held = state.held.values().filter(|held| held.source == self.id).count();
        if held >= self.held_max.load(Ordering::Relaxed) as usize {
            return (None, next);
        }
        let Some((_, mut queued)) = state.ready.pop_first() else { return (None, next) };
        state.last_tag += 1;
        let (tag, lost, before) = (state.last_tag, CancellationToken::new(), queued.deliveries);
        queued.deliveries += 1;
        let delivery = self.delivery(tag, &queued, before, lost.clone());
        let until = self.queue.deadline.map(|within| Instant::now() + within);
        state.held.insert(tag, Held { source: self.id, queued, until, lost });
        (Some(delivery), None)
    }

    fn delivery(&self, tag: u64, queued: &Queued, before: u32, lost: CancellationToken) -> Delivery {
        Delivery {
            message: queued.message.clone(),
            origin: self.queue.name.clone(),
            number: None,
            redelivered: before > 0,
            deliveries: Some(before),
            lost,
            receipt: Arc::new(MemoryReceipt { queue: self.queue.clone(), tag }),
        }
    }
}

#[async_trait]
impl Source for MemorySource {
    fn abilities(&self) -> Abilities {
        let deadline = self.queue.deadline.is_some();
        Abilities { broker: "memory", later: true, deadline, counts: true, order: Order::Queue }
    }

    async fn open(&self, held_max: u32) -> Result<(), SourceError> {
        self.held_max.store(held_max, Ordering::Relaxed);
        Ok(())
    }

    async fn receive(&self) -> Result<Delivery, SourceError> {
        loop {
            let changed = self.queue.changed.notified();
            if self.closed.is_cancelled() || self.held_max.load(Ordering::Relaxed) == 0 {
                return Err(SourceError::Closed);
            }
            let (taken, next) = self.take();
            if let Some(delivery) = taken {
                return Ok(delivery);
            }
            tokio::select! {
                () = changed => {}
                () = until(next) => {}
                () = self.closed.cancelled() => {}
            }
        }
    }

    async fn stop(&self) {
        self.closed.cancel();
    }

    async fn close(&self) {
        self.closed.cancel();
        self.queue.state().lose(|held| held.source == self.id);
        self.queue.changed.notify_waiters();
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next).await,
        None => std::future::pending().await,
    }
}

struct MemoryReceipt {
    queue: Arc<Queue>,
    tag: u64,
}

#[async_trait]
impl Receipt for MemoryReceipt {
    async fn ack(&self) -> Result<(), ReceiptError> {
        self.queue.settled(self.tag).map(drop)
    }

    async fn give_back(&self) -> Result<(), ReceiptError> {
        let queued = self.queue.settled(self.tag)?;
        self.queue.state().ready.insert(queued.place, queued);
        self.queue.changed.notify_waiters();
        Ok(())
    }

    async fn bury(&self, grave: &Grave) -> Result<(), ReceiptError> {
        let queued = self.queue.settled(self.tag)?;
        let mut message = (*queued.message).clone();
        for (name, value) in grave.headers() {
            message.headers.set(name, value);
        }
        self.queue.state().dead.push_back(message);
        Ok(())
    }

    fn later(&self) -> Option<&dyn Later> {
        Some(self)
    }

    fn deadline(&self) -> Option<&dyn Deadline> {
        self.queue.deadline.is_some().then_some(self as &dyn Deadline)
    }
}

#[async_trait]
impl Later for MemoryReceipt {
    async fn later(&self, after: Duration) -> Result<(), ReceiptError> {
        let queued = self.queue.settled(self.tag)?;
        self.queue.state().later.push((Instant::now() + after, queued));
        self.queue.changed.notify_waiters();
        Ok(())
    }
}

#[async_trait]
impl Deadline for MemoryReceipt {
    fn within(&self) -> Duration {
        self.queue.deadline.unwrap_or(Duration::MAX)
    }

    async fn extend(&self) -> Result<(), ReceiptError> {
        let (mut state, now) = (self.queue.state(), Instant::now());
        state.lose(|held| held.until.is_some_and(|until| until <= now));
        let held = state.held.get_mut(&self.tag).ok_or(ReceiptError::Lost)?;
        held.until = self.queue.deadline.map(|within| now + within);
        Ok(())
    }
}

/// A producer's connection to a [`MemoryBroker`].
pub struct MemorySink(Arc<Queue>);

#[async_trait]
impl Sink for MemorySink {
    async fn send(&self, message: &Message) -> Result<Sent, SendError> {
        if *message.subject != *self.0.name {
            let (subject, reason) = (message.subject.clone(), "no such queue".to_owned());
            return Err(SendError::Unroutable { subject, reason });
        }
        self.0.state().enqueue(Arc::new(message.clone()), 0);
        self.0.changed.notify_waiters();
        Ok(Sent { duplicate: false })
    }

    async fn close(&self) {}
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryBroker({})", self.0.name)
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemorySource({} {})", self.queue.name, self.id)
    }
}

impl fmt::Debug for MemorySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemorySink({})", self.0.name)
    }
}

impl fmt::Debug for MemoryReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryReceipt({} {})", self.queue.name, self.tag)
    }
}
