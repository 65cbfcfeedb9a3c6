//! The key in a transaction of the caller's own.
//!
//! 1. **Any handle of either driver**, owned or as `&mut`: a transaction of mysql_async or of sqlx, or a connection on
//!    which one was begun ([`Handle`]). A transaction is never begun, committed or rolled back here, and no savepoint is
//!    made. Both drivers lose step when a call is cancelled, and sqlx's pool does when its `begin` is: give the
//!    transaction away as a whole ([`semel::Whole`] with [`Pool`] or [`SqlxPool`]), or see to it that its future is not
//!    dropped half way, say in a task of its own.
//! 2. **The rules are [`semel::record`]'s**, applied here to the row that `SELECT … FOR UPDATE` has locked until the
//!    caller's commit. A new key is inserted; the unique index decides.
//! 3. **[`Twin::Wait`]** waits for the end of the other transaction, `innodb_lock_wait_timeout` long; then it is
//!    [`TransactionError::Restart`]. **[`Twin::Refuse`]** is told in flight at once (`NOWAIT`), but for the moment in
//!    which two transactions both find no row and insert: there the second waits as above.
//! 4. **READ COMMITTED and REPEATABLE READ** are both right: what decides is read locked, which is always the latest. At
//!    REPEATABLE READ the look of `Refuse` locks the gap where the key would be, so that two may meet in a deadlock:
//!    prefer READ COMMITTED with it.
//! 5. **A deadlock** (1213) has rolled the whole transaction back, in the server: [`TransactionError::Restart`]. So has a
//!    lock wait (1205) where the server has `innodb_rollback_on_timeout`, which is asked about.
//! 6. **A duplicate is an answer**, never an error.
//! 7. Nothing here can refuse a COMMIT. An owned transaction cannot be committed without its outcome; whoever lends it by
//!    `&mut`, lets the run go and commits all the same, leaves a key that is claimed and becomes unknown: it is not run
//!    again without a person, or a policy, that says so.

use std::error::Error;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Value;
use semel::record::{self, Unfit};

use crate::order::{as_asked, by_key};
use semel::{
    Claim, ClaimRequest, InTransaction, Lease, Once, Operation, Run, Savepoints, Settlement, Timestamp,
    TransactionError, Twin,
};

use super::rows::{self, Columns, Found, Name};

mod in_mysql_async;
#[cfg(feature = "sqlx-mysql")]
mod in_sqlx;
mod whole;

pub use whole::Pool;
#[cfg(feature = "sqlx-mysql")]
pub use whole::SqlxPool;

/// Claims the operation in the caller's transaction, and says whether it may run in it. See [`semel::transaction`].
///
/// # Errors
///
/// [`TransactionError`]. The handle is gone then; an owned transaction is rolled back.
pub async fn once<H: Handle>(
    tx: H,
    operation: &Operation,
    twin: Twin,
) -> Result<Once<Run<In<H>>, H>, TransactionError> {
    semel::transaction::once(In(tx), operation, twin).await
}

/// A transaction of the caller's as its driver has it: of mysql_async `Transaction`, or `Conn` after a `START
/// TRANSACTION` by hand; of sqlx `Transaction`, or `MySqlConnection` after one; each owned, or as `&mut`.
#[async_trait]
pub trait Handle: Send {
    /// Runs one statement. For this module only.
    #[doc(hidden)]
    async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Refusal>;

    /// Runs one statement as text: of some kinds MySQL prepares none. For this module only.
    #[doc(hidden)]
    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal>;
}

#[async_trait]
impl<H: Handle> Handle for &mut H {
    async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Refusal> {
        (**self).rows(sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        (**self).run(sql).await
    }
}

/// A driver's error, with the server's number where it has one.
#[doc(hidden)]
#[derive(Debug)]
pub struct Refusal {
    code: Option<u16>,
    cause: semel::BoxError,
}

/// The caller's transaction as a store writes into it.
#[derive(Debug)]
pub struct In<H>(H);

impl<H: Handle> In<H> {
    /// Wraps a transaction, for whoever drives [`InTransaction`] himself.
    pub fn new(tx: H) -> In<H> {
        In(tx)
    }
}

/// A look without a lock: one snapshot. It decides only what never changes again.
static LOOK: LazyLock<String> = LazyLock::new(|| rows::load(1));
/// The latest row, and nobody else writes it before the caller's commit.
static LOCK: LazyLock<String> = LazyLock::new(|| rows::lock(1));
static LOCK_AT_ONCE: LazyLock<String> = LazyLock::new(|| format!("{} NOWAIT", rows::lock(1)));
/// The row, or 1062: the unique index lets one in.
static INSERT: LazyLock<String> = LazyLock::new(|| rows::insert_shifted(1));
/// Over the row that this transaction has locked.
static OVERWRITE: LazyLock<String> = LazyLock::new(|| rows::overwrite(1));

const ROLLS_BACK_ON_TIMEOUT: &str = "SELECT @@innodb_rollback_on_timeout";

/// How often the row may come and go between two statements before it is called strange.
const LOOKS_MAX: u32 = 20;

#[async_trait]
impl<H: Handle> InTransaction for In<H> {
    type Handle = H;

