//! What happened to a key, beside its record.
//!
//! An append is a call of the writer that gives way to those that somebody waits for. It looks for the record within the
//! same transaction, so nothing is added to a key that has just been forgotten.

use std::time::Duration;

use rusqlite::{Connection, Row, params};
use semel::history::EVENTS_MAX;
use semel::{AttemptId, Cause, Clock, Event, Fence, Key, Past, Scope, Through, Timestamp, What, record};

use super::rows::{self, Rows};
use super::writer::Verb;

/// Behind the last one of the key, unless this attempt's end of this kind is there: the call is repeated.
pub(super) const ADD: &str = "INSERT INTO history (key, scope, number, at, fence, attempt, attempts, what, through, \
     cause, ran_ms, by, reason) \
     SELECT ?1, ?2, 1 + coalesce(max(number), 0), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 FROM history \
     WHERE key = ?1 AND scope = ?2 \
     HAVING NOT coalesce(max(attempt = ?5 AND what = ?7), 0)";

/// Keeps the last ones.
pub(super) const TRIM: &str = "DELETE FROM history WHERE key = ?1 AND scope = ?2 AND number <= \
     (SELECT max(number) FROM history WHERE key = ?1 AND scope = ?2) - ?3";

pub(super) const READ: &str = "SELECT at, fence, attempt, attempts, what, through, cause, ran_ms, by, reason \
     FROM history WHERE key = ?1 AND scope = ?2 AND at >= ?3 ORDER BY number";

/// With the record of that id, in the same transaction.
pub(super) const FORGET: &str =
    "DELETE FROM history WHERE (key, scope) = (SELECT key, scope FROM settled WHERE id = ?1)";

pub(super) struct Append {
    pub(super) scope: Scope,
    pub(super) key: Key,
    pub(super) event: Event,
}

impl Verb for Append {
    type Answer = ();
    const GIVES_WAY: bool = true;

    fn apply(&self, rows: &mut Rows<'_>, clock: &dyn Clock) -> rusqlite::Result<()> {
        let Append { scope, key, event } = self;
        let now = clock.now();
        let stored = rows.load(scope, key)?;
        if stored.is_none_or(|stored| record::is_expired(&stored.record, now)) {
            return Ok(());
        }
        let writer = rows.connection();
        let ran_ms = event.ran_for.map(|ran| i64::try_from(ran.as_millis()).unwrap_or(i64::MAX));
        writer.prepare_cached(ADD)?.execute(params![
            key.as_str(),
            scope.as_str(),
            now.0,
            i64::try_from(event.fence.0).unwrap_or(i64::MAX),
            event.attempt.0,
            event.attempts,
            event.what.as_str(),
            event.through.as_str(),
            event.cause.as_ref().map(Cause::as_str),
            ran_ms,
            event.by,
            event.reason,
        ])?;
        writer.prepare_cached(TRIM)?.execute((key.as_str(), scope.as_str(), EVENTS_MAX)).map(drop)
    }
}

/// The events since the record's first claim.
pub(super) fn read(
    reader: &Connection,
    scope: &Scope,
    key: &Key,
    clock: &dyn Clock,
) -> rusqlite::Result<Vec<Past>> {
    let now = clock.now();
    let stored = rows::load(reader, scope, key)?.filter(|stored| !record::is_expired(&stored.record, now));
    let Some(stored) = stored else { return Ok(Vec::new()) };
    let since = stored.record.first_at.0;
    let mut statement = reader.prepare_cached(READ)?;
    statement.query_map((key.as_str(), scope.as_str(), since), |row| past(row, now))?.collect()
}

fn past(row: &Row<'_>, now: Timestamp) -> rusqlite::Result<Past> {
    let unfit = |column, name: &str| {
        rusqlite::Error::InvalidColumnType(column, name.to_owned(), rusqlite::types::Type::Text)
    };
    let event = Event {
        fence: Fence(row.get::<_, i64>(1)?.unsigned_abs()),
        attempt: AttemptId(row.get(2)?),
        attempts: row.get(3)?,
        what: What::parse(&row.get::<_, String>(4)?).ok_or_else(|| unfit(4, "what"))?,
        through: Through::parse(&row.get::<_, String>(5)?).ok_or_else(|| unfit(5, "through"))?,
        cause: row.get::<_, Option<String>>(6)?.map(Cause::new),
        ran_for: row.get::<_, Option<i64>>(7)?.map(|millis| Duration::from_millis(millis.unsigned_abs())),
        by: row.get(8)?,
        reason: row.get(9)?,
    };
    Ok(Past { ago: now.since(Timestamp(row.get(0)?)), event })
}
