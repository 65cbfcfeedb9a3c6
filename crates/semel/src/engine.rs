//! Claim, run, settle, answer. The one place that decides whether something may run.
//!
//! 1. **The decision** is the `match` in `Engine::decided`, on what the store's one atomic step said.
//! 2. **The engine owns the run.** Claim, run and settlement are one future. Its first step is made where the caller
//!    is, and what that does not end goes on in a task of its own, before the caller gets to anything else. So a claim
//!    that the store answers at once needs no task, and a caller that goes away changes nothing: the run goes on and is
//!    settled (K9).
//! 3. **The lease is renewed** at a third of its length while the run lasts. When it is lost, the run is stopped
//!    and the record is the answer; when it cannot be renewed, the run goes on: until the fence has moved its late
//!    settlement is the truth (K7).
//! 4. **A caller waits** `answer_within` and no longer. The run is listened to for `late_answer_for` more; only
//!    then is it parked (G7).
//! 5. **A settlement is repeated** until the store answers, the fence has moved, or `late_answer_for` is over. The
//!    caller gets its true outcome after `Patience::settle` at the latest, marked as not recorded (K10).
//! 6. **A claim without an answer** is repeated under its attempt id, for `Patience::claim`. Then the caller is
//!    told that the store is unavailable, and a task asks on until it knows, to give back what it may have got:
//!    nothing ran (K10). It does so too when a repetition is refused for good, for as long as `late_answer_for`;
//!    a store that refuses for longer lets the claim lapse to unknown.
//! 7. **A scope has bounds**, asked before the store is: see [`Bounds`].
//! 8. **Stopping** refuses new work, waits for what runs, and parks what still runs at the limit (G6). A parked
//!    run goes on as long as the process does, and its late settlement counts.
//! 9. **A run that panics** is parked. Its effect is as unknown as that of a process that died.
//! 10. **What is unknown can be asked about** ([`Probe`]): by a request that meets it, and in the background by
//!     whoever calls [`Engine::probe_unsettled`]. The rules, and the hazard, are in `engine/probe.rs`.
//! 11. **A key that carries its time** and is too old to be new begins nothing ([`Age`]).
//! 12. **In flight is told at once**, unless the operation may wait ([`Operation::wait`]).
//!
//! What it cannot promise: a run that took effect in a process that died before the settlement is *unknown*.
//! [`OnUnknown`](crate::OnUnknown) says what happens then; only the same transaction makes it certain.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::environment::Entropy;
use crate::history::History;
use crate::instance::{AttemptId, Instance};
use crate::observe::spikes::{Seen, Spikes};
use crate::observe::{Decided, EngineMeters, Meters};
use crate::store::{Cause, Claim, Lease, Outcome, Store, StoreError, Was};

mod age;
mod asking;
mod attempt;
mod bounds;
mod claim;
mod note;
mod open;
mod operation;
mod patience;
mod probe;
mod resolve;
mod wait;

use attempt::Attempt;
use bounds::{Place, Scopes};
use claim::Unclaimed;

pub use age::Age;
pub use asking::{Asking, Heard, Told};
pub use bounds::Bounds;
pub use note::Word;
pub use open::{Open, Waiting};
pub use operation::Operation;
pub use patience::Patience;
pub use probe::{Asked, Probe, Probed, Probing};
pub use resolve::Resolved;

/// Runs operations at most as often as their policy allows. Clones share everything.
#[derive(Clone)]
pub struct Engine(Arc<Parts>);

/// What an engine is. Behind one pointer, because every request clones its engine more than once: each part would be
/// counted up and down by all threads at the same time, and the tokens even under a lock.
#[derive(Clone)]
pub struct Parts {
    store: Arc<dyn Store>,
    entropy: Entropy,
    /// Whom its attempts name.
    instance: Option<Instance>,
    /// Where the store keeps timelines.
    history: Option<Arc<dyn History>>,
    patience: Patience,
    scopes: Arc<Scopes>,
    /// Everything that the engine does in tasks of its own.
    tasks: TaskTracker,
    /// A token for each run that is neither settled nor parked.
    unsettled: TaskTracker,
    /// A token for each question that is neither answered nor given up.
    asking: TaskTracker,
    /// Places for those that wait for another attempt.
    waiters: Arc<Semaphore>,
    meters: Arc<EngineMeters>,
    /// Of operations that come with none of their own.
    otherwise: Arc<Meters>,
    pub(crate) spikes: Arc<Spikes>,
    /// No new work.
    stopping: CancellationToken,
    /// Park what still runs.
    parking: CancellationToken,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has an outcome, which every retry gets.
    Keep(Outcome),
    /// It took no effect: the key may be tried again.
    Release {
        /// Not before so long from now.
        not_before: Option<Duration>,
        /// Also forget what was asked for, if this attempt was the first to ask.
        unbind: bool,
        /// Why, for the key's history: what the service answered, say. It decides nothing.
        cause: Option<Cause>,
    },
    /// Nothing ran: as released, and the attempt is not counted.
    NotRun,
    /// Nobody can tell whether it took effect.
    Unknown(Cause),
    /// It will never succeed.
    Bury(Cause),
}

