//! Looking at records: `find`, `unsettled`, and the listings. Reads only.
//!
//! A listing goes in pages, each a statement of its own, so that no snapshot is held for long: an old snapshot
//! keeps the WAL from being reused. What changes meanwhile may or may not be in the listing.

use rusqlite::{Connection, Row, ToSql};
use semel::record::{self, Record};
use semel::{Clock, Cursor, Entry, Filter, Key, Scope, StateName, StoreError};

use super::error::{Failure, Step};
use super::file::File;
use super::rows::{self, COLUMNS, running, settled, stored};

/// Rows in one page.
const PAGE: u32 = 128;

/// What is open, by the time from which it waits; then as every store orders it. What runs counts once its lease has
/// lapsed. All that runs is looked through for it, at most as many rows as there are open claims.
pub(super) const UNSETTLED: &str = concat!(
    "SELECT ",
    running!(),
    ", key, scope, lease_until AS open_at FROM running \
     WHERE lease_until >= ?1 AND (lease_until > ?1 OR (key, scope) > (?2, ?3)) AND lease_until <= ?4 \
     UNION ALL SELECT ",
    settled!(),
    ", key, scope, since AS open_at FROM settled INDEXED BY settled_open \
     WHERE state >= 4 AND since >= ?1 AND (since > ?1 OR (key, scope) > (?2, ?3)) \
     ORDER BY open_at, key, scope LIMIT ?5"
);

/// A range of keys, in the order of the index; what runs and what is settled merged.
pub(super) const BY_KEY: &str = concat!(
    "SELECT ",
    running!(),
    ", key, scope FROM running \
     WHERE (key, scope) > (?1, ?2) AND key < ?3 AND (?4 IS NULL OR scope = ?4) AND (?5 IS NULL OR ?5 = 1) \
     UNION ALL SELECT ",
    settled!(),
    ", key, scope FROM settled INDEXED BY settled_key \
     WHERE key >= ?1 AND (key > ?1 OR scope > ?2) AND key < ?3 AND (?4 IS NULL OR scope = ?4) \
     AND (?5 IS NULL OR state = ?5) ORDER BY key, scope LIMIT ?6"
);

/// The same, for what is open: few rows, wherever among the others they are.
pub(super) const OPEN_BY_KEY: &str = concat!(
    "SELECT ",
    running!(),
    ", key, scope FROM running \
     WHERE (key, scope) > (?1, ?2) AND key < ?3 AND (?4 IS NULL OR scope = ?4) AND (?5 IS NULL OR ?5 = 1) \
     UNION ALL SELECT ",
    settled!(),
    ", key, scope FROM settled INDEXED BY settled_open \
     WHERE state >= 4 AND (key, scope) > (?1, ?2) AND key < ?3 AND (?4 IS NULL OR scope = ?4) \
     AND (?5 IS NULL OR state = ?5) ORDER BY key, scope LIMIT ?6"
);

/// Why a listing was not made.
#[derive(Debug)]
pub(super) enum Error {
    Sqlite(rusqlite::Error),
    /// The cursor is not one of this store's.
    Cursor,
}

