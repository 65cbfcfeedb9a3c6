//! Between a record and its row.
//!
//! What runs is a row of `running`; every other record is a row of `settled`. So a claim of a fresh key, and its
//! settlement, each write where the pages are written anyway; only the settlement also dirties the leaf of the key
//! index that a random key leads to.
//!
//! No index keeps a record out of both tables: within the write lock a record is looked for in both before it is
//! written, and leaves the one when it goes into the other.

use bytes::Bytes;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, Null, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, Statement, ToSql};
use semel::record::{Record, State};
use semel::{
    Algorithm, AttemptId, Cause, Fence, Fingerprint, Key, Label, Lease, Outcome, Scope, Timestamp, Was,
};

/// A record, and where it is kept.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) place: Place,
    pub(super) record: Record,
}

/// Where a record's row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In `running`.
    Running,
    /// In `settled`, under this id.
    Settled(i64),
}

/// The columns that [`stored`] reads, in its order, of a row of `running`.
macro_rules! running {
    () => {
        "NULL, fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, first_at, since, label, \
         1, lease_until, was, settles, NULL, NULL, NULL, NULL, NULL, NULL, input"
    };
}
pub(super) use running;

/// The same of a row of `settled`.
macro_rules! settled {
    () => {
        "id, fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, first_at, since, label, \
         state, NULL, NULL, NULL, not_before, replay_until, forget_at, cause, outcome_format, outcome, input"
    };
}
pub(super) use settled;

/// How many they are: what a statement reads besides begins here.
pub(super) const COLUMNS: usize = 23;

pub(super) const LOAD_RUNNING: &str =
    concat!("SELECT ", running!(), " FROM running WHERE key = ?1 AND scope = ?2");

/// Both in one statement, so of one snapshot: a record that goes from one table to the other is seen in one of them.
/// What is settled first, since that is what is asked for again. The index leads to the key and all but surely to the
/// scope; the scope itself decides.
pub(super) const LOAD: &str = concat!(
    "SELECT ",
    settled!(),
    " FROM settled WHERE key = ?1 AND scope_hash = ?3 AND scope = ?2 UNION ALL SELECT ",
    running!(),
    " FROM running WHERE key = ?1 AND scope = ?2 LIMIT 1"
);

/// Over the row that the record has there, if it has one: a renewal.
const PUT_RUNNING: &str = "INSERT OR REPLACE INTO running (fence, attempt, spent, attempts, algorithm, digest, \
     bound_by, doubt, first_at, since, label, input, key, scope, lease_until, was, settles) VALUES (?1, ?2, ?3, ?4, \
     ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

const DROP_RUNNING: &str = "DELETE FROM running WHERE key = ?1 AND scope = ?2";

macro_rules! into_settled {
    () => {
        "INTO settled (fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, first_at, since, label, \
         input, key, scope, scope_hash, state, not_before, replay_until, forget_at, cause, outcome_format, outcome, \
         id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
         ?22, ?23)"
    };
}

/// Behind all others, where the id is null.
const ADD_SETTLED: &str = concat!("INSERT ", into_settled!());

/// In the place of what the record was.
const PUT_SETTLED: &str = concat!("INSERT OR REPLACE ", into_settled!());

pub(super) const DROP_SETTLED: &str = "DELETE FROM settled WHERE id = ?1";

/// Never later than it says already: what else is in the block may be due before.
const NOTE_DUE: &str = "INSERT INTO due (block, due_at) VALUES (?1, ?2) \
     ON CONFLICT (block) DO UPDATE SET due_at = ?2 WHERE due_at > ?2";

/// So many low bits of an id tell apart the rows of one block.
pub(super) const BLOCK_BITS: u32 = 6;

/// The statements of one transaction, looked up once for all its calls.
pub(super) struct Rows<'c> {
    connection: &'c Connection,
    load: CachedStatement<'c>,
    load_running: CachedStatement<'c>,
    put_running: CachedStatement<'c>,
    drop_running: CachedStatement<'c>,
    add_settled: CachedStatement<'c>,
    /// What this transaction noted last: a block, and when it is due. Only within the transaction nobody else
    /// changes it.
    noted: Option<(i64, i64)>,
}

