//! Looking at records: what is unsettled, and the listings. Reads only, without locks.
//!
//! A listing goes in pages, each a statement of its own, so that no snapshot is held for long. What changes meanwhile may
//! or may not be in the listing.

use mysql_async::Value;
use semel::{Cursor, Entry, Filter, Key, Scope, StateName, StoreError, record};

use super::failure::{Failure, Step};
use super::job::{self, Answer, Page, Verb};
use super::link::Link;
use super::rows::{Found, Name, columns, now};
use super::worker::Queue;
use crate::flat::{COMPLETED, DEAD, RELEASED, RUNNING, UNKNOWN};

/// Rows in one page.
const PAGE: u32 = 64;

/// What has been in one open state for some time, oldest first. What runs counts once its lease has lapsed. The index
/// leads to the rows in their order.
const OPEN: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM semel_records FORCE INDEX (semel_records_due) WHERE state = ? AND due_at >= ? \
     AND (due_at > ? OR id > ?) AND due_at <= ",
    now!(),
    " ORDER BY due_at, id LIMIT ?"
);

/// A range of keys, in the order of the index.
const BY_KEY: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM semel_records FORCE INDEX (semel_records_key) WHERE `key` >= ? AND (`key` > ? OR scope > ?) \
     AND (? IS NULL OR `key` < ?) AND (? IS NULL OR scope = ?) AND state IN (?, ?) ORDER BY `key`, scope LIMIT ?"
);

/// The same, whatever the state is.
const EVERY_BY_KEY: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM semel_records FORCE INDEX (semel_records_key) WHERE `key` >= ? AND (`key` > ? OR scope > ?) \
     AND (? IS NULL OR `key` < ?) AND (? IS NULL OR scope = ?) ORDER BY `key`, scope LIMIT ?"
);

/// The same, for what is open: few rows, wherever among the others they are.
const OPEN_BY_KEY: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM semel_records FORCE INDEX (semel_records_due) WHERE `key` >= ? AND (`key` > ? OR scope > ?) \
     AND (? IS NULL OR `key` < ?) AND (? IS NULL OR scope = ?) AND state IN (?, ?) ORDER BY `key`, scope LIMIT ?"
);

pub(super) async fn open(
    link: &mut Link,
    state: u8,
    (at, id): (i64, u64),
    limit: u32,
) -> Result<Answer, Failure> {
    let parameters = vec![state.into(), at.into(), at.into(), id.into(), limit.into()];
    rows(link, OPEN, parameters).await
}

pub(super) async fn page(link: &mut Link, page: &Page) -> Result<Answer, Failure> {
    let (sql, states) = plan(page.state);
    let (key, scope) = &page.from;
    let bytes = |bytes: &Vec<u8>| Value::Bytes(bytes.clone());
    let below = || page.below.as_ref().map_or(Value::NULL, bytes);
    let only = || page.scope.as_ref().map_or(Value::NULL, |scope| bytes(&scope.as_str().into()));
    let mut parameters = vec![bytes(key), bytes(key), bytes(scope), below(), below(), only(), only()];
    parameters.extend(states.into_iter().flatten().map(Value::from));
    parameters.push(page.rows_max.into());
    rows(link, sql, parameters).await
}

async fn rows(link: &mut Link, sql: &str, parameters: Vec<Value>) -> Result<Answer, Failure> {
    let rows = link.rows(sql, parameters, Step::Read).await?;
    job::read(rows, |cause| link.failure(Step::Read, cause)).map(Answer::Rows)
}

/// Which rows can read as that state: by which index, and as what they are written. What reads as unknown may be written
/// as running.
fn plan(state: Option<StateName>) -> (&'static str, Option<[u8; 2]>) {
    match state {
        None => (EVERY_BY_KEY, None),
        Some(StateName::Running) => (OPEN_BY_KEY, Some([RUNNING; 2])),
        Some(StateName::Unknown) => (OPEN_BY_KEY, Some([RUNNING, UNKNOWN])),
        Some(StateName::Dead) => (OPEN_BY_KEY, Some([DEAD; 2])),
        Some(StateName::Released) => (BY_KEY, Some([RELEASED; 2])),
        Some(StateName::Completed | StateName::Forgotten) => (BY_KEY, Some([COMPLETED; 2])),
    }
}

