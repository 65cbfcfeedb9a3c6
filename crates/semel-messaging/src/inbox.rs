//! The inbox: messages, their effects and their outgoing events in one database transaction. Exactly once (M3).
//!
//! 1. **The inbox's record**, in scope `inbox:NAME`, is written in the handler's transaction and says whether the effect is
//!    there. It alone makes the effect happen once.
//! 2. **A first delivery needs nothing else.** Where the broker counts deliveries durably (RabbitMQ's quorum queues), one
//!    that it counts as the first has never run, so nothing is written down before it does. What it fails with, and every
//!    later delivery, goes through **the consumer's own record** in the store, as without an inbox: that one counts
//!    attempts before anything runs, so that a message which kills the process is counted (K8), and carries the pause
//!    before the next attempt. Where the broker does not count, it is claimed for the first delivery too.
//! 3. **Repeating is safe.** [`Consumer::inbox`] runs again what is unknown: if it was committed, the inbox says so and
//!    the message is acknowledged; if not, nothing had happened.
//! 4. **Acknowledged after COMMIT.** A COMMIT without an answer is asked about: by the next claim, which waits for the end
//!    of the transaction that may still be open.
//! 5. **Twins wait** for the end of the first ([`Twin::Wait`]).
//! 6. **A failure rolls back everything**, the inbox's record too: a message from the dead letters runs when it is
//!    redriven, and one that was committed does not (M6, C48).
//! 7. **A database that is away is no attempt**: when it failed before the handler began, the message waits, for as long
//!    as it takes. When it fails under the handler's hands the attempt counts, since the handler may be why.
//! 8. **Batches** (M9): [`Inbox::in_batches`] gives each message of a transaction a savepoint, and a message that fails is
//!    undone alone; [`Inbox::set_wise`] gives all of them to one call of the handler, and looks for the one that fails by
//!    halves (C103). What is not a first delivery runs alone.
//!
//! The store may be in the same database or in another one, Redis say. If it loses a record, an attempt is not counted
//! or a pause is shorter; the effect stays once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use semel::{
    Done, InTransaction, OnUnknown, Once, Outcome, Ran, Savepoints, Transactions, Twin, Whole, WholeError,
};

use crate::consumer::{Builder, Consumer, Failure, First, Handler, Together, Work};

mod batch;

use batch::{How, Marks};

type Handle<D> = <<D as Transactions>::Tx as InTransaction>::Handle;

/// A handler whose effects are in one transaction with the inbox.
pub struct Inbox<D: Transactions> {
    whole: Whole<D>,
    how: How<D>,
    batch_max: usize,
}

impl Consumer {
    /// A consumer for an [`Inbox`]: what is unknown is run again, which is safe there.
    pub fn inbox(name: impl Into<String>) -> Builder {
        Consumer::builder(name, OnUnknown::Rerun)
    }
}

