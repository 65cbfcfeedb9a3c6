//! The life of a key: its states, and every legal transition. Pure.
//!
//! This file is the specification. [`MemoryStore`](crate::MemoryStore) and the SQLite store run it inside their
//! one atomic step; every other store is compared with it on random histories.
//!
//! ```text
//!             claim                 complete                 replay_for passes            remember_for passes
//!  (absent) --------> running ----------------> completed ---------------------> forgotten --------> (absent)
//!      ^               |  |  \                    replay                          refuse
//!      |    release    |  |   \ lease lapsed, or parked
//!  released <----------+  |    +--> unknown --- rerun, or a claim that settles ---> running
//!      claim again        |
//!                         +--> dead   buried, or as many attempts as are allowed
//! ```
//!
//! 1. **Expiry is judged here.** A record past `forget_at` counts as absent, swept or not. A completed one past
//!    `replay_until` is forgotten. A running one past its lease is unknown; nothing is written for that, so the
//!    owner's renewal and late settlement still find it running.
//! 2. **The fingerprint** is bound by the first claim and stays, through release, completion and forgetting. It
//!    is compared before anything else is said about the record (K6). Only a release that unbinds, by the very
//!    claim that bound it, loosens it.
//! 3. **An attempt that is over never claims again** (K2): the record keeps the ids of the attempts before the
//!    present one, the latest [`SPENT_MAX`] of them, so a claim that a network delivers late cannot run what its
//!    caller gave up long ago.
//! 4. **Fence and attempt id are both compared** (K3). The fence alone is not enough: a record that was forgotten
//!    and made anew counts its fences from 1 again.
//! 5. **A repeated settlement** is one of the same kind by the same lease, and with the same outcome where it has
//!    one; the first one stands. Another one is refused, except that Complete or Release may follow the owner's
//!    own Park: it is the truth, found out late (K7). They may also follow when a claim found the attempts
//!    exhausted meanwhile. Once the outcome is forgotten it is compared no more, so that sweeping changes nothing.
//! 6. **Doubt stays.** Once a claim has taken over an unknown, later attempts of the key carry `doubt` until it
//!    completes or somebody who looked releases it, because the first one may have taken effect.
//! 7. **Attempts** are counted at the claim, before anything runs (K8), and taken off again only by a release that
//!    says that nothing ran: a service that cannot be reached wears out no key. A claim that settles counts none.
//!    Releasing a dead record by such a claim lets it count anew, otherwise a redrive would find it dead again.

use bytes::Bytes;

use crate::environment::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::key::{Key, Scope};
use crate::store::{
    AttemptId, Cause, Claim, ClaimRequest, Cursor, Entry, Fence, Label, Lease, Outcome, Purpose, Settlement,
    View, Was,
};

/// How many attempts before the present one a record remembers.
pub const SPENT_MAX: usize = 128;

/// What a store keeps for one scope and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The fence of the latest claim.
    pub fence: Fence,
    /// The attempt that claimed last: it holds the lease, or held it.
    pub attempt: AttemptId,
    /// The attempts that are over for good: those before that one, oldest first, and that one too when it buried
    /// the record, or had released it before the attempts were found exhausted.
    pub spent: Vec<AttemptId>,
    /// Attempts so far.
    pub attempts: u32,
    /// What the key is bound to.
    pub fingerprint: Option<Fingerprint>,
    /// The fence of the claim that bound it.
    pub bound_by: Fence,
    /// An earlier attempt may have taken effect, and nobody has found out.
    pub doubt: bool,
    /// The key's first claim.
    pub first_at: Timestamp,
    /// When it came into this state.
    pub since: Timestamp,
    /// For people.
    pub label: Label,
    /// For a completer.
    pub input: Option<Bytes>,
    /// Its state as written; [`view`] says what it reads as now.
    pub state: State,
}

/// A record's state as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// An attempt holds the lease, or its lease has lapsed.
    Running {
        /// The end of the lease.
        until: Timestamp,
        /// What it was before.
        was: Was,
        /// Held by a claim that settles, not by a run.
        settles: bool,
    },
    /// The attempt took no effect.
    Released {
        /// May be claimed from here on.
        not_before: Timestamp,
        /// Counts as absent from here on.
        forget_at: Timestamp,
    },
    /// There is an outcome.
    Completed {
        /// `None` once it was swept.
        outcome: Option<Outcome>,
        /// Replayed until here.
        replay_until: Timestamp,
        /// Counts as absent from here on.
        forget_at: Timestamp,
    },
    /// Parked.
    Unknown {
        /// Why.
        cause: Cause,
    },
    /// Buried.
    Dead {
        /// Why.
        cause: Cause,
    },
}

