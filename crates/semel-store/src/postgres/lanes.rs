//! The connections that claims and settlements go over, and the batches that they make.
//!
//! 1. **A key has its lane**, by a hash of key and scope: one process never waits for itself in two transactions.
//! 2. A lane is a task with a connection. It takes what waits, at most [`CALLS_MAX`] calls, makes one batch of it, and
//!    answers. What comes meanwhile is the next batch: under load many calls share a round trip and a commit, and a call
//!    alone waits for nobody.
//! 3. The task is nobody's request: a caller that goes away cancels nothing.
//! 4. **Bounded**: a lane holds [`WAITING_MAX`] calls, and a call waits `busy_for` for room, and as long again for its turn
//!    and a connection. Then it is `Unavailable`: it was not sent.
//! 5. **One bad call hurts nobody else.** If the batch fails by what is in it, its calls are made again, one by one. What
//!    conflicts with somebody else's transaction is made again a few times.
//! 6. A connection that does not answer for [`ANSWER_FOR`] is given up, and what was asked is `Indeterminate`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::call::{Answer, Call, Ending, Verb};
use super::error::{Failure, Kind};
use super::link::Link;
use super::session::Session;
use super::{functions, tables};

/// Calls in one batch.
const CALLS_MAX: usize = 512;

/// Bytes in one batch, about; one call may be larger.
const BYTES_MAX: usize = 8 << 20;

/// Calls that wait in one lane.
const WAITING_MAX: usize = 4_096;

/// Longer than the statements' `lock_timeout`, which a batch of calls may use up several times.
const ANSWER_FOR: Duration = Duration::from_secs(30);

/// How often a call is made that conflicts with another transaction.
const TRIES_MAX: u32 = 5;

/// Before such a call is made again.
const PAUSE: Duration = Duration::from_millis(2);

/// The lanes of one store. They end when it is dropped, after what they had accepted.
pub(super) struct Lanes {
    lanes: Vec<mpsc::Sender<Call>>,
    busy_for: Duration,
}

impl Lanes {
    /// The first lane takes the connection that is there.
    pub(super) fn start(address: &Arc<Address>, first: Session, busy_for: Duration) -> Lanes {
        let mut first = Some(first);
        let lanes = (0..address.pool).map(|_| {
            let link = match first.take() {
                Some(client) => Link::with(Arc::clone(address), client),
                None => Link::new(Arc::clone(address)),
            };
            let (sender, calls) = mpsc::channel(WAITING_MAX);
            tokio::spawn(Lane { link, functions: address.functions, busy_for }.run(calls));
            sender
        });
        Lanes { lanes: lanes.collect(), busy_for }
    }

    pub(super) async fn ask(&self, verb: Verb) -> Result<Answer, Failure> {
        let mut hasher = DefaultHasher::new();
        verb.place().hash(&mut hasher);
        let lane = &self.lanes[(hasher.finish() % self.lanes.len() as u64) as usize];
        let (answer, answered) = oneshot::channel();
        let call = Call { verb, answer, since: Instant::now() };
        match timeout(self.busy_for, lane.send(call)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Failure::said(Kind::Unavailable, "the store has ended")),
            Err(_) => return Err(Failure::said(Kind::Unavailable, "too many calls wait for the server")),
        }
        let gone =
            |_| Err(Failure::said(Kind::Indeterminate, "the connection's task ended before it answered"));
        answered.await.unwrap_or_else(gone)
    }
}

struct Lane {
    link: Link,
    functions: bool,
    busy_for: Duration,
}

impl Lane {
    async fn run(mut self, mut calls: mpsc::Receiver<Call>) {
        let mut taken = Vec::with_capacity(CALLS_MAX);
        while calls.recv_many(&mut taken, CALLS_MAX).await > 0 {
            let mut waiting = taken.drain(..).peekable();
            while waiting.peek().is_some() {
                let (mut batch, mut bytes) = (Vec::new(), 0);
                while let Some(call) = waiting.next_if(|call| bytes == 0 || bytes + size(call) <= BYTES_MAX) {
                    bytes += size(&call);
                    batch.push(call);
                }
                self.serve(batch).await;
            }
        }
    }

    /// Makes a batch, and what of it failed by itself once more, alone.
    async fn serve(&mut self, batch: Vec<Call>) {
        let batch = self.in_time(batch);
        if batch.is_empty() {
            return;
        }
        let oldest = batch.iter().map(|call| call.since).min().unwrap_or_else(Instant::now);
        let is_alone = batch.len() == 1;
        let answers = self.attempt(&batch, oldest + self.busy_for).await;
        for (call, answer) in batch.into_iter().zip(answers) {
            match answer {
                Err(failure)
                    if failure.kind() == Kind::Conflict || (failure.spares_others() && !is_alone) =>
                {
                    let answer = self.alone(&call).await;
                    call.answer(answer);
                }
                answer => call.answer(answer),
            }
        }
    }

    /// Those whose turn came in time; the others are told that they were not sent.
    fn in_time(&self, batch: Vec<Call>) -> Vec<Call> {
        let now = Instant::now();
        let (late, batch): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|call| call.since + self.busy_for < now);
        for call in late {
            call.answer(Err(Failure::said(Kind::Unavailable, "the call waited too long for its turn")));
        }
        batch
    }

    async fn alone(&mut self, call: &Call) -> Result<Answer, Failure> {
        let mut tries = 1;
        loop {
            let until = Instant::now() + self.busy_for;
            let answer = self.attempt(std::slice::from_ref(call), until).await.pop();
            let answer = answer.unwrap_or_else(|| Err(super::rows::strange()));
            match answer {
                Err(failure) if failure.kind() == Kind::Conflict && tries < TRIES_MAX => {
                    sleep(PAUSE * 2u32.pow(tries)).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Sends the calls once. An answer for each.
    async fn attempt(&mut self, calls: &[Call], until: Instant) -> Vec<Result<Answer, Failure>> {
        let client = match self.link.client(until).await {
            Ok(client) => client,
            Err(failure) => return all(calls.len(), &failure),
        };
        let verbs: Vec<&Verb> = calls.iter().map(|call| &call.verb).collect();
        let running = async {
            if self.functions {
                functions::run(&client, &verbs).await
            } else {
                tables::run(&client, &verbs).await
            }
        };
        let answers = match timeout(ANSWER_FOR, running).await {
            Ok(answers) => answers,
            Err(_) => all(calls.len(), &Failure::said(Kind::Indeterminate, "the server does not answer")),
        };
        if answers.iter().any(|answer| answer.as_ref().is_err_and(Failure::ends_connection)) {
            self.link.drop_client();
        }
        answers
    }
}

/// The same failure for each of so many calls.
pub(super) fn all(count: usize, failure: &Failure) -> Vec<Result<Answer, Failure>> {
    (0..count).map(|_| Err(failure.clone())).collect()
}

fn size(call: &Call) -> usize {
    use semel::Settlement::Complete;
    match &call.verb {
        Verb::Claim(request) => request.input.as_ref().map_or(0, bytes::Bytes::len),
        Verb::Settle(_, Ending::Settlement(Complete { outcome, .. })) => outcome.bytes.len(),
        Verb::Settle(..) => 0,
    }
}
