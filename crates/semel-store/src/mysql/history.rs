//! What happened to a key, beside its record.
//!
//! An append locks the record, so nothing is added to a key that has just been forgotten, and two appends to one key do
//! not count alike. The rows go with the record: the sweep deletes both in one transaction.

use std::time::Duration;

use mysql_async::Value;
use semel::history::EVENTS_MAX;
use semel::{AttemptId, Cause, Event, Fence, Key, Past, Scope, Through, Timestamp, What, record};

use super::failure::{self, Failure, Step};
use super::job::{self, Answer};
use super::link::Link;
use super::rows::{self, Columns, Found, Name, Unreadable, bytes};

/// What is there of a record since its first claim: few rows, by the primary key.
const READ: &str = "SELECT at, fence, attempt, attempts, what, through, cause, ran_ms, said_by, reason, number \
     FROM semel_history WHERE record = ? AND at >= ? ORDER BY number";

const LAST: &str = "SELECT CAST(COALESCE(MAX(number), 0) AS SIGNED) FROM semel_history WHERE record = ?";

/// Its number is free: the record is locked.
const ADD: &str = "INSERT INTO semel_history (record, number, at, fence, attempt, attempts, what, through, cause, \
     ran_ms, said_by, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Keeps the last ones.
const TRIM: &str = "DELETE FROM semel_history WHERE record = ? AND number <= ?";

pub(super) async fn append(
    link: &mut Link,
    scope: &Scope,
    key: &Key,
    event: &Event,
) -> Result<Answer, Failure> {
    let appended = add(link, &Name::new(scope, key), event).await;
    if appended.is_err() {
        link.roll_back().await;
    }
    appended.map(|()| Answer::Done)
}

/// All or nothing; nothing where there is no record, or this attempt's end of this kind is there: the call is repeated.
async fn add(link: &mut Link, name: &Name, event: &Event) -> Result<(), Failure> {
    link.run("START TRANSACTION", Step::Read).await?;
    if let Some(found) = look(link, &rows::lock(1), name).await? {
        let past = events(link, &found).await?;
        let is_there = |past: &Past| past.event.attempt == event.attempt && past.event.what == event.what;
        if !past.iter().any(is_there) {
            let number = 1 + last(link, found.id).await?;
            link.write(ADD, row(&found, number, event), Step::Read).await?;
            let kept = number - number.min(i64::from(EVENTS_MAX));
            link.write(TRIM, vec![found.id.into(), kept.into()], Step::Read).await?;
        }
    }
    link.run("COMMIT", Step::Commit).await
}

/// The events since the record's first claim.
pub(super) async fn read(link: &mut Link, scope: &Scope, key: &Key) -> Result<Answer, Failure> {
    let found = look(link, &rows::load(1), &Name::new(scope, key)).await?;
    let past = match found {
        Some(found) => events(link, &found).await?,
        None => Vec::new(),
    };
    Ok(Answer::Past(past))
}

/// The record, if it does not count as absent.
async fn look(link: &mut Link, sql: &str, name: &Name) -> Result<Option<Found>, Failure> {
    let mut parameters = Vec::new();
    name.push(&mut parameters);
    let rows = link.rows(sql, parameters, Step::Read).await?;
    let found = job::read(rows, |cause| link.failure(Step::Read, cause))?.into_iter().next();
    Ok(found.filter(|found| !record::is_expired(&found.record, found.now)))
}

async fn events(link: &mut Link, found: &Found) -> Result<Vec<Past>, Failure> {
    let since = found.record.first_at.0;
    let rows = link.rows(READ, vec![found.id.into(), since.into()], Step::Read).await?;
    let past = rows.into_iter().map(|row| past(row, found.now)).collect::<Result<_, _>>();
    past.map_err(|what| link.failure(Step::Read, failure::Cause::Unreadable(what)))
}

async fn last(link: &mut Link, record: u64) -> Result<i64, Failure> {
    let rows = link.rows(LAST, vec![record.into()], Step::Read).await?;
    let number = rows.into_iter().next().map_or(Ok(0), |row| Columns(row.into_iter()).integer("number"));
    number.map_err(|what| link.failure(Step::Read, failure::Cause::Unreadable(what)))
}

fn row(found: &Found, number: i64, event: &Event) -> Vec<Value> {
    let ran_ms = event.ran_for.map(|ran| i64::try_from(ran.as_millis()).unwrap_or(i64::MAX));
    let text = |text: Option<&str>| text.map_or(Value::NULL, bytes);
    vec![
        found.id.into(),
        number.into(),
        found.now.0.into(),
        event.fence.0.into(),
        Value::Bytes(event.attempt.0.to_vec()),
        event.attempts.into(),
        bytes(event.what.as_str()),
        bytes(event.through.as_str()),
        text(event.cause.as_ref().map(Cause::as_str)),
        ran_ms.into(),
        text(event.by.as_deref()),
        text(event.reason.as_deref()),
    ]
}

fn past(row: Vec<Value>, now: Timestamp) -> Result<Past, Unreadable> {
    let mut row = Columns(row.into_iter());
    let at = Timestamp(row.integer("at")?);
    let event = Event {
        fence: Fence(row.number("fence")?),
        attempt: AttemptId(row.exactly("attempt")?),
        attempts: row.small("attempts")?,
        what: What::parse(&row.text("what")?).ok_or("what")?,
        through: Through::parse(&row.text("through")?).ok_or("through")?,
        cause: row.text_or_null("cause")?.map(Cause::new),
        ran_for: row.integer_or_null("ran_ms")?.map(|millis| Duration::from_millis(millis.unsigned_abs())),
        by: row.text_or_null("said_by")?,
        reason: row.text_or_null("reason")?,
    };
    Ok(Past { ago: now.since(at), event })
}