/// Why a fenced write was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The record is gone, or another attempt owns it.
    #[error("the lease is lost")]
    LeaseLost,
    /// The attempt was settled otherwise.
    #[error("the attempt was already settled otherwise")]
    Settled,
}

/// Decides a claim. Gives the record to write, if anything changes, and the answer.
#[must_use]
pub fn claim(record: Option<&Record>, request: &ClaimRequest, now: Timestamp) -> (Option<Record>, Claim) {
    let record = record.filter(|record| !is_expired(record, now));
    match (record, &request.purpose) {
        (None, Purpose::Run { fingerprint, .. }) => {
            acquire(first(request, *fingerprint, now), request, Was::New, now)
        }
        (None, Purpose::Settle { .. }) => (None, Claim::Moved),
        (Some(record), _) if holds(record, request.attempt) => extend(record, request, now),
        (Some(record), Purpose::Run { fingerprint, rerun, attempts_max }) => {
            match record.fingerprint.filter(|bound| bound != fingerprint) {
                Some(bound) => (None, Claim::Mismatch { algorithm: bound.algorithm }),
                None => run(record, request, *rerun, *attempts_max, now),
            }
        }
        (Some(record), Purpose::Settle { seen, force }) => match takeable(record, *force, now) {
            Some(was) if record.fence == *seen && !is_over(record, request.attempt) => {
                acquire(record.clone(), request, was, now)
            }
            _ => (None, Claim::Moved),
        },
    }
}

/// Extends a lease. Gives the record to write.
///
/// # Errors
///
/// [`Unfit::LeaseLost`] unless the running record carries the lease's fence and attempt.
pub fn renew(
    record: Option<&Record>,
    lease: &Lease,
    lease_for: std::time::Duration,
    now: Timestamp,
) -> Result<Record, Unfit> {
    let record = owned(record, lease, now)?;
    let State::Running { was, settles, .. } = record.state else { return Err(Unfit::LeaseLost) };
    Ok(Record { state: State::Running { until: now.after(lease_for), was, settles }, ..record.clone() })
}

/// Ends an attempt. Gives the record to write; `None` where this very settlement already stands.
///
/// # Errors
///
/// [`Unfit::LeaseLost`] unless the record carries the lease's fence and attempt; [`Unfit::Settled`] when the
/// attempt already ended otherwise.
pub fn settle(
    record: Option<&Record>,
    lease: &Lease,
    settlement: &Settlement,
    now: Timestamp,
) -> Result<Option<Record>, Unfit> {
    let record = owned(record, lease, now)?;
    match (&record.state, settlement) {
        (State::Running { .. }, _)
        | (State::Unknown { .. }, Settlement::Complete { .. } | Settlement::Release { .. }) => {
            Ok(Some(settled(record.clone(), settlement, now)))
        }
        // A claim found the attempts exhausted while this one was open: the fence has not moved, so its truth counts.
        (State::Dead { .. }, Settlement::Complete { .. } | Settlement::Release { .. })
            if !record.spent.contains(&lease.attempt) =>
        {
            Ok(Some(settled(record.clone(), settlement, now)))
        }
        // A forgotten outcome is compared no more, swept or not.
        (State::Completed { outcome, replay_until, .. }, Settlement::Complete { outcome: again, .. })
            if now >= *replay_until || outcome.as_ref().is_none_or(|outcome| outcome == again) =>
        {
            Ok(None)
        }
        (State::Released { .. }, Settlement::Release { .. })
        | (State::Unknown { .. }, Settlement::Park { .. })
        | (State::Dead { .. }, Settlement::Bury { .. }) => Ok(None),
        _ => Err(Unfit::Settled),
    }
}

/// What the record reads as now; `None` when it is absent or counts as absent.
#[must_use]
pub fn view(record: &Record, now: Timestamp) -> Option<View> {
    if is_expired(record, now) {
        return None;
    }
    Some(match &record.state {
        State::Running { until, .. } if is_lapsed(*until, now) => View::Unknown { cause: Cause::LAPSED },
        State::Running { until, .. } => View::Running { lease_left: until.since(now) },
        State::Released { not_before, .. } => View::Released { not_before: not_before.since(now) },
        State::Completed { outcome: Some(outcome), replay_until, .. } if now < *replay_until => {
            View::Completed { outcome: outcome.clone() }
        }
        State::Completed { .. } => View::Forgotten,
        State::Unknown { cause } => View::Unknown { cause: cause.clone() },
        State::Dead { cause } => View::Dead { cause: cause.clone() },
    })
}

