//! The tasks that have a connection each: batches, patience, and connecting anew.
//!
//! 1. A batch is what waits when its worker is free, up to a number of calls and of bytes. A lone call waits for nobody.
//! 2. What is transient (a deadlock, a lock, too many connections, a server that is read-only or gone) is tried again until
//!    the calls have waited as long as they may; those that were answered before are not made again.
//! 3. What one call of a batch does to it does not hurt the others: the calls are then made one by one.
//! 4. A task that panics is replaced; its calls are told that nobody knows.

use std::sync::Arc;
use std::time::Duration;

use semel::{Entropy, StoreError, retry::Backoff};
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, timeout_at};

use super::address::Address;
use super::claims::{self, Guess};
use super::failure::{Cause, Failure, Step};
use super::job::{self, Answer, Job, Verb};
use super::link::Link;
use super::{background, ends};

/// Calls in one batch.
const BATCH_MAX: usize = 128;

/// Bytes in one batch, far below what a packet may have.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Calls that wait in one queue. Behind more than that a call would not be reached in time anyway.
const QUEUE_MAX: usize = 4_096;

/// Between tries.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What a queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Claims,
    Ends,
    /// Listings, history and sweeps: one call after the other, on a connection of their own.
    Background,
}

/// The way to the workers of one role. They end when it is dropped, after what they had accepted.
pub(super) struct Queue {
    sender: mpsc::Sender<Job>,
    store: Arc<str>,
    busy_for: Duration,
}

impl Queue {
    /// Starts so many workers on this runtime.
    pub(super) fn start(role: Role, workers: u16, address: &Address, busy_for: Duration) -> Queue {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..workers {
            let (address, receiver) = (address.clone(), Arc::clone(&receiver));
            tokio::spawn(supervise(role, address, receiver, busy_for));
        }
        Queue { sender, store: Arc::clone(&address.name), busy_for }
    }

    /// Has the verb made. Dropping this future changes nothing: the call goes on.
    pub(super) async fn ask(&self, verb: Verb) -> Result<Answer, StoreError> {
        let until = Instant::now() + self.busy_for;
        let (job, answer) = Job::new(verb, until);
        self.enqueue(job).await?;
        // Unanswered means that the task ended over it, perhaps within a commit.
        answer.await.unwrap_or_else(|_| Err(job::ended(&self.store).into()))
    }

    async fn enqueue(&self, job: Job) -> Result<(), Failure> {
        let failed = |cause| Failure::new(&self.store, Step::Read, cause);
        let job = match self.sender.try_send(job) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(failed(Cause::Ended)),
            Err(mpsc::error::TrySendError::Full(job)) => job,
        };
        self.sender.send_timeout(job, self.busy_for).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => failed(Cause::Late),
            mpsc::error::SendTimeoutError::Closed(_) => failed(Cause::Ended),
        })
    }
}

type Jobs = Arc<Mutex<mpsc::Receiver<Job>>>;

async fn supervise(role: Role, address: Address, jobs: Jobs, busy_for: Duration) {
    loop {
        let worker = Worker {
            role,
            address: address.clone(),
            jobs: Arc::clone(&jobs),
            busy_for,
            link: None,
            guess: Guess::new(),
            entropy: Entropy::system(),
        };
        match tokio::spawn(worker.run()).await {
            Ok(()) => return,
            Err(gone) if gone.is_cancelled() => return,
            Err(_) => {
                tracing::error!(store = %address.name, "a task of the store panicked; another one takes over")
            }
        }
    }
}

struct Worker {
    role: Role,
    address: Address,
    jobs: Jobs,
    busy_for: Duration,
    /// `None` until it is needed, and after it was given up.
    link: Option<Link>,
    guess: Guess,
    entropy: Entropy,
}

