//! The key in a transaction of the caller's own.
//!
//! ```no_run
//! # #[cfg(feature = "sqlx-postgres")]
//! # async fn charge(pool: &sqlx::PgPool, operation: &semel::Operation) -> Result<String, Box<dyn std::error::Error>> {
//! use semel::{Once, Twin};
//! use semel_store::postgres;
//!
//! let tx = pool.begin().await?;
//! match postgres::once(tx, operation, Twin::Refuse).await? {
//!     Once::Run(mut run) => {
//!         sqlx::query("UPDATE account SET balance = balance - 1200 WHERE id = 7").execute(&mut **run).await?;
//!         run.complete("paid").await?.commit().await?;
//!         Ok("paid".to_owned())
//!     }
//!     Once::Replay { outcome, .. } => Ok(String::from_utf8(outcome.bytes.to_vec())?),
//!     other => Err(format!("not now: {other:?}").into()),
//! }
//! # }
//! ```
//!
//! 1. **Any handle of either driver**, owned or as `&mut`: a transaction of tokio-postgres or of sqlx, or a connection on
//!    which one was begun ([`Handle`]). A transaction is never begun, committed or rolled back here, no savepoint is
//!    made, and each verb is one statement of a text that never changes. (sqlx 0.9 loses the outer transaction when a
//!    nested `begin` is cancelled; so there is none.)
//! 2. **The rules are the schema's functions** `semel.once`, `semel.complete` and so on, the same that any other language
//!    calls. With `functions=off` there are none, and no transactions of the caller's either.
//! 3. **A forgotten completion is refused at COMMIT** (SQLSTATE SM003), whatever the language, and also where a savepoint
//!    took the completion back: a deferred trigger looks at the record last.
//! 4. **Twins** meet at an advisory lock of the transaction, by the key's hash of 64 bits. [`Twin::Wait`] waits for it,
//!    bounded by the caller's `lock_timeout`; [`Twin::Refuse`] is told in flight at once. It goes with the transaction, so
//!    a pooler in transaction mode does no harm.
//! 5. **READ COMMITTED**: each claim sees what was committed before it, and a duplicate is an answer, never an error.
//!    **REPEATABLE READ and SERIALIZABLE**: a twin that committed after this transaction's snapshot is the error 40001,
//!    [`TransactionError::Restart`]: roll back and begin anew.
//! 6. **A statement of the caller's that fails** aborts the transaction, as always in PostgreSQL; then the completion
//!    fails too, and nothing is committed.
//! 7. **A pooler**: tokio-postgres is asked by statements that carry their types and are not prepared, unless the caller
//!    prepares them ([`Statements`], which with tokio-postgres also spares two round trips). Through sqlx they are prepared
//!    for good only on a connection that has others prepared so; before a pooler in transaction mode make every statement
//!    of your own `persistent(false)`, and use the connection within transactions only.
//! 8. **End a transaction that was given back** by `commit` or `rollback`. One of sqlx on a connection that is not a
//!    pool's is rolled back, when it is dropped, only with the next statement, and holds the key until then.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use semel::{
    Algorithm, Cause, Claim, ClaimRequest, Fence, InTransaction, Lease, Once, Operation, Outcome, Purpose,
    Run, Savepoints, Settlement, TransactionError, Twin, Was,
};

use crate::order::{as_asked, by_key};

#[cfg(feature = "sqlx-postgres")]
mod in_sqlx;
mod in_tokio_postgres;
mod prepared;
mod settled;
mod whole;

pub use prepared::{Prepared, Statements, complete_and_commit};
#[cfg(feature = "sqlx-postgres")]
pub use whole::Pool;
pub use whole::{Begun, Clients};

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

