//! A store that writes into the ledger what the store behind it really did, in the order in which it did it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::ledger::Ledger;
use crate::environment::Clock;
use crate::key::{Key, Scope};
use crate::store::{Claim, ClaimRequest, Cursor, Entry, Lease, Settlement, Store, StoreError, Swept};
use crate::testing::clock::VirtualClock;

#[derive(Debug)]
pub(super) struct Witness {
    inner: Arc<dyn Store>,
    clock: VirtualClock,
    ledger: Ledger,
}

impl Witness {
    pub(super) fn new(inner: Arc<dyn Store>, clock: VirtualClock, ledger: Ledger) -> Witness {
        Witness { inner, clock, ledger }
    }
}

#[async_trait]
impl Store for Witness {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let answer = self.inner.claim(request).await?;
        self.ledger.claimed(request, &answer, self.clock.now());
        Ok(answer)
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        let result = self.inner.renew(lease, lease_for).await;
        self.ledger.renewed(lease, lease_for, result.is_ok(), self.clock.now());
        result
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        let result = self.inner.settle(lease, settlement).await;
        self.ledger.settled(lease, settlement, result.is_ok(), self.clock.now());
        result
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.inner.find(scope, key).await
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.inner.unsettled(after, limit).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        let swept = self.inner.sweep(limit).await?;
        self.ledger.swept(swept, self.clock.now());
        Ok(swept)
    }
}
