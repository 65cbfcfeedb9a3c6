//! What the scripts answer, read.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use semel::record::{Record, State};
use semel::{
    Algorithm, AttemptId, Cause, Claim, ClaimRequest, Event, Fence, Fingerprint, Label, Lease, Outcome, Past,
    StoreError, Swept, Through, Timestamp, Was, What,
};

use super::error::Failure;

/// Where the scripts' instants and durations end, as "never": 2^53 − 1 milliseconds, exact in their numbers.
const NEVER: i64 = (1 << 53) - 1;

/// A duration as the scripts take it, in milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(NEVER.unsigned_abs())
}

/// A fingerprint as the scripts take it: the algorithm, then the digest.
pub(super) fn fingerprint_bytes(fingerprint: &Fingerprint) -> Vec<u8> {
    [&[fingerprint.algorithm.0][..], &fingerprint.digest].concat()
}

/// The answer to a claim.
pub(super) fn claim(answer: Value, request: &ClaimRequest) -> Result<Claim, StoreError> {
    let mut parts = Parts::of(answer)?;
    Ok(match parts.text()?.as_str() {
        "acquired" => Claim::Acquired(Lease {
            scope: request.scope.clone(),
            key: request.key.clone(),
            fence: Fence(parts.number()?),
            attempt: request.attempt,
            attempts: parts.number()?,
            was: parts.was()?,
            doubt: parts.flag()?,
        }),
        "in-flight" => Claim::InFlight { retry_after: parts.duration()?, age: parts.duration()? },
        "completed" => Claim::Completed {
            outcome: Outcome { format: parts.number()?, bytes: parts.bytes()?.into() },
            age: parts.duration()?,
            attempts: parts.number()?,
        },
        "mismatch" => Claim::Mismatch { algorithm: Algorithm(parts.number()?) },
        "unknown" => {
            Claim::Unknown { fence: Fence(parts.number()?), cause: parts.cause()?, age: parts.duration()? }
        }
        "dead" => {
            Claim::Dead { fence: Fence(parts.number()?), cause: parts.cause()?, age: parts.duration()? }
        }
        "forgotten" => Claim::Forgotten { age: parts.duration()? },
        "moved" => Claim::Moved,
        _ => return Err(Failure::Unread.into()),
    })
}

/// The answer to a renewal or a settlement.
pub(super) fn end(answer: Value) -> Result<(), StoreError> {
    match bytes(answer)?.as_slice() {
        b"done" => Ok(()),
        b"lost" => Err(StoreError::LeaseLost),
        b"otherwise" => Err(StoreError::Refused(Box::new(semel::record::Unfit::Settled))),
        _ => Err(Failure::Unread.into()),
    }
}

/// Records, as of an instant; nothing where there is none.
pub(super) fn records(answer: Value) -> Result<(Timestamp, Vec<Option<Record>>), StoreError> {
    let mut parts = Parts::of(answer)?;
    let now = parts.instant()?;
    let records = parts.0.map(|part| match part {
        Value::Array(_) => record(Parts::of(part)?).map(Some),
        _ => Ok(None),
    });
    Ok((now, records.collect::<Result<_, _>>()?))
}

/// A page of ids with their times.
pub(super) fn page(answer: Value) -> Result<Vec<(i64, Vec<u8>)>, StoreError> {
    let mut parts = Parts::of(answer)?;
    let _now = parts.instant()?;
    let mut page = Vec::new();
    while parts.0.len() > 0 {
        let id = parts.bytes()?;
        page.push((parts.number()?, id));
    }
    Ok(page)
}

/// A list of ids.
pub(super) fn ids(answer: Value) -> Result<Vec<Vec<u8>>, StoreError> {
    Parts::of(answer)?.0.map(bytes).collect()
}

/// What a sweep freed.
pub(super) fn swept(answer: Value) -> Result<Swept, StoreError> {
    let mut parts = Parts::of(answer)?;
    Ok(Swept { outcomes: parts.number()?, records: parts.number()? })
}

/// A history.
pub(super) fn history(answer: Value) -> Result<Vec<Past>, StoreError> {
    let mut parts = Parts::of(answer)?;
    let now = parts.instant()?;
    parts.0.map(|part| past(Parts::of(part)?, now)).collect()
}

fn past(mut parts: Parts, now: Timestamp) -> Result<Past, StoreError> {
    let ago = now.since(parts.instant()?);
    let (attempt, what) = (parts.attempt()?, parts.text()?);
    Ok(Past {
        ago,
        event: Event {
            attempt,
            what: What::parse(&what).ok_or(Failure::Unread)?,
            fence: Fence(parts.number()?),
            attempts: parts.number()?,
            through: Through::parse(&parts.text()?).ok_or(Failure::Unread)?,
            cause: parts.maybe_text()?.map(Cause::new),
            ran_for: parts.maybe_number()?.map(Duration::from_millis),
            by: parts.maybe_text()?,
            reason: parts.maybe_text()?,
        },
    })
}

