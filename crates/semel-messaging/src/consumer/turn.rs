//! One delivery, from its turn to its receipt.
//!
//! 1. It is named, claimed, and settled by what the engine answered (`next`): as often as it takes, because an answer
//!    may be "not yet".
//! 2. **Waiting is done where it holds up least**: a message without a lane is given back to a broker that can deliver
//!    it later, if the wait is longer than [`HOLD_MAX`]; everything else is held here, and holds up only its own lane.
//!    Too early a delivery is told by the store how long is left: the broker's clock decides nothing.
//! 3. A place among those that run is taken for the claim and the run, and not for a wait.
//! 4. **The receipt is repeated** while the broker can still be told and the delivery is not lost. Nothing runs again
//!    for that.

use std::sync::Arc;
use std::time::Duration;

use semel::retry::Backoff;
use semel::{Answer, Cause, Key, Lease, Operation, Outcome, Scope, Verdict};
use tokio::time::sleep;

use super::firsts::First;
use super::handler::{Failure, Kind, Work};
use super::next::{Ended, Next, next};
use super::shared::Shared;
use crate::grave::{Grave, reason};
use crate::identity::{Name, Unnamed};
use crate::message::Message;
use crate::observe::Result as Counted;
use crate::source::{Delivery, ReceiptError};

/// A wait up to so long is spent here, whatever the broker can.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(1);

/// The longest pause before a message that is held is claimed again, or a receipt repeated.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// One delivery's turn.
pub(super) struct Turn {
    shared: Arc<Shared>,
    delivery: Delivery,
    has_lane: bool,
    is_first: bool,
    pauses: Backoff,
    attempts: u32,
    history: Vec<String>,
}

impl Turn {
    pub(super) fn new(shared: Arc<Shared>, delivery: Delivery, has_lane: bool) -> Turn {
        let (pauses, history) = (pauses(), Vec::new());
        let is_first = shared.is_first(&delivery);
        Turn { shared, delivery, has_lane, is_first, pauses, attempts: 0, history }
    }

    pub(super) async fn take(mut self) {
        let (lost, stopping) = (self.delivery.lost.clone(), self.shared.stopping.clone());
        let counted = match self.shared.named(&self.delivery) {
            Ok(name) => self.settle_as(&name, &lost, &stopping).await,
            Err(Unnamed { reason, said }) => self.bury(None, reason, said).await,
        };
        self.shared.meters.ended(counted);
    }

    async fn settle_as(
        &mut self,
        name: &Name,
        lost: &tokio_util::sync::CancellationToken,
        stopping: &tokio_util::sync::CancellationToken,
    ) -> Counted {
        let slots = self.shared.slots.clone();
        loop {
            let slot = tokio::select! {
                biased;
                () = lost.cancelled() => return Counted::Lost,
                () = stopping.cancelled() => return Counted::Left,
                slot = slots.acquire() => slot,
            };
            let next = match self.is_first {
                true => self.first(name).await,
                false => self.attempt(name).await,
            };
            drop(slot);
            let wait = match next {
                Next::Ack => return self.ack(Counted::Done).await,
                Next::AckDuplicate { age } => {
                    self.say_duplicate(name, age);
                    return self.ack(Counted::Duplicate).await;
                }
                Next::Bury { reason, said } => return self.bury(Some(name), reason, said).await,
                Next::Leave => return Counted::Left,
                Next::Later(after) | Next::Elsewhere(after) if self.give_back(after).await => {
                    return Counted::GivenBack;
                }
                Next::Later(after) => after,
                Next::Elsewhere(after) => after.min(self.pause()),
                Next::Soon => self.pause(),
            };
            tokio::select! {
                biased;
                () = lost.cancelled() => return Counted::Lost,
                () = stopping.cancelled() => return Counted::Left,
                () = sleep(wait) => {}
            }
        }
    }

    /// Runs a first delivery, whose handler claims it.
    async fn first(&mut self, name: &Name) -> Next {
        let message = self.delivery.message.clone();
        let inbox = self.shared.operation(name.inbox.clone(), name, &message);
        let first = self.shared.first(Work::first(message, name.key.clone(), inbox)).await;
        self.is_first = matches!(&first, First::NotYet)
            || matches!(&first, First::Failed(failure) if failure.is_not_run());
        match first {
            First::Done => Next::Ack,
            First::Duplicate { age } => Next::AckDuplicate { age },
            First::NotYet => Next::Soon,
            First::Reused => {
                Next::Bury { reason: Cause::new(reason::KEY_REUSED), said: Failure::reused().said }
            }
            First::Ask => self.attempt(name).await,
            First::Failed(failure) if failure.is_not_run() => {
                self.say_not_run(&name.key, &failure.said);
                Next::Soon
            }
            First::Failed(failure) => self.write_down(name, failure).await,
        }
    }

