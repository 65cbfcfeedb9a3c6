//! First deliveries in one transaction: claimed, run, completed and committed together (M9, C103).
//!
//! 1. **The claims decide.** What the inbox has completed is a duplicate, and does not run; anything else that may not run
//!    at once is left to the consumer's own record ([`First::Ask`]), which has an answer for everything.
//! 2. **Set-wise**, and alone, the claims come completed: the outcome is known before, and a failure rolls back the whole
//!    transaction, the claims with it.
//! 3. **With savepoints** the claims are completed after the handlers. The claim of one that failed is given back with the
//!    others' completions, as if it had never been asked for.
//! 4. **What fails as a whole is tried again by halves**, each in a transaction of its own, down to one message: so one bad
//!    message among n costs about 2 log n transactions, and its failure is its own.
//! 5. **A COMMIT without an answer**: by halves too. Their claims wait for the end of the transaction in doubt, and find
//!    what it has committed. Of a single message it is unknown, and the consumer asks.
//! 6. Of two messages with one id the later one is not in the batch: it is asked about afterwards.
//! 7. Nothing is begun when there is no transaction to be had: then no message is to blame, and none is counted.

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use semel::{
    Asking, AttemptId, CommitError, Entropy, Heard, InTransaction, Lease, Outcome, Savepoints, Settlement,
    Told, TransactionError, Transactions, Twin,
};

use super::Handle;
use crate::consumer::{Failure, First, Work};

pub(super) type One<D> =
    dyn for<'t> Fn(&'t mut Handle<D>, Work) -> BoxFuture<'t, Result<(), Failure>> + Send + Sync;
pub(super) type Many<D> =
    dyn for<'t> Fn(&'t mut Handle<D>, Vec<Work>) -> BoxFuture<'t, Result<(), Failure>> + Send + Sync;

/// How the handler is called.
pub(super) enum How<D: Transactions> {
    /// A transaction for each message.
    Alone(Arc<One<D>>),
    /// A savepoint for each message.
    Each(Arc<One<D>>, Marks<D::Tx>),
    /// One call for all.
    All(Arc<Many<D>>),
}

type Mark<X> = for<'t> fn(&'t mut X) -> BoxFuture<'t, Result<(), TransactionError>>;

/// The savepoints of transactions that have them.
pub(super) struct Marks<X> {
    set: Mark<X>,
    keep: Mark<X>,
    undo: Mark<X>,
}

impl<X: Savepoints> Marks<X> {
    pub(super) fn of() -> Marks<X> {
        Marks { set: |tx| tx.mark(), keep: |tx| tx.keep_marked(), undo: |tx| tx.undo_marked() }
    }
}

impl<X> Clone for Marks<X> {
    fn clone(&self) -> Marks<X> {
        *self
    }
}

impl<X> Copy for Marks<X> {}

impl<D: Transactions> Clone for How<D> {
    fn clone(&self) -> How<D> {
        match self {
            How::Alone(one) => How::Alone(one.clone()),
            How::Each(one, marks) => How::Each(one.clone(), *marks),
            How::All(many) => How::All(many.clone()),
        }
    }
}

impl<D: Transactions> How<D> {
    /// Runs one message by itself.
    pub(super) async fn one(&self, tx: &mut Handle<D>, work: Work) -> Result<(), Failure> {
        match self {
            How::Alone(one) | How::Each(one, _) => one(tx, work).await,
            How::All(many) => many(tx, vec![work]).await,
        }
    }
}

/// An answer for each, in their order.
pub(super) async fn together<D: Transactions>(
    transactions: &D,
    how: &How<D>,
    works: Vec<Work>,
) -> Vec<First> {
    let mut keys = HashSet::new();
    let is_new: Vec<bool> = works.iter().map(|work| keys.insert(work.key.clone())).collect();
    let batch = works.into_iter().zip(&is_new).filter(|(_, is_new)| **is_new).map(|(work, _)| work);
    let mut firsts = halved(transactions, how, batch.collect()).await.into_iter();
    let answer = |is_new: bool| is_new.then(|| firsts.next()).flatten().unwrap_or(First::NotYet);
    is_new.into_iter().map(answer).collect()
}

/// Why nothing was committed, or nobody knows.
enum Trouble {
    /// Nothing was begun.
    NotRun(String),
    /// It fails as a whole.
    Failed(Failure),
}

fn halved<'a, D: Transactions>(
    transactions: &'a D,
    how: &'a How<D>,
    works: Vec<Work>,
) -> BoxFuture<'a, Vec<First>> {
    async move {
        match attempt(transactions, how, &works).await {
            Ok(firsts) => firsts,
            Err(Trouble::NotRun(said)) => {
                works.iter().map(|_| First::Failed(Failure::not_run(&said))).collect()
            }
            Err(Trouble::Failed(failure)) if works.len() == 1 || failure.is_not_run() => {
                works.iter().map(|_| First::Failed(failure.clone())).collect()
            }
            Err(Trouble::Failed(_)) => {
                let mut one = works;
                let other = one.split_off(one.len() / 2);
                let mut firsts = halved(transactions, how, one).await;
                firsts.extend(halved(transactions, how, other).await);
                firsts
            }
        }
    }
    .boxed()
}

