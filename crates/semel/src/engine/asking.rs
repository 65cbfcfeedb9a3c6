//! The engine's word on a claim that is made in the caller's own transaction.
//!
//! 1. **No input and no output**: whoever holds the transaction makes the claim, says what the store answered, and
//!    does what it hears. So one decision serves drivers that wait and drivers that block.
//! 2. It is the decision of `Engine::decided`, without what only a run under a lease needs: nothing is renewed, and
//!    nobody is asked. A test holds the two together.
//! 3. A record made by an older algorithm is compared by that one, as there.

use std::sync::Arc;
use std::time::Duration;

use super::age::is_first;
use super::claim::not_run;
use super::operation::Operation;
use crate::instance::AttemptId;
use crate::observe::Decided;
use crate::policy::{OnUnknown, Policy};
use crate::store::{Cause, Claim, ClaimRequest, Fence, Lease, Outcome, Purpose, Settlement};
use crate::transaction::{Once, TransactionError};

/// One operation that asks whether it may run in a transaction.
#[derive(Debug)]
pub struct Asking<'a> {
    operation: &'a Operation,
    request: ClaimRequest,
}

/// What to do next.
#[derive(Debug)]
pub enum Heard {
    /// Make the claim again: the request has changed.
    Again,
    /// Run it.
    Run(Lease),
    /// Settle this, and tell [`Once::OutOfAge`]: nothing runs.
    GiveBack(Lease, Settlement),
    /// Tell this: nothing runs.
    Told(Told),
}

/// Why it does not run. The words are those of [`Once`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are those of `Once`")]
pub enum Told {
    Replay { outcome: Outcome, age: Duration, attempts: u32 },
    InFlight { retry_after: Duration, age: Duration },
    Mismatch,
    Unknown { fence: Fence, cause: Cause, age: Duration },
    Dead { fence: Fence, cause: Cause, age: Duration },
    Forgotten { age: Duration },
}

impl<'a> Asking<'a> {
    /// Every claim that it makes carries this attempt.
    #[must_use]
    pub fn of(operation: &'a Operation, attempt: AttemptId) -> Asking<'a> {
        Asking { operation, request: operation.request(attempt) }
    }

    /// The claim to make.
    #[must_use]
    pub fn request(&self) -> &ClaimRequest {
        &self.request
    }

    /// Decides what the store's answer means.
    ///
    /// # Errors
    ///
    /// When the record cannot be compared with the request, or the answer is to no run's claim.
    pub fn hear(&mut self, claim: Claim) -> Result<Heard, TransactionError> {
        let (decided, heard) = match claim {
            Claim::Acquired(lease) if self.operation.never_new && is_first(&lease) => {
                let settlement = not_run(&self.operation.policy);
                (Decided::OutOfAge, Heard::GiveBack(lease, settlement))
            }
            Claim::Acquired(lease) => (Decided::Run, Heard::Run(lease)),
            Claim::Completed { outcome, age, attempts } => {
                (Decided::Replay, Heard::Told(Told::Replay { outcome, age, attempts }))
            }
            Claim::InFlight { retry_after, age } => {
                (Decided::InFlight, Heard::Told(Told::InFlight { retry_after, age }))
            }
            Claim::Mismatch { algorithm } if algorithm != self.fingerprinted_by() => {
                self.compares_by(algorithm)?;
                return Ok(Heard::Again);
            }
            Claim::Mismatch { .. } => (Decided::Mismatch, Heard::Told(Told::Mismatch)),
            Claim::Unknown { fence, cause, age } => {
                (Decided::Unknown, Heard::Told(Told::Unknown { fence, cause, age }))
            }
            Claim::Dead { fence, cause, age } => {
                (Decided::Dead, Heard::Told(Told::Dead { fence, cause, age }))
            }
            Claim::Forgotten { age } => (Decided::Late, Heard::Told(Told::Forgotten { age })),
            Claim::Moved => return Err(TransactionError::Refused("a run was told Moved".into())),
        };
        self.operation.count(decided, &heard);
        Ok(heard)
    }

    fn fingerprinted_by(&self) -> crate::fingerprint::Algorithm {
        match &self.request.purpose {
            Purpose::Run { fingerprint, .. } => fingerprint.algorithm,
            Purpose::Settle { .. } => self.operation.fingerprint.algorithm,
        }
    }

    /// Never "another request" where that cannot be said: it would invite a new key.
    fn compares_by(&mut self, algorithm: crate::fingerprint::Algorithm) -> Result<(), TransactionError> {
        let older = self.operation.older.as_ref().and_then(|older| older(algorithm));
        let Some(older) = older.filter(|older| older.algorithm == algorithm) else {
            let reason = format!("the record's fingerprint has algorithm {}, unknown here", algorithm.0);
            return Err(TransactionError::Corrupt(reason.into()));
        };
        if let Purpose::Run { fingerprint, .. } = &mut self.request.purpose {
            *fingerprint = older;
        }
        Ok(())
    }
}

impl Told {
    /// The answer, with the transaction that it leaves as it was.
    pub fn with<R, T>(self, tx: T) -> Once<R, T> {
        match self {
            Told::Replay { outcome, age, attempts } => Once::Replay { outcome, age, attempts, tx },
            Told::InFlight { retry_after, age } => Once::InFlight { retry_after, age, tx },
            Told::Mismatch => Once::Mismatch { tx },
            Told::Unknown { fence, cause, age } => Once::Unknown { fence, cause, age, tx },
            Told::Dead { fence, cause, age } => Once::Dead { fence, cause, age, tx },
            Told::Forgotten { age } => Once::Forgotten { age, tx },
        }
    }
}

impl Operation {
    /// The claim of a run.
    pub(super) fn request(&self, attempt: AttemptId) -> ClaimRequest {
        ClaimRequest {
            scope: self.scope.clone(),
            key: self.key.clone(),
            attempt,
            purpose: Purpose::Run {
                fingerprint: self.fingerprint,
                rerun: self.policy.on_unknown == OnUnknown::Rerun,
                attempts_max: self.policy.attempts_max,
            },
            lease_for: self.policy.lease_for,
            label: self.label.clone(),
            input: self.input.clone(),
        }
    }

    /// What holds for it.
    #[must_use]
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    fn count(&self, decided: Decided, heard: &Heard) {
        let Some(meters) = &self.meters else { return };
        meters.decided(decided);
        match heard {
            Heard::Told(Told::Mismatch) => {}
            Heard::Told(Told::Replay { age, .. }) => {
                meters.duplicate();
                meters.replayed(*age);
            }
            Heard::Told(_) => meters.duplicate(),
            Heard::Again | Heard::Run(_) | Heard::GiveBack(..) => {}
        }
    }
}
