//! Ending what an attempt left open, and freeing space: what operators, probes and the program's own timers ask
//! of the engine. The same claim and the same settlement as everywhere, so an operator is fenced like a run.

use std::time::Duration;

use super::{Engine, Word};
use crate::key::{Key, Scope};
use crate::policy::Policy;
use crate::store::{
    Claim, ClaimRequest, Entry, Fence, Lease, Purpose, Settlement, StoreError, Swept, View, Was,
};

/// Whether a record could be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// It was settled.
    Done,
    /// It is no longer as it was seen, or was never open: nothing was changed. Look again.
    Moved,
}

impl Engine {
    /// Settles a record that was seen unknown, lapsed or dead; with `force` also one that runs.
    ///
    /// # Errors
    ///
    /// When the store does not answer in time, or refuses. The record is then put back as it was seen; if that is
    /// not answered either, it may be held until the lease, half a minute, is over, and reads as unknown (`lapsed`).
    pub async fn resolve(
        &self,
        seen: &Entry,
        settlement: &Settlement,
        force: bool,
    ) -> Result<Resolved, StoreError> {
        self.resolve_by(seen, settlement, force, &Word::default()).await
    }

    /// The same, with who resolves it and why for the key's history, where the store keeps one.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Engine::resolve).
    pub async fn resolve_by(
        &self,
        seen: &Entry,
        settlement: &Settlement,
        force: bool,
        word: &Word,
    ) -> Result<Resolved, StoreError> {
        let request = ClaimRequest {
            scope: seen.scope.clone(),
            key: seen.key.clone(),
            attempt: self.new_attempt(),
            purpose: Purpose::Settle { seen: seen.fence, force },
            lease_for: Duration::from_secs(30),
            label: seen.label.clone(),
            input: None,
        };
        match self.patiently("claim", self.patience.claim, || self.store.claim(&request)).await? {
            Claim::Acquired(lease) => {
                if let Err(error) = self.settle_within(self.patience.claim, &lease, settlement).await {
                    self.put_back(&lease, seen).await;
                    return Err(error);
                }
                self.note_word(&lease, settlement, word).await;
                Ok(Resolved::Done)
            }
            _ => Ok(Resolved::Moved),
        }
    }

    /// Leaves it as it was seen, with its first cause, where the store takes that: left alone it would read as lapsed.
    /// Safe, because it is a settlement like any other: where the one before did arrive, this one is refused.
    async fn put_back(&self, lease: &Lease, seen: &Entry) {
        let as_seen = match seen.view.clone() {
            View::Unknown { cause } => Settlement::Park { cause },
            View::Dead { cause } => Settlement::Bury { cause },
            _ => return,
        };
        if let Err(error) = self.settle_within(self.patience.settle, lease, &as_seen).await {
            tracing::debug!(%error, "a record that could not be resolved will read as lapsed");
        }
    }

    /// Whether the store can be read, and its way to a write is open: for readiness. It asks to renew a lease that
    /// nobody has, which waits its turn among the writes and changes nothing. A full disk is not noticed.
    ///
    /// # Errors
    ///
    /// When it cannot.
    pub async fn check(&self) -> Result<(), StoreError> {
        let (scope, key) = (Scope::new("semel:check"), Key::new("check"));
        let (Ok(scope), Ok(key)) = (scope, key) else { unreachable!("both are short and plain") };
        self.bounded("find", self.store.find(&scope, &key)).await?;
        let (attempt, fence) = (self.new_attempt(), Fence(0));
        let nobodys = Lease { scope, key, fence, attempt, attempts: 0, was: Was::New, doubt: false };
        match self.bounded("renew", self.store.renew(&nobodys, Policy::LEASE_MIN)).await {
            Ok(()) | Err(StoreError::LeaseLost) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Frees space, at most `limit` records.
    ///
    /// # Errors
    ///
    /// When the store does not answer.
    pub async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        self.bounded("sweep", self.store.sweep(limit)).await
    }
}
