//! A consumer that applies each message once, on any store.
//!
//! 1. **The engine decides** whether a message runs; the consumer names it, asks, and settles the delivery by the
//!    answer. What it is named by is in [`identity`](crate::Id), what becomes of it in one table, `consumer/next.rs`.
//! 2. **Acknowledged** is only what is done, was done before, or is confirmed among the dead letters (C113). A
//!    duplicate is no error: it is acknowledged, counted, and logged with the time since the first delivery (M4).
//! 3. **A handler ends** in one of four ways: done; transient ([`Failure::transient`], or any error by `?`), tried again
//!    after an exponential pause with full jitter, ten times by default; permanent ([`Failure::permanent`]), a dead
//!    letter at once; or unknown ([`Failure::unknown`], a panic, the death of the process): then the consumer's
//!    [`OnUnknown`] holds. `Rerun` runs it again, and it ends among the dead letters after as many
//!    attempts; `Park` buries it, reason `outcome-unknown`, until a person has resolved its key.
//! 4. **Attempts are counted in the store, before anything runs**, so a message that kills the process is counted
//!    (K8). A message that waits for another attempt, for its time, or for a store that is away, is no attempt (C82);
//!    for a store that is away nothing is ever buried. Each death of a process is an attempt of all that ran in it: give
//!    `attempts_max` room for that. An inbox leaves the first delivery to the count of a broker that has one
//!    (`consumer/firsts.rs`).
//! 5. **A lane keeps its order** ([`Builder::lane`]): a message waits until the one before it in its lane has ended,
//!    by whatever end, and for nothing else. What is tried again holds its lane meanwhile, here, and not the others.
//!    What has no lane is given back to a broker that can deliver it later. Order holds within one consumer: where
//!    several processes share a queue, the broker must give a lane to one of them (RabbitMQ: single active consumer;
//!    Kafka: partitions).
//! 6. **Everything has a bound**: so many run at once ([`Builder::in_flight_max`]), so many are held
//!    ([`Builder::held_max`], the broker's prefetch), a body has so many bytes. When lanes that wait hold all places,
//!    the consumer receives nothing until one of them gets on: at most for all pauses of the first message in it.
//! 7. **Lease and deadline are both kept** while a message is held: the lease by the engine, the broker's deadline where
//!    it can be moved. A delivery that is lost before its turn is dropped, and comes again.
//! 8. **Stopping** receives no more, lets what runs end for [`Builder::drain_for`], parks what still runs, and leaves
//!    everything else to the broker.
//! 9. **The store must remember longer than the broker can repeat** (M10): [`Builder::build`] refuses a retention below
//!    the horizon of its own retries and the time that you say a broker, or a person with dead letters, may take.
//!
//! What it cannot promise: exactly once. An effect outside the store, made by a process that died before it could say
//! so, is *unknown*; `Rerun` then makes it a second time. Where the effect is in a SQL database, the inbox mode claims in
//! the handler's own transaction instead.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use semel::OnUnknown;
use tokio::time::timeout;

/// For receipts, after the last run has ended or was parked.
const LAST_WORDS: Duration = Duration::from_secs(2);

mod firsts;
mod handler;
mod held;
mod keep;
mod lanes;
mod next;
mod settings;
mod shared;
mod turn;

use held::Held;
use shared::Shared;

pub use firsts::{First, Together};
pub use handler::{Failure, Handler, Work};
pub use settings::{Builder, Unfit};
pub use shared::Retry;

use crate::source::{Source, SourceError};

/// Consumes one source under one name.
pub struct Consumer {
    shared: Arc<Shared>,
    source: Arc<dyn Source>,
    held_max: u32,
    drain_for: Duration,
}

/// How a consumer ended that was told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Runs that did not end in time. Their keys are unknown, and their messages come again.
    pub parked: usize,
}

impl Consumer {
    /// A consumer of this name, which never changes: the store knows by it what the consumer has done. Letters, digits,
    /// `.`, `-` and `_`.
    ///
    /// What becomes of a message of which nobody knows whether it took effect has no default.
    pub fn builder(name: impl Into<String>, on_unknown: OnUnknown) -> Builder {
        Builder::new(name.into(), on_unknown)
    }

    /// Consumes until `stop` ends, then drains.
    ///
    /// # Errors
    ///
    /// When the source cannot be opened, or will never give anything again. What was received is drained first.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<Drained, SourceError> {
        self.source.open(self.held_max).await?;
        tracing::info!(
            consumer = %self.shared.name,
            broker = self.source.abilities().broker,
            on_unknown = self.shared.policy.on_unknown.as_str(),
            held_max = self.held_max,
            "consuming"
        );
        let mut work = Held::new(self.shared.clone(), self.held_max);
        let ended = self.consume(&mut work, stop).await;
        let parked = self.drain(work).await;
        ended.map(|()| Drained { parked })
    }

    async fn consume(&self, work: &mut Held, stop: impl Future<Output = ()>) -> Result<(), SourceError> {
        let mut stop = pin!(stop);
        loop {
            // Kept over the turns that end meanwhile.
            let mut receiving = pin!(self.source.receive());
            let delivery = loop {
                tokio::select! {
                    biased;
                    () = &mut stop => return Ok(()),
                    () = work.one_ends(), if work.has_turns() => {}
                    delivery = &mut receiving, if work.has_place() => break delivery?,
                }
            };
            work.accept(delivery);
        }
    }

    /// What was asked for by a claim is settled; what has not begun is the broker's again.
    async fn drain(self, mut work: Held) -> usize {
        self.shared.stopping.cancel();
        self.source.stop().await;
        work.let_go();
        let (parked, _) = tokio::join!(
            self.shared.engine.drain(self.drain_for),
            timeout(self.drain_for + LAST_WORDS, work.all_end()),
        );
        self.source.close().await;
        parked
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.shared.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