impl<'c> Rows<'c> {
    pub(super) fn of(connection: &'c Connection) -> rusqlite::Result<Rows<'c>> {
        Ok(Rows {
            connection,
            load: connection.prepare_cached(LOAD)?,
            load_running: connection.prepare_cached(LOAD_RUNNING)?,
            put_running: connection.prepare_cached(PUT_RUNNING)?,
            drop_running: connection.prepare_cached(DROP_RUNNING)?,
            add_settled: connection.prepare_cached(ADD_SETTLED)?,
            noted: None,
        })
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// The record of a scope and key.
    pub(super) fn load(&mut self, scope: &Scope, key: &Key) -> rusqlite::Result<Option<Stored>> {
        find(&mut self.load, scope, key)
    }

    /// The same, for whoever has a lease: the record runs, as a rule, and that is a small table. Two statements
    /// otherwise, but one snapshot: it runs within the writer's transaction.
    pub(super) fn load_leased(&mut self, lease: &Lease) -> rusqlite::Result<Option<Stored>> {
        let Lease { scope, key, .. } = lease;
        match self.load_running.query_row((key.as_str(), scope.as_str()), stored).optional()? {
            Some(running) => Ok(Some(running)),
            None => self.load(scope, key),
        }
    }

    /// Writes what a rule made of `old`.
    ///
    /// Atomic, and never over somebody else's write: it runs within the writer's `BEGIN IMMEDIATE`, in which `old`
    /// was looked for in both tables.
    pub(super) fn save(
        &mut self,
        scope: &Scope,
        key: &Key,
        old: Option<&Stored>,
        new: &Record,
    ) -> rusqlite::Result<()> {
        match (old.map(|old| old.place), Flat::of(&new.state)) {
            (place, Flat::Running(columns)) => {
                if let Some(Place::Settled(id)) = place {
                    self.connection.prepare_cached(DROP_SETTLED)?.execute([id])?;
                }
                execute(&mut self.put_running, (scope, key, new), &columns.bound())
            }
            (Some(Place::Settled(id)), Flat::Settled(columns)) => {
                let mut put = self.connection.prepare_cached(PUT_SETTLED)?;
                execute(&mut put, (scope, key, new), &columns.bound(&hash(scope.as_str()), &id))?;
                self.note(id, columns.sweep_at())
            }
            (place, Flat::Settled(columns)) => {
                if place.is_some() {
                    self.drop_running.execute((key.as_str(), scope.as_str()))?;
                }
                let new_id = Null;
                execute(
                    &mut self.add_settled,
                    (scope, key, new),
                    &columns.bound(&hash(scope.as_str()), &new_id),
                )?;
                self.note(self.connection.last_insert_rowid(), columns.sweep_at())
            }
        }
    }

    /// Lets the sweep find what the row will free, and when.
    fn note(&mut self, id: i64, at: Option<i64>) -> rusqlite::Result<()> {
        let (block, Some(at)) = (id >> BLOCK_BITS, at) else { return Ok(()) };
        if self.noted.is_some_and(|(noted, due)| noted == block && due <= at) {
            return Ok(());
        }
        self.connection.prepare_cached(NOTE_DUE)?.execute((block, at))?;
        self.noted = Some((block, at));
        Ok(())
    }
}

/// One look at the record of a scope and key.
pub(super) fn load(connection: &Connection, scope: &Scope, key: &Key) -> rusqlite::Result<Option<Stored>> {
    find(&mut *connection.prepare_cached(LOAD)?, scope, key)
}

fn find(load: &mut Statement<'_>, scope: &Scope, key: &Key) -> rusqlite::Result<Option<Stored>> {
    load.query_row((key.as_str(), scope.as_str(), hash(scope.as_str())), stored).optional()
}

/// What stands for a scope in the index, for good: it is in the file. Two scopes may share one.
pub(super) fn hash(scope: &str) -> i64 {
    scope
        .chars()
        .fold(0, |hash, character| ((hash + i64::from(u32::from(character))) * 16_777_619) & 0x7fff_ffff)
}

/// Sets the columns that both tables have, `?1` to `?14`, and those behind them.
fn execute(
    statement: &mut CachedStatement<'_>,
    (scope, key, record): (&Scope, &Key, &Record),
    others: &[&dyn ToSql],
) -> rusqlite::Result<()> {
    let fingerprint = record.fingerprint.as_ref();
    let columns: [&dyn ToSql; 14] = [
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
        &record.input.as_deref(),
        &key.as_str(),
        &scope.as_str(),
    ];
    for (index, value) in columns.iter().chain(others).enumerate() {
        statement.raw_bind_parameter(index + 1, value)?;
    }
    statement.raw_execute().map(drop)
}

/// The columns that a state has in its table; those of other states are null.
enum Flat<'a> {
    Running(Running),
    Settled(Settled<'a>),
}

struct Running {
    lease_until: i64,
    was: u8,
    settles: bool,
}

#[derive(Default)]
struct Settled<'a> {
    state: u8,
    not_before: Option<i64>,
    replay_until: Option<i64>,
    forget_at: Option<i64>,
    cause: Option<&'a str>,
    outcome_format: Option<u8>,
    outcome: Option<&'a [u8]>,
}

pub(super) const RUNNING: u8 = 1;
pub(super) const RELEASED: u8 = 2;
pub(super) const COMPLETED: u8 = 3;
const UNKNOWN: u8 = 4;
pub(super) const DEAD: u8 = 5;

impl Flat<'_> {
    fn of(state: &State) -> Flat<'_> {
        Flat::Settled(match state {
            State::Running { until, was, settles } => {
                let running = Running { lease_until: until.0, was: was_code(*was), settles: *settles };
                return Flat::Running(running);
            }
            State::Released { not_before, forget_at } => Settled {
                state: RELEASED,
                not_before: Some(not_before.0),
                forget_at: Some(forget_at.0),
                ..Settled::default()
            },
            State::Completed { outcome, replay_until, forget_at } => Settled {
                state: COMPLETED,
                replay_until: Some(replay_until.0),
                forget_at: Some(forget_at.0),
                outcome_format: outcome.as_ref().map(|outcome| outcome.format),
                outcome: outcome.as_ref().map(|outcome| outcome.bytes.as_ref()),
                ..Settled::default()
            },
            State::Unknown { cause } => {
                Settled { state: UNKNOWN, cause: Some(cause.as_str()), ..Settled::default() }
            }
            State::Dead { cause } => {
                Settled { state: DEAD, cause: Some(cause.as_str()), ..Settled::default() }
            }
        })
    }
}

impl Running {
    /// In the order of [`PUT_RUNNING`].
    fn bound(&self) -> [&dyn ToSql; 3] {
        [&self.lease_until, &self.was, &self.settles]
    }
}

impl Settled<'_> {
    /// In the order of [`ADD_SETTLED`].
    fn bound<'b>(&'b self, hash: &'b i64, id: &'b dyn ToSql) -> [&'b dyn ToSql; 9] {
        [
            hash,
            &self.state,
            &self.not_before,
            &self.replay_until,
            &self.forget_at,
            &self.cause,
            &self.outcome_format,
            &self.outcome,
            id,
        ]
    }

    /// What the column of that name holds: when there is something to free next, if ever.
    fn sweep_at(&self) -> Option<i64> {
        let at = if self.outcome_format.is_some() { self.replay_until } else { self.forget_at };
        at.filter(|at| *at != Timestamp::NEVER.0)
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
    let place = row.get::<_, Option<i64>>(0)?.map_or(Place::Running, Place::Settled);
    Ok(Stored { place, record })
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