/// A record, in the order in which `record.lua` shows it.
fn record(mut parts: Parts) -> Result<Record, StoreError> {
    let state: u8 = parts.number()?;
    let (fence, attempt) = (Fence(parts.number()?), parts.attempt()?);
    Ok(Record {
        fence,
        attempt,
        spent: spent(&parts.bytes()?)?,
        attempts: parts.number()?,
        fingerprint: parts.fingerprint()?,
        bound_by: Fence(parts.number()?),
        doubt: parts.flag()?,
        first_at: parts.instant()?,
        since: parts.instant()?,
        label: Label::new(parts.text()?),
        input: parts.maybe()?.map(Bytes::from),
        state: parts.state(state)?,
    })
}

fn spent(ids: &[u8]) -> Result<Vec<AttemptId>, StoreError> {
    let (ids, rest) = ids.as_chunks::<16>();
    if rest.is_empty() {
        Ok(ids.iter().copied().map(AttemptId).collect())
    } else {
        Err(Failure::Unread.into())
    }
}

fn bytes(value: Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        Value::Int(number) => Ok(number.to_string().into_bytes()),
        _ => Err(Failure::Unread.into()),
    }
}

/// An answer's parts, one after the other.
struct Parts(std::vec::IntoIter<Value>);

impl Parts {
    fn of(answer: Value) -> Result<Parts, StoreError> {
        match answer {
            Value::Array(parts) => Ok(Parts(parts.into_iter())),
            _ => Err(Failure::Unread.into()),
        }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        bytes(self.0.next().ok_or(Failure::Unread)?)
    }

    fn text(&mut self) -> Result<String, StoreError> {
        String::from_utf8(self.bytes()?).map_err(|_| Failure::Unread.into())
    }

    fn number<N: std::str::FromStr>(&mut self) -> Result<N, StoreError> {
        self.text()?.parse().map_err(|_| Failure::Unread.into())
    }

    fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.number::<u8>()? != 0)
    }

    fn instant(&mut self) -> Result<Timestamp, StoreError> {
        let millis: i64 = self.number()?;
        Ok(if millis >= NEVER { Timestamp::NEVER } else { Timestamp(millis) })
    }

    fn duration(&mut self) -> Result<Duration, StoreError> {
        self.number().map(Duration::from_millis)
    }

    fn cause(&mut self) -> Result<Cause, StoreError> {
        self.text().map(Cause::new)
    }

    fn attempt(&mut self) -> Result<AttemptId, StoreError> {
        let id = self.bytes()?.try_into().map_err(|_| Failure::Unread)?;
        Ok(AttemptId(id))
    }

    fn maybe(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.bytes()?.strip_prefix(b"+").map(<[u8]>::to_vec))
    }

    fn maybe_text(&mut self) -> Result<Option<String>, StoreError> {
        self.maybe()?.map(String::from_utf8).transpose().map_err(|_| Failure::Unread.into())
    }

    fn maybe_number(&mut self) -> Result<Option<u64>, StoreError> {
        let number = self.maybe_text()?.map(|text| text.parse());
        number.transpose().map_err(|_| Failure::Unread.into())
    }

    fn was(&mut self) -> Result<Was, StoreError> {
        const WAS: [Was; 6] = [Was::New, Was::Released, Was::Lapsed, Was::Unknown, Was::Dead, Was::Running];
        let code: usize = self.number()?;
        WAS.get(code).copied().ok_or_else(|| Failure::Unread.into())
    }

    fn fingerprint(&mut self) -> Result<Option<Fingerprint>, StoreError> {
        let bytes = self.bytes()?;
        let Some((algorithm, digest)) = bytes.split_first() else { return Ok(None) };
        let digest = digest.try_into().map_err(|_| Failure::Unread)?;
        Ok(Some(Fingerprint { algorithm: Algorithm(*algorithm), digest }))
    }

    fn state(&mut self, state: u8) -> Result<State, StoreError> {
        let (at, forget_at) = (self.instant()?, self.instant()?);
        let (was, settles) = (self.was()?, self.flag()?);
        let (format, text) = (self.number::<i16>()?, self.bytes()?);
        let cause = || String::from_utf8(text.clone()).map(Cause::new).map_err(|_| Failure::Unread);
        Ok(match state {
            1 => State::Running { until: at, was, settles },
            2 => State::Released { not_before: at, forget_at },
            3 => {
                let outcome = u8::try_from(format).ok().map(|format| Outcome { format, bytes: text.into() });
                State::Completed { outcome, replay_until: at, forget_at }
            }
            4 => State::Unknown { cause: cause()? },
            5 => State::Dead { cause: cause()? },
            _ => return Err(Failure::Unread.into()),
        })
    }
}