    /// What a first delivery failed with becomes the end of an attempt in the store: counted, with its pause.
    async fn write_down(&mut self, name: &Name, failure: Failure) -> Next {
        let (shared, message) = (self.shared.clone(), self.delivery.message.clone());
        let operation = self.shared.operation(name.scope.clone(), name, &message);
        let ended = move |lease: Lease| async move { verdict(&shared, lease.attempts, Err(failure)) };
        let answer = self.shared.engine.once(operation, ended).await;
        self.note(&answer);
        next(answer)
    }

    /// Claims, and runs if the engine says so.
    async fn attempt(&mut self, name: &Name) -> Next {
        let (shared, message) = (self.shared.clone(), self.delivery.message.clone());
        let operation = self.shared.operation(name.scope.clone(), name, &message);
        let inbox = self.shared.operation(name.inbox.clone(), name, &message);
        let answer =
            self.shared.engine.once(operation, move |lease| run(shared, message, inbox, lease)).await;
        self.note(&answer);
        match self.shared.asks_again(&answer) {
            Some(after) => Next::Elsewhere(after),
            None => next(answer),
        }
    }

    /// For the grave, should it come to that.
    fn note(&mut self, answer: &Answer<Ended>) {
        let (lease, said) = match answer {
            Answer::Ran { value, lease, .. } => match value {
                Ended::Retry { said, .. } => {
                    self.shared.meters.retried();
                    (lease, said.as_str())
                }
                Ended::Rejected { said, .. } | Ended::Unknown { said } => (lease, said.as_str()),
                Ended::NotRun { said } => return self.say_not_run(&lease.key, said),
                Ended::Done => return,
            },
            Answer::Broke { cause, lease } => (lease, cause.as_str()),
            Answer::Replay { attempts, .. } => return self.attempts = *attempts,
            _ => return,
        };
        self.attempts = lease.attempts;
        tracing::warn!(consumer = %self.shared.name, key = lease.key.digest(), attempt = lease.attempts, said, "attempt failed");
        // The first pause after an attempt is short again.
        self.pauses = pauses();
        if self.history.len() == Grave::HISTORY_MAX {
            self.history.remove(0);
        }
        self.history.push(format!("{}: {said}", lease.attempts));
    }

    fn pause(&mut self) -> Duration {
        self.pauses.next(&self.shared.entropy).max(PAUSE_MIN)
    }

    /// Whether the broker has it back for later.
    async fn give_back(&self, after: Duration) -> bool {
        let Some(later) = self.delivery.receipt.later() else { return false };
        if self.has_lane || after <= HOLD_MAX {
            return false;
        }
        match later.later(after).await {
            Ok(()) => true,
            // It is held instead, and a lost one is noticed on the way.
            Err(error) => {
                self.say_failed("give back", &error);
                false
            }
        }
    }

    async fn ack(&mut self, counted: Counted) -> Counted {
        let receipt = self.delivery.receipt.clone();
        match self.patiently("acknowledge", || receipt.ack()).await {
            true => counted,
            false => Counted::Lost,
        }
    }

    async fn bury(&mut self, name: Option<&Name>, reason: Cause, said: String) -> Counted {
        let grave = self.grave(name, reason, said);
        tracing::error!(
            consumer = %self.shared.name,
            key = name.map(|name| name.key.digest()),
            reason = %grave.reason,
            said = grave.said,
            attempts = grave.attempts,
            "message given up"
        );
        let receipt = self.delivery.receipt.clone();
        match self.patiently("bury", || receipt.bury(&grave)).await {
            true => {
                self.shared.meters.buried(&grave.reason);
                Counted::Buried
            }
            false => Counted::Lost,
        }
    }

    fn grave(&self, name: Option<&Name>, reason: Cause, said: String) -> Grave {
        Grave {
            reason,
            said,
            consumer: self.shared.name.to_string(),
            origin: self.delivery.origin.to_string(),
            key: name.map(|name| name.key.as_str().to_owned()),
            scope: name.map(|name| name.scope.as_str().to_owned()),
            attempts: self.attempts,
            history: self.history.clone(),
        }
    }

