//! What is MySQL's own: what it is opened on, who waits for whom, and what happens when it does not answer.

#![cfg(feature = "mysql")]

mod exact;
mod faults;
mod interleavings;
mod opening;
mod packets;

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use semel::testing::sample;
use semel::{ClaimRequest, Lease, Store};
use semel_store::Options;
use semel_store::mysql::MysqlStore;

/// Long enough for a machine that does much else, where a test does not wait for it to pass.
const PATIENT: Duration = Duration::from_secs(60);

/// Short, where a test waits for it to pass.
const HASTY: Duration = Duration::from_millis(500);

/// Both are right, so both are tested.
const LEVELS: [&str; 2] = ["isolation=read-committed", "isolation=repeatable-read"];

async fn open_within(url: &str, busy_for: Duration) -> Result<MysqlStore, String> {
    let options = Options { busy_for, migrate: true, ..Options::default() };
    MysqlStore::open(url, &options).await.map_err(|error| error.to_string())
}

async fn open(url: &str) -> MysqlStore {
    open_within(url, PATIENT).await.expect("a store")
}

async fn acquire(store: &MysqlStore, request: &ClaimRequest) -> Lease {
    sample::lease(store.claim(request).await.expect("a claim is answered"))
}

/// A connection beside the store's, which can hold locks.
struct Other(Conn);

impl Other {
    async fn connect(url: &str) -> Other {
        let mut other = Other(Conn::from_url(url).await.expect("a connection"));
        // What it locks is what it names, and nothing around it.
        other.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
        other
    }

    async fn run(&mut self, sql: &str) {
        self.0.query_drop(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    async fn number(&mut self, sql: &str) -> u64 {
        let number: Option<u64> =
            self.0.query_first(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        number.unwrap_or_else(|| panic!("{sql}: no row"))
    }

    /// Begins a transaction that has the key's row.
    async fn hold(&mut self, key: &str) {
        self.run("START TRANSACTION").await;
        self.lock(key).await;
    }

    /// Takes the key's row, as the store does.
    async fn lock(&mut self, key: &str) {
        self.run(&format!(
            "SELECT id FROM semel_records FORCE INDEX (semel_records_key) WHERE `key` = '{key}' \
             AND scope = 'test:contract' FOR UPDATE"
        ))
        .await;
    }

    /// Begins a transaction that has claimed a key which is not there yet, as `template` is claimed.
    async fn claim(&mut self, template: &str, key: &str) {
        self.run("START TRANSACTION").await;
        self.run(&format!(
            "INSERT INTO semel_records (`key`, scope, state, due_at, fence, attempt, spent, attempts, algorithm, \
             digest, bound_by, doubt, first_at, since, label, lease_until, was, settles) SELECT '{key}', scope, state, \
             due_at, fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, first_at, since, label, \
             lease_until, was, settles FROM semel_records FORCE INDEX (semel_records_key) WHERE `key` = '{template}'"
        ))
        .await;
    }

    /// Lets the key's lease lapse.
    async fn lapse(&mut self, key: &str) {
        self.run(&format!(
            "UPDATE semel_records FORCE INDEX (semel_records_key) SET lease_until = lease_until - 3600000, due_at = due_at - 3600000 \
             WHERE `key` = '{key}'"
        ))
        .await;
    }

    /// Waits until so many transactions of the server wait for a lock. (`innodb_trx` would tell whose, but it is not
    /// made anew while somebody keeps asking.)
    async fn until_waiting(&mut self, transactions: u64) {
        let sql = "SELECT CAST(variable_value AS UNSIGNED) FROM information_schema.global_status \
                   WHERE variable_name = 'Innodb_row_lock_current_waits'";
        let until = tokio::time::Instant::now() + semel_testbed::DEADLINE;
        while self.number(sql).await < transactions {
            assert!(tokio::time::Instant::now() < until, "{transactions} transactions do not come to wait");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
