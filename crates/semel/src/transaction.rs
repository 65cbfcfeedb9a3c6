//! The key in the caller's own transaction: exactly once.
//!
//! Claim, business statements and outcome commit together or roll back together (X1). Nobody can see the one without
//! the other, so nothing is ever unknown: whoever looks later finds the outcome, or finds nothing.
//!
//! 1. **The transaction comes back with the outcome, and only with it.** [`once`] takes the caller's handle. Where
//!    the operation may run it gives a [`Run`], which dereferences to the handle; [`Run::complete`] gives the handle
//!    back. A run that is dropped instead takes an owned transaction with it, and every driver rolls back a
//!    transaction that is dropped. So an effect without an outcome cannot be committed: there is nothing to call
//!    `commit` on. An early `?`, a panic and a cancelled future end the same way.
//! 2. **A borrowed handle** (`&mut`) stays borrowed as long as the run lives, so `commit` beside it does not compile.
//!    Where the caller lets the run go and commits all the same, the database is the net: PostgreSQL refuses the
//!    COMMIT; SQLite has already rolled back to the claim; on MySQL the key stays claimed and becomes unknown, which
//!    nothing runs again without a person, or a policy, that says so.
//! 3. **Savepoints.** One that is made inside the run borrows the run, so it has ended when the run completes. A
//!    claim made inside a savepoint that is rolled back never happened.
//! 4. **A duplicate never aborts the transaction** at READ COMMITTED (X2): every [`Once`] that does not run gives the
//!    handle back, and what the caller had written before stands. Above that level the database may answer with its
//!    own error: [`TransactionError::Restart`].
//! 5. **Two at once** ([`Twin`]): the second waits for the end of the first, or is told at once. See each store for
//!    what its database can give.
//! 6. **The decision is the engine's** ([`Asking`]): stores record, and drive it.
//! 7. **Attempts** are counted by the claim, so a rolled back one is not counted (K8). Whoever must know how often a
//!    message came counts its deliveries on a connection of its own.
//!
//! What it cannot promise: effects outside the transaction. A call to another system from inside it happens as often
//! as the transaction is tried. Send it through an outbox, or run the operation under a lease ([`Engine`](crate::Engine)).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::engine::{Asking, Heard, Operation};
use crate::environment::Entropy;
use crate::instance::AttemptId;
use crate::policy::Policy;
use crate::store::{BoxError, Cause, Claim, ClaimRequest, Fence, Lease, Outcome, Settlement};

mod whole;

pub use whole::{CommitError, Done, Ran, Rerun, Transactions, Whole, WholeError};

/// What the second of two transactions with one key gets while the first is open (X3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Twin {
    /// Waits for the end of the first, then replays or runs. Right for messages: there is nothing else to do.
    Wait,
    /// Is told in flight, at once. Right for HTTP: nobody holds a connection for somebody else's work.
    Refuse,
}

/// A transaction of the caller's, as a store writes into it. Each store has a type that wraps the handles of the
/// drivers it knows.
///
/// # Cancel safety
///
/// A call that is dropped may have happened within the transaction. The transaction must then be rolled back; with
/// an owned handle that happens by itself.
#[async_trait]
pub trait InTransaction: Send {
    /// What the caller's driver calls its transaction.
    type Handle: Send;

    /// The caller's transaction.
    fn handle(&self) -> &Self::Handle;

    /// The same, to work with.
    fn handle_mut(&mut self) -> &mut Self::Handle;

    /// Gives the transaction back.
    fn into_handle(self) -> Self::Handle;

    /// Claims, by the rules of [`record`](crate::record), one answer for each request in their order. Requests are
    /// of different keys.
    async fn claim_in(
        &mut self,
        requests: &[ClaimRequest],
        twin: Twin,
    ) -> Result<Vec<Claim>, TransactionError>;

    /// Settles what was claimed in this transaction.
    async fn settle_in(&mut self, settled: &[(Lease, Settlement)]) -> Result<(), TransactionError>;

    /// Claims, and settles what it acquires with this settlement at once: for work whose outcome is known before it
    /// begins, and which rolls back when it fails. It is [`claim_in`](InTransaction::claim_in) followed by
    /// [`settle_in`](InTransaction::settle_in), and a store may do both in one step: what lies between them nobody can
    /// see. There a twin that refuses waits for the other transaction all the same.
    async fn claim_settled_in(
        &mut self,
        requests: &[ClaimRequest],
        settlement: &Settlement,
    ) -> Result<Vec<Claim>, TransactionError> {
        let claims = self.claim_in(requests, Twin::Wait).await?;
        let acquired = claims.iter().filter_map(|claim| match claim {
            Claim::Acquired(lease) => Some((lease.clone(), settlement.clone())),
            _ => None,
        });
        let acquired: Vec<_> = acquired.collect();
        self.settle_in(&acquired).await?;
        Ok(claims)
    }
}

