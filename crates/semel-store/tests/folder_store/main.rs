//! `docs/adding-a-store.md`, followed by hand: a store that keeps each key in a file, and its proof.

mod codec;
mod store;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use semel::Store;
use semel::StoreError;
use semel::testing::random::each_seed;
use semel::testing::{Harness, ManualClock, model, run, sample};
use tempfile::TempDir;

use store::FolderStore;

struct Folders {
    clock: ManualClock,
    directory: TempDir,
    opened: AtomicU32,
}

impl Folders {
    /// In memory where the system offers that: these tests are about answers, and every call waits for the disk twice.
    fn new() -> Folders {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let directory = directory.expect("a directory");
        Folders { clock: ManualClock::new(), directory, opened: AtomicU32::new(0) }
    }

    fn latest(&self) -> std::path::PathBuf {
        self.directory.path().join(self.opened.load(Ordering::SeqCst).to_string())
    }

    fn handle(&self) -> Arc<FolderStore> {
        Arc::new(FolderStore::open(&self.latest(), Arc::new(self.clock.clone())))
    }
}

#[async_trait]
impl Harness for Folders {
    async fn open(&self) -> Arc<dyn Store> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        std::fs::create_dir(self.latest()).expect("a folder");
        self.handle()
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.handle()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

mod contract {
    use super::*;

    semel::contract_suite!(Folders::new());
}

#[test]
fn random_histories_answer_as_the_model_does() {
    each_seed(100, |seed| run(model::compare(&Folders::new(), seed)));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_corrupt_and_no_absent_key() {
    let folders = Folders::new();
    let store = folders.open().await;
    store.claim(&sample::run("k", 1)).await.expect("a lease");
    let files =
        std::fs::read_dir(folders.latest()).expect("a folder").map(|file| file.expect("a file").path());
    for record in files.filter(|file| file.extension().is_some_and(|kind| kind == "record")) {
        std::fs::write(record, "{}").expect("a torn file");
    }
    let answer = store.claim(&sample::run("k", 2)).await;
    assert!(matches!(answer, Err(StoreError::Corrupt(_))), "{answer:?}");
}

/// The page shows this very code.
#[test]
fn the_page_shows_what_is_tested_here() {
    let page = include_str!("../../../../docs/adding-a-store.md");
    let code = [include_str!("store.rs"), include_str!("main.rs")];
    let blocks: Vec<_> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 5, "{} blocks", blocks.len());
    for block in blocks {
        assert!(code.iter().any(|code| code.contains(block)), "not in tests/folder_store:\n{block}");
    }
}