/// What the caller is told.
#[derive(Debug)]
pub enum Answer<T> {
    /// Its own run ended.
    Ran {
        /// What the run gave.
        value: T,
        /// The lease it ran under.
        lease: Lease,
        /// Whether the end is in the store. If not, it is still being written.
        recorded: bool,
    },
    /// Its own run gave nothing: it panicked, or the process is being stopped. Unknown.
    Broke {
        /// Why.
        cause: Cause,
        /// The lease it ran under.
        lease: Lease,
    },
    /// Its own run goes on, for longer than the caller may wait.
    Late {
        /// The lease it runs under.
        lease: Lease,
    },
    /// Done before.
    Replay {
        /// What to answer.
        outcome: Outcome,
        /// Time since the key's first claim.
        age: Duration,
        /// How many attempts it took.
        attempts: u32,
    },
    /// Another attempt runs.
    InFlight {
        /// The lease's end, unless it is renewed.
        retry_after: Duration,
        /// Time since the key's first claim.
        age: Duration,
    },
    /// The key belongs to another request.
    Mismatch,
    /// An earlier attempt may or may not have taken effect, and the policy does not let this one run.
    Unknown {
        /// Why nobody knows.
        cause: Cause,
        /// Time since the key's first claim.
        age: Duration,
    },
    /// Given up.
    Dead {
        /// Why.
        cause: Cause,
        /// Time since the key's first claim.
        age: Duration,
    },
    /// Done before, and the outcome is gone.
    Forgotten {
        /// Time since the key's first claim.
        age: Duration,
    },
    /// The key says that it is older than keys are remembered, or that it is made in the future, and nothing is
    /// known of it. It may have been done and forgotten: nothing ran now, and a new key is a risk.
    OutOfAge,
    /// The store did not decide. Nothing ran.
    Unavailable(StoreError),
    /// The engine is stopping. Nothing ran.
    Stopping,
    /// The scope has as much going on as it may. The store was not asked, and nothing ran.
    TooMany,
}

