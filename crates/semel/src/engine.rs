//! Claim, run, settle, answer. The one place that decides whether something may run.
//!
//! 1. **The decision** is the `match` in `Engine::decided`, on what the store's one atomic step said.
//! 2. **The engine owns the run.** Claim, run and settlement live in a task of their own. A caller that goes away
//!    changes nothing: the run goes on and is settled (K9).
//! 3. **The lease is renewed** at a third of its length while the run lasts. When it is lost, the run is stopped
//!    and the record is the answer; when it cannot be renewed, the run goes on: until the fence has moved its late
//!    settlement is the truth (K7).
//! 4. **A caller waits** `answer_within` and no longer. The run is listened to for `late_answer_for` more; only
//!    then is it parked (G7).
//! 5. **A settlement is repeated** until the store answers, the fence has moved, or `late_answer_for` is over. The
//!    caller gets its true outcome after `Patience::settle` at the latest, marked as not recorded (K10).
//! 6. **A claim without an answer** is repeated under its attempt id, for `Patience::claim`. Then the caller is
//!    told that the store is unavailable, and a task asks on until it knows, to give back what it may have got:
//!    nothing ran (K10).
//! 7. **A scope has bounds**, asked before the store is: see [`Bounds`].
//! 8. **Stopping** refuses new work, waits for what runs, and parks what still runs at the limit (G6). A parked
//!    run goes on as long as the process does, and its late settlement counts.
//! 9. **A run that panics** is parked. Its effect is as unknown as that of a process that died.
//!
//! What it cannot promise: a run that took effect in a process that died before the settlement is *unknown*.
//! [`OnUnknown`] says what happens then; only the same transaction makes it certain.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::environment::Entropy;
use crate::fingerprint::{Algorithm, Fingerprint};
use crate::key::{Key, Scope};
use crate::observe;
use crate::policy::{OnUnknown, Policy};
use crate::store::{
    AttemptId, Cause, Claim, ClaimRequest, Label, Lease, Outcome, Purpose, Settlement, Store, StoreError, Was,
};

mod attempt;
mod bounds;
mod patience;
mod resolve;

use attempt::Attempt;
use bounds::{Place, Scopes};

pub use bounds::Bounds;
pub use patience::Patience;
pub use resolve::Resolved;

/// Runs operations at most as often as their policy allows. Clones share everything.
#[derive(Clone)]
pub struct Engine {
    store: Arc<dyn Store>,
    entropy: Entropy,
    patience: Patience,
    scopes: Arc<Scopes>,
    /// Everything that the engine does in tasks of its own.
    tasks: TaskTracker,
    /// A token for each run that is neither settled nor parked.
    unsettled: TaskTracker,
    /// No new work.
    stopping: CancellationToken,
    /// Park what still runs.
    parking: CancellationToken,
}

/// One operation, as a surface names it.
#[derive(Clone)]
pub struct Operation {
    scope: Scope,
    key: Key,
    fingerprint: Fingerprint,
    older: Option<Older>,
    label: Label,
    input: Option<Bytes>,
    policy: Arc<Policy>,
}

type Older = Arc<dyn Fn(Algorithm) -> Option<Fingerprint> + Send + Sync>;

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
    /// The store did not decide. Nothing ran.
    Unavailable(StoreError),
    /// The engine is stopping. Nothing ran.
    Stopping,
    /// The scope has as much going on as it may. The store was not asked, and nothing ran.
    TooMany,
}

impl Operation {
    /// An operation without a label and without input.
    #[must_use]
    pub fn new(scope: Scope, key: Key, fingerprint: Fingerprint, policy: Arc<Policy>) -> Operation {
        Operation { scope, key, fingerprint, older: None, label: Label::default(), input: None, policy }
    }

    /// What it is, for people.
    #[must_use]
    pub fn label(self, label: Label) -> Operation {
        Operation { label, ..self }
    }

    /// What a completer needs to run it again.
    #[must_use]
    pub fn input(self, input: Bytes) -> Operation {
        Operation { input: Some(input), ..self }
    }

    /// How to make the fingerprint by another algorithm, for records that an earlier version made.
    #[must_use]
    pub fn fingerprint_by(
        self,
        older: impl Fn(Algorithm) -> Option<Fingerprint> + Send + Sync + 'static,
    ) -> Operation {
        Operation { older: Some(Arc::new(older)), ..self }
    }
}

