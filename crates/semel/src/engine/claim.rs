//! Getting the store's word on an operation: one attempt, whatever number of claim calls it takes.
//!
//! 1. A call whose answer is lost is repeated under the attempt's id, for `Patience::claim`. When nobody can say
//!    whether it happened, a task asks on, to give back what it may have got.
//! 2. A record made by an older algorithm is compared by that one.
//! 3. In flight: claimed again while the operation may wait (`wait`). Unknown: claimed again after somebody was
//!    asked, if anybody is (`probe`), at most once. All of it under one attempt id, so that a call which a network
//!    delivers late belongs to the attempt that is over.
//! 4. A key that is too old to be new is looked for, and not claimed when there is nothing (`age`).
//!
//! Nothing here decides what the word means: that is `Engine::decided`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::bounds::Place;
use super::patience::{Failed, LONGEST};
use super::wait::Waiting;
use super::{Answer, Engine, Operation};
use crate::policy::Policy;
use crate::store::{Cause, Claim, ClaimRequest, Lease, Purpose, Settlement, StoreError, Was};

/// Why there is no claim.
#[derive(Debug)]
pub(super) enum Unclaimed {
    /// The key is too old to be new, and there is nothing.
    OutOfAge,
    /// The store did not decide.
    Store(StoreError),
}

impl From<StoreError> for Unclaimed {
    fn from(error: StoreError) -> Unclaimed {
        Unclaimed::Store(error)
    }
}

impl Engine {
    /// The store's last word.
    pub(super) async fn claim<T>(
        &self,
        operation: &Operation,
        place: &Arc<Place>,
        reply: &mut oneshot::Sender<Answer<T>>,
    ) -> Result<Claim, Unclaimed> {
        if operation.never_new && !self.is_known(operation).await? {
            return Err(Unclaimed::OutOfAge);
        }
        let request = operation.request(self.new_attempt());
        let mut waiting = Waiting::new(operation.wait);
        let mut asked = false;
        loop {
            let claim = self.claim_by_its_algorithm(&request, operation, place).await?;
            let again = match &claim {
                Claim::InFlight { .. } => self.waits(&mut waiting, reply).await,
                Claim::Unknown { fence, .. } if !asked => {
                    asked = true;
                    self.finds_out(operation, *fence).await
                }
                _ => false,
            };
            if !again {
                return Ok(claim);
            }
        }
    }

    async fn claim_by_its_algorithm(
        &self,
        request: &ClaimRequest,
        operation: &Operation,
        place: &Arc<Place>,
    ) -> Result<Claim, StoreError> {
        let claim = self.claim_patiently(request, &operation.policy, place).await?;
        let Claim::Mismatch { algorithm } = claim else { return Ok(claim) };
        if algorithm == operation.fingerprint.algorithm {
            return Ok(claim);
        }
        let older = operation.older.as_ref().and_then(|older| older(algorithm));
        let Some(older) = older.filter(|older| older.algorithm == algorithm) else {
            // Not "another request": that would invite a new key, and the first attempt may have run.
            let reason = format!("the record's fingerprint has algorithm {}, unknown here", algorithm.0);
            return Err(StoreError::Corrupt(reason.into()));
        };
        let mut request = request.clone();
        if let Purpose::Run { fingerprint, .. } = &mut request.purpose {
            *fingerprint = older;
        }
        self.claim_patiently(&request, &operation.policy, place).await
    }

    async fn claim_patiently(
        &self,
        request: &ClaimRequest,
        policy: &Policy,
        place: &Arc<Place>,
    ) -> Result<Claim, StoreError> {
        let claimed = self.persistently("claim", self.patience.claim, || self.store.claim(request)).await;
        claimed.map_err(|Failed { error, perhaps }| {
            if perhaps {
                let (engine, place, policy) = (self.clone(), place.clone(), policy.clone());
                let within = policy.late_answer_for;
                let request = request.clone();
                self.tasks.spawn(async move {
                    engine.withdraw(request, within, |lease| unrun(lease, &policy)).await;
                    drop(place);
                });
            }
            error
        })
    }

    /// Gives back a claim whose answer never came. For [`Engine::claim`] it is open until then, so it keeps its
    /// place.
    ///
    /// An error that says "never" does not end it: a call before that one may have happened, and the claim would
    /// lapse to unknown although nothing ran.
    pub(super) async fn withdraw(
        &self,
        request: ClaimRequest,
        within: Duration,
        end: impl Fn(&Lease) -> Settlement,
    ) {
        let until = Instant::now() + within.min(LONGEST);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.patiently("claim", left, || self.store.claim(&request)).await {
                Ok(Claim::Acquired(lease)) => {
                    let _ = self.settle_within(within, &lease, &end(&lease)).await;
                    return;
                }
                Err(error) if !error.is_transient() && Instant::now() < until => {
                    sleep(Duration::from_secs(1)).await;
                }
                _ => return,
            }
        }
    }

    /// Ends a claim under which nothing ran.
    pub(super) async fn give_back(&self, lease: Lease, policy: &Policy) {
        let settlement = unrun(&lease, policy);
        let _ = self.settle_or_go_on(lease, settlement, policy.late_answer_for).await;
    }

    /// Settles; a caller is held for `Patience::settle` at most, and a task goes on.
    pub(super) async fn settle_or_go_on(
        &self,
        lease: Lease,
        settlement: Settlement,
        within: Duration,
    ) -> Result<(), StoreError> {
        let settled = self.settle_within(self.patience.settle, &lease, &settlement).await;
        if settled.as_ref().is_err_and(StoreError::is_transient) {
            let engine = self.clone();
            self.tasks.spawn(async move { engine.settle_within(within, &lease, &settlement).await });
        }
        settled
    }
}

/// The end of a claim that took a lease and ran nothing.
fn unrun(lease: &Lease, policy: &Policy) -> Settlement {
    match lease.was {
        // It took over what was unknown, so that is what it gives back.
        Was::Lapsed | Was::Unknown => Settlement::Park { cause: Cause::LAPSED },
        _ => not_run(policy),
    }
}

/// The end of a claim under which nothing ran. What it bound stays bound (K6).
pub(super) fn not_run(policy: &Policy) -> Settlement {
    Settlement::Release { not_before: None, unbind: false, ran: false, remember_for: policy.remember_for }
}
