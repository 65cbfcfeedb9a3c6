//! What can be chosen for a consumer, and what does not fit together.

use std::sync::Arc;
use std::time::Duration;

use semel::{Engine, Entropy, FOREVER, History, Instance, OnUnknown, Policy, PolicyError, Probe, Store};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Consumer;
use super::firsts::{Firsts, Together};
use super::handler::Handler;
use super::shared::{Asking, Retry, Shared};
use crate::field::Field;
use crate::identity::{Id, Missing, Naming};
use crate::observe::Meters;
use crate::source::Source;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A consumer being set up. Each setting says its default.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    name: String,
    policy: Policy,
    id: Id,
    missing: Missing,
    source: Option<Field>,
    lane: Option<Field>,
    retry: Retry,
    in_flight_max: u32,
    held_max: Option<u32>,
    body_bytes_max: usize,
    redelivered_for: Duration,
    drain_for: Duration,
    entropy: Entropy,
    history: Option<Arc<dyn History>>,
    instance: Option<Instance>,
    asking: Option<Asking>,
}

impl Builder {
    pub(super) fn new(name: String, on_unknown: OnUnknown) -> Builder {
        Builder {
            name,
            policy: Policy { attempts_max: 10, ..Policy::new(on_unknown) },
            id: Id::Field(Field::MessageId),
            missing: Missing::Reject,
            source: None,
            lane: None,
            retry: Retry::default(),
            in_flight_max: 16,
            held_max: None,
            body_bytes_max: 16 * 1024 * 1024,
            redelivered_for: 14 * DAY,
            drain_for: Duration::from_secs(30),
            entropy: Entropy::system(),
            history: None,
            instance: None,
            asking: None,
        }
    }

    /// Where a message's id comes from. The producer's message id.
    pub fn id(self, id: Id) -> Builder {
        Builder { id, ..self }
    }

    /// What becomes of a message without one. A dead letter.
    pub fn missing(self, missing: Missing) -> Builder {
        Builder { missing, ..self }
    }

    /// Ids are unique only within this field's value, say [`Field::Producer`]. Unique among all.
    pub fn source(self, source: Field) -> Builder {
        Builder { source: Some(source), ..self }
    }

    /// What keeps its order: messages with the same value here run one after the other. No order.
    pub fn lane(self, lane: Field) -> Builder {
        Builder { lane: Some(lane), ..self }
    }

    /// How often a message is tried. 10.
    pub fn attempts_max(mut self, attempts_max: u32) -> Builder {
        self.policy.attempts_max = attempts_max;
        self
    }

    /// The pauses between attempts. 200 ms doubling to 30 s.
    pub fn retry(self, retry: Retry) -> Builder {
        Builder { retry, ..self }
    }

    /// How many messages run at once. 16, or as many as a batch of the handler's has; with twice as many, two batches
    /// do.
    pub fn in_flight_max(self, in_flight_max: u32) -> Builder {
        Builder { in_flight_max, ..self }
    }

    /// How many are held at once, with those that run, wait for their lane, or wait to be tried again: the broker's
    /// prefetch. Eight times as many as run.
    pub fn held_max(self, held_max: u32) -> Builder {
        Builder { held_max: Some(held_max), ..self }
    }

    /// The largest body that is taken; a larger one is a dead letter. 16 MiB. Memory may hold this, times `held_max`.
    pub fn body_bytes_max(self, body_bytes_max: usize) -> Builder {
        Builder { body_bytes_max, ..self }
    }

    /// How long a lease lasts: after so long without its process a message is unknown. Renewed at a third of it. 30 s.
    pub fn lease_for(mut self, lease_for: Duration) -> Builder {
        self.policy.lease_for = lease_for;
        self
    }

    /// After so long, and five minutes more, a run that has not ended is unknown. Never.
    pub fn handle_within(mut self, within: Duration) -> Builder {
        self.policy.answer_within = Some(within);
        self
    }

    /// How long a message is remembered after it was done. 30 d.
    pub fn remember_for(mut self, remember_for: Duration) -> Builder {
        self.policy.remember_for = remember_for;
        self.policy.replay_for = self.policy.replay_for.min(remember_for);
        self
    }

