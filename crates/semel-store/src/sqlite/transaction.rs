//! The key in a transaction of the caller's own, through rusqlite.
//!
//! ```no_run
//! # fn charge(connection: &mut rusqlite::Connection, operation: &semel::Operation) -> Result<String, Box<dyn std::error::Error>> {
//! use rusqlite::TransactionBehavior::Immediate;
//! use semel::Once;
//! use semel_store::sqlite;
//!
//! let tx = connection.transaction_with_behavior(Immediate)?;
//! match sqlite::once(tx, operation)? {
//!     Once::Run(run) => {
//!         run.execute("UPDATE account SET balance = balance - 1200 WHERE id = 7", [])?;
//!         run.complete("paid")?.commit()?;
//!         Ok("paid".to_owned())
//!     }
//!     Once::Replay { outcome, .. } => Ok(String::from_utf8(outcome.bytes.to_vec())?),
//!     other => Err(format!("not now: {other:?}").into()),
//! }
//! # }
//! ```
//!
//! A transaction that is only lent to the run cannot be committed beside it; this does not compile:
//!
//! ```compile_fail,E0505
//! # fn charge(connection: &mut rusqlite::Connection, operation: &semel::Operation) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = connection.transaction()?;
//! if let semel::Once::Run(run) = semel_store::sqlite::once(&mut tx, operation)? {
//!     run.execute("UPDATE account SET balance = balance - 1200 WHERE id = 7", [])?;
//!     tx.commit()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! 1. **One file**: the business tables are in the file of the store, made by [`SqliteStore::open`](super::SqliteStore::open)
//!    or `semel migrate`. A file that is attached is no part of it: in WAL mode SQLite commits several files one by
//!    one, and a crash can come between them.
//! 2. **A run is a savepoint.** Dropped before it is completed, it rolls back to its claim at once, whatever becomes
//!    of the transaction, and whatever its drop behaviour is. What the caller had written before the claim stays.
//! 3. **There is one writer**, so there are no twins to choose about: whoever waits, waits for the write lock, for
//!    any other writer, as long as the connection's `busy_timeout` says; when it has the lock, the others have ended.
//! 4. **The write lock is taken before anything is read.** A transaction begun with `IMMEDIATE` has it. In a deferred
//!    one whose first statement is the claim, the claim waits for it. One that has read before cannot wait (case C45):
//!    if anybody wrote since, the claim is [`TransactionError::Restart`] at once, whatever the `busy_timeout`.
//! 5. **Everything blocks.** In an async program it belongs on a thread that may: `tokio::task::spawn_blocking`, or use
//!    [`Connections`].
//! 6. Answered means as durable as the caller's own connection makes its COMMIT: `synchronous = FULL` is SQLite's
//!    default, and below it a power failure takes back key and effect together.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Savepoint, Transaction};
use semel::record;
use semel::{
    Asking, AttemptId, Cause, Claim, ClaimRequest, Clock, Entropy, Heard, Lease, Once, Operation, Outcome,
    Policy, Settlement, SystemClock, TransactionError,
};

use super::rows::Rows;

mod connections;
mod whole;

pub use connections::{Begun, Connections};
pub use whole::Whole;

/// A transaction of the caller's: owned, or borrowed for as long as the run lives.
pub trait Handle {
    /// The connection that it is on.
    fn connection(&self) -> &Connection;
}

impl Handle for Transaction<'_> {
    fn connection(&self) -> &Connection {
        self
    }
}

impl Handle for Savepoint<'_> {
    fn connection(&self) -> &Connection {
        self
    }
}

/// A connection on which a transaction was begun by hand.
impl Handle for Connection {
    fn connection(&self) -> &Connection {
        self
    }
}

impl<H: Handle> Handle for &mut H {
    fn connection(&self) -> &Connection {
        (**self).connection()
    }
}

/// Claims the operation in the caller's transaction, and says whether it may run in it.
///
/// # Errors
///
/// [`TransactionError`]. An owned transaction is gone then, and rolled back.
pub fn once<H: Handle>(tx: H, operation: &Operation) -> Result<Once<Run<H>, H>, TransactionError> {
    once_as(AttemptId::random(&Entropy::system()), tx, operation)
}

