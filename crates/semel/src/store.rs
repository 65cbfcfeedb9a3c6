//! The contract that every store keeps.
//!
//! 1. Every verb is atomic, and [`claim`](Store::claim) alone decides whether an attempt may run (K1).
//! 2. Every verb may be repeated: whoever lost the answer asks again, with the same attempt id or the same lease,
//!    and hears the same (K2).
//! 3. Every write is fenced: [`renew`](Store::renew) and [`settle`](Store::settle) touch a record only while it
//!    carries the lease's fence **and** attempt id (K3).
//! 4. The store's clock decides leases and retention. Durations cross the trait, instants do not (K5).
//! 5. Expiry is judged inside `claim`; [`sweep`](Store::sweep) only frees space. Reads do not write (K7).
//! 6. What each verb answers is written once, in [`record`](crate::record). A store applies those rules or is
//!    compared with them; the contract suite in `testing` has a test for each clause.
//!
//! Expected results are values; a [`StoreError`] says what the caller must do next. The traits are used as
//! `Arc<dyn Store>`: a store call is a trip to a disk or a network, one boxed future is nothing beside it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::fingerprint::{Algorithm, Fingerprint};
pub use crate::instance::AttemptId;
use crate::key::{Key, Scope};

/// Keeps the records.
///
/// # Cancel safety
///
/// A caller may drop any of these futures. The call may then have happened or not, as with
/// [`StoreError::Indeterminate`], and repeating it is the way to find out. A store whose driver does not bear
/// cancellation runs the call in a task of its own.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Decides, in one atomic step, whether this attempt may run.
    ///
    /// Repeated with the same attempt id it gives the same answer: the lease that it already has, extended.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError>;

    /// Extends the lease to `lease_for` from now, while the running record still carries its fence, lapsed or
    /// not. Otherwise [`StoreError::LeaseLost`].
    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError>;

    /// Ends the attempt. Repeated with the same lease and settlement it succeeds again.
    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError>;

    /// One record as it reads now. For people and for answers, never for a decision.
    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError>;

    /// Lapsed, unknown and dead records, oldest first, at most `limit`, from behind `after` on.
    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError>;

    /// Frees space, at most `limit` records. Every answer is the same without it.
    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError>;
}

/// What a caller asks of [`Store::claim`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Within what the key is unique.
    pub scope: Scope,
    /// The operation.
    pub key: Key,
    /// Who asks. Every repetition of one claim carries the same id, every new attempt another.
    pub attempt: AttemptId,
    /// What for.
    pub purpose: Purpose,
    /// How long the lease lasts unless it is renewed. Zero is a lease that has lapsed at once, never "none".
    pub lease_for: Duration,
    /// For people: what the operation is.
    pub label: Label,
    /// What a completer needs to run the operation again; at most what its owner allows.
    pub input: Option<Bytes>,
}

/// What a claim is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To run the operation.
    Run {
        /// What is asked for; bound to the key by the first claim.
        fingerprint: Fingerprint,
        /// Whether this claim may also take what is unknown.
        rerun: bool,
        /// With so many attempts behind it the record is dead.
        attempts_max: u32,
    },
    /// To end what an earlier attempt left open: a probe, an operator, a redrive. Counts no attempt.
    Settle {
        /// The fence that was seen. The claim takes the record in exactly that state or not at all.
        seen: Fence,
        /// Also take what is running.
        force: bool,
    },
}

/// A number that every claim of a record raises. Larger is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// Proof of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Within what the key is unique.
    pub scope: Scope,
    /// The operation.
    pub key: Key,
    /// The fence of the claim.
    pub fence: Fence,
    /// The attempt that claimed.
    pub attempt: AttemptId,
    /// Attempts so far, this one included.
    pub attempts: u32,
    /// What the record was before the claim.
    pub was: Was,
    /// An earlier attempt may have taken effect and nobody has found out. A caller must not be told that nothing
    /// happened.
    pub doubt: bool,
}

/// What a record was before it was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Was {
    /// There was none.
    New,
    /// An attempt ended without effect.
    Released,
    /// An attempt's lease had run out.
    Lapsed,
    /// An attempt's end was unsure.
    Unknown,
    /// It had been given up.
    Dead,
    /// It was running, and was taken by force.
    Running,
}

