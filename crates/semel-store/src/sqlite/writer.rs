//! The one thread that writes: group commit.
//!
//! The callers of a batch that are tasks of one runtime are answered by a task there, which the writer starts: to wake a
//! task of another thread is a system call each time, and on its own thread it is none. So a task must not block its
//! runtime's only thread until the store has answered: nobody would be left to answer it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use semel::{Clock, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::error::{Failure, Step};
use super::file::{File, Identity, is_busy};
use super::rows::Rows;

/// Calls in one transaction. They wait for one another, so more would only make each wait longer.
pub(super) const BATCH_MAX: usize = 512;

/// Calls that wait. Behind more than that a call would not be reached in time anyway.
const QUEUE_MAX: usize = 4_096;

/// A batch that takes longer than this is one that waits: for the lock, or for a disk that does not answer.
const BATCH_FOR: Duration = Duration::from_millis(25);

/// What the writer can be asked for. May be applied more than once, each time from the beginning: what an earlier
/// time did was rolled back.
pub(super) trait Verb: Send + 'static {
    type Answer: Send + 'static;

    /// Whether it lets the others of its batch go first, and commits alone: nobody waits for it.
    const GIVES_WAY: bool = false;

    fn apply(&self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<Self::Answer>;

    /// The answer, where nothing needs to be written for it.
    fn glance(&self, _: &Connection, _: &dyn Clock) -> rusqlite::Result<Option<Self::Answer>> {
        Ok(None)
    }
}

/// The way to the writer. Dropping it waits until the writer has done what it had accepted.
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<thread::JoinHandle<()>>,
    file: File,
    pace: Arc<Pace>,
}

/// Since when the batch is under way that the writer is at.
struct Pace {
    started: Instant,
    /// Microseconds from `started` on; 0 while there is none.
    batch_since: AtomicU64,
}

impl Pace {
    fn micros(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    fn begin(&self) {
        self.batch_since.store(self.micros(), Ordering::Relaxed);
    }

    fn end(&self) {
        self.batch_since.store(0, Ordering::Relaxed);
    }

    fn has_waited(&self) -> Duration {
        match self.batch_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_micros(self.micros().saturating_sub(since)),
        }
    }
}

impl Writer {
    pub(super) fn start(
        file: File,
        connection: Connection,
        clock: Arc<dyn Clock>,
    ) -> Result<Writer, Failure> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let opened = file.identity();
        let pace = Arc::new(Pace { started: Instant::now(), batch_since: AtomicU64::new(0) });
        let writing = Writing {
            file: file.clone(),
            connection: Some(connection),
            clock,
            opened,
            queue: jobs,
            arrived: Vec::new(),
            pace: Arc::clone(&pace),
        };
        let thread = thread::Builder::new()
            .name("semel-sqlite".to_owned())
            .spawn(move || writing.run())
            .map_err(|error| Failure::system(&file, error))?;
        Ok(Writer { queue: Some(queue), thread: Some(thread), file, pace })
    }

    /// Whether a call is answered about as soon as the disk allows: no more wait than go into the next batch, and the
    /// one under way has not waited for long.
    pub(super) fn is_prompt(&self) -> bool {
        let waiting = self.queue.as_ref().map_or(QUEUE_MAX, |queue| QUEUE_MAX - queue.capacity());
        waiting < BATCH_MAX && self.pace.has_waited() < BATCH_FOR
    }

    /// Has the verb applied and committed.
    pub(super) async fn ask<V: Verb>(&self, verb: V) -> Result<V::Answer, StoreError> {
        let (caller, answer) = oneshot::channel();
        let until = Instant::now() + self.file.busy_for();
        // Only a task proves that its runtime is being run.
        let home = tokio::task::try_id().and_then(|_| Handle::try_current().ok());
        let waiting = Waiting { verb, until, answer: None, caller: Some(caller), home, glanced: false };
        self.enqueue(Box::new(waiting)).await?;
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
    /// `None` once it was answered.
    caller: Option<oneshot::Sender<Result<V::Answer, StoreError>>>,
    /// Where the caller is a task.
    home: Option<Handle>,
    glanced: bool,
}

