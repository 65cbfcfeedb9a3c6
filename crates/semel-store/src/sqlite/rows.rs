//! Between a record and its row.

use bytes::Bytes;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, ToSql};
use semel::record::{Record, State};
use semel::{Algorithm, AttemptId, Cause, Fence, Fingerprint, Key, Label, Outcome, Scope, Timestamp, Was};

/// A record, and where it is kept.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) id: i64,
    pub(super) record: Record,
}

/// The columns that [`stored`] reads, in its order. The two big ones are looked up only where they exist.
macro_rules! columns {
    () => {
        "id, fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, first_at, since, label, \
         state, lease_until, was, settles, not_before, replay_until, forget_at, cause, outcome_format, \
         CASE WHEN outcome_format IS NOT NULL THEN (SELECT bytes FROM outcomes WHERE record = id) END, \
         CASE WHEN has_input THEN (SELECT bytes FROM inputs WHERE record = id) END"
    };
}
pub(super) use columns;

/// How many they are: what a statement reads besides begins here.
pub(super) const COLUMNS: usize = 23;

/// One statement, so row, outcome and input are of one snapshot.
pub(super) const LOAD: &str = concat!("SELECT ", columns!(), " FROM records WHERE key = ?1 AND scope = ?2");

/// The columns that every write sets, `?1` to `?21`. Key, scope and generated columns are not among them.
const INSERT: &str = "INSERT INTO records (fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, \
     first_at, since, label, has_input, state, lease_until, was, settles, not_before, replay_until, forget_at, \
     cause, outcome_format, key, scope) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, \
     ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)";

const UPDATE: &str = "UPDATE records SET fence = ?1, attempt = ?2, spent = ?3, attempts = ?4, algorithm = ?5, \
     digest = ?6, bound_by = ?7, doubt = ?8, first_at = ?9, since = ?10, label = ?11, has_input = ?12, \
     state = ?13, lease_until = ?14, was = ?15, settles = ?16, not_before = ?17, replay_until = ?18, \
     forget_at = ?19, cause = ?20, outcome_format = ?21 WHERE id = ?22";

/// The statements of one transaction, looked up once for all its calls.
pub(super) struct Rows<'c> {
    connection: &'c Connection,
    load: CachedStatement<'c>,
    insert: CachedStatement<'c>,
    update: CachedStatement<'c>,
    put_outcome: CachedStatement<'c>,
}