impl Worker {
    /// Ends when the store was dropped and the queue is empty.
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.next(&mut batch).await {
            while !batch.is_empty() {
                let rest = batch.split_off(portion(&batch));
                self.drive(&mut batch).await;
                batch = rest;
            }
        }
        if let Some(link) = self.link {
            link.close().await;
        }
    }

    async fn next(&self, batch: &mut Vec<Job>) -> bool {
        let calls_max = if self.role == Role::Background { 1 } else { BATCH_MAX };
        let mut jobs = self.jobs.lock().await;
        if jobs.recv_many(batch, calls_max).await == 0 {
            return false;
        }
        if batch.len() < calls_max {
            // Those who became ready together are taken together. With nobody else ready it costs nothing.
            tokio::task::yield_now().await;
            while batch.len() < calls_max
                && let Ok(job) = jobs.try_recv()
            {
                batch.push(job);
            }
        }
        true
    }

    /// Answers every call of the batch.
    async fn drive(&mut self, batch: &mut Vec<Job>) {
        let mut pause = Backoff::new(PAUSE_FIRST, PAUSE_MAX);
        let mut one_by_one = false;
        let mut latest = Failure::new(&self.address.name, Step::Read, Cause::Late);
        loop {
            fail_late(batch, &latest);
            let Some(until) = batch.iter().map(|job| job.until).max() else { return };
            let failure = match timeout_at(until, self.serve(batch, one_by_one)).await {
                Ok(Ok(())) => return,
                Ok(Err(failure)) => failure,
                // Whether it may be written is noted in each call.
                Err(_) => {
                    if let Some(link) = &mut self.link {
                        link.give_up();
                    }
                    Failure::new(&self.address.name, Step::Read, Cause::Silent)
                }
            };
            batch.retain(Job::waits);
            if failure.ends_connection()
                && let Some(link) = &mut self.link
            {
                link.give_up();
            }
            self.link = self.link.take().filter(|link| !link.is_given_up());
            if failure.is_transient() {
                one_by_one |= failure.is_lock_wait();
                latest = failure;
                tokio::time::sleep_until((Instant::now() + pause.next(&self.entropy)).min(until)).await;
            } else if failure.spares_others() && batch.len() > 1 && !one_by_one {
                one_by_one = true;
            } else {
                batch.drain(..).for_each(|mut job| job.fail(failure.clone()));
            }
        }
    }

    async fn serve(&mut self, batch: &mut [Job], one_by_one: bool) -> Result<(), Failure> {
        if !one_by_one {
            return self.serve_all(batch).await;
        }
        for job in batch {
            match self.serve_all(std::slice::from_mut(job)).await {
                Err(failure) if failure.spares_others() => job.fail(failure),
                other => other?,
            }
        }
        Ok(())
    }

    async fn serve_all(&mut self, batch: &mut [Job]) -> Result<(), Failure> {
        let link = match &mut self.link {
            Some(link) => link,
            None => {
                let until = Instant::now() + self.busy_for;
                self.link.insert(Link::open(&self.address, until).await?)
            }
        };
        let bytes_max = link.bytes_max();
        if let Some(bytes) = batch.iter().map(Job::bytes).max().filter(|bytes| *bytes > bytes_max) {
            return Err(link.failure(Step::Read, Cause::TooLarge { bytes, bytes_max }));
        }
        match self.role {
            Role::Claims => claims::serve(link, &mut self.guess, batch).await,
            Role::Ends => ends::serve(link, batch).await,
            Role::Background => background::serve(link, batch).await,
        }
    }
}

/// Those that have waited long enough are told why; those behind them get their turn.
fn fail_late(batch: &mut Vec<Job>, latest: &Failure) {
    let now = Instant::now();
    for mut job in batch.extract_if(.., |job| job.until <= now) {
        job.fail(latest.clone());
    }
}

/// How many of the calls go into one batch, by their bytes. At least one.
fn portion(jobs: &[Job]) -> usize {
    let mut bytes = 0;
    let fits = |job: &&Job| {
        bytes += job.bytes();
        bytes <= BATCH_BYTES_MAX
    };
    jobs.iter().take_while(fits).count().max(1).min(jobs.len())
}
