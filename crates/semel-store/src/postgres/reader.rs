//! A connection beside the lanes, for what decides nothing: reads, and sweeps, which do not hold them up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::address::Address;
use super::error::{Failure, Kind};
use super::link::Link;
use super::session::Session;

/// Longer than a listing of many rows takes.
const ANSWER_FOR: Duration = Duration::from_secs(30);

/// Connects when it is first asked.
pub(super) struct Reader {
    link: Mutex<Link>,
    busy_for: Duration,
}

impl Reader {
    pub(super) fn new(address: &Arc<Address>, busy_for: Duration) -> Reader {
        Reader { link: Mutex::new(Link::new(Arc::clone(address))), busy_for }
    }

    /// Reads. A statement whose connection breaks is sent once more.
    pub(super) async fn rows(
        &self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Failure> {
        match self.once(sql, parameters).await {
            Err(failure) if failure.ends_connection() => self.once(sql, parameters).await,
            other => other,
        }
        .map_err(Failure::of_a_read)
    }

    /// Sends the statement once: for what writes.
    pub(super) async fn once(
        &self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Failure> {
        let client = self.client().await?;
        let rows = match timeout(ANSWER_FOR, client.query_typed(sql, parameters)).await {
            Ok(rows) => rows.map_err(Failure::server),
            Err(_) => Err(Failure::said(Kind::Indeterminate, "the server does not answer")),
        };
        if rows.as_ref().is_err_and(Failure::ends_connection) {
            self.link.lock().await.drop_client_if(&client);
        }
        rows
    }

    /// Locked only while connecting: statements share the connection.
    async fn client(&self) -> Result<Arc<Session>, Failure> {
        let until = Instant::now() + self.busy_for;
        match timeout(self.busy_for, self.link.lock()).await {
            Ok(mut link) => link.client(until).await,
            Err(_) => Err(Failure::said(Kind::Unavailable, "the server cannot be reached in time")),
        }
    }
}
