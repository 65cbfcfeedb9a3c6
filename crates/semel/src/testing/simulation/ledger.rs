//! What really happened, kept beside the system, and the checks on it.
//!
//! The ledger knows nothing of the rules in [`record`](crate::record). It watches from two sides: `keys` has what
//! the store did, call by call; `effects` has what took effect and what callers were told; `questions` what probes
//! asked and heard.

mod effects;
mod keys;
mod questions;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;

use crate::environment::Timestamp;
use crate::key::Key;
use crate::store::{AttemptId, Outcome};

use keys::{Attempt, Seen};
use questions::Question;

pub(super) use effects::Value;

/// The checks, by name. A violation says which one it broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Each fence of a key's life has one holder, and every claim raises it.
    OneHolder,
    /// Nobody but a claim by force takes what runs under a live lease.
    NoTakeover,
    /// A write is made by the holder and by nobody else.
    Fenced,
    /// An attempt that is over never claims again.
    AttemptOver,
    /// What was completed, and what a caller was told of it, never changes.
    OutcomeStays,
    /// With park, with probe, and where nothing fails, no key's effect takes place twice in its life, unless an
    /// operator released it in between.
    EffectOnce,
    /// All effects in a key's life are of one request.
    OneRequest,
    /// Another request is told so, whatever else could be said.
    MismatchFirst,
    /// Nothing is said that invites a new key while the old one may have taken effect.
    NoInvitation,
    /// A lease lapses when its time is over, not before and not only when somebody sweeps. So does retention.
    Expiry,
    /// A key is remembered for its time.
    Remembered,
    /// A caller gets what its own run gave, and no run follows a refusal.
    Truth,
    /// A run is stopped when its process is told that the lease is lost.
    Stopped,
    /// When the faults are over everything ends, what a probe can find out is found out, and what is unknown can be
    /// resolved.
    Ends,
    /// Whoever asks about a key has a fence of its own, so only one asks at a time.
    OneAsks,
    /// Nobody asks about a key before it has been unknown for `probe_after`.
    AsksInTime,
    /// What a probe found out is what is written; without an answer the key stays as it was, cause and all.
    AsHeard,
    /// Without crashes nothing ends unknown of which nobody said so, however many answers are lost.
    NothingUnknown,
}

/// A check that failed, and how.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which one.
    pub check: Check,
    /// What happened.
    pub text: String,
}

/// Clones are the same ledger.
#[derive(Debug, Clone)]
pub(super) struct Ledger(Arc<Mutex<Book>>);

#[derive(Debug)]
struct Book {
    begun: Instant,
    /// Whether an effect may take place once only.
    once: bool,
    trace: Vec<String>,
    violations: Vec<Violation>,
    keys: BTreeMap<Key, Seen>,
    /// The latest that the store's clock has shown: what was forgotten then is gone although the clock went back.
    latest: Timestamp,
    /// How an attempt got its lease.
    attempts: BTreeMap<AttemptId, Attempt>,
    questions: BTreeMap<AttemptId, Question>,
    /// To which key and life an outcome belongs.
    outcomes: BTreeMap<Bytes, (Key, u32)>,
    /// What callers were told.
    told: BTreeMap<(Key, u32), Bytes>,
    /// Attempts whose process knows that their lease is lost.
    lost: BTreeSet<AttemptId>,
    runs: u64,
    started: BTreeMap<u64, AttemptId>,
    effects: u64,
    counts: BTreeMap<String, u64>,
}

impl Ledger {
    pub(super) fn new(once: bool) -> Ledger {
        Ledger(Arc::new(Mutex::new(Book {
            begun: Instant::now(),
            once,
            trace: Vec::new(),
            violations: Vec::new(),
            keys: BTreeMap::new(),
            latest: Timestamp(i64::MIN),
            attempts: BTreeMap::new(),
            questions: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            told: BTreeMap::new(),
            lost: BTreeSet::new(),
            runs: 0,
            started: BTreeMap::new(),
            effects: 0,
            counts: BTreeMap::new(),
        })))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line of the trace.
    pub(super) fn note(&self, line: String) {
        self.book().note(line);
    }

    /// A check failed.
    pub(super) fn violated(&self, check: Check, text: String) {
        self.book().violated(check, text);
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        self.book().violations.clone()
    }

    pub(super) fn trace(&self) -> Vec<String> {
        self.book().trace.clone()
    }

    pub(super) fn effects(&self) -> u64 {
        self.book().effects
    }

    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        self.book().counts.clone()
    }

    /// A number for an outcome that nothing else has made.
    pub(super) fn outcome(&self, key: &Key, by: &str, attempt: Option<AttemptId>) -> Outcome {
        let mut book = self.book();
        let life = match attempt {
            Some(attempt) => book.attempts.get(&attempt).map_or(0, |attempt| attempt.life),
            None => book.keys.get(key).map_or(0, |seen| seen.life),
        };
        let bytes = Bytes::from(format!("{}/{life}/{by} {}", key.as_str(), book.outcomes.len()));
        book.outcomes.insert(bytes.clone(), (key.clone(), life));
        Outcome::value(bytes)
    }
}

impl Book {
    fn note(&mut self, line: String) {
        let at = self.begun.elapsed().as_millis();
        let mut text = String::with_capacity(line.len() + 12);
        let _ = write!(text, "{at:>7} ");
        text.push_str(&line);
        self.trace.push(text);
    }

    fn violated(&mut self, check: Check, text: String) {
        self.note(format!("VIOLATED {check:?}: {text}"));
        self.violations.push(Violation { check, text });
    }

    fn expect(&mut self, holds: bool, check: Check, text: impl FnOnce() -> String) {
        if !holds {
            self.violated(check, text());
        }
    }

    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }
}

/// The head of an attempt's id, for the trace.
fn short(attempt: AttemptId) -> String {
    format!("{:02x}{:02x}", attempt.0[0], attempt.0[1])
}