/// What [`Store::claim`] decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Run, and settle.
    Acquired(Lease),
    /// Another attempt runs, or a released key is not to be tried yet.
    InFlight {
        /// When asking again makes sense.
        retry_after: Duration,
        /// Time since the key's first claim.
        age: Duration,
    },
    /// It is done: replay.
    Completed {
        /// What to answer.
        outcome: Outcome,
        /// Time since the key's first claim.
        age: Duration,
        /// How many attempts it took.
        attempts: u32,
    },
    /// The key is bound to another request.
    Mismatch {
        /// How the bound fingerprint was made. If the claim's was made otherwise, they were not compared.
        algorithm: Algorithm,
    },
    /// An attempt may or may not have taken effect.
    Unknown {
        /// The fence, for a claim that settles it.
        fence: Fence,
        /// Why nobody knows.
        cause: Cause,
        /// Time since the key's first claim.
        age: Duration,
    },
    /// It was given up.
    Dead {
        /// The fence, for a redrive.
        fence: Fence,
        /// Why.
        cause: Cause,
        /// Time since the key's first claim.
        age: Duration,
    },
    /// It was completed, and the outcome is gone.
    Forgotten {
        /// Time since the key's first claim.
        age: Duration,
    },
    /// Only for [`Purpose::Settle`]: the record is not in the state that was seen. Nothing was taken.
    Moved,
}

/// How an attempt ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It has an outcome, which every retry gets.
    Complete {
        /// The outcome.
        outcome: Outcome,
        /// How long it is replayed.
        replay_for: Duration,
        /// How long the key is remembered; no shorter than it is replayed.
        remember_for: Duration,
    },
    /// It took no effect: the key may be claimed again.
    Release {
        /// Not before so long from now.
        not_before: Option<Duration>,
        /// Also forget the fingerprint, if it was this claim that bound it.
        unbind: bool,
        /// Whether anything ran under the claim. If nothing did, the attempt is not counted.
        ran: bool,
        /// How long the key is remembered.
        remember_for: Duration,
    },
    /// Nobody can tell whether it took effect.
    Park {
        /// Why.
        cause: Cause,
    },
    /// It was tried often enough, or is impossible for good.
    Bury {
        /// Why.
        cause: Cause,
    },
}

/// What is replayed. The core does not look inside.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What the bytes are: [`Outcome::VALUE`], or a surface's own encoding. Kept in the store.
    pub format: u8,
    /// The bytes.
    pub bytes: Bytes,
}

impl Outcome {
    /// A plain value of the caller's.
    pub const VALUE: u8 = 0;
    /// An HTTP response as `semel-http` encodes it.
    pub const HTTP: u8 = 1;

    /// An outcome that is a plain value.
    pub fn value(bytes: impl Into<Bytes>) -> Outcome {
        Outcome { format: Outcome::VALUE, bytes: bytes.into() }
    }
}

/// A plain value.
impl From<Bytes> for Outcome {
    fn from(bytes: Bytes) -> Outcome {
        Outcome::value(bytes)
    }
}

/// A plain value.
impl From<Vec<u8>> for Outcome {
    fn from(bytes: Vec<u8>) -> Outcome {
        Outcome::value(bytes)
    }
}

/// A plain value: the text in UTF-8.
impl From<String> for Outcome {
    fn from(text: String) -> Outcome {
        Outcome::value(text)
    }
}

/// A plain value: the text in UTF-8.
impl From<&'static str> for Outcome {
    fn from(text: &'static str) -> Outcome {
        Outcome::value(text)
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outcome(format {}, {} bytes)", self.format, self.bytes.len())
    }
}

/// Why a record is unknown or dead: a short stable word that counts and alarms go by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cause(Cow<'static, str>);

