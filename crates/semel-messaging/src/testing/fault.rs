//! A source whose receipts fail as a test says.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::grave::Grave;
use crate::source::{Abilities, Deadline, Delivery, Later, Receipt, ReceiptError, Source, SourceError};

/// A verb of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// [`Receipt::ack`].
    Ack,
    /// [`Receipt::give_back`].
    GiveBack,
    /// [`Receipt::bury`].
    Bury,
    /// [`Later::later`].
    Later,
    /// [`Deadline::extend`].
    Extend,
}

/// When a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It did not happen.
    Before,
    /// It happened, and the answer was lost.
    After,
}

/// The failures to come, and the calls so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

#[derive(Debug, Default)]
struct Plan {
    faults: Vec<(Verb, When, u32)>,
    calls: Vec<Verb>,
}

impl Faults {
    /// The next so many calls of a verb fail.
    pub fn fail(&self, verb: Verb, when: When, times: u32) {
        self.plan().faults.push((verb, when, times));
    }

    /// No call fails any more.
    pub fn heal(&self) {
        self.plan().faults.clear();
    }

    /// How often a verb was called.
    #[must_use]
    pub fn calls(&self, verb: Verb) -> usize {
        self.plan().calls.iter().filter(|called| **called == verb).count()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strikes(&self, verb: Verb) -> Option<When> {
        let mut plan = self.plan();
        plan.calls.push(verb);
        let (_, when, left) = plan.faults.iter_mut().find(|(of, _, left)| *of == verb && *left > 0)?;
        *left -= 1;
        Some(*when)
    }

    async fn around(
        &self,
        verb: Verb,
        call: impl Future<Output = Result<(), ReceiptError>>,
    ) -> Result<(), ReceiptError> {
        match self.strikes(verb) {
            None => call.await,
            Some(When::Before) => Err(ReceiptError::Unavailable("a fault of the test's".into())),
            Some(When::After) => {
                call.await?;
                Err(ReceiptError::Indeterminate("a fault of the test's".into()))
            }
        }
    }
}

/// A source whose receipts fail.
#[derive(Debug)]
pub struct FaultySource {
    inner: Arc<dyn Source>,
    faults: Faults,
}

impl FaultySource {
    /// Around a source.
    #[must_use]
    pub fn new(inner: Arc<dyn Source>, faults: Faults) -> FaultySource {
        FaultySource { inner, faults }
    }
}

#[async_trait]
impl Source for FaultySource {
    fn abilities(&self) -> Abilities {
        self.inner.abilities()
    }

    async fn open(&self, held_max: u32) -> Result<(), SourceError> {
        self.inner.open(held_max).await
    }

    async fn receive(&self) -> Result<Delivery, SourceError> {
        let delivery = self.inner.receive().await?;
        let receipt = FaultyReceipt { inner: delivery.receipt.clone(), faults: self.faults.clone() };
        Ok(Delivery { receipt: Arc::new(receipt), ..delivery })
    }

    async fn stop(&self) {
        self.inner.stop().await;
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

struct FaultyReceipt {
    inner: Arc<dyn Receipt>,
    faults: Faults,
}

#[async_trait]
impl Receipt for FaultyReceipt {
    async fn ack(&self) -> Result<(), ReceiptError> {
        self.faults.around(Verb::Ack, self.inner.ack()).await
    }

    async fn give_back(&self) -> Result<(), ReceiptError> {
        self.faults.around(Verb::GiveBack, self.inner.give_back()).await
    }

    async fn bury(&self, grave: &Grave) -> Result<(), ReceiptError> {
        self.faults.around(Verb::Bury, self.inner.bury(grave)).await
    }

    fn later(&self) -> Option<&dyn Later> {
        self.inner.later().map(|_| self as &dyn Later)
    }

    fn deadline(&self) -> Option<&dyn Deadline> {
        self.inner.deadline().map(|_| self as &dyn Deadline)
    }
}

#[async_trait]
impl Later for FaultyReceipt {
    async fn later(&self, after: Duration) -> Result<(), ReceiptError> {
        let Some(later) = self.inner.later() else { return Err(ReceiptError::Lost) };
        self.faults.around(Verb::Later, later.later(after)).await
    }
}

#[async_trait]
impl Deadline for FaultyReceipt {
    fn within(&self) -> Duration {
        self.inner.deadline().map_or(Duration::MAX, Deadline::within)
    }

    async fn extend(&self) -> Result<(), ReceiptError> {
        let Some(deadline) = self.inner.deadline() else { return Err(ReceiptError::Lost) };
        self.faults.around(Verb::Extend, deadline.extend()).await
    }
}

impl fmt::Debug for FaultyReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
