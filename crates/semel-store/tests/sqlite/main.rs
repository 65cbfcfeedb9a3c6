//! The SQLite store from outside: files good and bad, several processes, kills, retention under load.

#![cfg(feature = "sqlite")]

mod child;
mod damage;
mod open;
mod processes;
mod retention;

use std::path::{Path, PathBuf};

use semel::testing::sample;
use semel::{Claim, Store};
use semel_store::{ConnectError, Options, SqliteStore};
use tempfile::TempDir;

/// A place for a file.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("a directory"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("semel.db")
    }

    fn store(&self) -> SqliteStore {
        open(&self.file()).expect("a store")
    }
}

/// Opens the file, and makes it if it is missing.
fn open(path: &Path) -> Result<SqliteStore, ConnectError> {
    SqliteStore::open(path, &Options { migrate: true, ..Options::default() })
}

/// Opens the file as it is.
fn open_as_it_is(path: &Path) -> Result<SqliteStore, ConnectError> {
    SqliteStore::open(path, &Options::default())
}

/// Claims a key and completes it with its own name.
async fn complete(store: &dyn Store, key: &str, number: u64) {
    let lease = sample::lease(store.claim(&sample::run(key, number)).await.expect("a claim"));
    store.settle(&lease, &sample::complete(key)).await.expect("a settlement");
}

/// What a claim of the key is told that runs nothing.
async fn replay(store: &dyn Store, key: &str) -> Claim {
    store.claim(&sample::run(key, u64::MAX)).await.expect("an answer")
}