    fn handle(&self) -> &H {
        &self.0
    }

    fn handle_mut(&mut self) -> &mut H {
        &mut self.0
    }

    fn into_handle(self) -> H {
        self.0
    }

    /// In the order of the keys, so that two transactions which share keys wait for one another and not in a circle.
    async fn claim_in(
        &mut self,
        requests: &[ClaimRequest],
        twin: Twin,
    ) -> Result<Vec<Claim>, TransactionError> {
        let mut claims = Vec::with_capacity(requests.len());
        for at in by_key(requests) {
            claims.push((at, self.claim(&requests[at], twin).await?));
        }
        Ok(as_asked(claims))
    }

    async fn settle_in(&mut self, settled: &[(Lease, Settlement)]) -> Result<(), TransactionError> {
        for (lease, settlement) in settled {
            self.settle(lease, settlement).await?;
        }
        Ok(())
    }
}

/// Of a name that nobody else's is likely to be.
#[async_trait]
impl<H: Handle> Savepoints for In<H> {
    async fn mark(&mut self) -> Result<(), TransactionError> {
        Ok(self.0.run("SAVEPOINT semel_mark").await?)
    }

    async fn keep_marked(&mut self) -> Result<(), TransactionError> {
        Ok(self.0.run("RELEASE SAVEPOINT semel_mark").await?)
    }

    async fn undo_marked(&mut self) -> Result<(), TransactionError> {
        self.0.run("ROLLBACK TO SAVEPOINT semel_mark").await?;
        self.keep_marked().await
    }
}

/// What a step of a claim came to.
enum Step {
    Answer(Claim),
    /// Another transaction has the row.
    Held,
    /// There is a row, or there is none any more: look again.
    Again,
}

impl<H: Handle> In<H> {
    async fn claim(&mut self, request: &ClaimRequest, twin: Twin) -> Result<Claim, TransactionError> {
        let name = Name::new(&request.scope, &request.key);
        if let Some(found) = self.found(&LOOK, &name).await? {
            let (write, answer) = record::claim(Some(&found.record), request, found.now);
            if write.is_none() && matches!(answer, Claim::Completed { .. } | Claim::Forgotten { .. }) {
                return Ok(answer);
            }
        } else if twin == Twin::Wait
            && let Step::Answer(answer) = self.insert(&name, request, twin).await?
        {
            return Ok(answer);
        }
        for _ in 0..LOOKS_MAX {
            let step = match self.judged(&name, request, twin).await? {
                Step::Again => self.insert(&name, request, twin).await?,
                step => step,
            };
            match step {
                Step::Answer(answer) => return Ok(answer),
                Step::Held => {
                    let retry_after = Duration::from_secs(1);
                    return Ok(Claim::InFlight { retry_after, age: Duration::ZERO });
                }
                Step::Again => {}
            }
        }
        Err(TransactionError::Restart("the key's row came and went".into()))
    }

    /// Locks the row, and applies the rule to it.
    async fn judged(
        &mut self,
        name: &Name,
        request: &ClaimRequest,
        twin: Twin,
    ) -> Result<Step, TransactionError> {
        let sql = if twin == Twin::Wait { &LOCK } else { &LOCK_AT_ONCE };
        let found = match self.found(sql, name).await {
            Err(refusal) => return self.held(refusal, twin).await,
            Ok(None) => return Ok(Step::Again),
            Ok(Some(found)) => found,
        };
        // The statement's clock may be older than the lock.
        let now = self.clock().await?;
        let (write, answer) = record::claim(Some(&found.record), request, now);
        if let Some(new) = write {
            self.overwrite(found.id, name, &new).await?;
        }
        Ok(Step::Answer(answer))
    }

    /// The rule for an absent key asks for no time, so it may be asked at the instant 0.
    async fn insert(
        &mut self,
        name: &Name,
        request: &ClaimRequest,
        twin: Twin,
    ) -> Result<Step, TransactionError> {
        let (Some(record), answer) = record::claim(None, request, Timestamp(0)) else {
            return Err(TransactionError::Refused("only runs are claimed in a transaction".into()));
        };
        let mut values = Vec::with_capacity(25);
        rows::written(name, &record, &mut values);
        match self.0.rows(&INSERT, values).await {
            Ok(_) => Ok(Step::Answer(answer)),
            Err(refusal) if refusal.code == Some(1062) => Ok(Step::Again),
            Err(refusal) => self.held(refusal, twin).await,
        }
    }