/// A transaction of the caller's as its driver has it: of tokio-postgres `Transaction`, or `Client` after a `BEGIN` by
/// hand; of sqlx `Transaction`, or `PgConnection` after one; each owned, or as `&mut`.
#[async_trait]
pub trait Handle: Send {
    /// Runs one statement. For this module only.
    #[doc(hidden)]
    async fn rows(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Reply>, Refusal>;

    /// Runs a statement without parameters or rows, or several. For this module only.
    #[doc(hidden)]
    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal>;

    /// Whether a transaction was asked for, and nobody waited for the answer.
    #[doc(hidden)]
    fn begin_is_unseen(&self) -> bool {
        false
    }
}

#[async_trait]
impl<H: Handle> Handle for &mut H {
    async fn rows(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Reply>, Refusal> {
        (**self).rows(sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        (**self).run(sql).await
    }

    fn begin_is_unseen(&self) -> bool {
        (**self).begin_is_unseen()
    }
}

/// A parameter.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    MaybeBytes(Option<&'a [u8]>),
    Number(i64),
    Flag(bool),
    Texts(&'a [&'a str]),
    ByteStrings(&'a [&'a [u8]]),
    Numbers(&'a [i64]),
    Flags(&'a [bool]),
}

/// A row: the columns of [`ONCE`], or one of a settlement, which says nothing.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Reply {
    pub claim: Option<String>,
    pub fence: Option<i64>,
    pub attempts: Option<i64>,
    pub was: Option<String>,
    pub doubt: Option<bool>,
    pub age_ms: Option<i64>,
    pub retry_after_ms: Option<i64>,
    pub cause: Option<String>,
    pub bound_algorithm: Option<i32>,
    pub format: Option<i32>,
    pub outcome: Option<Vec<u8>>,
}

/// Reads a row by position; both drivers spell it alike.
macro_rules! reply {
    ($row:expr) => {
        Reply {
            claim: $row.try_get(0)?,
            fence: $row.try_get(1)?,
            attempts: $row.try_get(2)?,
            was: $row.try_get(3)?,
            doubt: $row.try_get(4)?,
            age_ms: $row.try_get(5)?,
            retry_after_ms: $row.try_get(6)?,
            cause: $row.try_get(7)?,
            bound_algorithm: $row.try_get(8)?,
            format: $row.try_get(9)?,
            outcome: $row.try_get(10)?,
        }
    };
}
use reply;

/// A driver's error, with the server's code where it has one.
#[doc(hidden)]
#[derive(Debug)]
pub struct Refusal {
    code: Option<String>,
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

/// One call of one function, which changes one row under its lock: see the function. The types are named, so that both
/// drivers send the same.
const ONCE: &str = "SELECT claim, fence, attempts, was, doubt, age_ms, retry_after_ms, cause, bound_algorithm, format, outcome \
     FROM semel.once($1::text, $2::text, encode($3::bytea, 'hex')::uuid, $4::bytea, $5::text, $6::bigint, $7::boolean, \
     $8::bigint, $9::text, $10::bytea, $11::bigint::integer)";

/// One call of one function, which answers nothing or raises an error.
macro_rules! settling {
    ($call:literal) => {
        concat!("SELECT semel.", $call)
    };
}

const COMPLETE: &str = settling!(
    "complete($1::text, $2::text, $3::bigint, encode($4::bytea, 'hex')::uuid, $5::bytea, $6::bigint, $7::bigint, $8::bigint::integer)"
);
const RELEASE: &str = settling!(
    "release($1::text, $2::text, $3::bigint, encode($4::bytea, 'hex')::uuid, $5::bigint, $6::bigint, $7::boolean, $8::boolean)"
);
const PARK: &str =
    settling!("park($1::text, $2::text, $3::bigint, encode($4::bytea, 'hex')::uuid, $5::text)");
const BURY: &str =
    settling!("bury($1::text, $2::text, $3::bigint, encode($4::bytea, 'hex')::uuid, $5::text)");

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

    async fn claim_settled_in(
        &mut self,
        requests: &[ClaimRequest],
        settlement: &Settlement,
    ) -> Result<Vec<Claim>, TransactionError> {
        self.claim_settled(requests, settlement).await
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
        Ok(self.0.run("ROLLBACK TO SAVEPOINT semel_mark; RELEASE SAVEPOINT semel_mark").await?)
    }
}

impl<H: Handle> In<H> {
    async fn claim(&mut self, request: &ClaimRequest, twin: Twin) -> Result<Claim, TransactionError> {
        let Purpose::Run { fingerprint, rerun, attempts_max } = &request.purpose else {
            return Err(TransactionError::Refused("only runs are claimed in a transaction".into()));
        };
        let values = [
            Value::Text(request.scope.as_str()),
            Value::Text(request.key.as_str()),
            Value::Bytes(&request.attempt.0),
            Value::Bytes(&fingerprint.digest),
            Value::Text(match twin {
                Twin::Wait => "wait",
                Twin::Refuse => "refuse",
            }),
            Value::Number(millis(request.lease_for)),
            Value::Flag(*rerun),
            Value::Number(i64::from(*attempts_max)),
            Value::Text(request.label.as_str()),
            Value::MaybeBytes(request.input.as_deref()),
            Value::Number(i64::from(fingerprint.algorithm.0)),
        ];
        let rows = self.0.rows(ONCE, &values).await?;
        rows.into_iter().next().and_then(|reply| reply.claim(request)).ok_or_else(strange)
    }