impl<D: Transactions> Inbox<D> {
    /// With transactions from here, one for each message. The handler does what a message asks for in the transaction that
    /// it is given; what it does elsewhere happens as often as the message is tried.
    pub fn new(
        transactions: D,
        handler: impl for<'t> Fn(&'t mut Handle<D>, Work) -> BoxFuture<'t, Result<(), Failure>>
        + Send
        + Sync
        + 'static,
    ) -> Inbox<D> {
        Inbox::with(transactions, How::Alone(Arc::new(handler)), 1)
    }

    /// The same, with up to so many messages in one transaction, one after the other. One that fails is undone, to its
    /// savepoint, and does not trouble the others. A statement that ends the connection does: then each half is tried
    /// again.
    pub fn in_batches(
        transactions: D,
        batch_max: usize,
        handler: impl for<'t> Fn(&'t mut Handle<D>, Work) -> BoxFuture<'t, Result<(), Failure>>
        + Send
        + Sync
        + 'static,
    ) -> Inbox<D>
    where
        D::Tx: Savepoints,
    {
        Inbox::with(transactions, How::Each(Arc::new(handler), Marks::of()), batch_max)
    }

    /// The same, with up to so many messages in one transaction and one call of the handler, which does what all of them
    /// ask for: in one statement, say. All or nothing: when it fails, the transaction is rolled back and each half is tried
    /// again, until one that fails is alone; so the handler may see a message a few times more than it has attempts.
    ///
    /// Messages of one lane are never in one batch; two batches may run at one instant
    /// ([`Builder::in_flight_max`](crate::Builder::in_flight_max)). Where messages without a lane touch the same rows, lock
    /// them in one order.
    pub fn set_wise(
        transactions: D,
        batch_max: usize,
        handler: impl for<'t> Fn(&'t mut Handle<D>, Vec<Work>) -> BoxFuture<'t, Result<(), Failure>>
        + Send
        + Sync
        + 'static,
    ) -> Inbox<D> {
        Inbox::with(transactions, How::All(Arc::new(handler)), batch_max)
    }

    fn with(transactions: D, how: How<D>, batch_max: usize) -> Inbox<D> {
        // One try for the handler: the consumer tries again, after a pause and counted.
        Inbox { whole: Whole::new(transactions), how, batch_max: batch_max.max(1) }
    }
}

#[async_trait]
impl<D: Transactions> Handler for Inbox<D> {
    async fn handle(&self, work: Work) -> Result<(), Failure> {
        let (how, began) = (self.how.clone(), Arc::new(AtomicBool::new(false)));
        let (operation, begins) = (work.in_transaction(), began.clone());
        let done = self.whole.once(operation, Twin::Wait, move |tx, _lease| {
            begins.store(true, Ordering::SeqCst);
            let (how, work) = (how.clone(), work.clone());
            async move {
                Ok(match how.one(tx, work).await {
                    Ok(()) => Done::Keep(Outcome::value(""), Ok(())),
                    Err(failure) => Done::RollBack(Err(failure)),
                })
            }
            .boxed()
        });
        settled(done.await, began.load(Ordering::SeqCst))
    }

    fn together(&self) -> Option<&dyn Together> {
        Some(self)
    }
}

#[async_trait]
impl<D: Transactions> Together for Inbox<D> {
    fn batch_max(&self) -> usize {
        self.batch_max
    }

    async fn together(&self, works: Vec<Work>) -> Vec<First> {
        batch::together(self.whole.transactions(), &self.how, works).await
    }
}

/// What an operation in a transaction came to, for the consumer: for handlers that run [`Work::in_transaction`] by
/// themselves, as SQLite's must, which block. `began` says whether the work was run.
///
/// # Errors
///
/// The failure of the work, or what the inbox makes of the message.
pub fn settled(
    done: Result<Once<Ran<Result<(), Failure>>, ()>, WholeError>,
    began: bool,
) -> Result<(), Failure> {
    match done {
        Ok(Once::Run(Ran { value, .. })) => value,
        Ok(Once::Replay { .. } | Once::Forgotten { .. }) => Ok(()),
        Ok(Once::InFlight { retry_after, .. }) => {
            Err(Failure::transient_for(retry_after, "another transaction has it"))
        }
        Ok(Once::Mismatch { .. }) => Err(Failure::reused()),
        Ok(Once::Unknown { cause, .. }) => {
            Err(Failure::permanent(format!("the inbox does not know whether it took effect ({cause})")))
        }
        Ok(Once::Dead { cause, .. }) => {
            Err(Failure::permanent(format!("the inbox has given it up ({cause})")))
        }
        Ok(Once::OutOfAge { .. }) => Err(Failure::permanent("its id is too old to be new")),
        Err(WholeError::Unknown(error)) => Err(Failure::unknown(error)),
        Err(WholeError::Transaction(error)) if !began => Err(Failure::not_run(error)),
        Err(error) => Err(Failure::transient(error)),
    }
}

impl<D: Transactions> fmt::Debug for Inbox<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("whole", &self.whole)
            .field("batch_max", &self.batch_max)
            .finish_non_exhaustive()
    }
}