/// One transaction.
async fn attempt<D: Transactions>(
    transactions: &D,
    how: &How<D>,
    works: &[Work],
) -> Result<Vec<First>, Trouble> {
    let mut tx = transactions.begin().await.map_err(Trouble::not_run)?;
    let claimed = claim(&mut tx, how, works).await.map_err(Trouble::not_run)?;
    // A claim that was completed must not be committed without its run.
    let Some(claimed) = claimed else { return Ok(works.iter().map(|_| First::Ask).collect()) };
    let firsts = run(&mut tx, how, works, claimed).await?;
    match transactions.commit(tx).await {
        Ok(()) => Ok(firsts),
        Err(CommitError::RolledBack(error)) => Err(Trouble::Failed(Failure::transient(error))),
        Err(unanswered) => Err(Trouble::Failed(Failure::unknown(unanswered))),
    }
}

/// What the claim of one message came to.
enum Claimed {
    Run(Lease),
    Told(First),
}

/// `None` where one of them is not so simple that its claim may stand.
async fn claim<D: Transactions>(
    tx: &mut D::Tx,
    how: &How<D>,
    works: &[Work],
) -> Result<Option<Vec<Claimed>>, TransactionError> {
    let operations: Vec<_> = works.iter().map(Work::in_transaction).collect();
    let entropy = Entropy::system();
    let asking = |operation| Asking::of(operation, AttemptId::random(&entropy));
    let mut asking: Vec<Asking<'_>> = operations.iter().map(asking).collect();
    let requests: Vec<_> = asking.iter().map(|one| one.request().clone()).collect();
    let claims = match how {
        How::Each(..) => tx.claim_in(&requests, Twin::Wait).await?,
        How::Alone(_) | How::All(_) => tx.claim_settled_in(&requests, &completed(works)).await?,
    };
    let mut heard = Vec::with_capacity(works.len());
    for (one, claim) in asking.iter_mut().zip(claims) {
        heard.push(match one.hear(claim)? {
            Heard::Run(lease) => Claimed::Run(lease),
            Heard::Told(told) => Claimed::Told(first(told)),
            Heard::Again => Claimed::Told(First::Ask),
            Heard::GiveBack(..) => return Ok(None),
        });
    }
    Ok(Some(heard))
}

/// A duplicate is told by the record alone, so no outcome is kept.
fn completed(works: &[Work]) -> Settlement {
    let remember_for =
        works.first().map_or(Duration::ZERO, |work| work.in_transaction().policy().remember_for);
    Settlement::Complete { outcome: Outcome::value(""), replay_for: Duration::ZERO, remember_for }
}

fn first(told: Told) -> First {
    match told {
        Told::Replay { age, .. } | Told::Forgotten { age } => First::Duplicate { age },
        Told::Mismatch => First::Reused,
        Told::InFlight { .. } | Told::Unknown { .. } | Told::Dead { .. } => First::Ask,
    }
}

async fn run<D: Transactions>(
    tx: &mut D::Tx,
    how: &How<D>,
    works: &[Work],
    claimed: Vec<Claimed>,
) -> Result<Vec<First>, Trouble> {
    match how {
        How::Each(one, marks) => each::<D>(tx, one, *marks, works, claimed).await,
        How::Alone(_) | How::All(_) => all::<D>(tx, how, works, claimed).await,
    }
}

async fn all<D: Transactions>(
    tx: &mut D::Tx,
    how: &How<D>,
    works: &[Work],
    claimed: Vec<Claimed>,
) -> Result<Vec<First>, Trouble> {
    let runs = works.iter().zip(&claimed).filter(|(_, claimed)| matches!(claimed, Claimed::Run(_)));
    let mut runs: Vec<Work> = runs.map(|(work, _)| work.clone()).collect();
    let ran = match how {
        _ if runs.is_empty() => Ok(()),
        How::All(many) => many(tx.handle_mut(), runs).await,
        How::Alone(one) | How::Each(one, _) => one(tx.handle_mut(), runs.remove(0)).await,
    };
    ran.map_err(Trouble::Failed)?;
    Ok(claimed.into_iter().map(Claimed::done).collect())
}

async fn each<D: Transactions>(
    tx: &mut D::Tx,
    one: &Arc<One<D>>,
    marks: Marks<D::Tx>,
    works: &[Work],
    claimed: Vec<Claimed>,
) -> Result<Vec<First>, Trouble> {
    let (mut firsts, mut settled) = (Vec::with_capacity(works.len()), Vec::with_capacity(works.len()));
    let completed = completed(works);
    for (work, claimed) in works.iter().zip(claimed) {
        let lease = match claimed {
            Claimed::Told(first) => {
                firsts.push(first);
                continue;
            }
            Claimed::Run(lease) => lease,
        };
        (marks.set)(tx).await.map_err(Trouble::failed)?;
        match one(tx.handle_mut(), work.clone()).await {
            Ok(()) => {
                (marks.keep)(tx).await.map_err(Trouble::failed)?;
                settled.push((lease, completed.clone()));
                firsts.push(First::Done);
            }
            Err(failure) => {
                (marks.undo)(tx).await.map_err(Trouble::failed)?;
                settled.push((lease, given_back(work)));
                firsts.push(First::Failed(failure));
            }
        }
    }
    tx.settle_in(&settled).await.map_err(Trouble::failed)?;
    Ok(firsts)
}

/// As if it had never been asked for.
fn given_back(work: &Work) -> Settlement {
    let remember_for = work.in_transaction().policy().remember_for;
    Settlement::Release { not_before: None, unbind: true, ran: false, remember_for }
}

impl Claimed {
    fn done(self) -> First {
        match self {
            Claimed::Run(_) => First::Done,
            Claimed::Told(first) => first,
        }
    }
}

impl Trouble {
    fn not_run(error: impl Display) -> Trouble {
        Trouble::NotRun(error.to_string())
    }

    fn failed(error: impl Display) -> Trouble {
        Trouble::Failed(Failure::transient(error))
    }
}