    /// How long after the first delivery another one may come: what the broker keeps, and what a person may take with
    /// the dead letters. It must be shorter than what is remembered. 14 d.
    pub fn redelivered_for(self, redelivered_for: Duration) -> Builder {
        Builder { redelivered_for, ..self }
    }

    /// How long stopping waits for what runs. 30 s.
    pub fn drain_for(self, drain_for: Duration) -> Builder {
        Builder { drain_for, ..self }
    }

    /// Writes down how attempts end, where the store keeps timelines. It does not.
    pub fn history(self, history: Arc<dyn History>) -> Builder {
        Builder { history: Some(history), ..self }
    }

    /// Who is asked whether a message took effect, for [`OnUnknown::Probe`]: not before it has been unknown for `after`,
    /// and then again after pauses that double. What is still unknown when the first delivery was `ask_for` ago is
    /// given up, reason `outcome-unknown`. Nobody.
    pub fn probe(
        mut self,
        probe: Arc<dyn Probe>,
        after: Duration,
        within: Duration,
        ask_for: Duration,
    ) -> Builder {
        (self.policy.probe_after, self.policy.probe_within) = (after, within);
        Builder { asking: Some(Asking { probe, ask_for }), ..self }
    }

    /// This process's name: records tell by it who was there. None.
    pub fn instance(self, instance: Instance) -> Builder {
        Builder { instance: Some(instance), ..self }
    }

    /// Where jitter and attempt ids come from. The operating system.
    pub fn entropy(self, entropy: Entropy) -> Builder {
        Builder { entropy, ..self }
    }

    /// The consumer.
    ///
    /// # Errors
    ///
    /// The first thing that does not fit.
    pub fn build(
        mut self,
        store: Arc<dyn Store>,
        source: Arc<dyn Source>,
        handler: impl Handler,
    ) -> Result<Consumer, Unfit> {
        let batch_max = handler.together().map_or(1, Together::batch_max);
        if batch_max > 1 {
            self.in_flight_max = self.in_flight_max.max(u32::try_from(batch_max).unwrap_or(u32::MAX));
        }
        self.check()?;
        let held_max = self.places();
        let drain_for = self.drain_for;
        let counts = source.abilities().counts && handler.together().is_some();
        let firsts = Firsts::new(self.in_flight_max as usize / batch_max.max(1));
        let shared = Arc::new(self.shared(store, Arc::new(handler), counts, firsts));
        Ok(Consumer { shared, source, held_max, drain_for })
    }

    fn check(&self) -> Result<(), Unfit> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || !self.name.bytes().all(is_plain) {
            return Err(Unfit::Name(self.name.clone()));
        }
        self.policy.check()?;
        if (self.policy.on_unknown == OnUnknown::Probe) != self.asking.is_some() {
            return Err(Unfit::NobodyToAsk);
        }
        if self.in_flight_max == 0 || self.places() < self.in_flight_max || self.places() > HELD_MAX {
            return Err(Unfit::Places { in_flight_max: self.in_flight_max, held_max: self.places() });
        }
        if self.body_bytes_max == 0 {
            return Err(Unfit::NoBody);
        }
        self.check_memory()
    }

    /// M10: a message must not be forgotten while it can still come.
    fn check_memory(&self) -> Result<(), Unfit> {
        let remembered = self.policy.remember_for;
        let horizon = self.retry.horizon(self.policy.attempts_max).saturating_add(self.redelivered_for);
        if remembered != FOREVER && remembered <= horizon {
            return Err(Unfit::Forgets { remembered, horizon });
        }
        Ok(())
    }

    fn places(&self) -> u32 {
        self.held_max.unwrap_or_else(|| self.in_flight_max.saturating_mul(8).min(HELD_MAX))
    }

    fn shared(
        self,
        store: Arc<dyn Store>,
        handler: Arc<dyn Handler>,
        counts: bool,
        firsts: Firsts,
    ) -> Shared {
        let engine = Engine::new(store, self.entropy.clone());
        let engine = match self.history {
            Some(history) => engine.with_history(history),
            None => engine,
        };
        let engine = match self.instance {
            Some(instance) => engine.with_instance(instance),
            None => engine,
        };
        let naming = Naming {
            consumer: self.name.clone(),
            id: self.id,
            missing: self.missing,
            source: self.source,
            entropy: self.entropy.clone(),
        };
        let engine_meters = semel::observe::Meters::new("message", self.name.clone());
        Shared {
            engine,
            entropy: self.entropy,
            policy: Arc::new(self.policy),
            naming,
            lane: self.lane,
            asking: self.asking,
            retry: self.retry,
            body_bytes_max: self.body_bytes_max,
            handler,
            counts,
            firsts,
            slots: Arc::new(Semaphore::new(self.in_flight_max as usize)),
            stopping: CancellationToken::new(),
            meters: Meters::new(&self.name),
            engine_meters: Arc::new(engine_meters),
            name: self.name.into(),
        }
    }
}