    /// An error of a statement that waits for a lock. 3572 is MySQL's word for NOWAIT, 1205 MariaDB's.
    async fn held(&mut self, refusal: Refusal, twin: Twin) -> Result<Step, TransactionError> {
        if twin == Twin::Wait || !matches!(refusal.code, Some(1205 | 3572)) {
            return Err(refusal.into());
        }
        let answer = self.0.rows(ROLLS_BACK_ON_TIMEOUT, Vec::new()).await?;
        let setting = answer.into_iter().next().map(|row| Columns(row.into_iter()).small::<u8>("setting"));
        match setting {
            Some(Ok(0)) => Ok(Step::Held),
            _ => Err(TransactionError::Restart(Box::new(refusal))),
        }
    }

    async fn settle(&mut self, lease: &Lease, settlement: &Settlement) -> Result<(), TransactionError> {
        let name = Name::new(&lease.scope, &lease.key);
        let found = self.found(&LOCK, &name).await?;
        let Some(found) = found else { return Err(TransactionError::LeaseLost) };
        match record::settle(Some(&found.record), lease, settlement, found.now) {
            Ok(Some(new)) => Ok(self.overwrite(found.id, &name, &new).await?),
            Ok(None) => Ok(()),
            Err(Unfit::LeaseLost) => Err(TransactionError::LeaseLost),
            Err(unfit) => Err(TransactionError::Refused(Box::new(unfit))),
        }
    }

    async fn found(&mut self, sql: &'static LazyLock<String>, name: &Name) -> Result<Option<Found>, Refusal> {
        let mut values = Vec::with_capacity(2);
        name.push(&mut values);
        let rows = self.0.rows(sql, values).await?;
        rows.into_iter().next().map(|row| Found::of(row).map_err(Refusal::unreadable)).transpose()
    }

    async fn clock(&mut self) -> Result<Timestamp, Refusal> {
        let rows = self.0.rows(rows::CLOCK, Vec::new()).await?;
        let now =
            rows.into_iter().next().ok_or("now").and_then(|row| Columns(row.into_iter()).integer("now"));
        now.map(Timestamp).map_err(Refusal::unreadable)
    }

    async fn overwrite(&mut self, id: u64, name: &Name, new: &record::Record) -> Result<(), Refusal> {
        let mut values = vec![Value::UInt(id)];
        rows::written(name, new, &mut values);
        self.0.rows(&OVERWRITE, values).await.map(drop)
    }
}

impl Refusal {
    fn new(code: Option<u16>, cause: impl Error + Send + Sync + 'static) -> Refusal {
        Refusal { code, cause: Box::new(cause) }
    }

    fn unreadable(column: rows::Unreadable) -> Refusal {
        Refusal { code: None, cause: Box::new(Unreadable(column)) }
    }

    /// Deadlock, lock wait, and a lock that was not to be waited for.
    fn is_restart(code: u16) -> bool {
        matches!(code, 1213 | 1205 | 3572 | 1020)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a row is no record: {0}")]
struct Unreadable(&'static str);

/// By the server's number, never by its text.
impl From<Refusal> for TransactionError {
    fn from(refusal: Refusal) -> TransactionError {
        let is_unreadable = refusal.cause.is::<Unreadable>();
        let code = refusal.code;
        let cause: semel::BoxError = Box::new(refusal);
        match code {
            None if is_unreadable => TransactionError::Corrupt(cause),
            Some(code) if Refusal::is_restart(code) => TransactionError::Restart(cause),
            // No table, no right, no column; not a value for its column.
            Some(1044 | 1142 | 1143 | 1146 | 1054 | 1048 | 1264 | 1366 | 1406 | 1153) => {
                TransactionError::Refused(cause)
            }
            _ => TransactionError::Unavailable(cause),
        }
    }
}

fn advice(code: u16) -> Option<&'static str> {
    Some(match code {
        1146 => "a table of Semel's is missing: run `semel migrate`",
        1044 | 1142 | 1143 => "the user may not use Semel's tables: grant it",
        1205 | 3572 => "another transaction has the key for longer than innodb_lock_wait_timeout",
        1213 => "a deadlock: the server has rolled the transaction back",
        1153 => "the outcome is larger than max_allowed_packet",
        _ => return None,
    })
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MySQL: ")?;
        match self.code.and_then(advice) {
            Some(advice) => write!(f, "{advice} ({})", self.cause),
            None => write!(f, "{}", self.cause),
        }
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause.as_ref())
    }
}