/// The record as people see it now; `None` when it is absent or counts as absent.
#[must_use]
pub fn entry(record: &Record, scope: &Scope, key: &Key, cursor: Cursor, now: Timestamp) -> Option<Entry> {
    Some(Entry {
        scope: scope.clone(),
        key: key.clone(),
        view: view(record, now)?,
        fence: record.fence,
        attempt: record.attempt,
        attempts: record.attempts,
        fingerprint: record.fingerprint,
        label: record.label.clone(),
        input: record.input.clone(),
        age: now.since(record.first_at),
        since: now.since(since(record, now)),
        cursor,
    })
}

/// When the record came into the state that it reads as now.
#[must_use]
pub fn since(record: &Record, now: Timestamp) -> Timestamp {
    match record.state {
        State::Running { until, .. } if is_lapsed(until, now) => until,
        State::Completed { replay_until, .. } if now >= replay_until => replay_until,
        _ => record.since,
    }
}

/// Whether the record counts as absent.
#[must_use]
pub fn is_expired(record: &Record, now: Timestamp) -> bool {
    match record.state {
        State::Released { forget_at, .. } | State::Completed { forget_at, .. } => now >= forget_at,
        State::Running { .. } | State::Unknown { .. } | State::Dead { .. } => false,
    }
}

/// A run's claim on a record that is bound to nothing else.
fn run(
    record: &Record,
    request: &ClaimRequest,
    rerun: bool,
    attempts_max: u32,
    now: Timestamp,
) -> (Option<Record>, Claim) {
    let over = is_over(record, request.attempt);
    let age = now.since(record.first_at);
    let was = match &record.state {
        State::Running { until, .. } if !is_lapsed(*until, now) => {
            return (None, Claim::InFlight { retry_after: until.since(now), age });
        }
        // What was dead, and whose redrive died, waits for a person.
        State::Running { was, settles, .. } if !rerun || over || (*settles && *was == Was::Dead) => {
            return (None, Claim::Unknown { fence: record.fence, cause: Cause::LAPSED, age });
        }
        State::Running { .. } => Was::Lapsed,
        State::Released { not_before, .. } if over || now < *not_before => {
            return (None, Claim::InFlight { retry_after: not_before.since(now), age });
        }
        State::Released { .. } => Was::Released,
        State::Completed { outcome: Some(outcome), replay_until, .. } if now < *replay_until => {
            return (None, Claim::Completed { outcome: outcome.clone(), age, attempts: record.attempts });
        }
        State::Completed { .. } => return (None, Claim::Forgotten { age }),
        State::Unknown { cause } if !rerun || over => {
            return (None, Claim::Unknown { fence: record.fence, cause: cause.clone(), age });
        }
        State::Unknown { .. } => Was::Unknown,
        State::Dead { cause } => {
            return (None, Claim::Dead { fence: record.fence, cause: cause.clone(), age });
        }
    };
    if record.attempts >= attempts_max {
        let dead = exhausted(record.clone(), now);
        return (Some(dead), Claim::Dead { fence: record.fence, cause: Cause::ATTEMPTS_EXHAUSTED, age });
    }
    acquire(record.clone(), request, was, now)
}

/// A record with as many attempts behind it as are allowed. One that had released is spent by that; one that is
/// open may still say how it ended.
fn exhausted(mut record: Record, now: Timestamp) -> Record {
    if matches!(record.state, State::Released { .. }) {
        spend(&mut record);
    }
    record.since = now;
    record.state = State::Dead { cause: Cause::ATTEMPTS_EXHAUSTED };
    record
}

/// A record that no claim has raised yet.
fn first(request: &ClaimRequest, fingerprint: Fingerprint, now: Timestamp) -> Record {
    Record {
        fence: Fence(0),
        attempt: request.attempt,
        spent: Vec::new(),
        attempts: 0,
        fingerprint: Some(fingerprint),
        bound_by: Fence(1),
        doubt: false,
        first_at: now,
        since: now,
        label: request.label.clone(),
        input: request.input.clone(),
        state: State::Running { until: now, was: Was::New, settles: false },
    }
}

/// Gives the record to the request: fence up, attempt counted, lease begun.
fn acquire(mut record: Record, request: &ClaimRequest, was: Was, now: Timestamp) -> (Option<Record>, Claim) {
    record.fence = Fence(record.fence.0 + 1);
    if was != Was::New {
        spend(&mut record);
    }
    record.attempt = request.attempt;
    let settles = match request.purpose {
        Purpose::Run { fingerprint, .. } => {
            record.attempts += 1;
            record.doubt |= matches!(was, Was::Lapsed | Was::Unknown);
            if record.fingerprint.is_none() {
                record.fingerprint = Some(fingerprint);
                record.bound_by = record.fence;
                record.label = request.label.clone();
                record.input = request.input.clone();
            }
            false
        }
        Purpose::Settle { .. } => true,
    };
    record.since = now;
    record.state = State::Running { until: now.after(request.lease_for), was, settles };
    let lease = lease(&record, request, was);
    (Some(record), Claim::Acquired(lease))
}

