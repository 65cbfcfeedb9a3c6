//! One run under a lease: from the claim that gave it to the settlement that ends it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::claim::not_run;
use super::note::is_plain;
use super::{Answer, Engine, Operation, Verdict};
use crate::history::{Event, Through, What};
use crate::policy::Policy;
use crate::retry::Backoff;
use crate::store::{Cause, Lease, Settlement, StoreError, View};

pub(super) struct Attempt<T> {
    engine: Engine,
    lease: Lease,
    operation: Operation,
    /// Taken when the caller is answered.
    reply: Option<oneshot::Sender<Answer<T>>>,
    begun: Instant,
    /// Why it is released, for the history.
    released_for: Option<Cause>,
    /// Dropped when the attempt is settled or parked: stopping waits for that.
    unsettled: Option<TaskTrackerToken>,
}

/// How the waiting for a run ended.
enum Ended<T> {
    Verdict(Verdict, T),
    Panicked,
    GivenUp,
    LeaseLost,
}

impl<T: Send + 'static> Attempt<T> {
    pub(super) fn new(
        engine: Engine,
        lease: Lease,
        operation: Operation,
        reply: oneshot::Sender<Answer<T>>,
    ) -> Attempt<T> {
        let unsettled = Some(engine.unsettled.token());
        let reply = Some(reply);
        Attempt { engine, lease, operation, reply, begun: Instant::now(), released_for: None, unsettled }
    }

    pub(super) async fn run<F, Fut>(mut self, run: F)
    where
        F: FnOnce(Lease) -> Fut + Send + 'static,
        Fut: Future<Output = (Verdict, T)> + Send + 'static,
    {
        let _running = self.engine.meters_of(&self.operation).begin();
        self.begun = Instant::now();
        let lease = self.lease.clone();
        // The run's own state is dropped with it, so nobody sees what a panic left half done.
        let run = AssertUnwindSafe(async move { run(lease).await }).catch_unwind();
        let ended = self.attend(run).await;
        self.engine.spikes.ran(&self.lease.scope, self.begun.elapsed());
        match ended {
            Ended::Verdict(verdict, value) => {
                if let Verdict::Release { cause, .. } = &verdict {
                    self.released_for.clone_from(cause);
                }
                let settlement = settlement(verdict, &self.operation.policy);
                self.settle(&settlement, |lease, recorded| Answer::Ran { value, lease, recorded }).await;
            }
            Ended::Panicked => self.broke(Cause::PANIC).await,
            Ended::GivenUp => self.broke(Cause::TIMEOUT).await,
            Ended::LeaseLost => self.lost().await,
        }
    }

    /// Waits for the run, and does what falls due meanwhile.
    async fn attend(&mut self, run: impl Future<Output = std::thread::Result<(Verdict, T)>>) -> Ended<T> {
        let policy = self.operation.policy.clone();
        let (engine, lease) = (self.engine.clone(), self.lease.clone());
        let answer_by = policy.answer_within.and_then(|within| Instant::now().checked_add(within));
        let give_up_at = answer_by.and_then(|by| by.checked_add(policy.late_answer_for));
        let (mut run, mut lost) = (pin!(run), pin!(engine.keep(&lease, policy.lease_for)));
        loop {
            let due = if self.reply.is_some() { answer_by } else { give_up_at };
            tokio::select! {
                // In this order: a run that has ended is never given up, and never called late.
                biased;
                ended = &mut run => return match ended {
                    Ok((verdict, value)) => Ended::Verdict(verdict, value),
                    Err(_) => Ended::Panicked,
                },
                () = &mut lost, if self.unsettled.is_some() => return Ended::LeaseLost,
                () = at(due) => match self.reply {
                    Some(_) => self.answer(Answer::Late { lease: lease.clone() }),
                    None => return Ended::GivenUp,
                },
                () = engine.parking.cancelled(), if self.unsettled.is_some() => self.park().await,
            }
        }
    }

    /// The process is being stopped. The run goes on while it can, and its settlement may still follow.
    async fn park(&mut self) {
        let parked = Settlement::Park { cause: Cause::SHUTDOWN };
        if self.engine.settle_within(self.engine.patience.settle, &self.lease, &parked).await.is_ok() {
            self.note(&parked, Through::Run);
        }
        self.answer(Answer::Broke { cause: Cause::SHUTDOWN, lease: self.lease.clone() });
        self.unsettled = None;
    }

    async fn broke(self, cause: Cause) {
        let settlement = Settlement::Park { cause: cause.clone() };
        self.settle(&settlement, |lease, _| Answer::Broke { cause, lease }).await;
    }

    /// Writes the end, and answers: after it is written, or after the time that a caller is held for that.
    async fn settle(mut self, settlement: &Settlement, answer: impl FnOnce(Lease, bool) -> Answer<T>) {
        let lease = self.lease.clone();
        let is_answer = matches!(settlement, Settlement::Complete { .. } | Settlement::Release { .. });
        let through = if is_answer && self.reply.is_none() { Through::Late } else { Through::Run };
        match self.engine.settle_within(self.engine.patience.settle, &lease, settlement).await {
            Ok(()) => {
                self.answer(answer(lease, true));
                self.note(settlement, through);
            }
            Err(StoreError::LeaseLost | StoreError::Refused(_)) => self.lost().await,
            Err(error) => {
                self.engine.meters.unrecorded();
                self.answer(answer(lease.clone(), false));
                if error.is_transient() {
                    let within = self.operation.policy.late_answer_for;
                    if self.engine.settle_within(within, &lease, settlement).await.is_ok() {
                        self.note(settlement, Through::Late);
                    }
                }
            }
        }
    }

    /// Another attempt owns the record: what it says is the answer.
    async fn lost(mut self) {
        self.engine.meters.lease_lost();
        let ran_for = Some(self.begun.elapsed());
        self.engine
            .note(&self.lease, || Event { ran_for, ..Event::of(&self.lease, What::Lost, Through::Run) });
        if self.reply.is_some() {
            let answer = self.as_recorded().await;
            self.answer(answer);
        }
    }

    /// For the key's history, after the caller has its answer.
    fn note(&self, settlement: &Settlement, through: Through) {
        if !is_plain(&self.lease, settlement, through) {
            let ran_for = Some(self.begun.elapsed());
            let event = || {
                let settled = Event::settled(&self.lease, settlement, through);
                let cause = settled.cause.clone().or_else(|| self.released_for.clone());
                Event { ran_for, cause, ..settled }
            };
            self.engine.note(&self.lease, event);
        }
    }

    /// Reads instead of claiming: a claim could take the record, should it have been forgotten meanwhile.
    async fn as_recorded(&self) -> Answer<T> {
        let Lease { scope, key, .. } = &self.lease;
        let found =
            self.engine.patiently("find", self.engine.patience.settle, || self.engine.store.find(scope, key));
        let Ok(Some(entry)) = found.await else { return self.unknown() };
        if entry.fingerprint != Some(self.operation.fingerprint) {
            return self.unknown();
        }
        let (age, attempts) = (entry.age, entry.attempts);
        match entry.view {
            View::Completed { outcome } => Answer::Replay { outcome, age, attempts },
            View::Running { lease_left } => Answer::InFlight { retry_after: lease_left, age },
            View::Forgotten => Answer::Forgotten { age },
            View::Dead { cause } => Answer::Dead { cause, age },
            // Released by somebody else, while this run may have taken effect.
            View::Released { .. } | View::Unknown { .. } => self.unknown(),
        }
    }

    fn unknown(&self) -> Answer<T> {
        Answer::Broke { cause: Cause::LAPSED, lease: self.lease.clone() }
    }

    /// A caller that has gone away does not hear it; that changes nothing.
    fn answer(&mut self, answer: Answer<T>) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(answer);
        }
    }
}

