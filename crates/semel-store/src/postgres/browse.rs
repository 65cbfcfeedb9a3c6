//! Looking at records: `find`, `unsettled`, and the listings. Reads only.
//!
//! A listing goes in pages, each a statement of its own, so that no snapshot is held for long: an old snapshot keeps
//! the server from cleaning up. What changes meanwhile may or may not be in the listing.

use semel::record;
use semel::{Cursor, Entry, Filter, Key, Scope, StateName, StoreError, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::error::Failure;
use super::reader::Reader;
use super::rows::{COLUMNS, bytes, clock, columns, stored};
use crate::flat;

/// Rows in one page.
const PAGE: i64 = 128;

/// The record, its outcome and the clock, in one snapshot.
macro_rules! select {
    () => {
        concat!(
            "SELECT ",
            columns!(),
            ", o.bytes, clock.now FROM (SELECT ",
            clock!(),
            " AS now OFFSET 0) AS clock, semel.records AS r \
             LEFT JOIN semel.outcomes AS o ON o.record = r.id AND r.outcome_format IS NOT NULL "
        )
    };
}

const FIND: &str = concat!(select!(), "WHERE r.key = $1 AND r.scope = $2");

/// What is open, by the time from which it waits, by the index of that: what runs counts once its lease has lapsed.
const UNSETTLED: &str = concat!(
    select!(),
    "WHERE r.open_at IS NOT NULL AND r.open_at <= clock.now AND (r.open_at, r.key, r.scope) > ($1, $2, $3) \
     ORDER BY r.open_at, r.key, r.scope LIMIT $4"
);

/// A range of keys, in the order of the index.
const BY_KEY: &str = concat!(
    select!(),
    "WHERE (r.key, r.scope) > ($1, $2) AND ($3::text IS NULL OR r.key < $3) AND ($4::text IS NULL OR r.scope = $4) \
     AND ($5::smallint IS NULL OR r.state = $5) ORDER BY r.key, r.scope LIMIT $6"
);

/// The same, for what is open: few rows, wherever among the others they are.
const OPEN_BY_KEY: &str = concat!(
    select!(),
    "WHERE r.open_at IS NOT NULL AND (r.key, r.scope) > ($1, $2) AND ($3::text IS NULL OR r.key < $3) \
     AND ($4::text IS NULL OR r.scope = $4) AND ($5::smallint IS NULL OR r.state = $5) \
     ORDER BY r.key, r.scope LIMIT $6"
);

pub(super) async fn find(reader: &Reader, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
    let (key, scope) = (key.as_str(), scope.as_str());
    let rows = reader.rows(FIND, &[(&key, Type::TEXT), (&scope, Type::TEXT)]).await?;
    Ok(rows.first().map(|row| entry(row, place)).transpose()?.flatten())
}

pub(super) async fn unsettled(
    reader: &Reader,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Vec<Entry>, StoreError> {
    let (since, key, scope) = match after {
        Some(cursor) => parse_open(cursor).ok_or_else(foreign)?,
        None => (i64::MIN, String::new(), String::new()),
    };
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] =
        [(&since, Type::INT8), (&key, Type::TEXT), (&scope, Type::TEXT), (&i64::from(limit), Type::INT8)];
    let rows = reader.rows(UNSETTLED, &parameters).await?;
    let entries = rows.iter().filter_map(|row| entry(row, open_place).transpose());
    Ok(entries.collect::<Result<_, Failure>>()?)
}

pub(super) async fn list(
    reader: &Reader,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Vec<Entry>, StoreError> {
    // Nothing sorts between a prefix and what begins with it, and no scope is empty.
    let start = (filter.prefix.clone().unwrap_or_default(), String::new());
    let from = match after {
        Some(cursor) => parse(cursor).ok_or_else(foreign)?.max(start),
        None => start,
    };
    let below = end_of_prefix(filter.prefix.as_deref().unwrap_or_default());
    let range = Range { from, below, scope: filter.scope.clone() };
    Ok(entries(reader, range, filter, limit).await?)
}

pub(super) async fn find_key(reader: &Reader, key: &Key, limit: u32) -> Result<Vec<Entry>, StoreError> {
    // A key holds no control character, so no other one lies below the key with one behind it.
    let below = Some(format!("{}\u{1}", key.as_str()));
    let range = Range { from: (key.as_str().to_owned(), String::new()), below, scope: None };
    Ok(entries(reader, range, &Filter::default(), limit).await?)
}

/// Rows behind `from` and below `below`. No scope is empty, so behind `(key, "")` is everything of that key.
struct Range {
    from: (String, String),
    /// `None`: to the end.
    below: Option<String>,
    scope: Option<Scope>,
}

/// The entries of a range that fit, page by page. What a row reads as now is the rules' to say; the statements only
/// leave out what cannot fit.
async fn entries(
    reader: &Reader,
    mut range: Range,
    filter: &Filter,
    limit: u32,
) -> Result<Vec<Entry>, Failure> {
    let mut found = Vec::new();
    while found.len() < limit as usize {
        let page = page(reader, &range, filter.state).await?;
        for row in &page {
            let entry = entry(row, place)?.filter(|entry| filter.fits(entry));
            found.extend(entry.filter(|_| found.len() < limit as usize));
        }
        let Some(last) = page.last().filter(|_| page.len() == PAGE as usize) else { break };
        let text = |column: usize| last.try_get::<_, String>(column).map_err(Failure::row);
        range.from = (text(1)?, text(2)?);
    }
    Ok(found)
}

async fn page(reader: &Reader, range: &Range, state: Option<StateName>) -> Result<Vec<Row>, Failure> {
    let (sql, code) = plan(state);
    let scope = range.scope.as_ref().map(Scope::as_str);
    let (key, from_scope) = &range.from;
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 6] = [
        (key, Type::TEXT),
        (from_scope, Type::TEXT),
        (&range.below, Type::TEXT),
        (&scope, Type::TEXT),
        (&code, Type::INT2),
        (&PAGE, Type::INT8),
    ];
    reader.rows(sql, &parameters).await
}

/// Which rows can read as that state: by which index, and as which state they are written. What reads as unknown may be
/// written as running.
fn plan(state: Option<StateName>) -> (&'static str, Option<i16>) {
    let (sql, code) = match state {
        None => (BY_KEY, None),
        Some(StateName::Running) => (OPEN_BY_KEY, Some(flat::RUNNING)),
        Some(StateName::Unknown) => (OPEN_BY_KEY, None),
        Some(StateName::Dead) => (OPEN_BY_KEY, Some(flat::DEAD)),
        Some(StateName::Released) => (BY_KEY, Some(flat::RELEASED)),
        Some(StateName::Completed | StateName::Forgotten) => (BY_KEY, Some(flat::COMPLETED)),
    };
    (sql, code.map(i16::from))
}

fn entry(row: &Row, cursor: fn(&Row) -> Result<Cursor, Failure>) -> Result<Option<Entry>, Failure> {
    let stored = stored(row, bytes(row, COLUMNS)?)?;
    let now = Timestamp(row.try_get(COLUMNS + 1).map_err(Failure::row)?);
    Ok(record::entry(&stored.record, &stored.scope, &stored.key, cursor(row)?, now))
}

/// The least text above every text that begins so; `None` where there is none.
fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// A key and a scope hold no control characters, so NUL is a border.
fn place(row: &Row) -> Result<Cursor, Failure> {
    let text = |column: usize| row.try_get::<_, &str>(column).map_err(Failure::row);
    Ok(Cursor([text(1)?, "\0", text(2)?].concat().into_bytes()))
}

fn parse(cursor: &Cursor) -> Option<(String, String)> {
    let (key, scope) = std::str::from_utf8(&cursor.0).ok()?.split_once('\0')?;
    (!scope.contains('\0')).then(|| (key.to_owned(), scope.to_owned()))
}

fn open_place(row: &Row) -> Result<Cursor, Failure> {
    let open_at: i64 = row.try_get(16).map_err(Failure::row)?;
    let Cursor(place) = place(row)?;
    Ok(Cursor([format!("{open_at}\0").as_bytes(), &place].concat()))
}

fn parse_open(cursor: &Cursor) -> Option<(i64, String, String)> {
    let (since, place) = std::str::from_utf8(&cursor.0).ok()?.split_once('\0')?;
    let (key, scope) = place.split_once('\0')?;
    Some((since.parse().ok()?, key.to_owned(), scope.to_owned()))
}

fn foreign() -> StoreError {
    StoreError::Refused("the cursor is none of this store's".into())
}