    /// Repeats a verb of the receipt until it succeeds; not, once the delivery is lost.
    async fn patiently<'a, F>(&mut self, what: &'static str, verb: impl Fn() -> F) -> bool
    where
        F: Future<Output = Result<(), ReceiptError>> + 'a,
    {
        self.pauses = pauses();
        loop {
            // A client library may never answer on a connection that has ended.
            let said = tokio::select! {
                biased;
                said = verb() => said,
                () = self.delivery.lost.cancelled() => return false,
            };
            match said {
                Ok(()) => return true,
                Err(ReceiptError::Lost) => return false,
                Err(error) => self.say_failed(what, &error),
            }
            let pause = self.pause();
            tokio::select! {
                () = self.delivery.lost.cancelled() => return false,
                () = sleep(pause) => {}
            }
        }
    }

    fn say_not_run(&self, key: &Key, said: &str) {
        tracing::warn!(consumer = %self.shared.name, key = key.digest(), said, "nothing was begun");
    }

    fn say_failed(&self, what: &str, error: &ReceiptError) {
        tracing::warn!(consumer = %self.shared.name, origin = %self.delivery.origin, %error, "cannot {what} a message");
    }

    fn say_duplicate(&self, name: &Name, age: Duration) {
        let first_delivered_before = format!("{age:?}");
        tracing::info!(consumer = %self.shared.name, key = name.key.digest(), first_delivered_before, "duplicate acknowledged");
    }
}

fn pauses() -> Backoff {
    Backoff::new(4 * PAUSE_MIN, PAUSE_MAX)
}

/// One attempt, under its lease.
async fn run(shared: Arc<Shared>, message: Arc<Message>, inbox: Operation, lease: Lease) -> (Verdict, Ended) {
    let attempts = lease.attempts;
    let said = shared.handler.handle(Work::new(message, &lease, inbox)).await;
    verdict(&shared, attempts, said)
}

/// What becomes of an attempt that ended so.
fn verdict(shared: &Shared, attempts: u32, said: Result<(), Failure>) -> (Verdict, Ended) {
    match said {
        Ok(()) => (Verdict::Keep(Outcome::value("")), Ended::Done),
        Err(Failure { kind: Kind::Transient { after }, said }) => {
            let after = shared.retry_after(attempts, after);
            let (not_before, cause) = (Some(after), Some(Cause::new(said.clone())));
            (Verdict::Release { not_before, unbind: false, cause }, Ended::Retry { after, said })
        }
        Err(Failure { kind: Kind::Permanent, said }) => {
            (Verdict::Bury(Cause::new(reason::REJECTED)), Ended::Rejected { reason: reason::REJECTED, said })
        }
        // The key is the other message's: what this one bound is undone.
        Err(Failure { kind: Kind::Reused, said }) => {
            let verdict =
                Verdict::Release { not_before: None, unbind: true, cause: Some(Cause::new(said.clone())) };
            (verdict, Ended::Rejected { reason: reason::KEY_REUSED, said })
        }
        Err(Failure { kind: Kind::Unknown { cause }, said }) => {
            (Verdict::Unknown(cause), Ended::Unknown { said })
        }
        Err(Failure { kind: Kind::NotRun, said }) => (Verdict::NotRun, Ended::NotRun { said }),
    }
}

impl Shared {
    fn operation(&self, scope: Scope, name: &Name, message: &Message) -> Operation {
        let operation = Operation::new(scope, name.key.clone(), name.fingerprint, self.policy.clone())
            .label(semel::Label::new(format!("{} {}", self.name, message.subject)))
            .meters(self.engine_meters.clone());
        match &self.asking {
            Some(asking) => operation.probe(asking.probe.clone()),
            None => operation,
        }
    }

    /// How long to wait for the next question about what is unknown, while there is somebody who may know.
    fn asks_again<T>(&self, answer: &Answer<T>) -> Option<Duration> {
        let (asking, Answer::Unknown { age, .. }) = (self.asking.as_ref()?, answer) else { return None };
        (*age < asking.ask_for).then_some(self.policy.probe_after)
    }

    /// Where a message is and what it may be; the body's size is asked first.
    fn named(&self, delivery: &Delivery) -> Result<Name, Unnamed> {
        let bytes = delivery.message.body.len();
        if bytes > self.body_bytes_max {
            let said = format!("its body has {bytes} bytes; {} are taken", self.body_bytes_max);
            return Err(Unnamed { reason: Cause::new(reason::BODY_TOO_LARGE), said });
        }
        self.naming.name(delivery)
    }

    /// After the last attempt there is nothing to wait for: the next claim says that it is dead.
    fn retry_after(&self, attempts: u32, said: Option<Duration>) -> Duration {
        if attempts >= self.policy.attempts_max {
            return Duration::ZERO;
        }
        said.unwrap_or_else(|| self.retry.after(attempts, &self.entropy))
    }
}