/// The same, as an attempt that was made before: one that asks again after an error in its COMMIT.
///
/// # Errors
///
/// As [`once`].
pub fn once_as<H: Handle>(
    attempt: AttemptId,
    tx: H,
    operation: &Operation,
) -> Result<Once<Run<H>, H>, TransactionError> {
    let mut asking = Asking::of(operation, attempt);
    let marked = Marked::on(tx)?;
    loop {
        let claim = claim(marked.connection(), asking.request()).map_err(failed)?;
        match asking.hear(claim)? {
            Heard::Again => {}
            Heard::Run(lease) => {
                run(marked.connection(), MARK_WORK).map_err(failed)?;
                return Ok(Once::Run(Run { marked, lease, policy: Arc::clone(operation.policy()) }));
            }
            Heard::GiveBack(lease, settlement) => {
                settle(marked.connection(), &lease, &settlement)?;
                return Ok(Once::OutOfAge { tx: marked.keep()? });
            }
            Heard::Told(told) => return Ok(told.with(marked.keep()?)),
        }
    }
}

/// An operation that runs in the caller's transaction. Dereferences to the connection.
#[must_use = "complete it: dropped, it rolls back to its claim"]
#[derive(Debug)]
pub struct Run<H: Handle> {
    marked: Marked<H>,
    lease: Lease,
    policy: Arc<Policy>,
}

impl<H: Handle> Run<H> {
    /// The lease: its fence and its attempt.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Keeps the outcome, and gives the transaction back. Commit it: until then nothing has happened.
    ///
    /// # Errors
    ///
    /// [`TransactionError`]. What was done since the claim is rolled back.
    pub fn complete(self, outcome: impl Into<Outcome>) -> Result<H, TransactionError> {
        let Policy { replay_for, remember_for, .. } = *self.policy;
        self.settle(&Settlement::Complete { outcome: outcome.into(), replay_for, remember_for })
    }

    /// Undoes what was done since the claim, keeps the outcome all the same, and gives the transaction back: every
    /// retry hears it.
    ///
    /// # Errors
    ///
    /// As [`complete`](Run::complete).
    pub fn refuse(self, outcome: impl Into<Outcome>) -> Result<H, TransactionError> {
        let Policy { replay_for, remember_for, .. } = *self.policy;
        run(self.marked.connection(), UNDO_WORK).map_err(failed)?;
        self.settle(&Settlement::Complete { outcome: outcome.into(), replay_for, remember_for })
    }

    /// Keeps that the attempt was made and took no effect, and gives the transaction back: the key may be tried
    /// again, not before so long from now. What was written since the claim stays.
    ///
    /// # Errors
    ///
    /// As [`complete`](Run::complete).
    pub fn release(self, not_before: Option<Duration>) -> Result<H, TransactionError> {
        let remember_for = self.policy.remember_for;
        self.settle(&Settlement::Release { not_before, unbind: false, ran: true, remember_for })
    }

    /// Gives the operation up for good, and the transaction back. What was written since the claim stays.
    ///
    /// # Errors
    ///
    /// As [`complete`](Run::complete).
    pub fn bury(self, cause: Cause) -> Result<H, TransactionError> {
        self.settle(&Settlement::Bury { cause })
    }

    fn settle(self, settlement: &Settlement) -> Result<H, TransactionError> {
        settle(self.marked.connection(), &self.lease, settlement)?;
        self.marked.keep()
    }
}

/// Runs nest: one within another, of another key.
impl<H: Handle> Handle for Run<H> {
    fn connection(&self) -> &Connection {
        self.marked.connection()
    }
}

impl<H: Handle> Deref for Run<H> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.marked.connection()
    }
}

/// Where the claim began; where the work began. Savepoints nest, and a run that is made inside another one borrows
/// it, so the innermost of a name is always the right one.
const MARK_CLAIM: &str = "SAVEPOINT semel_claim";
const MARK_WORK: &str = "SAVEPOINT semel_work";
const UNDO_WORK: &str = "ROLLBACK TO semel_work";
const KEEP: &str = "RELEASE semel_claim";
/// Rolling back to a savepoint leaves it there.
const UNDO: [&str; 2] = ["ROLLBACK TO semel_claim", KEEP];

/// Takes the write lock, and changes nothing: SQLite begins a statement that could write by taking it. It waits as the
/// connection's `busy_timeout` says, unless the transaction holds a snapshot that is not the latest.
const LOCK: &str = "DELETE FROM running WHERE key = '' AND scope = ''";

/// A transaction with a savepoint that is rolled back unless it is kept.
#[derive(Debug)]
struct Marked<H: Handle>(Option<H>);