    async fn settle(&mut self, lease: &Lease, settlement: &Settlement) -> Result<(), TransactionError> {
        let fence = i64::try_from(lease.fence.0).unwrap_or(i64::MAX);
        let (scope, key) = (Value::Text(lease.scope.as_str()), Value::Text(lease.key.as_str()));
        let lead = [scope, key, Value::Number(fence), Value::Bytes(&lease.attempt.0)];
        let (sql, rest) = match settlement {
            Settlement::Complete { outcome, replay_for, remember_for } => {
                let times = [Value::Number(millis(*replay_for)), Value::Number(millis(*remember_for))];
                let format = Value::Number(i64::from(outcome.format));
                (COMPLETE, vec![Value::Bytes(&outcome.bytes), times[0], times[1], format])
            }
            Settlement::Release { not_before, unbind, ran, remember_for } => {
                let not_before = Value::Number(millis(not_before.unwrap_or_default()));
                let remember_for = Value::Number(millis(*remember_for));
                (RELEASE, vec![not_before, remember_for, Value::Flag(*unbind), Value::Flag(*ran)])
            }
            Settlement::Park { cause } => (PARK, vec![Value::Text(cause.as_str())]),
            Settlement::Bury { cause } => (BURY, vec![Value::Text(cause.as_str())]),
        };
        self.0.rows(sql, &[&lead[..], &rest].concat()).await?;
        Ok(())
    }
}

impl Reply {
    /// `None` where it is no answer of the function's.
    fn claim(self, request: &ClaimRequest) -> Option<Claim> {
        let age = self.age_ms.map(duration);
        let fence = self.fence.and_then(|fence| u64::try_from(fence).ok()).map(Fence);
        let attempts = self.attempts.and_then(|attempts| u32::try_from(attempts).ok());
        Some(match self.claim?.as_str() {
            "acquired" => Claim::Acquired(Lease {
                scope: request.scope.clone(),
                key: request.key.clone(),
                fence: fence?,
                attempt: request.attempt,
                attempts: attempts?,
                was: was_word(&self.was?)?,
                doubt: self.doubt?,
            }),
            "in-flight" => Claim::InFlight { retry_after: duration(self.retry_after_ms?), age: age? },
            "completed" => {
                let outcome =
                    Outcome { format: u8::try_from(self.format?).ok()?, bytes: self.outcome?.into() };
                Claim::Completed { outcome, age: age?, attempts: attempts? }
            }
            "mismatch" => Claim::Mismatch { algorithm: Algorithm(u8::try_from(self.bound_algorithm?).ok()?) },
            "unknown" => Claim::Unknown { fence: fence?, cause: Cause::new(self.cause?), age: age? },
            "dead" => Claim::Dead { fence: fence?, cause: Cause::new(self.cause?), age: age? },
            "forgotten" => Claim::Forgotten { age: age? },
            _ => return None,
        })
    }
}

/// As `semel.was_word` says it.
pub(super) fn was_word(word: &str) -> Option<Was> {
    Some(match word {
        "new" => Was::New,
        "released" => Was::Released,
        "lapsed" => Was::Lapsed,
        "unknown" => Was::Unknown,
        "dead" => Was::Dead,
        "running" => Was::Running,
        _ => return None,
    })
}

fn strange() -> TransactionError {
    TransactionError::Corrupt("semel.once gave an answer of another version's: run `semel migrate`".into())
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

impl Refusal {
    fn new(code: Option<&str>, cause: impl Error + Send + Sync + 'static) -> Refusal {
        Refusal { code: code.map(str::to_owned), cause: Box::new(cause) }
    }

    /// Whether another transaction was in the way: serialization failure, deadlock, a lock that was not had in time.
    fn is_restart(code: &str) -> bool {
        matches!(code, "40001" | "40P01" | "55P03")
    }

    /// Whether the end of the connection came with it: what it was the answer to may have happened.
    fn ends_connection(code: Option<&str>) -> bool {
        code.is_none_or(|code| matches!(&code[..2], "08" | "57") && code != "57014" || code == "40003")
    }
}

/// By the server's code, never by its text.
impl From<Refusal> for TransactionError {
    fn from(refusal: Refusal) -> TransactionError {
        let code = refusal.code.clone().unwrap_or_default();
        let cause: semel::BoxError = Box::new(refusal);
        match code.as_str() {
            code if Refusal::is_restart(code) => TransactionError::Restart(cause),
            "SM001" => TransactionError::LeaseLost,
            "SM002" | "SM003" => TransactionError::Refused(cause),
            "XX001" | "XX002" => TransactionError::Corrupt(cause),
            code if ["22", "23", "42", "3F", "0A"].contains(&code.get(..2).unwrap_or_default()) => {
                TransactionError::Refused(cause)
            }
            _ => TransactionError::Unavailable(cause),
        }
    }
}

fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "42883" | "42P01" | "3F000" => "the functions of the schema semel are missing: run `semel migrate`",
        "42501" => "the user may not use the schema semel: grant it",
        "25P02" => "an earlier statement of the transaction failed",
        "25001" | "25P01" => "no transaction was begun on this connection",
        "55P03" => "another transaction held the key for longer than lock_timeout",
        "SM003" => "no transaction was begun on this connection, or it was not completed",
        _ => return None,
    })
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgreSQL: ")?;
        match self.code.as_deref().map(|code| (code, advice(code))) {
            Some((code, Some(advice))) => write!(f, "{advice} ({} [{code}])", self.cause),
            Some((code, None)) => write!(f, "{} [{code}]", self.cause),
            None => write!(f, "{}", self.cause),
        }
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause.as_ref())
    }
}
