//! A whole operation in a transaction of its own, blocking.
//!
//! The rules are those of [`semel::Whole`], with two differences: it blocks its thread, so nobody can cancel it; and
//! a refused outcome needs no second transaction, since a run is a savepoint.

use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use semel::retry::Backoff;
use semel::{
    AttemptId, BoxError, Done, Entropy, Lease, Once, Operation, Outcome, Ran, Rerun, TransactionError,
    WholeError,
};

use super::{Run, failed, once_as};

/// Runs operations, each in a transaction of its own on the caller's connection.
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    rerun: Rerun,
    tries_max: u32,
}

impl Default for Whole {
    /// Work that is run once, and 5 tries where nothing has run.
    fn default() -> Whole {
        Whole { rerun: Rerun::Never, tries_max: 5 }
    }
}

/// How one try ended.
enum Tried<V> {
    Ended(Once<Ran<V>, ()>),
    /// Nothing happened; whether it may help to begin anew, and whether the work was run.
    Failed(WholeError, bool, bool),
    /// The COMMIT failed in a way that does not say whether it happened: ask again.
    Unsure(Ran<V>, Outcome, BoxError),
}

impl Whole {
    /// Whether the work may be run again.
    #[must_use]
    pub fn rerun(self, rerun: Rerun) -> Whole {
        Whole { rerun, ..self }
    }

    /// How often a transaction is begun for one operation, the first time included. At least once.
    #[must_use]
    pub fn tries_max(self, tries_max: u32) -> Whole {
        Whole { tries_max: tries_max.max(1), ..self }
    }

    /// Begins a transaction with `IMMEDIATE`, claims, works, completes and commits; or says why not. Blocks, for the
    /// write lock as long as the connection's `busy_timeout` says.
    ///
    /// # Errors
    ///
    /// [`WholeError`]: after the first two nothing has happened.
    pub fn once<V>(
        &self,
        connection: &mut Connection,
        operation: &Operation,
        mut work: impl FnMut(&Connection, &Lease) -> Result<Done<V>, BoxError>,
    ) -> Result<Once<Ran<V>, ()>, WholeError> {
        let entropy = Entropy::system();
        let attempt = AttemptId::random(&entropy);
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));
        let mut tries = 0;
        loop {
            tries += 1;
            let is_last = tries >= self.tries_max;
            match attempt_once(connection, operation, attempt, &mut work) {
                Tried::Ended(ended) => return Ok(ended),
                Tried::Failed(_, true, worked) if !is_last && (!worked || self.rerun == Rerun::Pure) => {}
                Tried::Failed(error, ..) => return Err(error),
                // A fresh transaction sees what was committed: its claim is the answer.
                Tried::Unsure(ran, outcome, lost) => {
                    let again = begin(connection, operation, attempt);
                    return found_out(again.map(|once| once.map(drop, drop)), ran, &outcome, lost);
                }
            }
            thread::sleep(backoff.next(&entropy));
        }
    }
}

fn attempt_once<V>(
    connection: &mut Connection,
    operation: &Operation,
    attempt: AttemptId,
    work: &mut impl FnMut(&Connection, &Lease) -> Result<Done<V>, BoxError>,
) -> Tried<V> {
    let run = match begin(connection, operation, attempt) {
        Ok(Once::Run(run)) => run,
        Ok(told) => return Tried::Ended(told.map(|_| unreachable!("what runs was taken out"), drop)),
        Err(error) => return Tried::failed(error, false),
    };
    let lease = run.lease().clone();
    match work(&run, &lease) {
        Ok(Done::Keep(outcome, value)) => {
            commit(run.complete(outcome.clone()), Ran { value, lease, kept: true }, outcome)
        }
        Ok(Done::Refuse(outcome, value)) => {
            commit(run.refuse(outcome.clone()), Ran { value, lease, kept: true }, outcome)
        }
        Ok(Done::RollBack(value)) => Tried::Ended(Once::Run(Ran { value, lease, kept: false })),
        Err(error) => {
            let restart = is_busy(error.as_ref());
            Tried::Failed(WholeError::Work(error), restart, true)
        }
    }
}

fn commit<V>(
    completed: Result<Transaction<'_>, TransactionError>,
    ran: Ran<V>,
    outcome: Outcome,
) -> Tried<V> {
    let tx = match completed {
        Ok(tx) => tx,
        Err(error) => return Tried::failed(error, true),
    };
    // By statement, not by `commit`, which would roll back on its own: the code says what is known.
    match super::run(&tx, "COMMIT") {
        Ok(()) => Tried::Ended(Once::Run(ran)),
        Err(error) if !tx.is_autocommit() => Tried::failed(failed(error), true),
        Err(error) => Tried::Unsure(ran, outcome, Box::new(error)),
    }
}

fn begin<'c>(
    connection: &'c mut Connection,
    operation: &Operation,
    attempt: AttemptId,
) -> Result<Once<Run<Transaction<'c>>, Transaction<'c>>, TransactionError> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    once_as(attempt, tx, operation)
}

/// What the claim of a fresh transaction says about one whose COMMIT failed.
fn found_out<V>(
    again: Result<Once<(), ()>, TransactionError>,
    ran: Ran<V>,
    outcome: &Outcome,
    lost: BoxError,
) -> Result<Once<Ran<V>, ()>, WholeError> {
    match again {
        Ok(Once::Replay { outcome: kept, .. }) if kept == *outcome => Ok(Once::Run(ran)),
        Ok(Once::Run(())) => Err(WholeError::Transaction(TransactionError::Unavailable(lost))),
        Ok(told) => Ok(told.map(|()| ran, drop)),
        Err(_) => Err(WholeError::Unknown(lost)),
    }
}

impl<V> Tried<V> {
    fn failed(error: TransactionError, worked: bool) -> Tried<V> {
        let restart = matches!(error, TransactionError::Restart(_));
        Tried::Failed(WholeError::Transaction(error), restart, worked)
    }
}

/// Looks through the causes: the caller's error may wrap SQLite's.
pub(super) fn is_busy(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        error.downcast_ref::<rusqlite::Error>().is_some_and(|error| {
            matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
        })
    })
}