/// A transaction of which a part can be undone: for several operations in one, where one may fail (C103).
///
/// One mark at a time. After an error of these the transaction must be rolled back.
#[async_trait]
pub trait Savepoints: InTransaction {
    /// Marks where the transaction stands.
    async fn mark(&mut self) -> Result<(), TransactionError>;

    /// Forgets the mark; what was done since stays.
    async fn keep_marked(&mut self) -> Result<(), TransactionError>;

    /// Undoes what was done since the mark, after a failed statement too, and forgets the mark.
    async fn undo_marked(&mut self) -> Result<(), TransactionError>;
}

/// What the claim decided. Every answer but [`Once::Run`] gives the transaction back, as it was.
#[must_use = "the operation may run, or must not: match on it"]
pub enum Once<R, T> {
    /// Run it, in this transaction, and complete.
    Run(R),
    /// Done before: this is the answer.
    Replay {
        /// What to answer.
        outcome: Outcome,
        /// Time since the key's first claim.
        age: Duration,
        /// How many attempts it took.
        attempts: u32,
        /// The caller's transaction.
        tx: T,
    },
    /// Another attempt runs.
    InFlight {
        /// When asking again makes sense.
        retry_after: Duration,
        /// Time since the key's first claim; zero where the first one has not committed.
        age: Duration,
        /// The caller's transaction.
        tx: T,
    },
    /// The key belongs to another request.
    Mismatch {
        /// The caller's transaction.
        tx: T,
    },
    /// An earlier attempt, outside such a transaction, may or may not have taken effect.
    Unknown {
        /// The fence, for a claim that settles it.
        fence: Fence,
        /// Why nobody knows.
        cause: Cause,
        /// Time since the key's first claim.
        age: Duration,
        /// The caller's transaction.
        tx: T,
    },
    /// Given up.
    Dead {
        /// The fence, for a redrive.
        fence: Fence,
        /// Why.
        cause: Cause,
        /// Time since the key's first claim.
        age: Duration,
        /// The caller's transaction.
        tx: T,
    },
    /// Done before, and the outcome is gone. Refuse it: it took effect.
    Forgotten {
        /// Time since the key's first claim.
        age: Duration,
        /// The caller's transaction.
        tx: T,
    },
    /// The key says that it is older than keys are remembered, or made in the future, and nothing is known of it.
    OutOfAge {
        /// The caller's transaction.
        tx: T,
    },
}

/// Without the transaction: not every driver's can be shown.
impl<R, T> fmt::Debug for Once<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut once = f.debug_struct(self.name());
        match self {
            Once::Replay { outcome, age, attempts, .. } => {
                once.field("outcome", outcome).field("age", age).field("attempts", attempts)
            }
            Once::InFlight { retry_after, age, .. } => {
                once.field("retry_after", retry_after).field("age", age)
            }
            Once::Unknown { fence, cause, age, .. } | Once::Dead { fence, cause, age, .. } => {
                once.field("fence", fence).field("cause", cause).field("age", age)
            }
            Once::Forgotten { age, .. } => once.field("age", age),
            Once::Run(_) | Once::Mismatch { .. } | Once::OutOfAge { .. } => &mut once,
        };
        once.finish_non_exhaustive()
    }
}

