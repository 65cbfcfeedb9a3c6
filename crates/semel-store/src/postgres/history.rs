//! What happened to a key, beside its record.
//!
//! An append is one statement, which looks for the record itself: nothing is added to a key that is forgotten. It has the
//! readers' connection, so that it never goes before a call that somebody waits for.

use std::time::Duration;

use semel::history::EVENTS_MAX;
use semel::{Cause, Event, Fence, Key, Past, Scope, StoreError, Through, What};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::error::Failure;
use super::reader::Reader;
use super::rows::{Id, clock, integer, millis, number, strange, text};

/// Behind the last one of the key, unless this attempt's end of this kind is there: the call may be repeated. What is
/// then too much goes with the same statement.
const ADD: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT ",
    clock!(),
    " AS now), added AS (\
     INSERT INTO semel.history (key, scope, at, fence, attempt, attempts, what, through, cause, ran_ms, by, reason) \
     SELECT r.key, r.scope, now, $3, $4, $5, $6, $7, $8, $9, $10, $11 FROM semel.records AS r, clock \
     WHERE r.key = $1 AND r.scope = $2 AND (r.forget_at IS NULL OR now < r.forget_at) \
     AND NOT EXISTS (SELECT FROM semel.history AS h WHERE h.key = $1 AND h.scope = $2 AND h.attempt = $4 \
     AND h.what = $6 AND h.at >= r.first_at) RETURNING number) \
     DELETE FROM semel.history WHERE (key, scope, number) IN (\
     SELECT key, scope, number FROM semel.history WHERE key = $1 AND scope = $2 \
     ORDER BY number DESC OFFSET greatest($12 - (SELECT count(*) FROM added), 0))"
);

/// Since the record's first claim.
const READ: &str = concat!(
    "SELECT greatest(clock.now - h.at, 0), h.fence, h.attempt, h.attempts, h.what, h.through, h.cause, h.ran_ms, h.by, \
     h.reason FROM (SELECT ",
    clock!(),
    " AS now OFFSET 0) AS clock, semel.records AS r \
     JOIN semel.history AS h ON h.key = r.key AND h.scope = r.scope AND h.at >= r.first_at \
     WHERE r.key = $1 AND r.scope = $2 AND (r.forget_at IS NULL OR clock.now < r.forget_at) ORDER BY h.number"
);

pub(super) async fn append(
    reader: &Reader,
    scope: &Scope,
    key: &Key,
    event: &Event,
) -> Result<(), StoreError> {
    let (key, scope) = (key.as_str(), scope.as_str());
    let (what, through) = (event.what.as_str(), event.through.as_str());
    let cause = event.cause.as_ref().map(Cause::as_str).map(text);
    let (by, reason) = (event.by.as_deref().map(text), event.reason.as_deref().map(text));
    let parameters: [(&(dyn ToSql + Sync), Type); 12] = [
        (&key, Type::TEXT),
        (&scope, Type::TEXT),
        (&integer(event.fence.0), Type::INT8),
        (&Id(event.attempt), Type::UUID),
        (&i64::from(event.attempts), Type::INT8),
        (&what, Type::TEXT),
        (&through, Type::TEXT),
        (&cause, Type::TEXT),
        (&event.ran_for.map(millis), Type::INT8),
        (&by, Type::TEXT),
        (&reason, Type::TEXT),
        (&i64::from(EVENTS_MAX), Type::INT8),
    ];
    reader.once(ADD, &parameters).await?;
    Ok(())
}

pub(super) async fn read(reader: &Reader, scope: &Scope, key: &Key) -> Result<Vec<Past>, StoreError> {
    let (key, scope) = (key.as_str(), scope.as_str());
    let rows = reader.rows(READ, &[(&key, Type::TEXT), (&scope, Type::TEXT)]).await?;
    Ok(rows.iter().map(past).collect::<Result<_, Failure>>()?)
}

fn past(row: &Row) -> Result<Past, Failure> {
    let text = |column: usize| row.try_get::<_, Option<String>>(column).map_err(Failure::row);
    let word = |column: usize| row.try_get::<_, &str>(column).map_err(Failure::row);
    let ran_ms: Option<i64> = row.try_get(7).map_err(Failure::row)?;
    let event = Event {
        fence: Fence(number(row, 1)?),
        attempt: row.try_get::<_, Id>(2).map_err(Failure::row)?.0,
        attempts: u32::try_from(number(row, 3)?).map_err(|_| strange())?,
        what: What::parse(word(4)?).ok_or_else(strange)?,
        through: Through::parse(word(5)?).ok_or_else(strange)?,
        cause: text(6)?.map(Cause::new),
        ran_for: ran_ms.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
        by: text(8)?,
        reason: text(9)?,
    };
    Ok(Past { ago: Duration::from_millis(number(row, 0)?), event })
}
