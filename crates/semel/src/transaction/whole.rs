//! A whole operation in a transaction of its own: begins, claims, works, completes, commits.
//!
//! 1. **It is not cancelled.** Everything runs in a task of its own. A caller that goes away changes nothing, and no
//!    driver's call is dropped half way, which not every driver survives.
//! 2. **The work is run once**, unless it is declared to touch nothing but its transaction ([`Rerun::Pure`]). Then a
//!    transaction that the database could not serialise is begun anew, after a wait with full jitter. What comes
//!    before the work, the claim, is always tried again: nothing has run.
//! 3. **A COMMIT without an answer is asked about**, under the attempt's own id, by a claim that waits for the end of
//!    the transaction that may still be open. Its outcome is there: it was committed. The claim is had: it was rolled
//!    back, for good, since the first transaction would have to have the key to commit it. Only when nobody answers
//!    for [`Whole::find_out_for`] is it [`WholeError::Unknown`], and asking again with the same key is safe.
//! 4. **[`Done::Keep`] commits all, [`Done::RollBack`] nothing, [`Done::Refuse`] the answer alone** (X6).

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::{InTransaction, Once, Run, TransactionError, Twin, once_as};
use crate::engine::Operation;
use crate::environment::Entropy;
use crate::instance::AttemptId;
use crate::retry::Backoff;
use crate::store::{BoxError, Lease, Outcome};

/// Where transactions come from: a pool of the caller's.
#[async_trait]
pub trait Transactions: fmt::Debug + Send + Sync + 'static {
    /// A transaction that is rolled back when it is dropped.
    type Tx: InTransaction + 'static;

    /// Begins one.
    async fn begin(&self) -> Result<Self::Tx, TransactionError>;

    /// Commits it.
    async fn commit(&self, tx: Self::Tx) -> Result<(), CommitError>;

    /// Whether this error of the caller's own statement says that the transaction must be run again: its type or its
    /// SQLSTATE, never its text.
    fn is_restart(&self, error: &(dyn Error + 'static)) -> bool;
}

/// Why a COMMIT is not known to have happened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The database said no: it was rolled back.
    #[error(transparent)]
    RolledBack(TransactionError),
    /// There was no answer: it may have happened.
    #[error("the COMMIT was not answered: {0}")]
    Unanswered(#[source] BoxError),
}

/// What work came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done<V> {
    /// Commit everything, and keep the outcome.
    Keep(Outcome, V),
    /// Undo the work, and keep the outcome all the same: every retry hears it. As a 4xx that says something about
    /// the request.
    Refuse(Outcome, V),
    /// Undo everything, the claim too: as if it had never been asked for.
    RollBack(V),
}

/// Whether work may be run more than once for one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rerun {
    /// No: it may do something that its transaction does not undo.
    #[default]
    Never,
    /// Yes: all that it does is in its transaction.
    Pure,
}

/// An operation that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran<V> {
    /// What the work gave.
    pub value: V,
    /// The lease it ran under.
    pub lease: Lease,
    /// Whether there is an outcome now, which every retry gets. Not after [`Done::RollBack`].
    pub kept: bool,
}