impl<'c> Rows<'c> {
    pub(super) fn of(connection: &'c Connection) -> rusqlite::Result<Rows<'c>> {
        Ok(Rows {
            connection,
            load: connection.prepare_cached(LOAD)?,
            insert: connection.prepare_cached(INSERT)?,
            update: connection.prepare_cached(UPDATE)?,
            put_outcome: connection.prepare_cached(PUT_OUTCOME)?,
        })
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// The record of a scope and key.
    pub(super) fn load(&mut self, scope: &Scope, key: &Key) -> rusqlite::Result<Option<Stored>> {
        self.load.query_row([key.as_str(), scope.as_str()], stored).optional()
    }

    /// Writes what a rule made of `old`.
    ///
    /// Atomic, and never over somebody else's write: it runs within the writer's `BEGIN IMMEDIATE`, in which `old`
    /// was read.
    pub(super) fn save(
        &mut self,
        scope: &Scope,
        key: &Key,
        old: Option<&Stored>,
        new: &Record,
    ) -> rusqlite::Result<()> {
        let id = match old {
            Some(old) => {
                execute(&mut self.update, new, &[&old.id])?;
                old.id
            }
            None => {
                execute(&mut self.insert, new, &[&key.as_str(), &scope.as_str()])?;
                self.connection.last_insert_rowid()
            }
        };
        let old = old.map(|old| &old.record);
        self.save_outcome(id, old.and_then(outcome), outcome(new))?;
        self.save_input(id, old.and_then(|old| old.input.as_ref()), new.input.as_ref())
    }

    /// Only what has changed is written.
    fn save_outcome(
        &mut self,
        id: i64,
        old: Option<&Outcome>,
        new: Option<&Outcome>,
    ) -> rusqlite::Result<()> {
        match new {
            _ if old.map(|old| &old.bytes) == new.map(|new| &new.bytes) => Ok(()),
            Some(new) => self.put_outcome.execute((id, new.bytes.as_ref())).map(drop),
            None => self.connection.prepare_cached(DROP_OUTCOME)?.execute([id]).map(drop),
        }
    }

    /// Rare: only what a completer works from has an input.
    fn save_input(&mut self, id: i64, old: Option<&Bytes>, new: Option<&Bytes>) -> rusqlite::Result<()> {
        match new {
            _ if old == new => Ok(()),
            Some(new) => self.connection.prepare_cached(PUT_INPUT)?.execute((id, new.as_ref())).map(drop),
            None => self.connection.prepare_cached(DROP_INPUT)?.execute([id]).map(drop),
        }
    }
}

/// One look at the record of a scope and key.
pub(super) fn load(connection: &Connection, scope: &Scope, key: &Key) -> rusqlite::Result<Option<Stored>> {
    connection.prepare_cached(LOAD)?.query_row([key.as_str(), scope.as_str()], stored).optional()
}

const PUT_OUTCOME: &str = "INSERT OR REPLACE INTO outcomes (record, bytes) VALUES (?1, ?2)";
const PUT_INPUT: &str = "INSERT OR REPLACE INTO inputs (record, bytes) VALUES (?1, ?2)";
pub(super) const DROP_OUTCOME: &str = "DELETE FROM outcomes WHERE record = ?1";
pub(super) const DROP_INPUT: &str = "DELETE FROM inputs WHERE record = ?1";

fn execute(
    statement: &mut CachedStatement<'_>,
    record: &Record,
    place: &[&dyn ToSql],
) -> rusqlite::Result<()> {
    let flat = Flat::of(&record.state);
    let fingerprint = record.fingerprint.as_ref();
    let columns: [&dyn ToSql; 21] = [
        &integer(record.fence.0),
        &record.attempt.0,
        &spent(&record.spent),
        &record.attempts,
        &fingerprint.map(|bound| bound.algorithm.0),
        &fingerprint.map(|bound| bound.digest.as_slice()),
        &integer(record.bound_by.0),
        &record.doubt,
        &record.first_at.0,
        &record.since.0,
        &record.label.as_str(),
        &record.input.is_some(),
        &flat.state,
        &flat.lease_until,
        &flat.was,
        &flat.settles,
        &flat.not_before,
        &flat.replay_until,
        &flat.forget_at,
        &flat.cause,
        &flat.outcome_format,
    ];
    for (index, value) in columns.iter().chain(place).enumerate() {
        statement.raw_bind_parameter(index + 1, value)?;
    }
    statement.raw_execute().map(drop)
}

/// A state's columns; those of other states are null.
#[derive(Default)]
struct Flat<'a> {
    state: u8,
    lease_until: Option<i64>,
    was: Option<u8>,
    settles: Option<bool>,
    not_before: Option<i64>,
    replay_until: Option<i64>,
    forget_at: Option<i64>,
    cause: Option<&'a str>,
    outcome_format: Option<u8>,
}

pub(super) const RUNNING: u8 = 1;
pub(super) const RELEASED: u8 = 2;
pub(super) const COMPLETED: u8 = 3;
const UNKNOWN: u8 = 4;
pub(super) const DEAD: u8 = 5;

impl Flat<'_> {
    fn of(state: &State) -> Flat<'_> {
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
                ..Flat::default()
            },
            State::Unknown { cause } => {
                Flat { state: UNKNOWN, cause: Some(cause.as_str()), ..Flat::default() }
            }
            State::Dead { cause } => Flat { state: DEAD, cause: Some(cause.as_str()), ..Flat::default() },
        }
    }
}