impl Engine {
    /// Renews the lease for as long as it is polled. Ends when the lease is lost; a store that does not answer is
    /// asked again, past the lease too.
    async fn keep(&self, lease: &Lease, lease_for: Duration) {
        let mut pause = lease_for / 3;
        let mut backoff = Backoff::new(lease_for / 30, lease_for / 3);
        loop {
            sleep(pause).await;
            match self.bounded("renew", self.store.renew(lease, lease_for)).await {
                Ok(()) => {
                    pause = lease_for / 3;
                    backoff = Backoff::new(lease_for / 30, lease_for / 3);
                }
                Err(StoreError::LeaseLost) => return,
                Err(_) => pause = backoff.next(&self.entropy),
            }
        }
    }

    pub(super) async fn settle_within(
        &self,
        within: Duration,
        lease: &Lease,
        settlement: &Settlement,
    ) -> Result<(), StoreError> {
        let settled = self.patiently("settle", within, || self.store.settle(lease, settlement)).await;
        if settled.is_ok() {
            self.meters.settled(settlement);
        }
        settled
    }
}

fn settlement(verdict: Verdict, policy: &Policy) -> Settlement {
    let Policy { replay_for, remember_for, .. } = *policy;
    match verdict {
        Verdict::Keep(outcome) => Settlement::Complete { outcome, replay_for, remember_for },
        Verdict::Release { not_before, unbind, .. } => {
            Settlement::Release { not_before, unbind, ran: true, remember_for }
        }
        Verdict::NotRun => not_run(policy),
        Verdict::Unknown(cause) => Settlement::Park { cause },
        Verdict::Bury(cause) => Settlement::Bury { cause },
    }
}

/// Never, where there is no such instant.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
