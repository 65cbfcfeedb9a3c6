//! Transactions of one's own, for async programs: an inbox, or [`semel::Whole`].
//!
//! What waits, for the write lock or for the disk, runs on a thread that may block. The caller's own statements run where
//! the caller is: between BEGIN and COMMIT they have the write lock, and wait for nobody.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::Connection;
use semel::{
    BoxError, Claim, ClaimRequest, CommitError, InTransaction, Lease, Savepoints, Settlement,
    TransactionError, Transactions, Twin,
};

use super::{claim, failed, run, settle, whole};

type Open = dyn Fn() -> rusqlite::Result<Connection> + Send + Sync;
type Idle = Arc<Mutex<Vec<Connection>>>;

/// Connections to the file of the store, opened when there is none left. SQLite has one writer, so more than a few are
/// never used at once.
#[derive(Clone)]
pub struct Connections {
    open: Arc<Open>,
    idle: Idle,
}

impl Connections {
    /// `open` gives a connection to the file of the store: see there for its tables. How long a transaction waits for the
    /// write lock is that connection's `busy_timeout`.
    pub fn new(open: impl Fn() -> rusqlite::Result<Connection> + Send + Sync + 'static) -> Connections {
        Connections { open: Arc::new(open), idle: Idle::default() }
    }

    fn take(&self) -> rusqlite::Result<Connection> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| (self.open)(), Ok)
    }
}

/// A connection with a transaction. Dropped without its end, it rolls back.
pub struct Begun {
    /// `None` while a thread has it, and for good if nobody waited for that thread: then it is closed.
    connection: Option<Connection>,
    idle: Idle,
}

const THERE: &str = "a call that was dropped took the connection along: the transaction is rolled back";

impl Begun {
    fn connection(&self) -> &Connection {
        self.connection.as_ref().expect(THERE)
    }

    /// Does it on a thread that may block.
    async fn apart<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, TransactionError> + Send + 'static,
    ) -> Result<T, TransactionError> {
        let connection = self.connection.take().ok_or_else(|| TransactionError::Unavailable(THERE.into()))?;
        let (connection, done) = apart(move || {
            let done = work(&connection);
            (connection, done)
        })
        .await?;
        self.connection = Some(connection);
        done
    }
}

async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, TransactionError> {
    tokio::task::spawn_blocking(work).await.map_err(|gone| TransactionError::Unavailable(Box::new(gone)))
}

impl Drop for Begun {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}

#[async_trait]
impl InTransaction for Begun {
    type Handle = Connection;

    fn handle(&self) -> &Connection {
        self.connection()
    }

    fn handle_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect(THERE)
    }

    fn into_handle(mut self) -> Connection {
        self.connection.take().expect(THERE)
    }

    /// There are no twins: nobody else writes until the end of this transaction.
    async fn claim_in(&mut self, requests: &[ClaimRequest], _: Twin) -> Result<Vec<Claim>, TransactionError> {
        let requests = requests.to_vec();
        let claims = move |connection: &Connection| {
            requests.iter().map(|request| claim(connection, request).map_err(failed)).collect()
        };
        self.apart(claims).await
    }

    async fn settle_in(&mut self, settled: &[(Lease, Settlement)]) -> Result<(), TransactionError> {
        let settled = settled.to_vec();
        let settles = move |connection: &Connection| {
            settled.iter().try_for_each(|(lease, settlement)| settle(connection, lease, settlement))
        };
        self.apart(settles).await
    }
}

/// Of a name that nobody else's is likely to be; the innermost counts.
#[async_trait]
impl Savepoints for Begun {
    async fn mark(&mut self) -> Result<(), TransactionError> {
        run(self.connection(), "SAVEPOINT semel_mark").map_err(failed)
    }

    async fn keep_marked(&mut self) -> Result<(), TransactionError> {
        run(self.connection(), "RELEASE semel_mark").map_err(failed)
    }

    async fn undo_marked(&mut self) -> Result<(), TransactionError> {
        run(self.connection(), "ROLLBACK TO semel_mark").map_err(failed)?;
        self.keep_marked().await
    }
}

#[async_trait]
impl Transactions for Connections {
    type Tx = Begun;

    /// With the write lock, so that nothing in it meets another writer.
    async fn begin(&self) -> Result<Begun, TransactionError> {
        let connections = self.clone();
        let begun = move || -> rusqlite::Result<Connection> {
            let connection = connections.take()?;
            run(&connection, "BEGIN IMMEDIATE")?;
            Ok(connection)
        };
        let connection = apart(begun).await?.map_err(failed)?;
        Ok(Begun { connection: Some(connection), idle: self.idle.clone() })
    }

    /// An error that leaves the transaction open says that it was not committed.
    async fn commit(&self, mut tx: Begun) -> Result<(), CommitError> {
        let committed = tx.apart(|connection| run(connection, "COMMIT").map_err(failed)).await;
        match committed {
            Ok(()) => Ok(()),
            Err(error) if tx.connection.as_ref().is_some_and(|connection| !connection.is_autocommit()) => {
                Err(CommitError::RolledBack(error))
            }
            Err(error) => Err(CommitError::Unanswered(BoxError::from(error))),
        }
    }

    fn is_restart(&self, error: &(dyn Error + 'static)) -> bool {
        whole::is_busy(error)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connections")
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Begun")
    }
}