impl Error {
    pub(super) fn in_file(self, file: &File) -> StoreError {
        match self {
            Error::Sqlite(cause) => Failure::new(file, Step::Read, cause).into(),
            Error::Cursor => StoreError::Refused("the cursor is none of this store's".into()),
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(cause: rusqlite::Error) -> Error {
        Error::Sqlite(cause)
    }
}

pub(super) fn find(
    reader: &Connection,
    scope: &Scope,
    key: &Key,
    clock: &dyn Clock,
) -> rusqlite::Result<Option<Entry>> {
    let stored = rows::load(reader, scope, key)?;
    Ok(stored.and_then(|stored| record::entry(&stored.record, scope, key, place(key, scope), clock.now())))
}

pub(super) fn unsettled(
    reader: &Connection,
    after: Option<&Cursor>,
    limit: u32,
    clock: &dyn Clock,
) -> Result<Vec<Entry>, Error> {
    let now = clock.now();
    let (since, key, scope) = match after {
        Some(cursor) => parse_open(cursor).ok_or(Error::Cursor)?,
        None => (i64::MIN, String::new(), String::new()),
    };
    let mut statement = reader.prepare_cached(UNSETTLED)?;
    let rows = statement.query_map((since, key, scope, now.0, limit), |row| {
        let (record, key, scope) = named(row)?;
        let cursor = open_place(row.get(COLUMNS + 2)?, &key, &scope);
        Ok(record::entry(&record, &scope, &key, cursor, now))
    })?;
    rows.filter_map(Result::transpose).collect::<rusqlite::Result<_>>().map_err(Error::from)
}

pub(super) fn list(
    reader: &Connection,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
    clock: &dyn Clock,
) -> Result<Vec<Entry>, Error> {
    let prefix = filter.prefix.as_deref().unwrap_or_default();
    let start = (prefix.to_owned(), String::new());
    let from = match after {
        Some(cursor) => parse(cursor).ok_or(Error::Cursor)?.max(start),
        None => start,
    };
    let range = Range { from, below: end_of_prefix(prefix), scope: filter.scope.clone() };
    entries(reader, range, filter, limit, clock)
}

pub(super) fn find_key(
    reader: &Connection,
    key: &Key,
    limit: u32,
    clock: &dyn Clock,
) -> Result<Vec<Entry>, Error> {
    // A key holds no control character, so its next text is the key with a NUL behind it.
    let below = Some(format!("{}\0", key.as_str()));
    let range = Range { from: (key.as_str().to_owned(), String::new()), below, scope: None };
    entries(reader, range, &Filter::default(), limit, clock)
}

/// Rows behind `from` and below `below`. No scope is empty, so behind `(key, "")` is everything of that key.
struct Range {
    from: (String, String),
    /// `None`: to the end.
    below: Option<String>,
    scope: Option<Scope>,
}

/// The entries of a range that fit, page by page. What a row reads as now is the rules' to say; the statements
/// only leave out what cannot fit.
fn entries(
    reader: &Connection,
    mut range: Range,
    filter: &Filter,
    limit: u32,
    clock: &dyn Clock,
) -> Result<Vec<Entry>, Error> {
    let mut found = Vec::new();
    while found.len() < limit as usize {
        let page = page(reader, &range, filter.state)?;
        let is_last = page.len() < PAGE as usize;
        let Some((_, key, scope)) = page.last() else { break };
        range.from = (key.as_str().to_owned(), scope.as_str().to_owned());
        let now = clock.now();
        let fitting = page
            .into_iter()
            .filter_map(|(record, key, scope)| record::entry(&record, &scope, &key, place(&key, &scope), now))
            .filter(|entry| filter.fits(entry));
        found.extend(fitting.take(limit as usize - found.len()));
        if is_last {
            break;
        }
    }
    Ok(found)
}

fn page(
    reader: &Connection,
    range: &Range,
    state: Option<StateName>,
) -> rusqlite::Result<Vec<(Record, Key, Scope)>> {
    let (sql, code) = plan(state);
    // A blob is above every text.
    let below: &dyn ToSql = match &range.below {
        Some(below) => below,
        None => &[0u8; 0].as_slice(),
    };
    let scope = range.scope.as_ref().map(Scope::as_str);
    let (from_key, from_scope) = &range.from;
    let mut statement = reader.prepare_cached(sql)?;
    statement.query_map(rusqlite::params![from_key, from_scope, below, scope, code, PAGE], named)?.collect()
}

/// Which rows can read as that state: by which index, and as which state they are written. What reads as unknown
/// may be written as running.
fn plan(state: Option<StateName>) -> (&'static str, Option<u8>) {
    match state {
        None => (BY_KEY, None),
        Some(StateName::Running) => (OPEN_BY_KEY, Some(rows::RUNNING)),
        Some(StateName::Unknown) => (OPEN_BY_KEY, None),
        Some(StateName::Dead) => (OPEN_BY_KEY, Some(rows::DEAD)),
        Some(StateName::Released) => (BY_KEY, Some(rows::RELEASED)),
        Some(StateName::Completed | StateName::Forgotten) => (BY_KEY, Some(rows::COMPLETED)),
    }
}

fn named(row: &Row<'_>) -> rusqlite::Result<(Record, Key, Scope)> {
    let key: String = row.get(COLUMNS)?;
    let scope: String = row.get(COLUMNS + 1)?;
    let unfit = |column| {
        move |_| rusqlite::Error::InvalidColumnType(column, "key".to_owned(), rusqlite::types::Type::Text)
    };
    let key = Key::new(key).map_err(unfit(COLUMNS))?;
    let scope = Scope::new(scope).map_err(unfit(COLUMNS + 1))?;
    Ok((stored(row)?.record, key, scope))
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
fn place(key: &Key, scope: &Scope) -> Cursor {
    Cursor([key.as_str(), "\0", scope.as_str()].concat().into_bytes())
}

fn parse(cursor: &Cursor) -> Option<(String, String)> {
    let (key, scope) = std::str::from_utf8(&cursor.0).ok()?.split_once('\0')?;
    Some((key.to_owned(), scope.to_owned()))
}

fn open_place(since: i64, key: &Key, scope: &Scope) -> Cursor {
    Cursor(format!("{since}\0{}\0{}", key.as_str(), scope.as_str()).into_bytes())
}

fn parse_open(cursor: &Cursor) -> Option<(i64, String, String)> {
    let (since, place) = std::str::from_utf8(&cursor.0).ok()?.split_once('\0')?;
    let (key, scope) = place.split_once('\0')?;
    Some((since.parse().ok()?, key.to_owned(), scope.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_above_all_that_begins_so_and_nothing_else() {
        assert_eq!(end_of_prefix("ab"), Some("ac".to_owned()));
        assert_eq!(end_of_prefix("a\u{10ffff}"), Some("b".to_owned()));
        assert_eq!(end_of_prefix("\u{d7ff}"), Some("\u{e000}".to_owned()), "surrogates are no characters");
        assert_eq!(end_of_prefix("\u{10ffff}"), None);
        assert_eq!(end_of_prefix(""), None);
    }
}
