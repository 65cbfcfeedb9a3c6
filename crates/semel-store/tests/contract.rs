//! Every store keeps the contract: one harness each, one suite.

#![cfg(feature = "sqlite")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::testing::random::each_seed;
use semel::testing::{Harness, HistoryHarness, InspectHarness, ManualClock, model, run};
use semel::{History, Inspect, Store};
use semel_store::{Options, SqliteStore};
use tempfile::TempDir;

/// SQLite files in a directory of their own, on a clock that stands still.
struct Sqlite {
    clock: ManualClock,
    directory: TempDir,
    opened: Mutex<u32>,
}

impl Sqlite {
    /// In memory where the system offers that: these tests are about answers, not about what survives a power
    /// failure, and a disk that syncs makes them ten times slower.
    fn new() -> Sqlite {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let directory = directory.expect("a directory");
        Sqlite { clock: ManualClock::new(), directory, opened: Mutex::new(0) }
    }

    fn latest(&self) -> PathBuf {
        self.directory.path().join(format!("{}.db", self.opened.lock().expect("a number")))
    }

    fn handle(&self) -> Arc<SqliteStore> {
        let options = Options { clock: Arc::new(self.clock.clone()), migrate: true, ..Options::default() };
        Arc::new(SqliteStore::open(self.latest(), &options).expect("a store"))
    }

    fn fresh(&self) -> Arc<SqliteStore> {
        *self.opened.lock().expect("a number") += 1;
        self.handle()
    }
}

#[async_trait]
impl Harness for Sqlite {
    async fn open(&self) -> Arc<dyn Store> {
        self.fresh()
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.handle()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

#[async_trait]
impl HistoryHarness for Sqlite {
    async fn open_history(&self) -> Arc<dyn History> {
        self.fresh()
    }
}

#[async_trait]
impl InspectHarness for Sqlite {
    async fn open_inspect(&self) -> Arc<dyn Inspect> {
        self.fresh()
    }
}

mod sqlite {
    use super::*;

    semel::contract_suite!(Sqlite::new());
    semel::inspect_suite!(Sqlite::new());
    semel::history_suite!(Sqlite::new());

    #[test]
    fn random_histories_answer_as_the_model_does() {
        each_seed(200, |seed| run(model::compare(&Sqlite::new(), seed)));
    }
}
