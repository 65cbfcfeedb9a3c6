//! The inbox: a message, its effect and its outgoing events in one database transaction. Exactly once (M3).
//!
//! 1. **Two records, two questions.** The consumer's own record, in the store, says whose turn it is: it counts attempts
//!    before anything runs, so that a message which kills the process is counted (K8), and carries the pause before the
//!    next attempt. The inbox's record, in scope `inbox:NAME`, is written in the handler's transaction and says whether
//!    the effect is there. Only the second one makes the effect happen once, and it needs nothing of the first.
//! 2. **So repeating is safe.** [`Consumer::inbox`] runs again what is unknown: if it was committed, the inbox says so and
//!    the message is acknowledged; if not, nothing had happened.
//! 3. **Acknowledged after COMMIT.** A COMMIT without an answer is asked about under the attempt's own id
//!    ([`Whole`]).
//! 4. **Twins wait** for the end of the first ([`Twin::Wait`]).
//! 5. **A failure rolls back everything**, the inbox's record too: a message from the dead letters runs when it is
//!    redriven, and one that was committed does not (M6, C48).
//! 6. **A database that is away is no attempt**: when it failed before the handler began, the message waits, for as long
//!    as it takes. When it fails under the handler's hands the attempt counts, since the handler may be why.
//!
//! The store may be in the same database or in another one, Redis say. If it loses a record, an attempt is not counted
//! or a pause is shorter; the effect stays once. It costs a claim and a settlement beside the transaction.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use semel::{Done, InTransaction, OnUnknown, Once, Outcome, Ran, Transactions, Twin, Whole, WholeError};

use crate::consumer::{Builder, Consumer, Failure, Handler, Work};

type Handle<D> = <<D as Transactions>::Tx as InTransaction>::Handle;

/// A handler whose effects are in one transaction with the inbox.
pub struct Inbox<D: Transactions, H> {
    whole: Whole<D>,
    handler: Arc<H>,
    handle: PhantomData<fn(Handle<D>)>,
}

impl Consumer {
    /// A consumer for an [`Inbox`]: what is unknown is run again, which is safe there.
    pub fn inbox(name: impl Into<String>) -> Builder {
        Consumer::builder(name, OnUnknown::Rerun)
    }
}

impl<D, H> Inbox<D, H>
where
    D: Transactions,
    H: for<'t> Fn(&'t mut Handle<D>, Work) -> BoxFuture<'t, Result<(), Failure>> + Send + Sync + 'static,
{
    /// With transactions from here. The handler does what a message asks for in the transaction that it is given; what it
    /// does elsewhere happens as often as the message is tried.
    pub fn new(transactions: D, handler: H) -> Inbox<D, H> {
        // One try for the handler: the consumer tries again, after a pause and counted.
        Inbox { whole: Whole::new(transactions), handler: Arc::new(handler), handle: PhantomData }
    }
}

#[async_trait]
impl<D, H> Handler for Inbox<D, H>
where
    D: Transactions,
    H: for<'t> Fn(&'t mut Handle<D>, Work) -> BoxFuture<'t, Result<(), Failure>> + Send + Sync + 'static,
{
    async fn handle(&self, work: Work) -> Result<(), Failure> {
        let (handler, began) = (self.handler.clone(), Arc::new(AtomicBool::new(false)));
        let (operation, begins) = (work.in_transaction(), began.clone());
        let done = self.whole.once(operation, Twin::Wait, move |tx, _lease| {
            begins.store(true, Ordering::SeqCst);
            let (handler, work) = (handler.clone(), work.clone());
            async move {
                Ok(match handler(tx, work).await {
                    Ok(()) => Done::Keep(Outcome::value(""), Ok(())),
                    Err(failure) => Done::RollBack(Err(failure)),
                })
            }
            .boxed()
        });
        settled(done.await, began.load(Ordering::SeqCst))
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
        Ok(Once::Mismatch { .. }) => Err(Failure::permanent("its id is in the inbox, with another payload")),
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

impl<D: Transactions, H> fmt::Debug for Inbox<D, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("whole", &self.whole).finish_non_exhaustive()
    }
}
