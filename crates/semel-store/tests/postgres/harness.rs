//! Databases on a PostgreSQL of this test run's own. The server's clock cannot be moved, so what is stored is moved back.

#![allow(dead_code, reason = "each test file takes what it needs")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::testing::{Harness, HistoryHarness, InspectHarness};
use semel::{History, Inspect, Store};
use semel_store::Options;
use semel_store::postgres::PostgresStore;
use semel_testbed::Database;
use tokio_postgres::{Client, NoTls};

/// How the store works on the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By the functions of the schema.
    Functions,
    /// By plain statements.
    Tables,
}

/// The databases that were opened here, a store on each.
pub(crate) struct Pg {
    mode: Mode,
    /// Empties the one database instead of making another one: for many tests in turn.
    reuses: bool,
    opened: Mutex<Vec<Arc<Opened>>>,
}

/// A database.
pub(crate) struct Opened {
    pub(crate) database: Database,
    pub(crate) control: Client,
    pub(crate) store: Arc<PostgresStore>,
}

/// Every instant that is kept. "For ever" stays.
const SHIFT: &str = "WITH past AS (UPDATE semel.history SET at = at - $1) \
     UPDATE semel.records SET first_at = first_at - $1, since = since - $1, \
     open_at = CASE open_at WHEN 9223372036854775807 THEN open_at ELSE open_at - $1 END, \
     not_before = CASE not_before WHEN 9223372036854775807 THEN not_before ELSE not_before - $1 END, \
     replay_until = CASE replay_until WHEN 9223372036854775807 THEN replay_until ELSE replay_until - $1 END, \
     forget_at = CASE forget_at WHEN 9223372036854775807 THEN forget_at ELSE forget_at - $1 END";

impl Pg {
    pub(crate) fn new(mode: Mode) -> Pg {
        Pg { mode, reuses: false, opened: Mutex::default() }
    }

    pub(crate) fn reusing(mode: Mode) -> Pg {
        Pg { reuses: true, ..Pg::new(mode) }
    }

    fn latest(&self) -> Option<Arc<Opened>> {
        self.opened.lock().expect("what is open").last().cloned()
    }

    /// The store keeps nothing in memory, so it may be used on once its tables are empty.
    pub(crate) async fn fresh(&self) -> Arc<Opened> {
        if let Some(opened) = self.latest().filter(|_| self.reuses) {
            let sql = "DELETE FROM semel.records; DELETE FROM semel.outcomes; DELETE FROM semel.history";
            opened.control.batch_execute(sql).await.expect("the tables are emptied");
            return opened;
        }
        let opened = Arc::new(opened(semel_testbed::postgres().await, self.mode).await);
        self.opened.lock().expect("what is open").push(Arc::clone(&opened));
        opened
    }
}

pub(crate) async fn opened(database: Database, mode: Mode) -> Opened {
    let control = control(database.url()).await;
    let store = open(&with_mode(database.url(), mode)).await;
    Opened { database, control, store }
}

/// A store, whose schema is made if need be.
pub(crate) async fn open(url: &str) -> Arc<PostgresStore> {
    // A machine that is busy with many tests takes its time.
    let options = Options { migrate: true, busy_for: Duration::from_secs(60), ..Options::default() };
    Arc::new(PostgresStore::open(url, &options).await.unwrap_or_else(|error| panic!("{error}")))
}

/// A connection of the test's own.
pub(crate) async fn control(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

pub(crate) fn with_mode(url: &str, mode: Mode) -> String {
    match mode {
        Mode::Functions => url.to_owned(),
        Mode::Tables => format!("{url}?functions=off"),
    }
}

#[async_trait]
impl Harness for Pg {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::clone(&self.fresh().await.store) as _
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        let latest = self.latest().expect("a store is open");
        open(&with_mode(latest.database.url(), self.mode)).await
    }

    async fn advance(&self, by: Duration) {
        let ms = i64::try_from(by.as_millis()).expect("a time");
        let opened = self.opened.lock().expect("what is open").clone();
        for one in opened {
            one.control.execute(SHIFT, &[&ms]).await.expect("what is stored is moved back");
        }
    }

    fn tolerance(&self) -> Duration {
        Duration::from_secs(5)
    }
}

#[async_trait]
impl InspectHarness for Pg {
    async fn open_inspect(&self) -> Arc<dyn Inspect> {
        Arc::clone(&self.fresh().await.store) as _
    }
}

#[async_trait]
impl HistoryHarness for Pg {
    async fn open_history(&self) -> Arc<dyn History> {
        Arc::clone(&self.fresh().await.store) as _
    }
}