/// Lapsed, unknown and dead records: three looks, merged. A record that goes from one state to another between them is
/// taken as it was seen last.
pub(super) async fn unsettled(
    queue: &Queue,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Vec<Entry>, StoreError> {
    let after = match after {
        Some(cursor) => open_place_of(cursor).ok_or_else(foreign_cursor)?,
        None => (i64::MIN, 0),
    };
    let mut all: Vec<Found> = Vec::new();
    for state in [RUNNING, UNKNOWN, DEAD] {
        let found = found(queue, Verb::Open { state, after, limit }).await?;
        all.retain(|earlier| found.iter().all(|later| later.id != earlier.id));
        all.extend(found);
    }
    all.sort_by_key(|found| (found.due_at, found.id));
    let entries = all.into_iter().filter_map(|found| entry(&found, open_place(found.due_at, found.id)));
    Ok(entries.take(limit as usize).collect())
}

pub(super) async fn list(
    queue: &Queue,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Vec<Entry>, StoreError> {
    let prefix = filter.prefix.as_deref().unwrap_or_default().as_bytes();
    let start = (prefix.to_vec(), Vec::new());
    let from = match after {
        Some(cursor) => place_of(cursor).ok_or_else(foreign_cursor)?.max(start),
        None => start,
    };
    let below = end_of_prefix(prefix);
    let page = Page { from, below, scope: filter.scope.clone(), state: filter.state, rows_max: PAGE };
    entries(queue, page, filter, limit).await
}

pub(super) async fn find_key(queue: &Queue, key: &Key, limit: u32) -> Result<Vec<Entry>, StoreError> {
    // No scope is empty, so behind the empty one is everything of the key; a key holds no NUL, so its next text is the
    // key with one behind it.
    let from = (key.as_str().into(), Vec::new());
    let below = Some(format!("{}\0", key.as_str()).into_bytes());
    let page = Page { from, below, scope: None, state: None, rows_max: PAGE };
    entries(queue, page, &Filter::default(), limit).await
}

/// The entries of a range that fit, page by page. What a row reads as now is the rules' to say; the statements only leave
/// out what cannot fit.
async fn entries(
    queue: &Queue,
    mut page: Page,
    filter: &Filter,
    limit: u32,
) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    while entries.len() < limit as usize {
        let found = found(queue, Verb::List(page.clone())).await?;
        let is_last = found.len() < PAGE as usize;
        let Some(last) = found.last() else { break };
        page.from = (last.name.key.as_str().into(), last.name.scope.as_str().into());
        let fitting = found.iter().filter_map(|found| entry(found, place(&found.name)));
        let room = limit as usize - entries.len();
        entries.extend(fitting.filter(|entry| filter.fits(entry)).take(room));
        if is_last {
            break;
        }
    }
    Ok(entries)
}

async fn found(queue: &Queue, verb: Verb) -> Result<Vec<Found>, StoreError> {
    let Answer::Rows(found) = queue.ask(verb).await? else { unreachable!("a look is answered with rows") };
    Ok(found)
}

fn entry(found: &Found, cursor: Cursor) -> Option<Entry> {
    record::entry(&found.record, &found.name.scope, &found.name.key, cursor, found.now)
}

fn foreign_cursor() -> StoreError {
    StoreError::Refused("the cursor is none of this store's".into())
}

/// The least bytes above all that begin so; `None` where there are none.
fn end_of_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// A key and a scope hold no control characters, so NUL is a border.
pub(super) fn place(name: &Name) -> Cursor {
    Cursor([name.key.as_str(), "\0", name.scope.as_str()].concat().into_bytes())
}

fn place_of(cursor: &Cursor) -> Option<(Vec<u8>, Vec<u8>)> {
    let (key, scope) = std::str::from_utf8(&cursor.0).ok()?.split_once('\0')?;
    Some((Key::new(key).ok()?.as_str().into(), Scope::new(scope).ok()?.as_str().into()))
}

fn open_place(at: i64, id: u64) -> Cursor {
    Cursor(format!("{at}:{id}").into_bytes())
}

fn open_place_of(cursor: &Cursor) -> Option<(i64, u64)> {
    let (at, id) = std::str::from_utf8(&cursor.0).ok()?.split_once(':')?;
    Some((at.parse().ok()?, id.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_above_all_that_begins_so_and_nothing_else() {
        assert_eq!(end_of_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(end_of_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(end_of_prefix(b"\xff"), None);
        assert_eq!(end_of_prefix(b""), None);
    }

    #[test]
    fn a_cursor_of_another_kind_is_not_read() {
        assert_eq!(open_place_of(&open_place(-3, 7)), Some((-3, 7)));
        assert_eq!(open_place_of(&Cursor(b"k\0a".to_vec())), None);
        assert_eq!(place_of(&open_place(1, 2)), None);
    }
}
