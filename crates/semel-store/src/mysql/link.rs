//! One connection, and how it is made.
//!
//! 1. **No call of the driver is cancelled.** Whoever stops waiting for one gives the connection up: it is dropped where
//!    no task can wait for the rest of an answer, which closes it at once.
//! 2. **Its session is this store's**: isolation level, strict values, bytes as they are, and a second's patience with a
//!    lock, whatever the server's defaults are.
//! 3. Affected rows are believed in one way only: a statement whose condition no longer holds once it is carried out
//!    reports more than none only if it was. Fewer than expected decides nothing.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Value};
use tokio::time::Instant;

use super::address::{Address, Isolation};
use super::failure::{Cause, Failure, Step};

/// One packet of a server is at least so large.
const PACKET_BYTES_MIN: usize = 2 << 20;

/// What a statement needs beside the bytes of its records.
const PACKET_BYTES_SPARE: usize = 64 << 10;

/// Seconds. Own transactions take milliseconds; whoever holds a row longer is not one of them. The statement is then
/// made again, so the wait is bounded by the call's own time.
const SESSION: &str = "SET SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = 1, \
     SESSION sql_mode = 'STRICT_ALL_TABLES'";

/// Texts and parameters are bytes: nothing is converted, nothing is compared by a collation.
const BYTES: &str = "SET NAMES binary";

const SETTINGS: &str = "SELECT @@max_allowed_packet, @@innodb_flush_log_at_trx_commit";

/// A connection to the server.
pub(super) struct Link {
    /// `None` once it was given up.
    connection: Option<Conn>,
    store: Arc<str>,
    packet_bytes: usize,
    /// Whether the server answers a commit before its log is on the disk.
    pub(super) is_lossy: bool,
}

impl Link {
    /// Connects, at most until then.
    pub(super) async fn open(address: &Address, until: Instant) -> Result<Link, Failure> {
        let failed = |cause| Failure::new(&address.name, Step::Connect, cause);
        let connecting = tokio::time::timeout_at(until, Conn::new(address.options.clone())).await;
        let connection = connecting.map_err(|_| failed(Cause::Silent))?;
        let mut link = Link {
            connection: Some(connection.map_err(|error| failed(Cause::Driver(error)))?),
            store: Arc::clone(&address.name),
            packet_bytes: 0,
            is_lossy: false,
        };
        let prepared = tokio::time::timeout_at(until, link.prepare(address.isolation)).await;
        match prepared {
            Ok(Ok(())) => Ok(link),
            Ok(Err(failure)) => Err(failure),
            Err(_) => {
                link.give_up();
                Err(failed(Cause::Silent))
            }
        }
    }

    async fn prepare(&mut self, isolation: Isolation) -> Result<(), Failure> {
        self.run(BYTES, Step::Connect).await?;
        self.run(SESSION, Step::Connect).await?;
        self.run(level(isolation), Step::Connect).await?;
        let settings = self.rows(SETTINGS, Vec::new(), Step::Connect).await?;
        let number = |column: usize| match settings.first().and_then(|row| row.get(column)) {
            Some(Value::Int(number)) => usize::try_from(*number).unwrap_or(0),
            Some(Value::UInt(number)) => usize::try_from(*number).unwrap_or(usize::MAX),
            _ => 0,
        };
        (self.packet_bytes, self.is_lossy) = (number(0), number(1) != 1);
        if self.packet_bytes < PACKET_BYTES_MIN {
            let (bytes, bytes_max) = (PACKET_BYTES_MIN, self.packet_bytes);
            return Err(self.failure(Step::Connect, Cause::TooLarge { bytes, bytes_max }));
        }
        Ok(())
    }

    /// Bytes that one statement may carry.
    pub(super) fn bytes_max(&self) -> usize {
        self.packet_bytes - PACKET_BYTES_SPARE
    }

    /// The rows of a statement.
    pub(super) async fn rows(
        &mut self,
        sql: &str,
        parameters: Vec<Value>,
        step: Step,
    ) -> Result<Vec<Vec<Value>>, Failure> {
        let connection = self.connection(step)?;
        let rows = connection.exec::<Row, _, _>(sql, positional(parameters)).await;
        let rows = rows.map_err(|error| self.failure(step, Cause::Driver(error)))?;
        Ok(rows.into_iter().map(Row::unwrap).collect())
    }

    /// Carries a statement out. Gives the rows that it affected, as this module's rule 3 has it.
    pub(super) async fn write(
        &mut self,
        sql: &str,
        parameters: Vec<Value>,
        step: Step,
    ) -> Result<u64, Failure> {
        let connection = self.connection(step)?;
        let done = connection.exec_drop(sql, positional(parameters)).await;
        let affected = connection.affected_rows();
        done.map_err(|error| self.failure(step, Cause::Driver(error)))?;
        Ok(affected)
    }

    /// Carries out a statement that is not prepared.
    pub(super) async fn run(&mut self, sql: &str, step: Step) -> Result<(), Failure> {
        let done = self.connection(step)?.query_drop(sql).await;
        done.map_err(|error| self.failure(step, Cause::Driver(error)))
    }

    /// Undoes what a transaction began. A connection that cannot is given up, which undoes it too.
    pub(super) async fn roll_back(&mut self) {
        if self.connection.is_some() && self.run("ROLLBACK", Step::Read).await.is_err() {
            self.give_up();
        }
    }

    pub(super) fn failure(&self, step: Step, cause: Cause) -> Failure {
        Failure::new(&self.store, step, cause)
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.connection.is_none()
    }

    /// Closes the connection without a word. The driver would first read what the server still has to say, for which it
    /// needs a runtime; a plain thread has none, so there it closes the socket, and does not wait.
    pub(super) fn give_up(&mut self) {
        if let Some(connection) = self.connection.take() {
            let dropping = std::thread::Builder::new().name("semel-mysql-drop".to_owned());
            // Without a thread to be had it is dropped here, and the driver takes its time over it.
            let _ = dropping.spawn(move || drop(connection));
        }
    }

    /// Says goodbye, for a second at most.
    pub(super) async fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = tokio::time::timeout(Duration::from_secs(1), connection.disconnect()).await;
        }
    }

    fn connection(&mut self, step: Step) -> Result<&mut Conn, Failure> {
        let store = &self.store;
        // Given up, nothing was sent on it.
        let step = if step == Step::Commit { Step::Read } else { step };
        let closed = || mysql_async::DriverError::ConnectionClosed.into();
        self.connection.as_mut().ok_or_else(|| Failure::new(store, step, Cause::Driver(closed())))
    }
}

fn positional(parameters: Vec<Value>) -> Params {
    if parameters.is_empty() { Params::Empty } else { Params::Positional(parameters) }
}

fn level(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadCommitted => "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        Isolation::RepeatableRead => "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    }
}
