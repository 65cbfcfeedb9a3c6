//! With tokio-postgres and without a pooler in transaction mode: statements prepared once, and two round trips fewer.
//!
//! ```no_run
//! # async fn charge(client: &mut tokio_postgres::Client, operation: &semel::Operation) -> Result<(), Box<dyn std::error::Error>> {
//! use semel::{Once, Twin};
//! use semel_store::postgres::{Statements, complete_and_commit};
//!
//! let statements = Statements::prepare(client).await?; // once for a connection
//! match statements.once(client, operation, Twin::Refuse).await? {
//!     Once::Run(run) => {
//!         run.execute("UPDATE account SET balance = balance - 1200 WHERE id = 7", &[]).await?;
//!         complete_and_commit(run, "paid").await?;
//!     }
//!     Once::Replay { tx, .. } => tx.rollback().await?,
//!     other => return Err(format!("not now: {other:?}").into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! 1. **`BEGIN` and the claim go in one round trip**, and so do the completion and `COMMIT`. The server takes them one after
//!    the other, and does not begin the second before the first is done.
//! 2. **If the first fails, the second does no harm.** A claim without its `BEGIN` would be a transaction by itself: the
//!    schema refuses to commit a claim that is not completed. A `COMMIT` behind a failed completion rolls back.
//! 3. **There is no handle before the transaction has begun**, so no statement can run beside it.
//! 4. Dropped without its end, it rolls back: the statement is on its way before whatever the connection sends next.

use std::fmt;
use std::ops::Deref;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{join, join3};
use semel::{CommitError, Once, Operation, Outcome, Run, TransactionError, Twin};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::in_tokio_postgres::{parameters, refusal, replies, rows as plain_rows, run as run_plain};
use super::settled::CLAIM_COMPLETED_BEHIND_BEGIN;
use super::whole::not_committed;
use super::{COMPLETE, Handle, In, ONCE, Refusal, Reply, Value};

/// The statements of a claim and a completion, prepared for one connection.
///
/// They are the connection's: with another one's every call is an error of the server's. A schema that is migrated meanwhile
/// makes them anew by itself.
#[derive(Clone)]
pub struct Statements {
    once: Statement,
    complete: Statement,
    claim_completed: Statement,
}

impl Statements {
    /// Prepares them, in two round trips. Also for [`Clients`](super::Clients).
    ///
    /// # Errors
    ///
    /// [`TransactionError::Refused`]: the schema is missing, or may not be used.
    pub async fn prepare(client: &Client) -> Result<Statements, TransactionError> {
        let (once, complete) = (client.prepare(ONCE), client.prepare(COMPLETE));
        let (once, complete, claim_completed) =
            join3(once, complete, client.prepare(CLAIM_COMPLETED_BEHIND_BEGIN)).await;
        Ok(Statements {
            once: once.map_err(refusal)?,
            complete: complete.map_err(refusal)?,
            claim_completed: claim_completed.map_err(refusal)?,
        })
    }

    /// Begins a transaction, at the connection's level, and claims the operation in it. As [`once`](super::once).
    ///
    /// # Errors
    ///
    /// [`TransactionError`]; the transaction is rolled back.
    pub async fn once<'a>(
        &'a self,
        client: &'a mut Client,
        operation: &Operation,
        twin: Twin,
    ) -> Result<Once<Run<In<Prepared<'a>>>, Prepared<'a>>, TransactionError> {
        let tx = Prepared { client, statements: self, stage: Stage::New, committed: None };
        super::once(tx, operation, twin).await
    }

    fn of(&self, sql: &'static str) -> Option<&Statement> {
        match sql {
            ONCE => Some(&self.once),
            COMPLETE => Some(&self.complete),
            CLAIM_COMPLETED_BEHIND_BEGIN => Some(&self.claim_completed),
            _ => None,
        }
    }

    /// Asks with the prepared statement of this text, where there is one.
    pub(super) async fn rows(
        statements: Option<&Statements>,
        client: &Client,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> Result<Vec<Reply>, Refusal> {
        let Some(statement) = statements.and_then(|statements| statements.of(sql)) else {
            return plain_rows(client, sql, values).await;
        };
        let parameters = parameters(values);
        let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
        replies(&client.query(statement, &values).await.map_err(refusal)?)
    }
}

impl fmt::Debug for Statements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Statements")
    }
}

/// A transaction that [`Statements::once`] has begun. It dereferences to its client, for statements of one's own.
pub struct Prepared<'a> {
    client: &'a Client,
    statements: &'a Statements,
    stage: Stage,
    /// What became of a COMMIT that went along with the completion.
    committed: Option<Result<(), CommitError>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// BEGIN goes with the next statement.
    New,
    Open,
    /// COMMIT goes with the next statement.
    Last,
    Ended,
}

impl Prepared<'_> {
    /// Commits. For what was not ended by [`complete_and_commit`].
    ///
    /// # Errors
    ///
    /// [`CommitError`]: rolled back, or not known.
    pub async fn commit(mut self) -> Result<(), CommitError> {
        let committed = run_plain(self.client, "COMMIT").await;
        self.stage = Stage::Ended;
        committed.map_err(not_committed)
    }

    /// Rolls back.
    ///
    /// # Errors
    ///
    /// When the connection ends, which rolls back too.
    pub async fn rollback(mut self) -> Result<(), TransactionError> {
        let ended = run_plain(self.client, "ROLLBACK").await;
        self.stage = Stage::Ended;
        Ok(ended?)
    }

    async fn ask(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Reply>, Refusal> {
        Statements::rows(Some(self.statements), self.client, sql, values).await
    }
}

/// Completes and commits, in one round trip: [`Run::complete`] and [`Prepared::commit`].
///
/// # Errors
///
/// [`CommitError`]: rolled back, also where the completion was refused; or not known.
pub async fn complete_and_commit(
    mut run: Run<In<Prepared<'_>>>,
    outcome: impl Into<Outcome>,
) -> Result<(), CommitError> {
    run.stage = Stage::Last;
    match run.complete(outcome).await {
        Ok(mut tx) => match tx.committed.take() {
            Some(committed) => committed,
            None => tx.commit().await,
        },
        // Perhaps both have happened, and their answers were lost.
        Err(TransactionError::Unavailable(cause)) => Err(CommitError::Unanswered(cause)),
        Err(error) => Err(CommitError::RolledBack(error)),
    }
}

/// The statement that was handed in is polled, and so sent, after BEGIN and before COMMIT.
#[async_trait]
impl Handle for Prepared<'_> {
    async fn rows(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Reply>, Refusal> {
        match self.stage {
            Stage::New => {
                // Open before it is sent: a BEGIN whose answer is lost may have begun.
                self.stage = Stage::Open;
                let (begun, replies) = join(run_plain(self.client, "BEGIN"), self.ask(sql, values)).await;
                begun.and(replies)
            }
            Stage::Open | Stage::Ended => self.ask(sql, values).await,
            Stage::Last => {
                let (replies, ended) = join(self.ask(sql, values), run_plain(self.client, "COMMIT")).await;
                self.stage = Stage::Ended;
                self.committed = Some(ended.map_err(not_committed));
                replies
            }
        }
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        run_plain(self.client, sql).await
    }
}

impl Deref for Prepared<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if self.stage != Stage::Ended {
            let _ = self.client.batch_execute("ROLLBACK").now_or_never();
        }
    }
}

impl fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepared")
    }
}
