//! A database with one writer: a transaction holds the lock from its begin, and what it wrote appears at its commit.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use semel::record::{self, Record, Unfit};
use semel::testing::clock::ManualClock;
use semel::{
    Claim, ClaimRequest, Clock, CommitError, InTransaction, Key, Lease, Scope, Settlement, TransactionError,
    Transactions, Twin,
};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// What is committed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Content {
    pub(crate) records: HashMap<(Scope, Key), Record>,
    pub(crate) effects: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Database {
    content: Arc<Mutex<Content>>,
    pub(crate) clock: ManualClock,
    pub(crate) faults: Arc<Faults>,
}

/// How often each of these is still to happen.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// BEGIN says that it must be run again.
    pub(crate) begin: AtomicU32,
    /// COMMIT says that it was rolled back for another transaction.
    pub(crate) serialize: AtomicU32,
    /// COMMIT happens, and is not answered.
    pub(crate) answer_lost: AtomicU32,
    /// COMMIT does not arrive.
    pub(crate) commit_lost: AtomicU32,
}

pub(crate) fn takes(fault: &AtomicU32) -> bool {
    fault.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// An open transaction. Dropped, it never was.
#[derive(Debug)]
pub(crate) struct Tx {
    committed: OwnedMutexGuard<Content>,
    pub(crate) draft: Content,
    clock: ManualClock,
}

impl Database {
    pub(crate) async fn begin(&self) -> Tx {
        let committed = Arc::clone(&self.content).lock_owned().await;
        Tx { draft: committed.clone(), committed, clock: self.clock.clone() }
    }

    pub(crate) async fn effects(&self) -> Vec<String> {
        self.content.lock().await.effects.clone()
    }

    pub(crate) async fn is_empty(&self) -> bool {
        self.content.lock().await.records.is_empty()
    }
}

impl Tx {
    pub(crate) fn commit(mut self) {
        *self.committed = std::mem::take(&mut self.draft);
    }
}

/// What a statement of the caller's fails with when another transaction was in the way.
#[derive(Debug, thiserror::Error)]
#[error("serialization failure")]
pub(crate) struct Conflict;

/// The wrapper that a store has.
#[derive(Debug)]
pub(crate) struct In(pub(crate) Tx);

#[async_trait]
impl InTransaction for In {
    type Handle = Tx;

    fn handle(&self) -> &Tx {
        &self.0
    }

    fn handle_mut(&mut self) -> &mut Tx {
        &mut self.0
    }

    fn into_handle(self) -> Tx {
        self.0
    }

    async fn claim_in(&mut self, requests: &[ClaimRequest], _: Twin) -> Result<Vec<Claim>, TransactionError> {
        Ok(requests.iter().map(|request| self.0.claim(request)).collect())
    }

    async fn settle_in(&mut self, settled: &[(Lease, Settlement)]) -> Result<(), TransactionError> {
        settled.iter().try_for_each(|(lease, settlement)| self.0.settle(lease, settlement))
    }
}

impl Tx {
    fn claim(&mut self, request: &ClaimRequest) -> Claim {
        let at = (request.scope.clone(), request.key.clone());
        let (write, answer) = record::claim(self.draft.records.get(&at), request, self.clock.now());
        if let Some(new) = write {
            self.draft.records.insert(at, new);
        }
        answer
    }

    fn settle(&mut self, lease: &Lease, settlement: &Settlement) -> Result<(), TransactionError> {
        let at = (lease.scope.clone(), lease.key.clone());
        match record::settle(self.draft.records.get(&at), lease, settlement, self.clock.now()) {
            Ok(Some(new)) => drop(self.draft.records.insert(at, new)),
            Ok(None) => {}
            Err(Unfit::LeaseLost) => return Err(TransactionError::LeaseLost),
            Err(unfit) => return Err(TransactionError::Refused(Box::new(unfit))),
        }
        Ok(())
    }
}

#[async_trait]
impl Transactions for Database {
    type Tx = In;

    async fn begin(&self) -> Result<In, TransactionError> {
        if takes(&self.faults.begin) {
            return Err(TransactionError::Restart(Box::new(Conflict)));
        }
        Ok(In(Database::begin(self).await))
    }

    async fn commit(&self, tx: In) -> Result<(), CommitError> {
        if takes(&self.faults.serialize) {
            return Err(CommitError::RolledBack(TransactionError::Restart(Box::new(Conflict))));
        }
        if takes(&self.faults.commit_lost) {
            return Err(CommitError::Unanswered("cut before it arrived".into()));
        }
        tx.0.commit();
        if takes(&self.faults.answer_lost) {
            return Err(CommitError::Unanswered("cut before the answer".into()));
        }
        Ok(())
    }

    fn is_restart(&self, error: &(dyn Error + 'static)) -> bool {
        error.is::<Conflict>()
    }
}
