//! A record as a row of `semel.records`, with its outcome beside it.

use bytes::{Bytes, BytesMut};
use semel::record::{Record, State};
use semel::{Algorithm, AttemptId, Cause, Fence, Fingerprint, Key, Label, Outcome, Scope, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::error::{Failure, Kind};
use crate::flat::Flat;

/// The server's wall clock now, not the transaction's: a call may have waited for a lock. As `semel.clock()`.
macro_rules! clock {
    () => {
        "floor(date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint"
    };
}
pub(super) use clock;

/// The columns that [`record`] reads, of `r`.
macro_rules! columns {
    () => {
        "r.id, r.key, r.scope, r.fence, r.bound_by, r.attempts, r.first_at, r.since, r.attempt, r.algorithm, r.digest, \
         r.doubt, r.label, r.spent, r.input, r.state, r.open_at, r.was, r.settles, r.not_before, r.replay_until, \
         r.forget_at, r.cause, r.outcome_format"
    };
}
pub(super) use columns;

/// How many those are.
pub(super) const COLUMNS: usize = 24;

/// A row.
pub(super) struct Stored {
    pub(super) id: i64,
    pub(super) key: Key,
    pub(super) scope: Scope,
    pub(super) record: Record,
}

/// Reads the first [`COLUMNS`] columns; the outcome's bytes are handed in.
pub(super) fn stored(row: &Row, outcome: Option<Bytes>) -> Result<Stored, Failure> {
    let at = |column: usize| row.try_get::<_, Option<i64>>(column).map_err(Failure::row);
    let small = |column: usize| -> Result<Option<u8>, Failure> {
        let number: Option<i16> = row.try_get(column).map_err(Failure::row)?;
        number.map(|number| u8::try_from(number).map_err(|_| strange())).transpose()
    };
    let cause: Option<&str> = row.try_get(22).map_err(Failure::row)?;
    let flat = Flat {
        state: small(15)?.ok_or_else(strange)?,
        lease_until: at(16)?,
        was: small(17)?,
        settles: row.try_get(18).map_err(Failure::row)?,
        not_before: at(19)?,
        replay_until: at(20)?,
        forget_at: at(21)?,
        cause,
        outcome_format: small(23)?,
        outcome: outcome.as_deref(),
    };
    let digest: Option<&[u8]> = row.try_get(10).map_err(Failure::row)?;
    let fingerprint = match (small(9)?, digest) {
        (Some(algorithm), Some(digest)) => Some(Fingerprint {
            algorithm: Algorithm(algorithm),
            digest: digest.try_into().map_err(|_| strange())?,
        }),
        _ => None,
    };
    let spent: Vec<Id> = row.try_get(13).map_err(Failure::row)?;
    let text = |column: usize| row.try_get::<_, &str>(column).map_err(Failure::row);
    Ok(Stored {
        id: row.try_get(0).map_err(Failure::row)?,
        key: Key::new(text(1)?).map_err(|_| strange())?,
        scope: Scope::new(text(2)?).map_err(|_| strange())?,
        record: Record {
            fence: Fence(number(row, 3)?),
            bound_by: Fence(number(row, 4)?),
            attempts: u32::try_from(number(row, 5)?).map_err(|_| strange())?,
            first_at: Timestamp(at(6)?.ok_or_else(strange)?),
            since: Timestamp(at(7)?.ok_or_else(strange)?),
            attempt: row.try_get::<_, Id>(8).map_err(Failure::row)?.0,
            spent: spent.into_iter().map(|id| id.0).collect(),
            fingerprint,
            doubt: row.try_get(11).map_err(Failure::row)?,
            label: Label::new(text(12)?),
            input: row.try_get::<_, Option<&[u8]>>(14).map_err(Failure::row)?.map(Bytes::copy_from_slice),
            state: flat.state().ok_or_else(strange)?,
        },
    })
}

/// The outcome's bytes in that column.
pub(super) fn bytes(row: &Row, column: usize) -> Result<Option<Bytes>, Failure> {
    Ok(row.try_get::<_, Option<&[u8]>>(column).map_err(Failure::row)?.map(Bytes::copy_from_slice))
}

/// A number that is not negative.
pub(super) fn number(row: &Row, column: usize) -> Result<u64, Failure> {
    let number: i64 = row.try_get(column).map_err(Failure::row)?;
    u64::try_from(number).map_err(|_| strange())
}

pub(super) fn strange() -> Failure {
    Failure::said(Kind::Corrupt, "a row is no record of Semel's")
}

/// Fences are counted up from 1, one by one: none comes near the border.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// In milliseconds; what cannot be counted is for ever.
pub(super) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// PostgreSQL's text holds no NUL. Labels and causes are for people: it is shown instead.
pub(super) fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The columns of a record that change, in the order of the parameters of an UPDATE.
pub(super) struct Written<'a> {
    pub(super) flat: Flat<'a>,
    pub(super) open_at: Option<i64>,
}

impl Written<'_> {
    pub(super) fn of(record: &Record) -> Written<'_> {
        let flat = Flat::of(&record.state);
        let open_at = match &record.state {
            State::Running { until, .. } => Some(until.0),
            State::Unknown { .. } | State::Dead { .. } => Some(record.since.0),
            State::Released { .. } | State::Completed { .. } => None,
        };
        Written { flat, open_at }
    }
}

/// What is kept of a record's outcome.
pub(super) fn outcome(record: &Record) -> Option<&Outcome> {
    match &record.state {
        State::Completed { outcome, .. } => outcome.as_ref(),
        _ => None,
    }
}

/// An attempt as a `uuid`. A trip through text or a type of the database's own would need a look-up of that type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id(pub(super) AttemptId);

impl ToSql for Id {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Id, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Id(AttemptId(raw.try_into()?)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }
}

/// A cause as a row has it.
pub(super) fn cause(text: Option<&str>) -> Result<Cause, Failure> {
    text.map(Cause::new).ok_or_else(strange)
}