fn outcome(record: &Record) -> Option<&Outcome> {
    match &record.state {
        State::Completed { outcome, .. } => outcome.as_ref(),
        _ => None,
    }
}

/// Reads the first [`COLUMNS`] columns.
pub(super) fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let record = Record {
        fence: fence(row, 1)?,
        attempt: AttemptId(row.get(2)?),
        spent: row.get::<_, Spent>(3)?.0,
        attempts: row.get(4)?,
        fingerprint: fingerprint(row)?,
        bound_by: fence(row, 7)?,
        doubt: row.get(8)?,
        first_at: instant(row, 9)?,
        since: instant(row, 10)?,
        label: Label::new(row.get::<_, String>(11)?),
        input: row.get::<_, Option<Vec<u8>>>(22)?.map(Bytes::from),
        state: state(row)?,
    };
    Ok(Stored { id: row.get(0)?, record })
}

fn state(row: &Row<'_>) -> rusqlite::Result<State> {
    Ok(match row.get(12)? {
        RUNNING => State::Running {
            until: instant(row, 13)?,
            was: row.get::<_, WasCode>(14)?.0,
            settles: row.get(15)?,
        },
        RELEASED => State::Released { not_before: instant(row, 16)?, forget_at: instant(row, 18)? },
        COMPLETED => State::Completed {
            outcome: row.get::<_, Option<u8>>(20)?.map(|format| kept(row, format)).transpose()?,
            replay_until: instant(row, 17)?,
            forget_at: instant(row, 18)?,
        },
        UNKNOWN => State::Unknown { cause: Cause::new(row.get::<_, String>(19)?) },
        DEAD => State::Dead { cause: Cause::new(row.get::<_, String>(19)?) },
        code => return Err(rusqlite::Error::IntegralValueOutOfRange(12, i64::from(code))),
    })
}

/// An outcome whose bytes are missing is an error, never an empty one.
fn kept(row: &Row<'_>, format: u8) -> rusqlite::Result<Outcome> {
    Ok(Outcome { format, bytes: row.get::<_, Vec<u8>>(21)?.into() })
}

fn fingerprint(row: &Row<'_>) -> rusqlite::Result<Option<Fingerprint>> {
    let Some(algorithm) = row.get(5)? else { return Ok(None) };
    Ok(Some(Fingerprint { algorithm: Algorithm(algorithm), digest: row.get(6)? }))
}

fn instant(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp)
}

fn fence(row: &Row<'_>, column: usize) -> rusqlite::Result<Fence> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map(Fence).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// Fences are counted up from 1, one by one: none comes near the border.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn spent(attempts: &[AttemptId]) -> Vec<u8> {
    attempts.iter().flat_map(|attempt| attempt.0).collect()
}

struct Spent(Vec<AttemptId>);

impl FromSql for Spent {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Spent> {
        let (ids, rest) = value.as_blob()?.as_chunks::<16>();
        if rest.is_empty() {
            Ok(Spent(ids.iter().copied().map(AttemptId).collect()))
        } else {
            Err(FromSqlError::InvalidType)
        }
    }
}

struct WasCode(Was);

impl FromSql for WasCode {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<WasCode> {
        let code = value.as_i64()?;
        WAS.into_iter()
            .find(|was| i64::from(was_code(*was)) == code)
            .map(WasCode)
            .ok_or(FromSqlError::OutOfRange(code))
    }
}

const WAS: [Was; 6] = [Was::New, Was::Released, Was::Lapsed, Was::Unknown, Was::Dead, Was::Running];

fn was_code(was: Was) -> u8 {
    match was {
        Was::New => 0,
        Was::Released => 1,
        Was::Lapsed => 2,
        Was::Unknown => 3,
        Was::Dead => 4,
        Was::Running => 5,
    }
}