/// It is part of every scope, beside the source of the messages.
const NAME_BYTES_MAX: usize = 100;

/// What AMQP can say of a prefetch.
const HELD_MAX: u32 = u16::MAX as u32;

/// Why settings do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The name is none.
    #[error("{0:?} is no name for a consumer: 1 to 100 letters, digits, `.`, `-` or `_`")]
    Name(String),
    /// The times do not fit together.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A probe and the choice `probe` belong together.
    #[error("`probe` for what is unknown needs somebody to ask, and whoever is asked needs `probe`")]
    NobodyToAsk,
    /// Nothing could run, or less is held than runs.
    #[error(
        "in-flight-max ({in_flight_max}) must be at least 1, and held-max ({held_max}) no less than that and at most 65535"
    )]
    Places {
        /// How many run.
        in_flight_max: u32,
        /// How many are held.
        held_max: u32,
    },
    /// No message could be taken.
    #[error("body-bytes-max must be at least 1")]
    NoBody,
    /// A message could come again after it was forgotten, and would run twice.
    #[error(
        "a message is forgotten after {remembered:?}, and may come again for {horizon:?} (pauses between attempts, \
         and redelivered-for): raise remember-for, or lower redelivered-for to what your broker and your dead \
         letters really keep"
    )]
    Forgets {
        /// For so long it is remembered.
        remembered: Duration,
        /// For so long it may come again.
        horizon: Duration,
    },
}

#[cfg(test)]
mod tests {
    use semel::MemoryStore;

    use super::*;
    use crate::consumer::{Failure, Work};
    use crate::memory::MemoryBroker;

    fn build(builder: Builder) -> Result<Consumer, Unfit> {
        let handler = |_: Work| async { Ok::<(), Failure>(()) };
        builder.build(Arc::new(MemoryStore::new()), Arc::new(MemoryBroker::new("q").source()), handler)
    }

    fn builder() -> Builder {
        Consumer::builder("billing", OnUnknown::Park)
    }

    #[test]
    fn m10_a_consumer_that_forgets_too_soon_is_refused() {
        assert!(build(builder()).is_ok());
        let forgets = |remember_for, redelivered_for| {
            let builder = builder().remember_for(remember_for).redelivered_for(redelivered_for);
            matches!(build(builder), Err(Unfit::Forgets { .. }))
        };
        assert!(forgets(14 * DAY, 14 * DAY));
        assert!(forgets(DAY, DAY - Duration::from_secs(1)), "the pauses between attempts count too");
        assert!(!forgets(15 * DAY, 14 * DAY));
        assert!(!forgets(FOREVER, FOREVER));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for name in ["", "a b", "a:b", "ä", &"n".repeat(101)] {
            let unfit = build(Consumer::builder(name, OnUnknown::Park)).unwrap_err();
            assert_eq!(unfit, Unfit::Name(name.into()));
        }
        assert_eq!(build(Consumer::builder("a", OnUnknown::Probe)).unwrap_err(), Unfit::NobodyToAsk);
        for (in_flight_max, held_max) in [(0, 1), (2, 1), (1, 65_536)] {
            let unfit = build(builder().in_flight_max(in_flight_max).held_max(held_max)).unwrap_err();
            assert_eq!(unfit, Unfit::Places { in_flight_max, held_max });
        }
        assert_eq!(build(builder().body_bytes_max(0)).unwrap_err(), Unfit::NoBody);
        assert!(matches!(build(builder().attempts_max(0)), Err(Unfit::Policy(_))));
    }

    #[test]
    fn m7_the_prefetch_is_derived_from_what_runs() {
        assert_eq!(build(builder().in_flight_max(4)).unwrap().held_max, 32);
        assert_eq!(build(builder().in_flight_max(60_000)).unwrap().held_max, 65_535);
    }
}
