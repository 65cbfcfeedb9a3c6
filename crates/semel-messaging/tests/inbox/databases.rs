//! The databases that an inbox works on: for each, how to get transactions, what the effect is, and how to count it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mysql_async::prelude::Queryable;
use semel::{InTransaction, Savepoints, Transactions};
use semel_messaging::Failure;
use semel_store::postgres::{Begun, Clients};
use semel_store::{mysql, sqlite};
use semel_testbed::Database;
use tokio_postgres::{Client, NoTls};

pub(crate) type Tx<D> = <<<D as Books>::From as Transactions>::Tx as InTransaction>::Handle;

/// A database with a table of effects.
#[async_trait]
pub(crate) trait Books: Sized + Send + Sync + 'static {
    type From: Transactions<Tx: Savepoints>;

    async fn new() -> Self;

    /// None can be had while the database is away.
    fn transactions(&self, away: Arc<AtomicBool>) -> Self::From;

    /// The effect.
    fn book<'t>(tx: &'t mut Tx<Self>, id: &str) -> BoxFuture<'t, Result<(), Failure>>;

    /// All effects, by their ids.
    async fn booked(&self) -> Vec<String>;
}

const TABLE: &str = "CREATE TABLE effect (id varchar(100) NOT NULL)";
const BOOKED: &str = "SELECT id FROM effect ORDER BY id";

pub(crate) struct OnPostgres {
    database: Database,
    control: Client,
}

async fn connect(url: String) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[async_trait]
impl Books for OnPostgres {
    type From = Clients<Client>;

    async fn new() -> OnPostgres {
        let database = semel_testbed::postgres().await;
        semel_store::migrations(database.url()).expect("a schema").migrate().await.expect("migrated");
        let control = connect(database.url().to_owned()).await.expect("a connection");
        control.batch_execute(TABLE).await.expect("a table");
        OnPostgres { database, control }
    }

    fn transactions(&self, away: Arc<AtomicBool>) -> Clients<Client> {
        let url = self.database.url().to_owned();
        let take = move || {
            let (url, away) = (url.clone(), away.clone());
            async move {
                if away.load(Ordering::SeqCst) {
                    return Err("the database is away, says the test".into());
                }
                Ok(connect(url).await?)
            }
            .boxed()
        };
        Clients::new(take, |client: &Client| client)
    }

    fn book<'t>(tx: &'t mut Begun<Client>, id: &str) -> BoxFuture<'t, Result<(), Failure>> {
        let id = id.to_owned();
        async move {
            tx.execute("INSERT INTO effect (id) VALUES ($1)", &[&id]).await?;
            Ok(())
        }
        .boxed()
    }

    async fn booked(&self) -> Vec<String> {
        let rows = self.control.query(BOOKED, &[]).await.expect("rows");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

pub(crate) struct OnMariadb {
    pool: mysql_async::Pool,
    _database: Database,
}

#[async_trait]
impl Books for OnMariadb {
    type From = Away<mysql::Pool>;

    async fn new() -> OnMariadb {
        let database = semel_testbed::mariadb().await;
        semel_store::migrations(database.url()).expect("a schema").migrate().await.expect("migrated");
        let pool = mysql_async::Pool::new(database.url());
        pool.get_conn().await.expect("a connection").query_drop(TABLE).await.expect("a table");
        OnMariadb { pool, _database: database }
    }

    fn transactions(&self, away: Arc<AtomicBool>) -> Away<mysql::Pool> {
        Away { inner: mysql::Pool::new(self.pool.clone()), away }
    }

    fn book<'t>(
        tx: &'t mut mysql_async::Transaction<'static>,
        id: &str,
    ) -> BoxFuture<'t, Result<(), Failure>> {
        let id = id.to_owned();
        async move {
            tx.exec_drop("INSERT INTO effect (id) VALUES (?)", (id,)).await?;
            Ok(())
        }
        .boxed()
    }

    async fn booked(&self) -> Vec<String> {
        self.pool.get_conn().await.expect("a connection").query(BOOKED).await.expect("rows")
    }
}

pub(crate) struct OnSqlite {
    folder: tempfile::TempDir,
}

impl OnSqlite {
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("inbox.db")
    }
}

#[async_trait]
impl Books for OnSqlite {
    type From = Away<sqlite::Connections>;

    async fn new() -> OnSqlite {
        let on = OnSqlite { folder: tempfile::tempdir().expect("a folder") };
        let url = format!("sqlite://{}", on.path().display());
        semel_store::migrations(&url).expect("a schema").migrate().await.expect("migrated");
        rusqlite::Connection::open(on.path()).expect("a file").execute_batch(TABLE).expect("a table");
        on
    }

    fn transactions(&self, away: Arc<AtomicBool>) -> Away<sqlite::Connections> {
        let path = self.path();
        let inner = sqlite::Connections::new(move || rusqlite::Connection::open(&path));
        Away { inner, away }
    }

    fn book<'t>(tx: &'t mut rusqlite::Connection, id: &str) -> BoxFuture<'t, Result<(), Failure>> {
        let id = id.to_owned();
        async move {
            tx.execute("INSERT INTO effect (id) VALUES (?1)", [id])?;
            Ok(())
        }
        .boxed()
    }

    async fn booked(&self) -> Vec<String> {
        let file = rusqlite::Connection::open(self.path()).expect("a file");
        let mut rows = file.prepare(BOOKED).expect("a statement");
        let rows = rows.query_map([], |row| row.get(0)).expect("rows");
        rows.map(|row| row.expect("a row")).collect()
    }
}

/// Transactions that cannot be had for a while.
#[derive(Debug)]
pub(crate) struct Away<D> {
    inner: D,
    away: Arc<AtomicBool>,
}

#[async_trait]
impl<D: Transactions> Transactions for Away<D> {
    type Tx = D::Tx;

    async fn begin(&self) -> Result<D::Tx, semel::TransactionError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(semel::TransactionError::Unavailable("the database is away, says the test".into()));
        }
        self.inner.begin().await
    }

    async fn commit(&self, tx: D::Tx) -> Result<(), semel::CommitError> {
        self.inner.commit(tx).await
    }

    fn is_restart(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.inner.is_restart(error)
    }
}