trait Job: Send {
    fn gives_way(&self) -> bool;
    /// When its caller has waited long enough.
    fn until(&self) -> Instant;
    fn apply(&mut self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<()>;
    /// Answers at once what needs no write. Looks only once.
    fn glance(&mut self, reader: &Connection, clock: &dyn Clock);
    fn fail(&mut self, failure: Failure);
    fn home(&self) -> Option<Handle>;
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

    /// Whoever was answered by a glance must not be given a lease behind its back.
    fn apply(&mut self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<()> {
        if self.caller.is_some() {
            self.answer = Some(Ok(self.verb.apply(rows, clock)?));
        }
        Ok(())
    }

    fn glance(&mut self, reader: &Connection, clock: &dyn Clock) {
        if std::mem::replace(&mut self.glanced, true) {
            return;
        }
        // An error decides nothing: the transaction meets it too, or does not.
        if let Ok(Some(answer)) = self.verb.glance(reader, clock)
            && let Some(caller) = self.caller.take()
        {
            let _ = caller.send(Ok(answer));
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.answer = Some(Err(failure.into()));
    }

    fn home(&self) -> Option<Handle> {
        self.home.clone()
    }

    fn reply(self: Box<Self>) {
        if let (Some(answer), Some(caller)) = (self.answer, self.caller) {
            let _ = caller.send(answer);
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
    queue: mpsc::Receiver<Box<dyn Job>>,
    /// What was taken from the queue while a batch waited for the lock.
    arrived: Vec<Box<dyn Job>>,
    pace: Arc<Pace>,
}

impl Writing {
    /// Ends when the store is dropped and the queue is empty.
    fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while self.next(&mut batch) {
            self.pace.begin();
            self.refuse_late(&mut batch);
            let behind: Vec<_> = batch.extract_if(.., |job| job.gives_way()).collect();
            self.serve(&mut batch);
            answer(batch.drain(..));
            for mut job in behind {
                self.serve(std::slice::from_mut(&mut job));
                job.reply();
            }
            self.pace.end();
        }
    }

    /// Waits for calls, unless some were taken from the queue before.
    fn next(&mut self, batch: &mut Vec<Box<dyn Job>>) -> bool {
        batch.append(&mut self.arrived);
        !batch.is_empty() || self.queue.blocking_recv_many(batch, BATCH_MAX) > 0
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
    /// jobs read is the latest, and nobody changes it before the commit. While another process has the lock, whatever
    /// needs no write is answered, of those that came meanwhile too.
    fn transaction(&mut self, jobs: &mut [Box<dyn Job>], until: Instant) -> Result<(), Failure> {
        let connection = match self.connection.take() {
            Some(connection) => self.connection.insert(connection),
            None => self.connection.insert(self.file.writer()?),
        };
        if self.file.identity() != self.opened {
            return Err(Failure::moved(&self.file));
        }
        let failed = |step| move |cause| (step, cause);
        let begun = self.file.patiently(until, || {
            let begun = run(connection, "BEGIN IMMEDIATE");
            if begun.as_ref().is_err_and(is_busy) {
                let room = BATCH_MAX - self.arrived.len();
                self.arrived.extend(std::iter::from_fn(|| self.queue.try_recv().ok()).take(room));
                let waiting = jobs.iter_mut().chain(&mut self.arrived);
                waiting.for_each(|job| job.glance(connection, self.clock.as_ref()));
            }
            begun
        });
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

/// Tells the callers: those of one runtime together, from there.
fn answer(jobs: impl Iterator<Item = Box<dyn Job>>) {
    let mut homes: Vec<(Handle, Vec<Box<dyn Job>>)> = Vec::new();
    for job in jobs {
        let Some(home) = job.home() else {
            job.reply();
            continue;
        };
        match homes.iter_mut().find(|(other, _)| other.id() == home.id()) {
            Some((_, others)) => others.push(job),
            None => homes.push((home, vec![job])),
        }
    }
    for (home, jobs) in homes {
        home.spawn(async move { jobs.into_iter().for_each(Job::reply) });
    }
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.raw_execute().map(drop)
}
