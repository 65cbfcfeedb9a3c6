//! The ledger on each database.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use semel::{BoxError, Once, Outcome, Twin};
use semel_store::{mysql, postgres};
use semel_testbed::{Mariadb, Postgres};
use tokio_postgres::{Client, NoTls};

use crate::ledger::{self, Bank, Deposit};
use crate::operation::operation;

struct InPostgres(Postgres);

async fn client(url: &str) -> Result<Client, BoxError> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[async_trait]
impl Bank for InPostgres {
    type Connection = Client;

    async fn connect(&self) -> Result<Client, BoxError> {
        client(&self.0.url()).await
    }

    async fn deposit(&self, client: &mut Client, deposit: &Deposit) -> Result<Option<Outcome>, BoxError> {
        let tx = client.transaction().await?;
        match postgres::once(tx, &operation(&deposit.key), Twin::Wait).await? {
            Once::Run(run) => {
                let sql = "UPDATE account SET balance = balance + $1 WHERE id = $2";
                run.execute(sql, &[&deposit.amount, &deposit.account]).await?;
                run.complete(deposit.receipt()).await?.commit().await?;
                Ok(Some(deposit.receipt()))
            }
            Once::Replay { outcome, .. } => Ok(Some(outcome)),
            other => panic!("not in a ledger of transactions alone: {other:?}"),
        }
    }

    async fn kill_connection(&self, random: u64) {
        let Ok(control) = self.connect().await else { return };
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
                   AND pid <> pg_backend_pid() ORDER BY pid OFFSET $1 LIMIT 1";
        let _ = control.query(sql, &[&i64::try_from(random % 16).expect("small")]).await;
    }

    async fn kill_server(&self) {
        self.0.kill().await;
        self.0.restart().await;
    }

    async fn balances(&self) -> BTreeMap<i64, i64> {
        let client = self.connect().await.expect("a connection");
        let rows = client.query("SELECT id, balance FROM account", &[]).await.expect("rows");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

const ACCOUNTS: &str = "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_the_ledger_comes_out_exact_on_postgresql() {
    let server = Postgres::start().await;
    semel_store::migrations(&server.url()).expect("a schema").migrate().await.expect("migrated");
    let control = client(&server.url()).await.expect("a connection");
    control.batch_execute(ACCOUNTS).await.expect("a table");
    control
        .batch_execute("INSERT INTO account SELECT id, 0 FROM generate_series(0, 19) AS id")
        .await
        .expect("accounts");
    ledger::run(InPostgres(server), ledger::operations(), ledger::seed()).await;
}

struct InMariadb(Mariadb);

#[async_trait]
impl Bank for InMariadb {
    type Connection = Conn;

    async fn connect(&self) -> Result<Conn, BoxError> {
        Ok(Conn::from_url(self.0.url()).await?)
    }

    async fn deposit(&self, connection: &mut Conn, deposit: &Deposit) -> Result<Option<Outcome>, BoxError> {
        let tx = connection.start_transaction(TxOpts::default()).await?;
        match mysql::once(tx, &operation(&deposit.key), Twin::Wait).await? {
            Once::Run(mut run) => {
                let sql = "UPDATE account SET balance = balance + ? WHERE id = ?";
                run.exec_drop(sql, (deposit.amount, deposit.account)).await?;
                run.complete(deposit.receipt()).await?.commit().await?;
                Ok(Some(deposit.receipt()))
            }
            Once::Replay { outcome, tx, .. } => {
                tx.rollback().await?;
                Ok(Some(outcome))
            }
            other => panic!("not in a ledger of transactions alone: {other:?}"),
        }
    }

    async fn kill_connection(&self, random: u64) {
        let Ok(mut control) = Conn::from_url(self.0.url()).await else { return };
        let sql = "SELECT id FROM information_schema.processlist WHERE db IS NOT NULL AND id <> CONNECTION_ID() ORDER BY id";
        let Ok(ids) = control.query::<u64, _>(sql).await else { return };
        if !ids.is_empty() {
            let id = ids[usize::try_from(random).unwrap_or(0) % ids.len()];
            let _ = control.query_drop(format!("KILL {id}")).await;
        }
    }

    async fn kill_server(&self) {
        self.0.kill().await;
        self.0.restart().await;
    }

    async fn balances(&self) -> BTreeMap<i64, i64> {
        let mut connection = Conn::from_url(self.0.url()).await.expect("a connection");
        let rows: Vec<(i64, i64)> = connection.query("SELECT id, balance FROM account").await.expect("rows");
        rows.into_iter().collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_the_ledger_comes_out_exact_on_mariadb() {
    let server = Mariadb::start().await;
    semel_store::migrations(&server.url()).expect("a schema").migrate().await.expect("migrated");
    let mut control = Conn::from_url(server.url()).await.expect("a connection");
    control.query_drop(ACCOUNTS).await.expect("a table");
    for id in 0..20 {
        control.query_drop(format!("INSERT INTO account VALUES ({id}, 0)")).await.expect("an account");
    }
    ledger::run(InMariadb(server), ledger::operations(), ledger::seed()).await;
}
