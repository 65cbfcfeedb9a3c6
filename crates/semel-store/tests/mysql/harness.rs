//! A database of its own on a real server, for the suites.
//!
//! The server's clock runs by itself. To move it, every instant of the records is moved back: the store has no other hook.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use semel::testing::{Harness, HistoryHarness, InspectHarness};
use semel::{History, Inspect, Store};
use semel_store::Options;
use semel_store::mysql::MysqlStore;
use semel_testbed::Database;
use tokio::sync::Mutex;

/// What a harness opens.
pub(crate) struct Server {
    /// Behind the database's URL: the store's parameters.
    parameters: &'static str,
    /// Whether each store has the same tables, emptied, in place of new ones.
    is_reused: bool,
    /// The latest last.
    opened: Mutex<Vec<Opened>>,
}

struct Opened {
    database: Database,
    /// `None` where another runtime has it.
    shifting: Option<(tokio::runtime::Id, Conn)>,
}

const MOVE: [&str; 2] = [
    "UPDATE semel_records SET first_at = first_at - ?, since = since - ?, due_at = due_at - IF(due_at = @never, 0, ?), \
     lease_until = lease_until - IF(lease_until = @never, 0, ?), \
     not_before = not_before - IF(not_before = @never, 0, ?), \
     replay_until = replay_until - IF(replay_until = @never, 0, ?), \
     forget_at = forget_at - IF(forget_at = @never, 0, ?)",
    "UPDATE semel_history SET at = at - ?",
];

impl Server {
    /// A new database for each store.
    pub(crate) fn new(parameters: &'static str) -> Server {
        Server { parameters, is_reused: false, opened: Mutex::new(Vec::new()) }
    }

    /// The same database for all, emptied.
    pub(crate) fn reused(parameters: &'static str) -> Server {
        Server { is_reused: true, ..Server::new(parameters) }
    }

    async fn fresh(&self) -> Arc<MysqlStore> {
        let mut opened = self.opened.lock().await;
        if self.is_reused
            && let Some(opened) = opened.last_mut()
        {
            let connection = opened.connection().await;
            connection.query_drop("DELETE FROM semel_history").await.expect("an empty table");
            connection.query_drop("DELETE FROM semel_records").await.expect("an empty table");
        } else {
            opened.push(Opened { database: semel_testbed::mariadb().await, shifting: None });
        }
        drop(opened);
        self.handle().await
    }

    async fn handle(&self) -> Arc<MysqlStore> {
        let opened = self.opened.lock().await;
        let url = opened.last().expect("a store was opened").database.url();
        let options = Options { migrate: true, ..Options::default() };
        let store = MysqlStore::open(&format!("{url}{}", self.parameters), &options).await;
        Arc::new(store.expect("a store"))
    }
}

impl Opened {
    async fn connection(&mut self) -> &mut Conn {
        let here = tokio::runtime::Handle::current().id();
        if self.shifting.as_ref().is_none_or(|(runtime, _)| *runtime != here) {
            let mut connection = Conn::from_url(self.database.url()).await.expect("a connection");
            connection.query_drop("SET @never = 9223372036854775807").await.expect("a variable");
            self.shifting = Some((here, connection));
        }
        &mut self.shifting.as_mut().expect("it was just made").1
    }
}

#[async_trait]
impl Harness for Server {
    async fn open(&self) -> Arc<dyn Store> {
        self.fresh().await
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.handle().await
    }

    async fn advance(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).expect("a time");
        for opened in self.opened.lock().await.iter_mut() {
            let connection = opened.connection().await;
            for sql in MOVE {
                let parameters = vec![millis; sql.matches('?').count()];
                connection.exec_drop(sql, parameters).await.expect("the records are moved");
            }
        }
    }

    /// Below the smallest time of the suites, above what a busy machine takes for a clause.
    fn tolerance(&self) -> Duration {
        Duration::from_secs(4)
    }
}

#[async_trait]
impl InspectHarness for Server {
    async fn open_inspect(&self) -> Arc<dyn Inspect> {
        self.fresh().await
    }
}

#[async_trait]
impl HistoryHarness for Server {
    async fn open_history(&self) -> Arc<dyn History> {
        self.fresh().await
    }
}