impl Cause {
    /// The lease ran out: the process died, or slept.
    pub const LAPSED: Cause = Cause(Cow::Borrowed("lapsed"));
    /// No answer within the time that the run may take.
    pub const TIMEOUT: Cause = Cause(Cow::Borrowed("timeout"));
    /// The connection broke after the request was sent.
    pub const CUT: Cause = Cause(Cow::Borrowed("cut"));
    /// The run panicked.
    pub const PANIC: Cause = Cause(Cow::Borrowed("panic"));
    /// The process was stopped while it ran.
    pub const SHUTDOWN: Cause = Cause(Cow::Borrowed("shutdown"));
    /// The application said so itself.
    pub const SAID: Cause = Cause(Cow::Borrowed("said"));
    /// As many attempts as are allowed.
    pub const ATTEMPTS_EXHAUSTED: Cause = Cause(Cow::Borrowed("attempts-exhausted"));
    /// Longer ones are cut, at a character's border.
    pub const BYTES_MAX: usize = 100;

    /// A cause of the caller's own.
    pub fn new(text: impl Into<String>) -> Cause {
        Cause(Cow::Owned(cut(text.into(), Cause::BYTES_MAX)))
    }

    /// The word.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// For people: what an operation is, say `POST /charges`. Holds nothing secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Label(String);

impl Label {
    /// Longer ones are cut, at a character's border.
    pub const BYTES_MAX: usize = 200;

    /// A label.
    pub fn new(text: impl Into<String>) -> Label {
        Label(cut(text.into(), Label::BYTES_MAX))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

/// A record as it reads now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Within what the key is unique.
    pub scope: Scope,
    /// The operation.
    pub key: Key,
    /// Its state.
    pub view: View,
    /// The fence of the latest claim.
    pub fence: Fence,
    /// The attempt that claimed last.
    pub attempt: AttemptId,
    /// Attempts so far.
    pub attempts: u32,
    /// What the key is bound to.
    pub fingerprint: Option<Fingerprint>,
    /// What the operation is.
    pub label: Label,
    /// What a completer needs.
    pub input: Option<Bytes>,
    /// Time since the key's first claim.
    pub age: Duration,
    /// Time since it came into this state.
    pub since: Duration,
    /// Where a listing goes on behind this entry.
    pub cursor: Cursor,
}

/// A record's state as it reads now, expiry included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// An attempt holds the lease.
    Running {
        /// For so long, unless renewed.
        lease_left: Duration,
    },
    /// May be claimed again.
    Released {
        /// But not before so long from now.
        not_before: Duration,
    },
    /// The attempt may or may not have taken effect: it was parked, or its lease has lapsed.
    Unknown {
        /// Why nobody knows.
        cause: Cause,
    },
    /// Done, and replayed.
    Completed {
        /// The outcome.
        outcome: Outcome,
    },
    /// Done; the outcome is gone, the key is remembered.
    Forgotten,
    /// Given up.
    Dead {
        /// Why.
        cause: Cause,
    },
}

/// A place in a listing. Only the store that made it can read it; to another it is [`StoreError::Refused`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Cursor(pub Vec<u8>);

/// What a sweep freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Outcomes dropped; their keys are still remembered.
    pub outcomes: u32,
    /// Records dropped.
    pub records: u32,
}

impl Swept {
    /// Everything together.
    #[must_use]
    pub fn total(self) -> u32 {
        self.outcomes + self.records
    }
}

/// The cause of a [`StoreError`], for people.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong, by what the caller must do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was written. Repeat the call, later.
    #[error("the store is unavailable, nothing was written: {0}")]
    Unavailable(#[source] BoxError),
    /// It may have been written. Repeat the call, with the same attempt id or lease.
    #[error("the store did not answer, the call may have happened: {0}")]
    Indeterminate(#[source] BoxError),
    /// The record's fence has moved, or the record is gone: what it says now is the truth.
    #[error("the lease is lost: the record has another owner")]
    LeaseLost,
    /// It will never succeed: the attempt was already settled otherwise. Do not repeat.
    #[error("refused: {0}")]
    Refused(#[source] BoxError),
    /// What the store holds cannot be read. A person must look.
    #[error("the store is corrupt: {0}")]
    Corrupt(#[source] BoxError),
}

impl StoreError {
    /// Whether repeating the same call can help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Unavailable(_) | StoreError::Indeterminate(_))
    }
}
