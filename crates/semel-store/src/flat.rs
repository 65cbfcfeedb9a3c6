//! A record's state as columns: the numbers that the SQL stores write alike.
//!
//! 1. A state is a number and the columns that it has; those of other states are null.
//! 2. The numbers are in people's databases, so they stay what they are.

use semel::record::{Record, State};
use semel::{AttemptId, Cause, Outcome, Timestamp, Was};

pub(crate) const RUNNING: u8 = 1;
pub(crate) const RELEASED: u8 = 2;
pub(crate) const COMPLETED: u8 = 3;
pub(crate) const UNKNOWN: u8 = 4;
pub(crate) const DEAD: u8 = 5;

/// The columns of a state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flat<'a> {
    pub(crate) state: u8,
    pub(crate) lease_until: Option<i64>,
    pub(crate) was: Option<u8>,
    pub(crate) settles: Option<bool>,
    pub(crate) not_before: Option<i64>,
    pub(crate) replay_until: Option<i64>,
    pub(crate) forget_at: Option<i64>,
    pub(crate) cause: Option<&'a str>,
    pub(crate) outcome_format: Option<u8>,
    pub(crate) outcome: Option<&'a [u8]>,
}

impl Flat<'_> {
    pub(crate) fn of(state: &State) -> Flat<'_> {
        match state {
            State::Running { until, was, settles } => Flat {
                state: RUNNING,
                lease_until: Some(until.0),
                was: Some(was_code(*was)),
                settles: Some(*settles),
                ..Flat::default()
            },
            State::Released { not_before, forget_at } => Flat {
                state: RELEASED,
                not_before: Some(not_before.0),
                forget_at: Some(forget_at.0),
                ..Flat::default()
            },
            State::Completed { outcome, replay_until, forget_at } => Flat {
                state: COMPLETED,
                replay_until: Some(replay_until.0),
                forget_at: Some(forget_at.0),
                outcome_format: outcome.as_ref().map(|outcome| outcome.format),
                outcome: outcome.as_ref().map(|outcome| outcome.bytes.as_ref()),
                ..Flat::default()
            },
            State::Unknown { cause } => {
                Flat { state: UNKNOWN, cause: Some(cause.as_str()), ..Flat::default() }
            }
            State::Dead { cause } => Flat { state: DEAD, cause: Some(cause.as_str()), ..Flat::default() },
        }
    }

    /// The state that has these columns; `None` if none has.
    pub(crate) fn state(&self) -> Option<State> {
        Some(match self.state {
            RUNNING => State::Running {
                until: Timestamp(self.lease_until?),
                was: was_of(self.was?)?,
                settles: self.settles?,
            },
            RELEASED => State::Released {
                not_before: Timestamp(self.not_before?),
                forget_at: Timestamp(self.forget_at?),
            },
            COMPLETED => State::Completed {
                outcome: self.kept()?,
                replay_until: Timestamp(self.replay_until?),
                forget_at: Timestamp(self.forget_at?),
            },
            UNKNOWN => State::Unknown { cause: Cause::new(self.cause?) },
            DEAD => State::Dead { cause: Cause::new(self.cause?) },
            _ => return None,
        })
    }

    /// An outcome whose bytes are missing makes the record unreadable, never an empty one.
    fn kept(&self) -> Option<Option<Outcome>> {
        match (self.outcome_format, self.outcome) {
            (Some(format), Some(bytes)) => Some(Some(Outcome { format, bytes: bytes.to_vec().into() })),
            (None, None) => Some(None),
            _ => None,
        }
    }
}

/// When a record's time comes: its lease ends, or it has waited for somebody since, or there is something to free.
pub(crate) fn due_at(record: &Record) -> Timestamp {
    match &record.state {
        State::Running { until, .. } => *until,
        State::Released { forget_at, .. } | State::Completed { outcome: None, forget_at, .. } => *forget_at,
        State::Completed { replay_until, .. } => *replay_until,
        State::Unknown { .. } | State::Dead { .. } => record.since,
    }
}

/// 16 bytes each, oldest first.
pub(crate) fn spent_bytes(attempts: &[AttemptId]) -> Vec<u8> {
    attempts.iter().flat_map(|attempt| attempt.0).collect()
}

/// The reverse; `None` where a part of one is left over.
pub(crate) fn spent_of(bytes: &[u8]) -> Option<Vec<AttemptId>> {
    let (ids, rest) = bytes.as_chunks::<16>();
    rest.is_empty().then(|| ids.iter().copied().map(AttemptId).collect())
}

const WAS: [Was; 6] = [Was::New, Was::Released, Was::Lapsed, Was::Unknown, Was::Dead, Was::Running];

pub(crate) fn was_code(was: Was) -> u8 {
    match was {
        Was::New => 0,
        Was::Released => 1,
        Was::Lapsed => 2,
        Was::Unknown => 3,
        Was::Dead => 4,
        Was::Running => 5,
    }
}

pub(crate) fn was_of(code: u8) -> Option<Was> {
    WAS.into_iter().find(|was| was_code(*was) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_comes_back_from_its_columns() {
        let outcome = Outcome { format: 1, bytes: vec![0, 255].into() };
        let (soon, later) = (Timestamp(1), Timestamp::NEVER);
        let mut states = vec![
            State::Released { not_before: soon, forget_at: later },
            State::Completed { outcome: Some(outcome), replay_until: soon, forget_at: later },
            State::Completed { outcome: None, replay_until: soon, forget_at: later },
            State::Unknown { cause: Cause::CUT },
            State::Dead { cause: Cause::new("") },
        ];
        states.extend(WAS.map(|was| State::Running { until: soon, was, settles: was == Was::Dead }));
        for state in states {
            assert_eq!(Flat::of(&state).state(), Some(state));
        }
    }

    #[test]
    fn what_is_missing_makes_no_state() {
        assert_eq!(Flat { state: 6, ..Flat::default() }.state(), None);
        for state in 1..=5 {
            assert_eq!(Flat { state, ..Flat::default() }.state(), None, "{state}");
        }
        let torn = Flat {
            state: COMPLETED,
            replay_until: Some(1),
            forget_at: Some(2),
            outcome_format: Some(0),
            ..Flat::default()
        };
        assert_eq!(torn.state(), None, "an outcome without its bytes");
        assert_eq!(was_of(6), None);
    }

    #[test]
    fn spent_attempts_come_back_and_a_part_of_one_does_not() {
        let attempts = [AttemptId([1; 16]), AttemptId([0; 16])];
        assert_eq!(spent_of(&spent_bytes(&attempts)).as_deref(), Some(attempts.as_slice()));
        assert_eq!(spent_of(&[]).as_deref(), Some([].as_slice()));
        assert_eq!(spent_of(&[0; 17]), None);
    }
}
