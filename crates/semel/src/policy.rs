//! What holds for one operation: how long, how often, and what happens to what nobody knows.
//!
//! Lease and retention are different times (K4). The lease is short and renewed while the run lasts, so a crash
//! frees the key in seconds and a slow run keeps it. Retention is counted from completion.
//!
//! `probe_after` is what keeps a probe's "there is nothing" from being wrong a moment later: an operation that is
//! still on its way is absent now, and not for ever. It must be longer than the service, and everything in front
//! of it, may hold a request after the attempt became unknown. Nothing can check that from here.

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
    /// Ask outside whether it took effect ([`Probe`](crate::Probe)), and wait like [`OnUnknown::Park`] while the
    /// answer is not certain, or where there is nobody to ask. Never silently twice, if the answers are true and
    /// `probe_after` is long enough.
    Probe,
}

impl OnUnknown {
    /// The word in configuration and on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            OnUnknown::Park => "park",
            OnUnknown::Rerun => "rerun",
            OnUnknown::Probe => "probe",
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
    /// How long an operation has been unknown before anybody asks about it; the first pause between two
    /// questions, too. 30 s.
    pub probe_after: Duration,
    /// How long one question may take. 5 s.
    pub probe_within: Duration,
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
            probe_after: Duration::from_secs(30),
            probe_within: Duration::from_secs(5),
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
        if self.probe_after.is_zero() {
            return Err(PolicyError::ProbedAtOnce);
        }
        if self.probe_within.is_zero() || self.probe_within > Policy::PROBE_WITHIN_MAX {
            return Err(PolicyError::ProbeTime);
        }
        Ok(())
    }

    /// The shortest lease: below it a renewal could not be relied on to arrive in time.
    pub const LEASE_MIN: Duration = Duration::from_millis(100);

    /// The longest question: while one is asked, the key reads as in flight.
    pub const PROBE_WITHIN_MAX: Duration = Duration::from_secs(5 * 60);
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
    /// An operation that is still on its way would be called absent.
    #[error("probe-after must be longer than zero: what is absent now may still be on its way")]
    ProbedAtOnce,
    /// No question could be answered, or a process that dies while it asks would hold the key for too long.
    #[error("probe-within must be longer than zero and at most 5m")]
    ProbeTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_fit_together_whatever_is_chosen() {
        for (choice, word) in
            [(OnUnknown::Park, "park"), (OnUnknown::Rerun, "rerun"), (OnUnknown::Probe, "probe")]
        {
            assert_eq!((Policy::new(choice).check(), choice.as_str()), (Ok(()), word));
        }
    }

    #[test]
    fn g5_a_probe_has_time_to_wait_and_time_to_ask() {
        let check = |probe_after, probe_within| {
            Policy { probe_after, probe_within, ..Policy::new(OnUnknown::Probe) }.check()
        };
        let second = Duration::from_secs(1);
        assert_eq!(check(second, Policy::PROBE_WITHIN_MAX), Ok(()));
        assert_eq!(check(FOREVER, second), Ok(()));
        assert_eq!(check(Duration::ZERO, second), Err(PolicyError::ProbedAtOnce));
        assert_eq!(check(second, Duration::ZERO), Err(PolicyError::ProbeTime));
        assert_eq!(check(second, FOREVER), Err(PolicyError::ProbeTime));
    }
}
