//! Files of schema 1: brought along without loss, and no longer written by the program that made them.

use semel::record::{Record, State};
use semel::testing::run;

use crate::Migrate;

use super::round_trip::record;
use super::*;

/// A file as the program of schema 1 made it.
fn old(directory: &TempDir) -> Connection {
    let connection = Connection::open(directory.path().join("semel.db")).expect("a connection");
    let text = schema::SqliteMigrations::new("semel.db").print();
    let second = text.find("-- 0002").expect("a second step");
    connection.execute_batch(&text[..second]).expect("schema 1");
    connection
}

const INSERT: &str = "INSERT INTO records (fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, \
     first_at, since, label, has_input, state, lease_until, was, settles, not_before, replay_until, forget_at, \
     cause, outcome_format, key, scope) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, \
     ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)";
const PUT_OUTCOME: &str = "INSERT OR REPLACE INTO outcomes (record, bytes) VALUES (?1, ?2)";
const PUT_INPUT: &str = "INSERT OR REPLACE INTO inputs (record, bytes) VALUES (?1, ?2)";

/// What else that program did.
const OTHERS: [&str; 9] = [
    "SELECT id, fence, attempt, spent, attempts, algorithm, digest, bound_by, doubt, first_at, since, label, \
     state, lease_until, was, settles, not_before, replay_until, forget_at, cause, outcome_format, \
     CASE WHEN outcome_format IS NOT NULL THEN (SELECT bytes FROM outcomes WHERE record = id) END, \
     CASE WHEN has_input THEN (SELECT bytes FROM inputs WHERE record = id) END \
     FROM records WHERE key = ?1 AND scope = ?2",
    "UPDATE records SET fence = ?1, attempt = ?2, spent = ?3, attempts = ?4, algorithm = ?5, digest = ?6, \
     bound_by = ?7, doubt = ?8, first_at = ?9, since = ?10, label = ?11, has_input = ?12, state = ?13, \
     lease_until = ?14, was = ?15, settles = ?16, not_before = ?17, replay_until = ?18, forget_at = ?19, \
     cause = ?20, outcome_format = ?21 WHERE id = ?22",
    "DELETE FROM outcomes WHERE record = ?1",
    "DELETE FROM inputs WHERE record = ?1",
    "SELECT id, forget_at <= ?1 FROM records WHERE sweep_at <= ?1 ORDER BY sweep_at LIMIT ?2",
    "UPDATE records SET outcome_format = NULL WHERE id = ?1",
    "DELETE FROM records WHERE id = ?1",
    "SELECT key, scope, open_at FROM records INDEXED BY records_open WHERE open_at >= ?1 \
     ORDER BY open_at, key, scope LIMIT ?2",
    "SELECT key, scope FROM records WHERE (key, scope) > (?1, ?2) AND key < ?3 ORDER BY key, scope LIMIT ?4",
];

/// Writes a record as that program did.
fn write(connection: &Connection, scope: &Scope, key: &Key, record: &Record) {
    let spent: Vec<u8> = record.spent.iter().flat_map(|attempt| attempt.0).collect();
    let fingerprint = record.fingerprint.as_ref();
    let (mut lease_until, mut was, mut settles) = (None, None, None);
    let (mut not_before, mut replay_until, mut forget_at) = (None, None, None);
    let (mut cause, mut outcome) = (None, None);
    let state = match &record.state {
        State::Running { until, was: before, settles: by } => {
            let code = match before {
                semel::Was::New => 0,
                semel::Was::Released => 1,
                semel::Was::Lapsed => 2,
                semel::Was::Unknown => 3,
                semel::Was::Dead => 4,
                semel::Was::Running => 5,
            };
            (lease_until, was, settles) = (Some(until.0), Some(code), Some(*by));
            1
        }
        State::Released { not_before: from, forget_at: until } => {
            (not_before, forget_at) = (Some(from.0), Some(until.0));
            2
        }
        State::Completed { outcome: kept, replay_until: replay, forget_at: until } => {
            (outcome, replay_until, forget_at) = (kept.as_ref(), Some(replay.0), Some(until.0));
            3
        }
        State::Unknown { cause: why } => {
            cause = Some(why.as_str());
            4
        }
        State::Dead { cause: why } => {
            cause = Some(why.as_str());
            5
        }
    };
    let columns: [&dyn rusqlite::ToSql; 23] = [
        &i64::try_from(record.fence.0).expect("a fence"),
        &record.attempt.0,
        &spent,
        &record.attempts,
        &fingerprint.map(|bound| bound.algorithm.0),
        &fingerprint.map(|bound| bound.digest.as_slice()),
        &i64::try_from(record.bound_by.0).expect("a fence"),
        &record.doubt,
        &record.first_at.0,
        &record.since.0,
        &record.label.as_str(),
        &record.input.is_some(),
        &state,
        &lease_until,
        &was,
        &settles,
        &not_before,
        &replay_until,
        &forget_at,
        &cause,
        &outcome.map(|outcome| outcome.format),
        &key.as_str(),
        &scope.as_str(),
    ];
    connection.execute(INSERT, &columns[..]).expect("a row");
    let id = connection.last_insert_rowid();
    if let Some(outcome) = outcome {
        connection.execute(PUT_OUTCOME, (id, outcome.bytes.as_ref())).expect("an outcome");
    }
    if let Some(input) = &record.input {
        connection.execute(PUT_INPUT, (id, input.as_ref())).expect("an input");
    }
}