/// Why an operation did not come to an end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WholeError {
    /// The work failed, and was rolled back. The key may be tried again.
    #[error("rolled back, the work failed: {0}")]
    Work(#[source] BoxError),
    /// The database failed, and nothing happened. The key may be tried again, later.
    #[error("nothing happened: {0}")]
    Transaction(#[source] TransactionError),
    /// Nobody knows whether it was committed, and the database does not answer. Ask again with the same key: it says.
    #[error("the COMMIT was not answered, and could not be found out; ask again with the same key: {0}")]
    Unknown(#[source] BoxError),
}

/// Runs operations, each in a transaction of its own.
#[derive(Debug)]
pub struct Whole<D> {
    transactions: Arc<D>,
    rerun: Rerun,
    tries_max: u32,
    find_out_for: Duration,
}

impl<D> Clone for Whole<D> {
    fn clone(&self) -> Whole<D> {
        Whole { transactions: Arc::clone(&self.transactions), ..*self }
    }
}

impl<D: Transactions> Whole<D> {
    /// With work that is run once, 5 tries where nothing has run, and 30 seconds to find out about a COMMIT.
    pub fn new(transactions: D) -> Whole<D> {
        let find_out_for = Duration::from_secs(30);
        Whole { transactions: Arc::new(transactions), rerun: Rerun::Never, tries_max: 5, find_out_for }
    }

    /// Where its transactions come from.
    #[must_use]
    pub fn transactions(&self) -> &D {
        &self.transactions
    }

    /// Whether the work may be run again.
    #[must_use]
    pub fn rerun(self, rerun: Rerun) -> Whole<D> {
        Whole { rerun, ..self }
    }

    /// How often a transaction is begun for one operation, the first time included. At least once.
    #[must_use]
    pub fn tries_max(self, tries_max: u32) -> Whole<D> {
        Whole { tries_max: tries_max.max(1), ..self }
    }

    /// How long a COMMIT that was not answered is asked about.
    #[must_use]
    pub fn find_out_for(self, find_out_for: Duration) -> Whole<D> {
        Whole { find_out_for, ..self }
    }

    /// Runs the work in a transaction, or says why not.
    ///
    /// # Errors
    ///
    /// [`WholeError`]: after the first two nothing has happened.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the operation goes on to its end.
    ///
    /// # Panics
    ///
    /// When the work does; its transaction is rolled back. Outside a tokio runtime.
    pub async fn once<V, F>(
        &self,
        operation: Operation,
        twin: Twin,
        work: F,
    ) -> Result<Once<Ran<V>, ()>, WholeError>
    where
        V: Send + 'static,
        F: for<'t> FnMut(
                &'t mut <D::Tx as InTransaction>::Handle,
                &'t Lease,
            ) -> BoxFuture<'t, Result<Done<V>, BoxError>>
            + Send
            + 'static,
    {
        let attempt = AttemptId::random(&Entropy::system());
        let trying = Trying { whole: self.clone(), operation, twin, attempt };
        match tokio::spawn(trying.whole(Box::new(work))).await {
            Ok(ended) => ended,
            Err(gone) if gone.is_panic() => std::panic::resume_unwind(gone.into_panic()),
            Err(gone) => Err(WholeError::Unknown(Box::new(gone))),
        }
    }
}

/// One operation, over all its tries.
struct Trying<D> {
    whole: Whole<D>,
    operation: Operation,
    twin: Twin,
    attempt: AttemptId,
}

type Handle<D> = <<D as Transactions>::Tx as InTransaction>::Handle;

type Work<D, V> =
    Box<dyn for<'t> FnMut(&'t mut Handle<D>, &'t Lease) -> BoxFuture<'t, Result<Done<V>, BoxError>> + Send>;

/// How one try ended.
enum Tried<V> {
    Ended(Once<Ran<V>, ()>),
    /// Nothing happened; whether the work was run in it.
    Failed(WholeError, /* restart */ bool, /* worked */ bool),
    Unanswered(Ran<V>, Outcome, BoxError),
}

impl<D: Transactions> Trying<D> {
    async fn whole<V>(self, mut work: Work<D, V>) -> Result<Once<Ran<V>, ()>, WholeError> {
        let entropy = Entropy::system();
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut tries = 0;
        loop {
            tries += 1;
            // What is refused at once is a twin; an own try that is still being rolled back is waited for.
            let twin = if tries == 1 { self.twin } else { Twin::Wait };
            match self.attempt_once(twin, &mut work).await {
                Tried::Ended(ended) => return Ok(ended),
                Tried::Failed(_, true, worked) if tries < self.whole.tries_max && self.may_run(worked) => {}
                Tried::Failed(error, ..) => return Err(error),
                Tried::Unanswered(ran, outcome, lost) => match self.find_out(ran, &outcome, lost).await? {
                    Some(ended) => return Ok(ended),
                    None if tries < self.whole.tries_max && self.may_run(true) => {}
                    None => {
                        let lost =
                            TransactionError::Unavailable("the connection was lost before COMMIT".into());
                        return Err(WholeError::Transaction(lost));
                    }
                },
            }
            sleep(backoff.next(&entropy)).await;
        }
    }

    fn may_run(&self, worked: bool) -> bool {
        !worked || self.whole.rerun == Rerun::Pure
    }

    async fn attempt_once<V>(&self, twin: Twin, work: &mut Work<D, V>) -> Tried<V> {
        let mut run = match self.claim(twin).await {
            Ok(Once::Run(run)) => run,
            Ok(told) => return Tried::Ended(told.without_tx()),
            Err(error) => return Tried::failed(error, false),
        };
        let lease = run.lease().clone();
        match work(&mut run, &lease).await {
            Ok(Done::Keep(outcome, value)) => self.keep(run, outcome, value, lease).await,
            Ok(Done::Refuse(outcome, value)) => {
                drop(run);
                self.keep_alone(outcome, value).await
            }
            Ok(Done::RollBack(value)) => Tried::Ended(Once::Run(Ran { value, lease, kept: false })),
            Err(error) => {
                let restart = self.whole.transactions.is_restart(error.as_ref());
                Tried::Failed(WholeError::Work(error), restart, true)
            }
        }
    }

    async fn claim(&self, twin: Twin) -> Result<Once<Run<D::Tx>, Handle<D>>, TransactionError> {
        let tx = self.whole.transactions.begin().await?;
        once_as(self.attempt, tx, &self.operation, twin).await
    }

    async fn keep<V>(&self, run: Run<D::Tx>, outcome: Outcome, value: V, lease: Lease) -> Tried<V> {
        let tx = match run.complete_in(outcome.clone()).await {
            Ok(tx) => tx,
            Err(error) => return Tried::failed(error, true),
        };
        let ran = Ran { value, lease, kept: true };
        match self.whole.transactions.commit(tx).await {
            Ok(()) => Tried::Ended(Once::Run(ran)),
            Err(CommitError::RolledBack(error)) => Tried::failed(error, true),
            Err(CommitError::Unanswered(lost)) => Tried::Unanswered(ran, outcome, lost),
        }
    }

    /// The work is undone: a transaction of its own has the answer alone. Another attempt may have come first; then
    /// its answer is the one. Waits, whatever the caller chose: a driver may roll back a dropped transaction later.
    async fn keep_alone<V>(&self, outcome: Outcome, value: V) -> Tried<V> {
        match self.claim(Twin::Wait).await {
            Ok(Once::Run(run)) => {
                let lease = run.lease().clone();
                self.keep(run, outcome, value, lease).await
            }
            Ok(told) => Tried::Ended(told.without_tx()),
            Err(error) => Tried::failed(error, true),
        }
    }

    /// What became of a COMMIT; `None` if it was rolled back.
    async fn find_out<V>(
        &self,
        ran: Ran<V>,
        outcome: &Outcome,
        mut lost: BoxError,
    ) -> Result<Option<Once<Ran<V>, ()>>, WholeError> {
        let until = Instant::now() + self.whole.find_out_for;
        let entropy = Entropy::system();
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        while Instant::now() < until {
            // Waits, whatever the caller chose: only the end of the transaction in doubt says how it ended.
            match self.claim(Twin::Wait).await {
                Ok(Once::Replay { outcome: kept, .. }) if kept == *outcome => {
                    return Ok(Some(Once::Run(ran)));
                }
                Ok(Once::Run(_)) => return Ok(None),
                Ok(told @ (Once::Replay { .. } | Once::Forgotten { .. })) => {
                    return Ok(Some(told.without_tx()));
                }
                Ok(told) => lost = format!("the key reads as {}", told.name()).into(),
                Err(error) => lost = Box::new(error),
            }
            sleep(backoff.next(&entropy)).await;
        }
        Err(WholeError::Unknown(lost))
    }
}

impl<V> Tried<V> {
    fn failed(error: TransactionError, worked: bool) -> Tried<V> {
        let restart = matches!(error, TransactionError::Restart(_));
        Tried::Failed(WholeError::Transaction(error), restart, worked)
    }
}

impl<R, T> Once<R, T> {
    /// The same answer, with something else in the place of what runs, and of the transaction.
    pub fn map<S, U>(self, run: impl FnOnce(R) -> S, transaction: impl FnOnce(T) -> U) -> Once<S, U> {
        match self {
            Once::Run(ran) => Once::Run(run(ran)),
            Once::Replay { outcome, age, attempts, tx } => {
                Once::Replay { outcome, age, attempts, tx: transaction(tx) }
            }
            Once::InFlight { retry_after, age, tx } => {
                Once::InFlight { retry_after, age, tx: transaction(tx) }
            }
            Once::Mismatch { tx } => Once::Mismatch { tx: transaction(tx) },
            Once::Unknown { fence, cause, age, tx } => {
                Once::Unknown { fence, cause, age, tx: transaction(tx) }
            }
            Once::Dead { fence, cause, age, tx } => Once::Dead { fence, cause, age, tx: transaction(tx) },
            Once::Forgotten { age, tx } => Once::Forgotten { age, tx: transaction(tx) },
            Once::OutOfAge { tx } => Once::OutOfAge { tx: transaction(tx) },
        }
    }

    /// The answer of what does not run; the transaction is dropped, and nothing was written in it.
    fn without_tx<V>(self) -> Once<Ran<V>, ()> {
        self.map(|_| unreachable!("what runs was taken out before"), drop)
    }

    /// Its name, for people and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Once::Run(_) => "Run",
            Once::Replay { .. } => "Replay",
            Once::InFlight { .. } => "InFlight",
            Once::Mismatch { .. } => "Mismatch",
            Once::Unknown { .. } => "Unknown",
            Once::Dead { .. } => "Dead",
            Once::Forgotten { .. } => "Forgotten",
            Once::OutOfAge { .. } => "OutOfAge",
        }
    }
}
