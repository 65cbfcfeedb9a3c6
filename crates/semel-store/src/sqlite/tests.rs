//! What is seen only from inside: batches, the writer's failures, the plans of statements.

use std::path::PathBuf;

use rusqlite::Connection;
use semel::testing::{ManualClock, Random, random::each_seed, sample};
use semel::{Claim, View};
use tempfile::TempDir;

use super::*;
use crate::sqlite::writer::Verb;

mod batches;
mod migrated;
mod plans;
mod replays;
mod round_trip;
mod straight;
mod tables;

/// A new store in a directory of its own.
struct Fresh {
    store: SqliteStore,
    clock: ManualClock,
    directory: TempDir,
}

impl Fresh {
    fn new() -> Fresh {
        Fresh::with(Duration::from_secs(5))
    }

    fn with(busy_for: Duration) -> Fresh {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = ManualClock::new();
        let options = Options { clock: Arc::new(clock.clone()), migrate: true, busy_for };
        let store = SqliteStore::open(directory.path().join("semel.db"), &options).expect("a store");
        Fresh { store, clock, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("semel.db")
    }

    /// A connection of somebody else's.
    fn other(&self) -> Connection {
        Connection::open(self.path()).expect("a connection")
    }

    /// Has the writer's own connection run a pragma: the limits that a test sets belong to the connection.
    async fn pragma(&self, sql: &'static str) {
        self.store.writer.ask(Pragma(sql)).await.expect("it runs");
    }
}

/// The claim was given its lease.
#[track_caller]
fn took(answer: Result<Claim, StoreError>) {
    let _ = sample::lease(answer.expect("an answer"));
}

struct Pragma(&'static str);

impl Verb for Pragma {
    type Answer = ();

    fn apply(&self, rows: &mut rows::Rows<'_>, _: &dyn Clock) -> rusqlite::Result<()> {
        rows.connection().execute_batch(self.0)
    }
}