#[test]
fn a_file_of_schema_1_reads_the_same_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let connection = old(&directory);
    let random = Random::new(7);
    let scopes = ["s", "http:default:anonymous", "\u{e4}\u{10ffff}", &"x".repeat(Scope::BYTES_MAX)];
    let mut written = Vec::new();
    for number in 0..600_u32 {
        let scope = Scope::new(*random.pick(&scopes)).expect("a scope");
        let key = sample::key(&format!("k{number}"));
        let record = record(&random);
        write(&connection, &scope, &key, &record);
        written.push((scope, key, record));
    }
    let clock = ManualClock::new();
    let options = Options { clock: Arc::new(clock.clone()), migrate: true, ..Options::default() };
    let store = SqliteStore::open(directory.path().join("semel.db"), &options).expect("it is brought along");
    for (scope, key, record) in &written {
        let read = rows::load(&connection, scope, key).expect("it reads").expect("it is there");
        assert_eq!(read.record, *record);
    }
    let all: u32 = connection
        .query_row("SELECT (SELECT count(*) FROM running) + (SELECT count(*) FROM settled)", [], |row| {
            row.get(0)
        })
        .expect("a count");
    assert_eq!(all, 600);
    assert!(round_trip::is_noted(&connection), "no sweep misses any of it");
    // What a sweep frees, it finds: what is due now is gone after it.
    let due = "SELECT count(*) FROM settled WHERE sweep_at <= ?1";
    let due = || -> u32 { connection.query_row(due, [clock.now().0], |row| row.get(0)).expect("a count") };
    assert!(due() > 20, "{} are due", due());
    run(store.sweep(u32::MAX)).expect("a sweep");
    assert_eq!(due(), 0);
}

/// A program of schema 1 that runs while the file is brought along: its prepared statements are as good as new ones.
#[test]
fn the_program_of_schema_1_can_write_and_read_nothing_any_more() {
    let directory = tempfile::tempdir().expect("a directory");
    let connection = old(&directory);
    write(&connection, &sample::scope(), &sample::key("k"), &record(&Random::new(1)));
    let all = [&OTHERS[..], &[INSERT, PUT_OUTCOME, PUT_INPUT]].concat();
    let mut prepared: Vec<_> =
        all.iter().map(|sql| connection.prepare(sql).expect("schema 1 knows it")).collect();
    let options = Options { migrate: true, ..Options::default() };
    let store = SqliteStore::open(directory.path().join("semel.db"), &options).expect("it is brought along");
    for (statement, sql) in prepared.iter_mut().zip(all) {
        let failed = statement.raw_query().next().map(|_| ()).expect_err(sql);
        assert!(failed.to_string().contains("no such table"), "{sql}: {failed}");
        let failure = Failure::new(&store.file, Step::Write, failed);
        assert!(matches!(StoreError::from(failure), StoreError::Unavailable(_)), "nothing was written");
    }
}
