//! The memory store's harness.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::testing::{Harness, HistoryHarness, InspectHarness, ManualClock};
use semel::{History, Inspect, MemoryStore, Store};

#[derive(Debug, Default)]
pub(crate) struct Memory {
    clock: ManualClock,
    latest: Mutex<Option<Arc<MemoryStore>>>,
}

impl Memory {
    fn make(&self) -> Arc<MemoryStore> {
        let store = Arc::new(MemoryStore::with_clock(Arc::new(self.clock.clone())));
        *self.latest.lock().unwrap() = Some(store.clone());
        store
    }
}

#[async_trait]
impl Harness for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        self.make()
    }

    /// The data live in the store itself, so another handle is the same one.
    async fn reopen(&self) -> Arc<dyn Store> {
        self.latest.lock().unwrap().clone().expect("a store was opened")
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

#[async_trait]
impl HistoryHarness for Memory {
    async fn open_history(&self) -> Arc<dyn History> {
        self.make()
    }
}

#[async_trait]
impl InspectHarness for Memory {
    async fn open_inspect(&self) -> Arc<dyn Inspect> {
        self.make()
    }
}