impl Engine {
    /// An engine over a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, entropy: Entropy) -> Engine {
        Engine {
            store,
            entropy,
            patience: Patience::default(),
            scopes: Scopes::new(Bounds::default()),
            tasks: TaskTracker::new(),
            unsettled: TaskTracker::new(),
            stopping: CancellationToken::new(),
            parking: CancellationToken::new(),
        }
    }

    /// The same engine with other bounds on the store's calls.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Engine {
        Engine { patience, ..self }
    }

    /// The same engine with other bounds on what one scope may have.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> Engine {
        Engine { scopes: Scopes::new(bounds), ..self }
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
            observe::decided("stopping");
            return Answer::Stopping;
        }
        let Some(place) = self.scopes.enter(&operation.scope) else {
            observe::decided("too_many");
            return Answer::TooMany;
        };
        let (reply, answer) = oneshot::channel();
        let engine = self.clone();
        // In a box: it is large, and spawning moves it more than once.
        self.tasks.spawn(Box::pin(engine.decided(operation, place, run, reply)));
        // The task answers on every path; it is gone without an answer only when the runtime is being torn down.
        answer.await.unwrap_or(Answer::Unknown { cause: Cause::SHUTDOWN, age: Duration::ZERO })
    }

    /// Refuses new work, waits up to `limit` for what runs, then parks what still does. Gives how many were
    /// parked.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.stopping.cancel();
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_ok() {
            return 0;
        }
        let parked = self.unsettled.len();
        self.parking.cancel();
        self.unsettled.close();
        let _ = tokio::time::timeout(self.patience.settle, self.unsettled.wait()).await;
        parked
    }

    /// The decision. The scope's place is held until the claim is refused, or its run is settled.
    async fn decided<T, F, Fut>(
        self,
        operation: Operation,
        place: Place,
        run: F,
        reply: oneshot::Sender<Answer<T>>,
    ) where
        F: FnOnce(Lease) -> Fut + Send + 'static,
        Fut: Future<Output = (Verdict, T)> + Send + 'static,
        T: Send + 'static,
    {
        let place = Arc::new(place);
        let (result, answer) = match self.claim(&operation, &place).await {
            // The time to stop in is over, and nothing has run yet: nothing begins that could only be parked.
            Ok(Claim::Acquired(lease)) if self.parking.is_cancelled() => {
                self.give_back(&lease, &operation.policy).await;
                ("stopping", Answer::Stopping)
            }
            Ok(Claim::Acquired(lease)) => {
                observe::decided("run");
                if lease.was == Was::New {
                    place.counts_new();
                }
                return Attempt::new(self, lease, operation, reply).run(run).await;
            }
            Ok(Claim::Completed { outcome, age, attempts }) => {
                ("replay", Answer::Replay { outcome, age, attempts })
            }
            Ok(Claim::InFlight { retry_after, age }) => ("in_flight", Answer::InFlight { retry_after, age }),
            Ok(Claim::Mismatch { .. }) => ("mismatch", Answer::Mismatch),
            Ok(Claim::Unknown { cause, age, .. }) => ("unknown", Answer::Unknown { cause, age }),
            Ok(Claim::Dead { cause, age, .. }) => ("dead", Answer::Dead { cause, age }),
            Ok(Claim::Forgotten { age }) => ("late", Answer::Forgotten { age }),
            Ok(Claim::Moved) => {
                ("unavailable", Answer::Unavailable(StoreError::Refused("a run was told Moved".into())))
            }
            Err(error) => ("unavailable", Answer::Unavailable(error)),
        };
        observe::decided(result);
        let _ = reply.send(answer);
    }

    /// Claims, asking again where an answer is lost, and by an older algorithm where the record has one.
    async fn claim(&self, operation: &Operation, place: &Arc<Place>) -> Result<Claim, StoreError> {
        let mut request = self.request(operation);
        let claim = self.claim_patiently(&request, &operation.policy, place).await?;
        let Claim::Mismatch { algorithm } = claim else { return Ok(claim) };
        if algorithm == operation.fingerprint.algorithm {
            return Ok(claim);
        }
        let older = operation.older.as_ref().and_then(|older| older(algorithm));
        let Some(older) = older.filter(|older| older.algorithm == algorithm) else {
            // Not "another request": that would invite a new key, and the first attempt may have run.
            let reason = format!("the record's fingerprint has algorithm {}, unknown here", algorithm.0);
            return Err(StoreError::Corrupt(reason.into()));
        };
        if let Purpose::Run { fingerprint, .. } = &mut request.purpose {
            *fingerprint = older;
        }
        self.claim_patiently(&request, &operation.policy, place).await
    }

    fn request(&self, operation: &Operation) -> ClaimRequest {
        ClaimRequest {
            scope: operation.scope.clone(),
            key: operation.key.clone(),
            attempt: AttemptId::random(&self.entropy),
            purpose: Purpose::Run {
                fingerprint: operation.fingerprint,
                rerun: operation.policy.on_unknown == OnUnknown::Rerun,
                attempts_max: operation.policy.attempts_max,
            },
            lease_for: operation.policy.lease_for,
            label: operation.label.clone(),
            input: operation.input.clone(),
        }
    }

    async fn claim_patiently(
        &self,
        request: &ClaimRequest,
        policy: &Policy,
        place: &Arc<Place>,
    ) -> Result<Claim, StoreError> {
        let claimed = self.patiently("claim", self.patience.claim, || self.store.claim(request)).await;
        if let Err(StoreError::Indeterminate(_)) = claimed {
            self.tasks.spawn(self.clone().withdraw(request.clone(), policy.clone(), place.clone()));
        }
        claimed
    }

    /// Gives back a claim whose answer never came. It is open until then, so it keeps its place.
    async fn withdraw(self, request: ClaimRequest, policy: Policy, _place: Arc<Place>) {
        let within = policy.late_answer_for;
        let claimed = self.patiently("claim", within, || self.store.claim(&request)).await;
        if let Ok(Claim::Acquired(lease)) = claimed {
            self.give_back(&lease, &policy).await;
        }
    }

    /// Ends a claim under which nothing ran.
    async fn give_back(&self, lease: &Lease, policy: &Policy) {
        let settlement = match lease.was {
            // It took over what was unknown, so that is what it gives back.
            Was::Lapsed | Was::Unknown => Settlement::Park { cause: Cause::LAPSED },
            _ => not_run(policy),
        };
        let within = policy.late_answer_for;
        let _ = self.patiently("settle", within, || self.store.settle(lease, &settlement)).await;
    }
}

/// The end of a claim under which nothing ran. What it bound stays bound (K6).
fn not_run(policy: &Policy) -> Settlement {
    Settlement::Release { not_before: None, unbind: false, ran: false, remember_for: policy.remember_for }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("store", &self.store)
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("scope", &self.scope)
            .field("key", &self.key)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
