//! A store whose calls fail, and a runner that fails each call of a scenario in turn.
//!
//! Pass one counts the calls of the scenario. Pass two runs it again for each call and each fault. So no call is
//! left out because nobody thought of it (redb tests its I/O in this way).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use super::contract::Harness;
use crate::key::{Key, Scope};
use crate::store::{Claim, ClaimRequest, Cursor, Entry, Lease, Settlement, Store, StoreError, Swept};

/// What befalls one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done, and the caller is told so.
    Before,
    /// It is done, and the answer is lost.
    After,
    /// Nothing is done, and no answer ever comes.
    HangBefore,
    /// It is done, and no answer ever comes.
    HangAfter,
    /// It is done and answered, and done once more so long afterwards.
    Again(Duration),
    /// The answer is lost at once, and the call is done so long afterwards.
    Later(Duration),
    /// Nothing is done, and the caller is told that it never will be.
    Refused,
}

impl Fault {
    /// Each kind that repeating the call can help against, once.
    pub const ALL: [Fault; 6] = [
        Fault::Before,
        Fault::After,
        Fault::HangBefore,
        Fault::HangAfter,
        Fault::Again(Duration::from_secs(3)),
        Fault::Later(Duration::from_secs(3)),
    ];
}

/// A store around another one. Clones are the same store.
#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    state: Arc<Mutex<Planned>>,
    decide: Arc<Decide>,
}

type Decide = dyn Fn(&'static str) -> Option<Fault> + Send + Sync;

#[derive(Debug, Default)]
struct Planned {
    faults: BTreeMap<usize, Fault>,
    calls: Vec<&'static str>,
}

impl FaultyStore {
    /// A store in which nothing fails yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> FaultyStore {
        FaultyStore::deciding(inner, |_| None)
    }

    /// A store in which a function decides, for each call by its verb, whether it fails.
    pub fn deciding(
        inner: Arc<dyn Store>,
        decide: impl Fn(&'static str) -> Option<Fault> + Send + Sync + 'static,
    ) -> FaultyStore {
        FaultyStore { inner, state: Arc::default(), decide: Arc::new(decide) }
    }

    /// Lets the `number`-th call from now on, counted from 1, meet with `fault`.
    pub fn fail(&self, number: usize, fault: Fault) {
        let mut state = self.state();
        let call = state.calls.len() + number;
        state.faults.insert(call, fault);
    }

    /// The verbs of all calls so far.
    #[must_use]
    pub fn calls(&self) -> Vec<&'static str> {
        self.state().calls.clone()
    }

    /// The store behind, in which nothing fails and nothing is counted.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    fn state(&self) -> MutexGuard<'_, Planned> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_fault(&self, verb: &'static str) -> Option<Fault> {
        let mut state = self.state();
        state.calls.push(verb);
        let number = state.calls.len();
        state.faults.remove(&number).or_else(|| (self.decide)(verb))
    }

    /// One call through the plan. `call` does it on the store behind, as often as it is asked.
    async fn through<T: Send + 'static>(
        &self,
        verb: &'static str,
        call: impl Fn(Arc<dyn Store>) -> BoxFuture<'static, Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.inner.clone();
        match self.next_fault(verb) {
            None => call(store).await,
            Some(Fault::Before) => Err(unavailable()),
            Some(Fault::After) => {
                let _ = call(store).await;
                Err(lost())
            }
            Some(Fault::Refused) => Err(StoreError::Refused("a planned fault: never".into())),
            Some(Fault::HangBefore) => std::future::pending().await,
            Some(Fault::HangAfter) => {
                let _ = call(store).await;
                std::future::pending().await
            }
            Some(Fault::Again(pause)) => {
                let answer = call(store.clone()).await;
                afterwards(pause, call, store);
                answer
            }
            Some(Fault::Later(pause)) => {
                afterwards(pause, call, store);
                Err(lost())
            }
        }
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Nothing was done.
#[must_use]
pub fn unavailable() -> StoreError {
    StoreError::Unavailable("a planned fault: nothing was done".into())
}

/// It may have been done.
#[must_use]
pub fn lost() -> StoreError {
    StoreError::Indeterminate("a planned fault: the answer is lost".into())
}

fn afterwards<T: Send + 'static>(
    pause: Duration,
    call: impl Fn(Arc<dyn Store>) -> BoxFuture<'static, Result<T, StoreError>> + Send + 'static,
    store: Arc<dyn Store>,
) {
    tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        let _ = call(store).await;
    });
}

#[async_trait]
impl Store for FaultyStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let request = request.clone();
        let call = move |store: Arc<dyn Store>| -> BoxFuture<'static, _> {
            let request = request.clone();
            Box::pin(async move { store.claim(&request).await })
        };
        self.through("claim", call).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        let lease = lease.clone();
        let call = move |store: Arc<dyn Store>| -> BoxFuture<'static, _> {
            let lease = lease.clone();
            Box::pin(async move { store.renew(&lease, lease_for).await })
        };
        self.through("renew", call).await
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        let (lease, settlement) = (lease.clone(), settlement.clone());
        let call = move |store: Arc<dyn Store>| -> BoxFuture<'static, _> {
            let (lease, settlement) = (lease.clone(), settlement.clone());
            Box::pin(async move { store.settle(&lease, &settlement).await })
        };
        self.through("settle", call).await
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        let (scope, key) = (scope.clone(), key.clone());
        let call = move |store: Arc<dyn Store>| -> BoxFuture<'static, _> {
            let (scope, key) = (scope.clone(), key.clone());
            Box::pin(async move { store.find(&scope, &key).await })
        };
        self.through("find", call).await
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let after = after.cloned();
        let call = move |store: Arc<dyn Store>| -> BoxFuture<'static, _> {
            let after = after.clone();
            Box::pin(async move { store.unsettled(after.as_ref(), limit).await })
        };
        self.through("unsettled", call).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        let call = move |store: Arc<dyn Store>| -> BoxFuture<'static, _> {
            Box::pin(async move { store.sweep(limit).await })
        };
        self.through("sweep", call).await
    }
}

/// Runs the scenario once without a fault, then once for each of its calls and each of the faults. Gives the
/// calls of the first pass.
///
/// # Panics
///
/// When the scenario does, after saying which call met with what; and when it makes no call.
pub async fn at_every_call<F>(harness: &dyn Harness, faults: &[Fault], scenario: F) -> Vec<&'static str>
where
    F: AsyncFn(FaultyStore),
{
    let store = FaultyStore::new(harness.open().await);
    scenario(store.clone()).await;
    let calls = store.calls();
    assert!(!calls.is_empty(), "the scenario makes no call, so nothing would be tested");
    for number in 1..=calls.len() {
        for fault in faults {
            let store = FaultyStore::new(harness.open().await);
            store.fail(number, *fault);
            let said = Said(format!("call {number} of {calls:?} met with {fault:?}"));
            scenario(store).await;
            drop(said);
        }
    }
    calls
}

/// Says what was being tried if it is dropped in a panic.
struct Said(String);

impl Drop for Said {
    #[allow(clippy::print_stderr, reason = "this is how a person learns which call was failed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}
