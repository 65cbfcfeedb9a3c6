//! The one thread that writes: group commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rusqlite::Connection;
use semel::{Clock, StoreError};
use tokio::sync::{mpsc, oneshot};

use super::error::{Failure, Step};
use super::file::{File, Identity};
use super::rows::Rows;

/// Calls in one transaction. They wait for one another, so more would only make each wait longer.
pub(super) const BATCH_MAX: usize = 512;

/// Calls that wait. Behind more than that a call would not be reached in time anyway.
const QUEUE_MAX: usize = 4_096;

/// What the writer can be asked for. May be applied more than once, each time from the beginning: what an earlier
/// time did was rolled back.
pub(super) trait Verb: Send + 'static {
    type Answer: Send + 'static;

    /// Whether it lets the others of its batch go first, and commits alone: nobody waits for it.
    const GIVES_WAY: bool = false;

    fn apply(&self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<Self::Answer>;
}

/// The way to the writer. Dropping it waits until the writer has done what it had accepted.
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<thread::JoinHandle<()>>,
    file: File,
}

impl Writer {
    pub(super) fn start(
        file: File,
        connection: Connection,
        clock: Arc<dyn Clock>,
    ) -> Result<Writer, Failure> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let opened = file.identity();
        let writing = Writing { file: file.clone(), connection: Some(connection), clock, opened };
        let thread = thread::Builder::new()
            .name("semel-sqlite".to_owned())
            .spawn(move || writing.run(jobs))
            .map_err(|error| Failure::system(&file, error))?;
        Ok(Writer { queue: Some(queue), thread: Some(thread), file })
    }

    /// Has the verb applied and committed.
    pub(super) async fn ask<V: Verb>(&self, verb: V) -> Result<V::Answer, StoreError> {
        let (caller, answer) = oneshot::channel();
        let until = Instant::now() + self.file.busy_for();
        self.enqueue(Box::new(Waiting { verb, until, answer: None, caller })).await?;
        // Unanswered means that the thread died over it, perhaps within the commit.
        answer.await.unwrap_or_else(|_| Err(Failure::ended(&self.file, Step::Commit).into()))
    }

    /// The clock of tokio is asked only when the queue is full, so that a test which pauses it can use the store.
    async fn enqueue(&self, job: Box<dyn Job>) -> Result<(), Failure> {
        let ended = || Failure::ended(&self.file, Step::Begin);
        let queue = self.queue.as_ref().ok_or_else(ended)?;
        let job = match queue.try_send(job) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(ended()),
            Err(mpsc::error::TrySendError::Full(job)) => job,
        };
        queue.send_timeout(job, self.file.busy_for()).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => Failure::waited(&self.file),
            mpsc::error::SendTimeoutError::Closed(_) => ended(),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            // It catches the panics of its jobs; one of its own was already reported by the panic hook.
            let _ = thread.join();
        }
    }
}

/// A verb whose caller waits.
struct Waiting<V: Verb> {
    verb: V,
    until: Instant,
    answer: Option<Result<V::Answer, StoreError>>,
    caller: oneshot::Sender<Result<V::Answer, StoreError>>,
}

trait Job: Send {
    fn gives_way(&self) -> bool;
    /// When its caller has waited long enough.
    fn until(&self) -> Instant;
    fn apply(&mut self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<()>;
    fn fail(&mut self, failure: Failure);
    /// Tells the caller, if it is still there.
    fn reply(self: Box<Self>);
}

impl<V: Verb> Job for Waiting<V> {
    fn gives_way(&self) -> bool {
        V::GIVES_WAY
    }

    fn until(&self) -> Instant {
        self.until
    }

    fn apply(&mut self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<()> {
        self.answer = Some(Ok(self.verb.apply(rows, clock)?));
        Ok(())
    }

    fn fail(&mut self, failure: Failure) {
        self.answer = Some(Err(failure.into()));
    }

    fn reply(self: Box<Self>) {
        if let Some(answer) = self.answer {
            let _ = self.caller.send(answer);
        }
    }
}

/// The thread's own.
struct Writing {
    file: File,
    /// `None` after a panic or a failed rollback: opened anew.
    connection: Option<Connection>,
    clock: Arc<dyn Clock>,
    opened: Option<Identity>,
}

impl Writing {
    /// Ends when the store is dropped and the queue is empty.
    fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while queue.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
            self.refuse_late(&mut batch);
            let behind: Vec<_> = batch.extract_if(.., |job| job.gives_way()).collect();
            self.serve(&mut batch);
            batch.drain(..).for_each(Job::reply);
            for mut job in behind {
                self.serve(std::slice::from_mut(&mut job));
                job.reply();
            }
        }
    }

    /// Nothing was done for them yet, so they are told just that, and those behind them get their turn.
    fn refuse_late(&self, batch: &mut Vec<Box<dyn Job>>) {
        let now = Instant::now();
        for mut job in batch.extract_if(.., |job| job.until() <= now) {
            job.fail(Failure::waited(&self.file));
            job.reply();
        }
    }

    /// Gives every job its answer or its failure.
    fn serve(&mut self, batch: &mut [Box<dyn Job>]) {
        match self.transact(batch) {
            Ok(()) => {}
            Err(failure) if failure.spares_others() && batch.len() > 1 => {
                batch.iter_mut().for_each(|job| self.serve(std::slice::from_mut(job)));
            }
            Err(failure) => batch.iter_mut().for_each(|job| job.fail(failure.clone())),
        }
    }

    /// A job that panics does so before the commit, and dropping the connection rolls back.
    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let Some(until) = jobs.iter().map(|job| job.until()).max() else { return Ok(()) };
        let done = catch_unwind(AssertUnwindSafe(|| self.transaction(jobs, until)));
        done.unwrap_or_else(|_| {
            tracing::error!(file = %self.file.name(), "the SQLite writer panicked; it rolls back and goes on");
            self.connection = None;
            Err(Failure::ended(&self.file, Step::Write))
        })
    }

    /// All the jobs or none of them. `BEGIN IMMEDIATE` takes the write lock before anything is read, so what the
    /// jobs read is the latest, and nobody changes it before the commit.
    fn transaction(&mut self, jobs: &mut [Box<dyn Job>], until: Instant) -> Result<(), Failure> {
        let connection = match self.connection.take() {
            Some(connection) => self.connection.insert(connection),
            None => self.connection.insert(self.file.writer()?),
        };
        if self.file.identity() != self.opened {
            return Err(Failure::moved(&self.file));
        }
        let failed = |step| move |cause| (step, cause);
        let begun = self.file.patiently(until, || run(connection, "BEGIN IMMEDIATE"));
        let done = begun.map_err(failed(Step::Begin)).and_then(|()| {
            let mut rows = Rows::of(connection).map_err(failed(Step::Write))?;
            let applied = jobs.iter_mut().try_for_each(|job| job.apply(&mut rows, self.clock.as_ref()));
            applied.map_err(failed(Step::Write))?;
            drop(rows);
            run(connection, "COMMIT").map_err(failed(Step::Commit))
        });
        if done.is_err() && !connection.is_autocommit() && run(connection, "ROLLBACK").is_err() {
            self.connection = None;
        }
        done.map_err(|(step, cause)| Failure::new(&self.file, step, cause))
    }
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.raw_execute().map(drop)
}