/// A call within a transaction that failed, by what the caller must do next. Nothing of the transaction has happened
/// until its COMMIT was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// Another transaction was in the way. Roll back, and run the whole transaction again, after a short wait.
    #[error("roll back and run the whole transaction again: {0}")]
    Restart(#[source] BoxError),
    /// The database did not do it. Roll back; nothing happened. It may work later.
    #[error("roll back, nothing happened: {0}")]
    Unavailable(#[source] BoxError),
    /// The record has another owner. Roll back.
    #[error("roll back: the record has another owner")]
    LeaseLost,
    /// It will never succeed: the program or its set-up is wrong. Roll back.
    #[error("roll back, this will never succeed: {0}")]
    Refused(#[source] BoxError),
    /// What the store holds cannot be read. Roll back; a person must look.
    #[error("roll back, the store is corrupt: {0}")]
    Corrupt(#[source] BoxError),
}

/// Claims the operation in the caller's transaction, and says whether it may run in it.
///
/// # Errors
///
/// [`TransactionError`]. The handle is gone then, and with it an owned transaction: it is rolled back.
///
/// # Cancel safety
///
/// Dropping the future drops the handle. An owned transaction is rolled back; of a borrowed one see
/// [`InTransaction`].
pub async fn once<X: InTransaction>(
    tx: X,
    operation: &Operation,
    twin: Twin,
) -> Result<Once<Run<X>, X::Handle>, TransactionError> {
    once_as(AttemptId::random(&Entropy::system()), tx, operation, twin).await
}

/// The same, as an attempt that was made before: one that asks again after its COMMIT was not answered.
///
/// # Errors
///
/// As [`once`].
pub async fn once_as<X: InTransaction>(
    attempt: AttemptId,
    mut tx: X,
    operation: &Operation,
    twin: Twin,
) -> Result<Once<Run<X>, X::Handle>, TransactionError> {
    let mut asking = Asking::of(operation, attempt);
    loop {
        let claims = tx.claim_in(std::slice::from_ref(asking.request()), twin).await?;
        let claim = claims.into_iter().next().ok_or_else(unanswered)?;
        match asking.hear(claim)? {
            Heard::Again => {}
            Heard::Run(lease) => return Ok(Once::Run(Run::new(lease, operation.policy(), tx))),
            Heard::GiveBack(lease, settlement) => {
                tx.settle_in(&[(lease, settlement)]).await?;
                return Ok(Once::OutOfAge { tx: tx.into_handle() });
            }
            Heard::Told(told) => return Ok(told.with(tx.into_handle())),
        }
    }
}

fn unanswered() -> TransactionError {
    TransactionError::Corrupt("a claim has no answer".into())
}

/// An operation that runs in the caller's transaction. Dereferences to the transaction.
#[must_use = "complete it: dropped, its transaction is rolled back"]
pub struct Run<X: InTransaction> {
    /// `None` once it was given back.
    tx: Option<X>,
    lease: Lease,
    policy: Arc<Policy>,
}

impl<X: InTransaction> Run<X> {
    fn new(lease: Lease, policy: &Arc<Policy>, tx: X) -> Run<X> {
        Run { tx: Some(tx), lease, policy: Arc::clone(policy) }
    }

    /// The lease: its fence and its attempt.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Keeps the outcome, and gives the transaction back. Commit it: until then nothing has happened.
    ///
    /// # Errors
    ///
    /// [`TransactionError`]; an owned transaction is rolled back.
    pub async fn complete(self, outcome: impl Into<Outcome>) -> Result<X::Handle, TransactionError> {
        Ok(self.complete_in(outcome.into()).await?.into_handle())
    }

    async fn complete_in(self, outcome: Outcome) -> Result<X, TransactionError> {
        let Policy { replay_for, remember_for, .. } = *self.policy;
        self.settle(Settlement::Complete { outcome, replay_for, remember_for }).await
    }

    /// Keeps that the attempt was made and took no effect, and gives the transaction back: the key may be tried
    /// again, not before so long from now.
    ///
    /// What this transaction has written besides is committed with it. To undo that as well, roll the transaction
    /// back instead: then it is as if the attempt had never been made.
    ///
    /// # Errors
    ///
    /// As [`complete`](Run::complete).
    pub async fn release(self, not_before: Option<Duration>) -> Result<X::Handle, TransactionError> {
        let remember_for = self.policy.remember_for;
        let settlement = Settlement::Release { not_before, unbind: false, ran: true, remember_for };
        Ok(self.settle(settlement).await?.into_handle())
    }

    /// Gives the operation up for good, and the transaction back. What it has written besides is committed too.
    ///
    /// # Errors
    ///
    /// As [`complete`](Run::complete).
    pub async fn bury(self, cause: Cause) -> Result<X::Handle, TransactionError> {
        Ok(self.settle(Settlement::Bury { cause }).await?.into_handle())
    }

    async fn settle(mut self, settlement: Settlement) -> Result<X, TransactionError> {
        let settled = [(self.lease.clone(), settlement)];
        self.tx_mut().settle_in(&settled).await?;
        // Only now: were it taken before, a cancelled call would look like a completed one.
        Ok(self.tx.take().expect(HELD))
    }

    fn tx_mut(&mut self) -> &mut X {
        self.tx.as_mut().expect(HELD)
    }
}

const HELD: &str = "a run holds its transaction until it is settled";

impl<X: InTransaction> Deref for Run<X> {
    type Target = X::Handle;

    fn deref(&self) -> &X::Handle {
        self.tx.as_ref().expect(HELD).handle()
    }
}

impl<X: InTransaction> DerefMut for Run<X> {
    fn deref_mut(&mut self) -> &mut X::Handle {
        self.tx_mut().handle_mut()
    }
}

/// That there is a destructor at all is the point too: a borrowed transaction counts as in use until the run is gone.
impl<X: InTransaction> Drop for Run<X> {
    fn drop(&mut self) {
        if self.tx.is_some() {
            tracing::debug!(
                fence = self.lease.fence.0,
                "a run ended without an outcome: its transaction rolls back"
            );
        }
    }
}

impl<X: InTransaction> fmt::Debug for Run<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("lease", &self.lease).finish_non_exhaustive()
    }
}