impl Engine {
    /// An engine over a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, entropy: Entropy) -> Engine {
        Engine(Arc::new(Parts {
            store,
            entropy,
            instance: None,
            history: None,
            patience: Patience::default(),
            scopes: Scopes::new(Bounds::default()),
            tasks: TaskTracker::new(),
            unsettled: TaskTracker::new(),
            asking: TaskTracker::new(),
            waiters: wait::places(Bounds::default()),
            meters: Arc::default(),
            otherwise: Arc::new(Meters::new("engine", "")),
            spikes: Arc::default(),
            stopping: CancellationToken::new(),
            parking: CancellationToken::new(),
        }))
    }

    /// The same engine, whose attempts name this instance: a person who looks at a record sees who claimed it last.
    #[must_use]
    pub fn with_instance(self, instance: Instance) -> Engine {
        self.with(|parts| parts.instance = Some(instance))
    }

    /// The same engine, which writes down how attempts end: see [`history`](crate::history).
    #[must_use]
    pub fn with_history(self, history: Arc<dyn History>) -> Engine {
        self.with(|parts| parts.history = Some(history))
    }

    /// The same engine with other bounds on the store's calls.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Engine {
        self.with(|parts| parts.patience = patience)
    }

    /// The same engine with other bounds on what goes on at once.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Engine {
        self.with(|parts| {
            parts.scopes = Scopes::new(bounds);
            parts.waiters = wait::places(bounds);
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Parts)) -> Engine {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Runs the operation, or says why not.
    ///
    /// `run` is called at most once, with the lease in hand, and gives its verdict and a value for this caller.
    /// The value is handed over after the verdict is settled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the run goes on and is settled.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn once<T, F, Fut>(&self, operation: Operation, run: F) -> Answer<T>
    where
        F: FnOnce(Lease) -> Fut + Send + 'static,
        Fut: Future<Output = (Verdict, T)> + Send + 'static,
        T: Send + 'static,
    {
        if self.stopping.is_cancelled() {
            self.meters_of(&operation).decided(Decided::Stopping);
            return Answer::Stopping;
        }
        let Some(place) = self.scopes.enter(&operation.scope) else {
            self.meters_of(&operation).decided(Decided::TooMany);
            return Answer::TooMany;
        };
        let (reply, answer) = oneshot::channel();
        let decided = self.clone().decided(operation, place, run, reply);
        // In a box: it is large, and goes from here into a task.
        begin(Box::pin(self.tasks.track_future(decided)));
        // It answers on every path; it is gone without an answer only when the runtime is being torn down, or if the
        // engine or its store has panicked.
        answer.await.unwrap_or(Answer::Unknown { cause: Cause::SHUTDOWN, age: Duration::ZERO })
    }

    /// Refuses new work, waits up to `limit` for what runs, then parks what still does. Gives how many runs were
    /// parked. Nobody waits for another attempt any longer, and no question begins; one that is still asked at the
    /// limit is broken off, and leaves the key as it was.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.stopping.cancel();
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_ok() {
            return 0;
        }
        let parked = self.unsettled.len();
        self.parking.cancel();
        self.unsettled.close();
        self.asking.close();
        let ended = async { tokio::join!(self.unsettled.wait(), self.asking.wait()) };
        let _ = tokio::time::timeout(self.patience.settle, ended).await;
        parked
    }

    /// The decision. The scope's place is held until the claim is refused, or its run is settled.
    async fn decided<T, F, Fut>(
        self,
        operation: Operation,
        place: Place,
        run: F,
        mut reply: oneshot::Sender<Answer<T>>,
    ) where
        F: FnOnce(Lease) -> Fut + Send + 'static,
        Fut: Future<Output = (Verdict, T)> + Send + 'static,
        T: Send + 'static,
    {
        let place = Arc::new(place);
        let (decided, seen, answer) = match self.claim(&operation, &place, &mut reply).await {
            // The time to stop in is over, and nothing has run yet: nothing begins that could only be parked.
            Ok(Claim::Acquired(lease)) if self.parking.is_cancelled() => {
                self.give_back(lease, &operation.policy).await;
                (Decided::Stopping, Seen::First, Answer::Stopping)
            }
            // What was known is forgotten, and the key is too old to be new.
            Ok(Claim::Acquired(lease)) if operation.never_new && age::is_first(&lease) => {
                self.give_back(lease, &operation.policy).await;
                (Decided::OutOfAge, Seen::First, Answer::OutOfAge)
            }
            Ok(Claim::Acquired(lease)) => {
                let is_new = lease.was == Was::New;
                self.saw(&operation, Decided::Run, if is_new { Seen::First } else { Seen::Again });
                if is_new {
                    place.counts_new();
                }
                self.note_takeover(&lease);
                return Attempt::new(self, lease, operation, reply).run(run).await;
            }
            Ok(Claim::Completed { outcome, age, attempts }) => {
                (Decided::Replay, Seen::Replay { age }, Answer::Replay { outcome, age, attempts })
            }
            Ok(Claim::InFlight { retry_after, age }) => {
                (Decided::InFlight, Seen::InFlight, Answer::InFlight { retry_after, age })
            }
            Ok(Claim::Mismatch { .. }) => (Decided::Mismatch, Seen::Mismatch, Answer::Mismatch),
            Ok(Claim::Unknown { cause, age, .. }) => {
                (Decided::Unknown, Seen::Waiting, Answer::Unknown { cause, age })
            }
            Ok(Claim::Dead { cause, age, .. }) => (Decided::Dead, Seen::Waiting, Answer::Dead { cause, age }),
            Ok(Claim::Forgotten { age }) => (Decided::Late, Seen::Late, Answer::Forgotten { age }),
            Ok(Claim::Moved) => {
                let error = StoreError::Refused("a run was told Moved".into());
                (Decided::Unavailable, Seen::First, Answer::Unavailable(error))
            }
            Err(Unclaimed::OutOfAge) => (Decided::OutOfAge, Seen::First, Answer::OutOfAge),
            Err(Unclaimed::Store(error)) => (Decided::Unavailable, Seen::First, Answer::Unavailable(error)),
        };
        self.saw(&operation, decided, seen);
        let _ = reply.send(answer);
    }

    /// Counts a decision, once.
    fn saw(&self, operation: &Operation, decided: Decided, seen: Seen) {
        let meters = self.meters_of(operation);
        meters.decided(decided);
        match seen {
            Seen::First | Seen::Mismatch => {}
            Seen::Replay { age } => {
                meters.duplicate();
                meters.replayed(age);
            }
            _ => meters.duplicate(),
        }
        self.spikes.saw(&operation.scope, &operation.key, seen);
    }

    /// An attempt of its own.
    fn new_attempt(&self) -> AttemptId {
        match self.instance {
            Some(instance) => AttemptId::random_of(instance, &self.entropy),
            None => AttemptId::random(&self.entropy),
        }
    }

    fn meters_of<'a>(&'a self, operation: &'a Operation) -> &'a Meters {
        operation.meters.as_deref().unwrap_or(&self.otherwise)
    }

    /// Shows what this engine counts at nought, before anything has happened: an alert looks at what rises, and what
    /// appears with its first event has not risen.
    pub fn register_metrics(&self) {
        self.meters.register();
        self.spikes.register();
    }
}

/// Makes the first step here, and has the rest made by a task, if there is a rest. A step cannot be broken off, and
/// nothing is between it and the task, so nobody can drop what has begun.
///
/// No waker is lost: a task is polled when it is new, and then everything is told its own. A panic ends the future, as
/// in a task.
fn begin(mut future: Pin<Box<impl Future<Output = ()> + Send + 'static>>) {
    let mut first = Context::from_waker(Waker::noop());
    let step = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut first)));
    if matches!(step, Ok(Poll::Pending)) {
        tokio::spawn(future);
    }
}

impl Deref for Engine {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("store", &self.store)
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}
