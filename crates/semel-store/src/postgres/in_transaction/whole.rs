//! Transactions of one's own, for [`semel::Whole`]: from a pool of sqlx, or from any pool of tokio-postgres clients.
//!
//! A claim that finds out about a COMMIT waits for a transaction that may still be open, on a connection that is gone.
//! So every transaction begins with a `lock_timeout`; a claim that it ends is made again by [`semel::Whole`].
//!
//! [`Clients`] do not wait for the answer to BEGIN: it is sent before the claim, and the claim refuses to be a transaction
//! by itself. So an operation takes as many round trips as its own statements and two.

use std::error::Error;
use std::fmt;
use std::ops::{Deref, DerefMut};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use semel::{BoxError, CommitError, TransactionError, Transactions};
use tokio_postgres::Client;

use super::in_tokio_postgres::{refusal, run};
use super::{Handle, In, Refusal, Reply, Statements, Value};

/// In one round trip. The timeout ends with the transaction. Nobody else sets this one: by it a claim that is completed at
/// once knows that BEGIN was taken (`CLAIM_COMPLETED_BEHIND_BEGIN`); any other is refused at its COMMIT, since it is not
/// completed.
const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '5003ms'";

/// A pool of sqlx.
#[cfg(feature = "sqlx-postgres")]
#[derive(Debug, Clone)]
pub struct Pool(sqlx::PgPool);

#[cfg(feature = "sqlx-postgres")]
impl Pool {
    /// Begins its transactions on connections of this pool.
    #[must_use]
    pub fn new(pool: sqlx::PgPool) -> Pool {
        Pool(pool)
    }
}

/// Its `begin` is not safe to cancel, and is not cancelled: [`semel::Whole`] runs in a task of its own.
#[cfg(feature = "sqlx-postgres")]
#[async_trait]
impl Transactions for Pool {
    type Tx = In<sqlx::Transaction<'static, sqlx::Postgres>>;

    async fn begin(&self) -> Result<Self::Tx, TransactionError> {
        let begun = self.0.begin_with(BEGIN).await;
        Ok(In(begun.map_err(super::in_sqlx::refusal)?))
    }

    async fn commit(&self, tx: Self::Tx) -> Result<(), CommitError> {
        tx.0.commit().await.map_err(|error| not_committed(super::in_sqlx::refusal(error)))
    }

    fn is_restart(&self, error: &(dyn Error + 'static)) -> bool {
        is_restart(error)
    }
}

/// Clients of tokio-postgres, from whatever hands them out.
pub struct Clients<C> {
    take: Box<dyn Fn() -> BoxFuture<'static, Result<C, BoxError>> + Send + Sync>,
    client: fn(&C) -> &Client,
    statements: Option<fn(&C) -> &Statements>,
}

impl<C> Clients<C> {
    /// `take` gives a connection that nobody else uses until it is dropped, and `client` the client that it is: of
    /// deadpool-postgres, `pool.get()` and `|object| object`.
    pub fn new(
        take: impl Fn() -> BoxFuture<'static, Result<C, BoxError>> + Send + Sync + 'static,
        client: fn(&C) -> &Client,
    ) -> Clients<C> {
        Clients { take: Box::new(take), client, statements: None }
    }

    /// With statements that were prepared for each connection, when it was made ([`Statements::prepare`]), and lie beside
    /// it: the server then reads and plans none anew. Not behind a pooler in transaction mode.
    #[must_use]
    pub fn prepared(self, statements: fn(&C) -> &Statements) -> Clients<C> {
        Clients { statements: Some(statements), ..self }
    }
}

impl<C> fmt::Debug for Clients<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

/// A connection with a transaction. Dropped without its end, it rolls back.
pub struct Begun<C> {
    connection: C,
    client: fn(&C) -> &Client,
    statements: Option<fn(&C) -> &Statements>,
    is_open: bool,
}

impl<C> Deref for Begun<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<C> DerefMut for Begun<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.connection
    }
}

impl<C> fmt::Debug for Begun<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Begun")
    }
}

/// Polled once, the statement is on its way, before whatever the next user of the connection sends; its answer is read
/// and dropped by the connection's task.
impl<C> Drop for Begun<C> {
    fn drop(&mut self) {
        if self.is_open {
            let _ = (self.client)(&self.connection).batch_execute("ROLLBACK").now_or_never();
        }
    }
}

#[async_trait]
impl<C: Send + Sync> Handle for Begun<C> {
    async fn rows(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Reply>, Refusal> {
        let statements = self.statements.map(|statements| statements(&self.connection));
        Statements::rows(statements, (self.client)(&self.connection), sql, values).await
    }

    fn begin_is_unseen(&self) -> bool {
        true
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        run((self.client)(&self.connection), sql).await
    }
}

#[async_trait]
impl<C: Send + Sync + 'static> Transactions for Clients<C> {
    type Tx = In<Begun<C>>;

    async fn begin(&self) -> Result<Self::Tx, TransactionError> {
        let connection = (self.take)().await.map_err(TransactionError::Unavailable)?;
        let begun = Begun { connection, client: self.client, statements: self.statements, is_open: true };
        // Polled once it is on its way, before whatever the connection is asked next; see there for its answer.
        let sent = (self.client)(&begun.connection).batch_execute(BEGIN).now_or_never();
        sent.unwrap_or(Ok(())).map_err(refusal)?;
        Ok(In(begun))
    }

    async fn commit(&self, tx: Self::Tx) -> Result<(), CommitError> {
        let mut begun = tx.0;
        let committed = (self.client)(&begun.connection).batch_execute("COMMIT").await;
        begun.is_open = false;
        committed.map_err(|error| not_committed(refusal(error)))
    }

    fn is_restart(&self, error: &(dyn Error + 'static)) -> bool {
        is_restart(error)
    }
}

/// An error that is the answer to COMMIT is a rollback; one that is the end of the connection may have come after it.
pub(super) fn not_committed(refusal: Refusal) -> CommitError {
    if Refusal::ends_connection(refusal.code.as_deref()) {
        return CommitError::Unanswered(Box::new(refusal));
    }
    CommitError::RolledBack(refusal.into())
}

/// Looks through the causes: the caller's error may wrap the driver's.
fn is_restart(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source())
        .any(|error| code(error).is_some_and(|code| Refusal::is_restart(&code)))
}

fn code(error: &(dyn Error + 'static)) -> Option<String> {
    #[cfg(feature = "sqlx-postgres")]
    if let Some(error) = error.downcast_ref::<sqlx::Error>() {
        return super::in_sqlx::code(error);
    }
    let error = error.downcast_ref::<tokio_postgres::Error>()?;
    error.code().map(|state| state.code().to_owned())
}
