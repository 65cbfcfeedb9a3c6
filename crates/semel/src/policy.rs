//! What holds for one operation: how long, how often, and what happens to what nobody knows.
//!
//! Lease and retention are different times (K4). The lease is short and renewed while the run lasts, so a crash
//! frees the key in seconds and a slow run keeps it. Retention is counted from completion.

use std::time::Duration;

/// "For ever", as a retention.
pub const FOREVER: Duration = Duration::MAX;

/// What may happen to an operation that may or may not have taken effect (K7). There is no default: whoever
/// builds a policy says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnUnknown {
    /// Wait for an operator. Never silently twice.
    Park,
    /// Run it again: right only where repeating is safe. At least once.
    Rerun,
}

impl OnUnknown {
    /// The word in configuration and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            OnUnknown::Park => "park",
            OnUnknown::Rerun => "rerun",
        }
    }
}

/// The settings of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// What may happen to what is unknown.
    pub on_unknown: OnUnknown,
    /// How long a lease lasts; renewed at a third of it. 30 s.
    pub lease_for: Duration,
    /// How long a caller waits for its own run. `None`, the default: as long as it takes.
    pub answer_within: Option<Duration>,
    /// How long after `answer_within` a run is still listened to, and how long a settlement is repeated. 5 min.
    pub late_answer_for: Duration,
    /// How long an outcome is replayed, from completion. 24 h.
    pub replay_for: Duration,
    /// How long a key is remembered, from completion or release. 30 d.
    pub remember_for: Duration,
    /// With so many attempts behind it an operation is given up. 100.
    pub attempts_max: u32,
}

impl Policy {
    /// The defaults, and the one choice that has none.
    #[must_use]
    pub fn new(on_unknown: OnUnknown) -> Policy {
        Policy {
            on_unknown,
            lease_for: Duration::from_secs(30),
            answer_within: None,
            late_answer_for: Duration::from_secs(5 * 60),
            replay_for: Duration::from_secs(24 * 60 * 60),
            remember_for: Duration::from_secs(30 * 24 * 60 * 60),
            attempts_max: 100,
        }
    }

    /// Checks that the settings fit together.
    ///
    /// # Errors
    ///
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.lease_for < Policy::LEASE_MIN {
            return Err(PolicyError::LeaseTooShort);
        }
        if self.answer_within.is_some_and(|within| within.is_zero()) {
            return Err(PolicyError::NoTimeToAnswer);
        }
        if self.replay_for.is_zero() {
            return Err(PolicyError::NothingReplayed);
        }
        if self.remember_for < self.replay_for {
            return Err(PolicyError::RememberedTooShort);
        }
        if self.attempts_max == 0 {
            return Err(PolicyError::NoAttempts);
        }
        Ok(())
    }

    /// The shortest lease: below it a renewal could not be relied on to arrive in time.
    pub const LEASE_MIN: Duration = Duration::from_millis(100);
}

/// Why settings do not fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The lease would lapse before it can be renewed.
    #[error("lease must be at least 100ms, or it lapses before it is renewed")]
    LeaseTooShort,
    /// No caller could be answered.
    #[error("the time that a caller waits must be longer than zero")]
    NoTimeToAnswer,
    /// No retry would get the outcome.
    #[error("replay-for must be longer than zero")]
    NothingReplayed,
    /// A key cannot be forgotten while it is replayed.
    #[error("remember-for must not be shorter than replay-for")]
    RememberedTooShort,
    /// Nothing could run.
    #[error("attempts-max must be at least 1")]
    NoAttempts,
}
