//! Transactions of one's own, for [`semel::Whole`]: from a pool of mysql_async, or of sqlx.
//!
//! [`semel::Whole`] runs in a task of its own, so no call of a driver is cancelled half way.

use std::error::Error;

use async_trait::async_trait;
use mysql_async::{IsolationLevel, TxOpts};
use semel::{CommitError, TransactionError, Transactions};

use super::in_mysql_async::refusal;
use super::{In, Refusal};

/// A pool of mysql_async. Its transactions are at READ COMMITTED.
#[derive(Debug, Clone)]
pub struct Pool(mysql_async::Pool);

impl Pool {
    /// Begins its transactions on connections of this pool.
    #[must_use]
    pub fn new(pool: mysql_async::Pool) -> Pool {
        Pool(pool)
    }
}

#[async_trait]
impl Transactions for Pool {
    type Tx = In<mysql_async::Transaction<'static>>;

    async fn begin(&self) -> Result<Self::Tx, TransactionError> {
        let mut options = TxOpts::default();
        options.with_isolation_level(IsolationLevel::ReadCommitted);
        Ok(In(self.0.start_transaction(options).await.map_err(refusal)?))
    }

    async fn commit(&self, tx: Self::Tx) -> Result<(), CommitError> {
        tx.0.commit().await.map_err(|error| not_committed(refusal(error)))
    }

    fn is_restart(&self, error: &(dyn Error + 'static)) -> bool {
        is_restart(error)
    }
}

/// A pool of sqlx. Its transactions are at the server's level.
#[cfg(feature = "sqlx-mysql")]
#[derive(Debug, Clone)]
pub struct SqlxPool(sqlx::MySqlPool);

#[cfg(feature = "sqlx-mysql")]
impl SqlxPool {
    /// Begins its transactions on connections of this pool.
    #[must_use]
    pub fn new(pool: sqlx::MySqlPool) -> SqlxPool {
        SqlxPool(pool)
    }
}

#[cfg(feature = "sqlx-mysql")]
#[async_trait]
impl Transactions for SqlxPool {
    type Tx = In<sqlx::Transaction<'static, sqlx::MySql>>;

    async fn begin(&self) -> Result<Self::Tx, TransactionError> {
        Ok(In(self.0.begin().await.map_err(super::in_sqlx::refusal)?))
    }

    async fn commit(&self, tx: Self::Tx) -> Result<(), CommitError> {
        tx.0.commit().await.map_err(|error| not_committed(super::in_sqlx::refusal(error)))
    }

    fn is_restart(&self, error: &(dyn Error + 'static)) -> bool {
        is_restart(error)
    }
}

/// A deadlock at COMMIT, as a cluster has it, is a rollback. Of any other error that cannot be said.
fn not_committed(refusal: Refusal) -> CommitError {
    match refusal.code {
        Some(code) if Refusal::is_restart(code) => CommitError::RolledBack(refusal.into()),
        _ => CommitError::Unanswered(Box::new(refusal)),
    }
}

/// Looks through the causes: the caller's error may wrap the driver's.
fn is_restart(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source())
        .any(|error| code(error).is_some_and(Refusal::is_restart))
}

fn code(error: &(dyn Error + 'static)) -> Option<u16> {
    #[cfg(feature = "sqlx-mysql")]
    if let Some(error) = error.downcast_ref::<sqlx::Error>() {
        return super::in_sqlx::code(error);
    }
    super::in_mysql_async::code(error.downcast_ref::<mysql_async::Error>()?)
}