impl<H: Handle> Marked<H> {
    fn on(tx: H) -> Result<Marked<H>, TransactionError> {
        if tx.connection().is_autocommit() {
            return Err(TransactionError::Refused("no transaction was begun on this connection".into()));
        }
        run(tx.connection(), MARK_CLAIM).map_err(failed)?;
        let marked = Marked(Some(tx));
        run(marked.connection(), LOCK).map_err(failed)?;
        Ok(marked)
    }

    fn connection(&self) -> &Connection {
        self.0.as_ref().expect("held until it is kept").connection()
    }

    fn keep(mut self) -> Result<H, TransactionError> {
        run(self.connection(), KEEP).map_err(failed)?;
        Ok(self.0.take().expect("held until it is kept"))
    }
}

impl<H: Handle> Drop for Marked<H> {
    /// Where the savepoint is gone, somebody ended the transaction by hand, or SQLite did after an error: what was
    /// done in it is gone too, or is beyond recall.
    fn drop(&mut self) {
        let Some(tx) = self.0.as_ref().filter(|tx| !tx.connection().is_autocommit()) else { return };
        if UNDO.iter().any(|sql| run(tx.connection(), sql).is_err()) {
            tracing::warn!(
                "a run without an outcome could not be undone: its whole transaction is rolled back"
            );
            let _ = run(tx.connection(), "ROLLBACK");
        }
    }
}

/// Atomic: the transaction has had the write lock since [`LOCK`], so the row cannot change between the look and the
/// write. The clock is read after the lock was had.
fn claim(connection: &Connection, request: &ClaimRequest) -> rusqlite::Result<Claim> {
    let mut rows = Rows::of(connection)?;
    let old = rows.load(&request.scope, &request.key)?;
    let (write, answer) = record::claim(old.as_ref().map(|old| &old.record), request, SystemClock.now());
    if let Some(new) = write {
        rows.save(&request.scope, &request.key, old.as_ref(), &new)?;
    }
    Ok(answer)
}

/// Atomic, as [`claim`].
fn settle(connection: &Connection, lease: &Lease, settlement: &Settlement) -> Result<(), TransactionError> {
    if connection.is_autocommit() {
        let reason =
            "the transaction ended before the operation was completed: by hand, or by an error in it";
        return Err(TransactionError::Refused(reason.into()));
    }
    let mut rows = Rows::of(connection).map_err(failed)?;
    let old = rows.load_leased(lease).map_err(failed)?;
    let settled = record::settle(old.as_ref().map(|old| &old.record), lease, settlement, SystemClock.now());
    match settled {
        Ok(Some(new)) => rows.save(&lease.scope, &lease.key, old.as_ref(), &new).map_err(failed),
        Ok(None) => Ok(()),
        Err(record::Unfit::LeaseLost) => Err(TransactionError::LeaseLost),
        Err(unfit) => Err(TransactionError::Refused(Box::new(unfit))),
    }
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.raw_execute().map(drop)
}

/// What a statement of ours failed with, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{advice} ({cause})")]
struct Failed {
    advice: &'static str,
    #[source]
    cause: rusqlite::Error,
}

/// By SQLite's code, never by its text.
fn failed(cause: rusqlite::Error) -> TransactionError {
    let code = cause.sqlite_error().map(|error| error.extended_code);
    let wrap = |advice, cause| Box::new(Failed { advice, cause });
    match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy) if code == Some(rusqlite::ffi::SQLITE_BUSY_SNAPSHOT) => {
            TransactionError::Restart(wrap(
                "the transaction read before it claimed, and another one has written since: begin it with IMMEDIATE",
                cause,
            ))
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => TransactionError::Restart(wrap(
            "another connection holds the write lock for longer than the busy_timeout of this one",
            cause,
        )),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            TransactionError::Corrupt(wrap("the file is damaged", cause))
        }
        Some(ErrorCode::ReadOnly) => TransactionError::Refused(wrap("the connection only reads", cause)),
        Some(ErrorCode::Unknown) => TransactionError::Refused(wrap(
            "this file has no tables of this version of Semel: make them with SqliteStore::open or `semel migrate`",
            cause,
        )),
        Some(_) => TransactionError::Unavailable(wrap("SQLite did not do it", cause)),
        None => TransactionError::Corrupt(wrap("a row is no record", cause)),
    }
}
