//! The ledger on SQLite. Workers die within the step, with its answer known or lost; a "server" that is killed is all
//! connections at once, and what they had open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rusqlite::Connection;
use semel::testing::Random;
use semel::{BoxError, Once, Outcome};
use semel_store::sqlite::once;

use super::{Place, begin, connection};
use crate::ledger::{self, Bank, Deposit};
use crate::operation::operation;

/// Where a deposit may die.
const POINTS: u64 = 4;
const AFTER_CLAIM: u64 = 0;
const AFTER_EFFECT: u64 = 1;
const BEFORE_COMMIT: u64 = 2;
const AFTER_COMMIT: u64 = 3;

struct InSqlite {
    file: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    random: Mutex<Random>,
    /// So many of the next deposits die.
    doomed: AtomicU64,
    /// Connections of an earlier one are dead.
    generation: AtomicU64,
    deaths: AtomicU64,
}

struct Open {
    connection: Connection,
    generation: u64,
}

impl Shared {
    /// The point at which this deposit dies, if it does.
    fn fate(&self) -> Option<u64> {
        let take = |doomed: u64| doomed.checked_sub(1);
        self.doomed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()?;
        Some(self.random.lock().expect("a number").below(POINTS))
    }

    fn live(&self, open: &Open, fate: Option<u64>, point: u64) -> Result<(), BoxError> {
        let is_dead = fate == Some(point) || open.generation != self.generation.load(Ordering::SeqCst);
        if is_dead {
            self.deaths.fetch_add(1, Ordering::SeqCst);
            return Err(format!("died at {point}").into());
        }
        Ok(())
    }

    /// What is open when this fails is dropped with everything in it.
    fn deposit(&self, open: &mut Open, deposit: &Deposit) -> Result<Outcome, BoxError> {
        let fate = self.fate();
        let mut connection = std::mem::replace(&mut open.connection, Connection::open_in_memory()?);
        let tx = begin(&mut connection);
        let outcome = match once(tx, &operation(&deposit.key))? {
            Once::Run(run) => {
                self.live(open, fate, AFTER_CLAIM)?;
                let sql = "UPDATE account SET balance = balance + ?1 WHERE id = ?2";
                run.execute(sql, (deposit.amount, deposit.account))?;
                self.live(open, fate, AFTER_EFFECT)?;
                let tx = run.complete(deposit.receipt())?;
                self.live(open, fate, BEFORE_COMMIT)?;
                tx.commit()?;
                deposit.receipt()
            }
            Once::Replay { outcome, .. } => outcome,
            other => panic!("not in a ledger of transactions alone: {other:?}"),
        };
        self.live(open, fate, AFTER_COMMIT)?;
        open.connection = connection;
        Ok(outcome)
    }
}

#[async_trait]
impl Bank for InSqlite {
    type Connection = Open;

    async fn connect(&self) -> Result<Open, BoxError> {
        let generation = self.shared.generation.load(Ordering::SeqCst);
        Ok(Open { connection: connection(&self.file), generation })
    }

    /// On a thread of its own, which goes on when its worker is killed: the delivery comes again meanwhile.
    async fn deposit(&self, open: &mut Open, deposit: &Deposit) -> Result<Option<Outcome>, BoxError> {
        let (shared, deposit) = (Arc::clone(&self.shared), deposit.clone());
        let spare = Open { connection: Connection::open_in_memory()?, generation: open.generation };
        let mut taken = std::mem::replace(open, spare);
        let made = move || shared.deposit(&mut taken, &deposit).map(|outcome| (taken, outcome));
        let (taken, outcome) = tokio::task::spawn_blocking(made).await??;
        *open = taken;
        Ok(Some(outcome))
    }

    async fn kill_connection(&self, random: u64) {
        self.shared.doomed.fetch_add(1 + random % 3, Ordering::SeqCst);
    }

    async fn kill_server(&self) {
        self.shared.generation.fetch_add(1, Ordering::SeqCst);
    }

    async fn balances(&self) -> BTreeMap<i64, i64> {
        let connection = connection(&self.file);
        let mut select = connection.prepare("SELECT id, balance FROM account").expect("a statement");
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        rows.map(|row| row.expect("an account")).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x1_the_ledger_comes_out_exact_on_sqlite() {
    let place = Place::new();
    let accounts = "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT;
        WITH RECURSIVE n (id) AS (VALUES (0) UNION ALL SELECT id + 1 FROM n WHERE id < 19)
        INSERT INTO account SELECT id, 0 FROM n;";
    place.connection().execute_batch(accounts).expect("accounts");
    let shared = Arc::new(Shared {
        random: Mutex::new(Random::new(ledger::seed())),
        doomed: AtomicU64::new(0),
        generation: AtomicU64::new(0),
        deaths: AtomicU64::new(0),
    });
    let bank = InSqlite { file: place.file(), shared: Arc::clone(&shared) };
    ledger::run(bank, ledger::operations(), ledger::seed()).await;
    assert!(shared.deaths.load(Ordering::SeqCst) > 10, "they died within the step");
}
