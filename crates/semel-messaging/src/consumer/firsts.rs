//! First deliveries, for handlers that claim in the transaction of their effect.
//!
//! 1. **A message that a broker which counts durably has never delivered has never run** (K8), so nothing needs to be
//!    written down before it does. Its handler's own transaction decides, alone: one commit for a message, not three.
//! 2. **The second delivery, and every failure, is written down in the store**: a failure is told to the engine, which
//!    counts it and says when it is tried again; a delivery that the broker counts as repeated is claimed there before it
//!    runs. So a message that kills its process runs once more than the consumer's attempts, and not for ever.
//! 3. **Gathered, and never waited for**: what comes while a batch runs is the next one, up to its size.
//! 4. A batch has one message of a lane at most, since a message begins when the one before it in its lane has ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, oneshot};

use super::handler::{Failure, Work};
use super::shared::Shared;
use crate::grave::Grave;
use crate::source::Delivery;

/// A handler that claims messages itself, together with their effects.
#[async_trait]
pub trait Together: Send + Sync {
    /// At most so many in one transaction; one at least.
    fn batch_max(&self) -> usize;

    /// Claims, runs and completes each, and gives an answer for each, in their order. It is not cancelled.
    async fn together(&self, works: Vec<Work>) -> Vec<First>;
}

/// What a first delivery came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum First {
    /// Its effect is there.
    Done,
    /// It was there before, since so long.
    Duplicate {
        /// Time since the key's first claim.
        age: Duration,
    },
    /// Its id came before with another payload.
    Reused,
    /// It took no effect, or nobody knows, as the failure says.
    Failed(Failure),
    /// Not now: another one of its id is in the same batch.
    NotYet,
    /// Not so simple: claim it in the store, and run it as any other delivery.
    Ask,
}

/// First deliveries that wait for their batch.
pub(super) struct Firsts {
    waiting: Mutex<VecDeque<(Work, oneshot::Sender<First>)>>,
    /// Places for batches that run.
    batches: Arc<Semaphore>,
}

impl Firsts {
    pub(super) fn new(batches_max: usize) -> Firsts {
        Firsts { waiting: Mutex::default(), batches: Arc::new(Semaphore::new(batches_max.max(1))) }
    }

    /// Each step under the lock is whole, so a panic elsewhere leaves it right.
    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Work, oneshot::Sender<First>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, batch_max: usize) -> (Vec<Work>, Vec<oneshot::Sender<First>>) {
        let mut waiting = self.waiting();
        let many = waiting.len().min(batch_max);
        waiting.drain(..many).unzip()
    }
}

impl Shared {
    /// Whether this delivery is its message's first, as far as anybody can know.
    pub(super) fn is_first(&self, delivery: &Delivery) -> bool {
        // What was dead may have run before it was, whoever brings it back.
        let was_dead = delivery.message.headers.bytes(Grave::REASON).is_some();
        self.counts && delivery.deliveries == Some(0) && !delivery.redelivered && !was_dead
    }

    /// Runs a first delivery, in a batch with others that wait. A panic of the handler's is unknown, for all of its
    /// batch.
    pub(super) async fn first(self: &Arc<Shared>, work: Work) -> First {
        let first = match self.handler.together().is_some_and(|together| together.batch_max() > 1) {
            true => self.first_of_many(work).await,
            false => self.clone().run_batch(vec![work]).await.pop(),
        };
        first.unwrap_or_else(|| First::Failed(Failure::unknown("its handler broke")))
    }

    async fn first_of_many(self: &Arc<Shared>, work: Work) -> Option<First> {
        let (tell, told) = oneshot::channel();
        self.firsts.waiting().push_back((work, tell));
        self.begin_batch();
        told.await.ok()
    }

    fn begin_batch(self: &Arc<Shared>) {
        let Ok(place) = self.firsts.batches.clone().try_acquire_owned() else { return };
        let shared = self.clone();
        tokio::spawn(async move {
            // Those that are just coming in are with it.
            tokio::task::yield_now().await;
            shared.clone().batch().await;
            drop(place);
            // Who came before the place was free found none.
            if !shared.firsts.waiting().is_empty() {
                shared.begin_batch();
            }
        });
    }

    async fn batch(self: Arc<Shared>) {
        let Some(batch_max) = self.handler.together().map(Together::batch_max) else { return };
        let (works, tells) = self.firsts.take(batch_max.max(1));
        if works.is_empty() {
            return;
        }
        for (tell, first) in tells.into_iter().zip(self.run_batch(works).await) {
            // Whoever does not listen any more leaves the message to the broker.
            let _ = tell.send(first);
        }
    }

    /// In a task of its own, so that nobody cancels it, and a panic ends this batch and not those behind it: then there
    /// is no answer.
    async fn run_batch(self: Arc<Shared>, works: Vec<Work>) -> Vec<First> {
        let running = tokio::spawn(async move {
            match self.handler.together() {
                Some(together) => together.together(works).await,
                None => Vec::new(),
            }
        });
        running.await.unwrap_or_default()
    }
}
