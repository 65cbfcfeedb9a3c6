//! Verbs on one server: those that come together go together.
//!
//! 1. **A few connections**, each with one batch under way. A call that finds a free one goes at once, alone, by its own
//!    future. One that does not waits, and goes with all that wait when the next connection is free: the calls of a script
//!    are one command, and all commands of a batch are written at once.
//! 2. **What that saves**: a server pays for a command (its reading, its script's beginning, the sync of its log) once for
//!    each batch. A batch is bounded ([`BATCH_MAX`], [`BATCH_BYTES_MAX`]), since nothing else runs meanwhile.
//! 3. **Each call has an answer of its own**, whatever becomes of the others: the scripts see to that. A batch that is not
//!    answered may have been carried out, every call of it.
//! 4. **A caller may go away.** What still waits is then not sent. Batches of those who wait are driven by a task, which
//!    nobody's going ends; the call that went alone ends with its caller, and its connection goes to those who wait.
//! 5. **Bounded**: a call waits for a free connection so long ([`Options::busy_for`](crate::Options::busy_for)).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::connection::Connection;
use super::error::{Failure, is_unknown_script};
use super::scripts::{self, Call};

/// Calls in one batch: a few milliseconds of a server's time.
const BATCH_MAX: usize = 128;

/// Bytes in one batch, if it has more than one call.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The connections, and who waits for one.
pub(super) struct Lanes {
    connections: Vec<Connection>,
    queue: Mutex<Queue>,
    busy_for: Duration,
    wait: u32,
    runtime: Handle,
}

/// Where somebody waits, no connection is free.
struct Queue {
    free: Vec<usize>,
    waiting: VecDeque<Job>,
}

struct Job {
    call: Call,
    until: Instant,
    caller: oneshot::Sender<Result<Value, Failure>>,
}

/// A connection that is one's own until this is dropped.
struct Turn {
    lanes: Arc<Lanes>,
    lane: usize,
}

impl Lanes {
    /// On this runtime.
    pub(super) fn new(connections: Vec<Connection>, busy_for: Duration, wait: u32) -> Arc<Lanes> {
        let free = (0..connections.len()).rev().collect();
        let queue = Mutex::new(Queue { free, waiting: VecDeque::new() });
        Arc::new(Lanes { connections, queue, busy_for, wait, runtime: Handle::current() })
    }

    /// For what is no verb: commands share it with the batches.
    pub(super) fn first(&self) -> &Connection {
        &self.connections[0]
    }

    /// Makes a call of a verb.
    pub(super) async fn ask(self: &Arc<Lanes>, call: Call) -> Result<Value, Failure> {
        let waiting = {
            let mut queue = self.queue();
            match queue.free.pop() {
                Some(lane) => Err(Turn { lanes: Arc::clone(self), lane }),
                None => Ok(queue.wait(call.clone(), Instant::now() + self.busy_for)),
            }
        };
        match waiting {
            // Without an answer its task has ended over it.
            Ok(answer) => answer.await.unwrap_or(Err(Failure::Ended)),
            Err(turn) => turn.make(&[&call]).await.pop().unwrap_or(Err(Failure::Unread)),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn wait(&mut self, call: Call, until: Instant) -> oneshot::Receiver<Result<Value, Failure>> {
        let (caller, answer) = oneshot::channel();
        self.waiting.push_back(Job { call, until, caller });
        answer
    }

    /// What goes next: in the order in which it came, without those whose callers are gone.
    fn batch(&mut self) -> Vec<Job> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(job) = self.waiting.pop_front_if(|job| {
            bytes += job.call.bytes_len();
            batch.is_empty() || (batch.len() < BATCH_MAX && bytes <= BATCH_BYTES_MAX)
        }) {
            if !job.caller.is_closed() {
                batch.push(job);
            }
        }
        batch
    }
}

impl Turn {
    /// Makes the calls of all that wait, and of those who come meanwhile.
    async fn serve(self) {
        loop {
            // Those who were just answered come back at once: they go with the others.
            tokio::task::yield_now().await;
            // Before the batch is taken, so that nobody's call is sent who went away while this connected.
            let connected = self.lanes.connections[self.lane].connection().await;
            let batch = self.lanes.queue().batch();
            if batch.is_empty() {
                return;
            }
            if let Err(failure) = connected {
                batch.into_iter().for_each(|job| job.answer(Err(failure.clone())));
                continue;
            }
            let (in_time, late): (Vec<Job>, Vec<Job>) =
                batch.into_iter().partition(|job| Instant::now() < job.until);
            late.into_iter().for_each(|job| job.answer(Err(self.lanes.no_turn())));
            let answers = self.make(&in_time.iter().map(|job| &job.call).collect::<Vec<_>>()).await;
            in_time.into_iter().zip(answers).for_each(|(job, answer)| job.answer(answer));
        }
    }