/// Remembers that the present attempt is over.
fn spend(record: &mut Record) {
    if !record.spent.contains(&record.attempt) {
        record.spent.push(record.attempt);
    }
    let surplus = record.spent.len().saturating_sub(SPENT_MAX);
    record.spent.drain(..surplus);
}

/// The holder asks again: its earlier answer was lost. Same lease, longer.
fn extend(record: &Record, request: &ClaimRequest, now: Timestamp) -> (Option<Record>, Claim) {
    let State::Running { was, settles, .. } = record.state else {
        unreachable!("only a running record is held")
    };
    let until = now.after(request.lease_for);
    let extended = Record { state: State::Running { until, was, settles }, ..record.clone() };
    let lease = lease(&extended, request, was);
    (Some(extended), Claim::Acquired(lease))
}

fn lease(record: &Record, request: &ClaimRequest, was: Was) -> Lease {
    Lease {
        scope: request.scope.clone(),
        key: request.key.clone(),
        fence: record.fence,
        attempt: record.attempt,
        attempts: record.attempts,
        was,
        doubt: record.doubt,
    }
}

/// Whether the attempt is the one that runs, lapsed or not.
fn holds(record: &Record, attempt: AttemptId) -> bool {
    matches!(record.state, State::Running { .. }) && record.attempt == attempt
}

/// Whether the attempt is one that does not run any more.
fn is_over(record: &Record, attempt: AttemptId) -> bool {
    record.spent.contains(&attempt) || (record.attempt == attempt && !holds(record, attempt))
}

/// What a claim that settles would take over, if it may.
fn takeable(record: &Record, force: bool, now: Timestamp) -> Option<Was> {
    match record.state {
        // A redrive that died has changed nothing: the record is as dead as before.
        State::Running { until, was: Was::Dead, settles: true } if is_lapsed(until, now) => Some(Was::Dead),
        State::Running { until, .. } if is_lapsed(until, now) => Some(Was::Lapsed),
        State::Running { .. } => force.then_some(Was::Running),
        State::Unknown { .. } => Some(Was::Unknown),
        State::Dead { .. } => Some(Was::Dead),
        State::Released { .. } | State::Completed { .. } => None,
    }
}

/// The record, if it is there and the lease's own.
fn owned<'a>(record: Option<&'a Record>, lease: &Lease, now: Timestamp) -> Result<&'a Record, Unfit> {
    record
        .filter(|record| !is_expired(record, now))
        .filter(|record| record.fence == lease.fence && record.attempt == lease.attempt)
        .ok_or(Unfit::LeaseLost)
}

fn settled(mut record: Record, settlement: &Settlement, now: Timestamp) -> Record {
    let held = match record.state {
        State::Running { was, settles, .. } => Some((was, settles)),
        _ => None,
    };
    record.since = now;
    record.state = match settlement {
        Settlement::Complete { outcome, replay_for, remember_for } => {
            record.doubt = false;
            let replay_until = now.after(*replay_for);
            let forget_at = now.after(*remember_for).max(replay_until);
            State::Completed { outcome: Some(outcome.clone()), replay_until, forget_at }
        }
        Settlement::Release { not_before, unbind, ran, remember_for } => {
            if *unbind && record.bound_by == record.fence {
                record.fingerprint = None;
            }
            match held {
                Some((was, true)) => {
                    record.doubt = false;
                    record.attempts = if was == Was::Dead { 0 } else { record.attempts };
                }
                _ if !ran => record.attempts = record.attempts.saturating_sub(1),
                _ => {}
            }
            let not_before = now.after(not_before.unwrap_or_default());
            State::Released { not_before, forget_at: now.after(*remember_for).max(not_before) }
        }
        Settlement::Park { cause } => State::Unknown { cause: cause.clone() },
        Settlement::Bury { cause } => {
            spend(&mut record);
            State::Dead { cause: cause.clone() }
        }
    };
    record
}

/// A lease ends at its instant, not after it: one of no length has lapsed at once.
fn is_lapsed(until: Timestamp, now: Timestamp) -> bool {
    now >= until
}

#[cfg(test)]
mod tests;