    /// Makes these calls together; as many answers, in their order.
    async fn make(&self, calls: &[&Call]) -> Vec<Result<Value, Failure>> {
        let mut answers: Vec<Option<Result<Value, Failure>>> = calls.iter().map(|_| None).collect();
        let groups = grouped(calls);
        let unknown = self.send(calls, &groups, scripts::by_hash, &mut answers).await;
        if !unknown.is_empty() {
            self.send(calls, &unknown, scripts::in_full, &mut answers).await;
        }
        answers.into_iter().map(|answer| answer.unwrap_or(Err(Failure::Unread))).collect()
    }

    /// Sends each group as one command, and gives those whose script the server does not know: nothing of them has run.
    async fn send(
        &self,
        calls: &[&Call],
        groups: &[Vec<usize>],
        command: fn(&[&Call]) -> redis::Cmd,
        answers: &mut [Option<Result<Value, Failure>>],
    ) -> Vec<Vec<usize>> {
        let mut unknown = Vec::new();
        let connection = &self.lanes.connections[self.lane];
        let of_group = |group: &Vec<usize>| group.iter().map(|at| calls[*at]).collect::<Vec<_>>();
        let commands = groups.iter().map(|group| command(&of_group(group))).collect();
        let answered = match connection.run(commands, self.lanes.wait).await {
            Ok(answered) => answered,
            Err(failure) => {
                groups.iter().flatten().for_each(|at| answers[*at] = Some(Err(failure.clone())));
                return unknown;
            }
        };
        for (group, answer) in groups.iter().zip(answered.answers) {
            if matches!(&answer, Err(Failure::Sent(error)) if is_unknown_script(error)) {
                unknown.push(group.clone());
            }
            let parts = parts(answer, group.len());
            for (at, part) in group.iter().zip(parts) {
                answers[*at] = Some(part.and_then(|part| connection.read(answered.number, part)));
            }
        }
        unknown
    }
}

/// Gives the connection to those who wait, or back.
impl Drop for Turn {
    fn drop(&mut self) {
        let mut queue = self.lanes.queue();
        if queue.waiting.is_empty() {
            queue.free.push(self.lane);
        } else {
            let turn = Turn { lanes: Arc::clone(&self.lanes), lane: self.lane };
            drop(queue);
            self.lanes.runtime.spawn(turn.serve());
        }
    }
}

impl Lanes {
    fn no_turn(&self) -> Failure {
        Failure::NotSent(format!("no connection was free within {:?}", self.busy_for))
    }
}

impl Job {
    fn answer(self, answer: Result<Value, Failure>) {
        let _ = self.caller.send(answer);
    }
}

/// What a verb's command is answered: one part for each of its calls.
pub(super) fn parts(answer: Result<Value, Failure>, calls: usize) -> Vec<Result<Value, Failure>> {
    match answer {
        Ok(Value::Array(parts)) if parts.len() == calls => parts.into_iter().map(Ok).collect(),
        Ok(_) => vec![Err(Failure::Unread); calls],
        Err(failure) => vec![Err(failure); calls],
    }
}

/// The places of the calls of each script.
fn grouped(calls: &[&Call]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        match groups.iter_mut().find(|group| calls[group[0]].is_like(call)) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}
