//! SQLite, through rusqlite.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, DropBehavior, Transaction, TransactionBehavior};
use semel::{BoxError, Done, Once, Outcome, Ran, Rerun, TransactionError, WholeError};
use semel_store::sqlite::{Run, Whole, once};
use semel_store::{Options, SqliteStore};
use tempfile::TempDir;

use crate::operation::operation;

// Beside the ledgers of the other databases.
#[cfg(all(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
#[path = "sqlite_ledger.rs"]
mod in_ledger;

/// A file with the store's tables and one of the business.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a directory"));
        let options = Options { migrate: true, ..Options::default() };
        drop(SqliteStore::open(place.file(), &options).expect("a store"));
        place.connection().execute_batch("CREATE TABLE effect (name TEXT NOT NULL)").expect("a table");
        place
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("semel.db")
    }

    pub(crate) fn connection(&self) -> Connection {
        connection(&self.file())
    }

    pub(crate) fn effects(&self) -> Vec<String> {
        let connection = self.connection();
        let mut select = connection.prepare("SELECT name FROM effect ORDER BY rowid").expect("a statement");
        select.query_map([], |row| row.get(0)).expect("rows").map(|name| name.expect("a name")).collect()
    }

    /// What a retry of the key hears; nothing stays of the question.
    pub(crate) fn outcome(&self, key: &str) -> Option<Outcome> {
        let mut connection = self.connection();
        match once(begin(&mut connection), &operation(key)).expect("an answer") {
            Once::Replay { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    fn is_done(&self, key: &str) -> bool {
        self.outcome(key).is_some()
    }
}

fn connection(file: &Path) -> Connection {
    let connection = Connection::open(file).expect("a connection");
    connection.busy_timeout(Duration::from_secs(60)).expect("a timeout");
    connection
}

fn begin(connection: &mut Connection) -> Transaction<'_> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction")
}

fn effect(connection: &Connection, name: &str) {
    connection.execute("INSERT INTO effect (name) VALUES (?1)", [name]).expect("an effect");
}

fn run<H: semel_store::sqlite::Handle + std::fmt::Debug>(tx: H, key: &str) -> Run<H> {
    match once(tx, &operation(key)).expect("an answer") {
        Once::Run(run) => run,
        other => panic!("it may run, not {other:?}"),
    }
}

#[test]
fn x1_effect_and_outcome_are_committed_together() {
    let place = Place::new();
    let mut connection = place.connection();
    let run = run(begin(&mut connection), "key");
    effect(&run, "paid");
    assert!(place.effects().is_empty(), "nothing is seen before the commit");
    run.complete("receipt").expect("completed").commit().expect("committed");
    assert_eq!(place.effects(), ["paid"]);
    let again = once(begin(&mut connection), &operation("key")).expect("an answer");
    assert!(matches!(again, Once::Replay { outcome, .. } if outcome == Outcome::value("receipt")));
}

#[test]
fn x1_a_run_that_is_dropped_never_was() {
    let place = Place::new();
    let mut connection = place.connection();
    let dropped = run(begin(&mut connection), "key");
    effect(&dropped, "paid");
    drop(dropped);
    assert!(place.effects().is_empty());
    assert_eq!(run(begin(&mut connection), "key").lease().attempts, 1);
}

#[test]
fn a_forgotten_completion_cannot_be_committed_whatever_the_drop_behaviour() {
    let place = Place::new();
    let mut connection = place.connection();
    let mut tx = begin(&mut connection);
    tx.set_drop_behavior(DropBehavior::Commit);
    effect(&tx, "before");
    let forgotten = run(tx, "key");
    effect(&forgotten, "paid");
    drop(forgotten);
    assert_eq!(
        place.effects(),
        ["before"],
        "rolled back to the claim, and the rest was committed as it was told to be"
    );
    assert!(!place.is_done("key"));
}

#[test]
fn a_borrowed_transaction_is_rolled_back_to_the_claim() {
    let place = Place::new();
    let mut connection = place.connection();
    let mut tx = begin(&mut connection);
    effect(&tx, "before");
    let forgotten = run(&mut tx, "key");
    effect(&forgotten, "paid");
    drop(forgotten);
    effect(&tx, "after");
    tx.commit().expect("committed");
    assert_eq!(place.effects(), ["before", "after"]);
    assert!(!place.is_done("key"));
}

#[test]
fn c19_a_duplicate_leaves_the_transaction_as_it_was() {
    let place = Place::new();
    let mut connection = place.connection();
    run(begin(&mut connection), "dup").complete("receipt").expect("completed").commit().expect("committed");
    let mut tx = begin(&mut connection);
    effect(&tx, "r1");
    assert!(matches!(once(&mut tx, &operation("dup")), Ok(Once::Replay { .. })));
    effect(&tx, "r2");
    tx.commit().expect("committed");
    assert_eq!(place.effects(), ["r1", "r2"]);
}

#[test]
fn c19_a_batch_with_duplicates_handles_the_others() {
    let place = Place::new();
    let mut connection = place.connection();
    for key in ["3", "50", "99"] {
        run(begin(&mut connection), key).complete("done").expect("completed").commit().expect("committed");
    }
    let mut tx = begin(&mut connection);
    for number in 0..100 {
        if let Once::Run(run) = once(&mut tx, &operation(&number.to_string())).expect("an answer") {
            effect(&run, "handled");
            run.complete("done").expect("completed");
        }
    }
    tx.commit().expect("committed");
    assert_eq!(place.effects().len(), 97);
}

#[test]
fn a_savepoint_that_is_rolled_back_takes_the_completion_with_it() {
    let place = Place::new();
    let mut connection = place.connection();
    let mut tx = begin(&mut connection);
    let mut savepoint = tx.savepoint().expect("a savepoint");
    let inner = run(&mut savepoint, "inner");
    effect(&inner, "inner");
    inner.complete("inner").expect("completed");
    drop(savepoint);
    let outer = run(&mut tx, "outer");
    effect(&outer, "outer");
    outer.complete("outer").expect("completed");
    tx.commit().expect("committed");
    assert_eq!(place.effects(), ["outer"]);
    assert!(!place.is_done("inner") && place.is_done("outer"));
}

#[test]
fn runs_nest_and_each_one_ends_as_it_says() {
    let place = Place::new();
    let mut connection = place.connection();
    let mut outer = run(begin(&mut connection), "outer");
    effect(&outer, "outer");
    let inner = run(&mut outer, "inner");
    effect(&inner, "inner");
    drop(inner);
    let second = run(&mut outer, "second");
    effect(&second, "second");
    second.complete("second").expect("completed");
    outer.complete("outer").expect("completed").commit().expect("committed");
    assert_eq!(place.effects(), ["outer", "second"]);
    assert!(!place.is_done("inner") && place.is_done("second") && place.is_done("outer"));
}

#[test]
fn x6_a_refusal_undoes_the_work_and_keeps_the_answer() {
    let place = Place::new();
    let mut connection = place.connection();
    let tx = begin(&mut connection);
    effect(&tx, "before");
    let refused = run(tx, "key");
    effect(&refused, "half");
    refused.refuse("no").expect("refused").commit().expect("committed");
    assert_eq!(place.effects(), ["before"]);
    let again = once(begin(&mut connection), &operation("key")).expect("an answer");
    assert!(matches!(again, Once::Replay { outcome, .. } if outcome == Outcome::value("no")));
}

#[test]
fn without_a_transaction_nothing_is_claimed() {
    let place = Place::new();
    let mut connection = place.connection();
    assert!(matches!(once(&mut connection, &operation("key")), Err(TransactionError::Refused(_))));
    connection.execute_batch("BEGIN IMMEDIATE").expect("begun by hand");
    let by_hand = run(&mut connection, "key");
    effect(&by_hand, "paid");
    by_hand.complete("receipt").expect("completed");
    connection.execute_batch("COMMIT").expect("committed");
    assert!(place.is_done("key"));
}

#[test]
fn a_transaction_that_ended_before_its_completion_is_an_error() {
    let place = Place::new();
    let mut connection = place.connection();
    let ended = run(begin(&mut connection), "key");
    effect(&ended, "paid");
    ended.execute_batch("ROLLBACK").expect("rolled back by hand");
    let Err(TransactionError::Refused(reason)) = ended.complete("receipt") else { panic!("not completed") };
    assert!(reason.to_string().contains("ended before"), "{reason}");
    assert!(place.effects().is_empty() && !place.is_done("key"));
}

#[test]
fn c45_a_claim_after_a_stale_read_is_told_to_begin_anew_and_how() {
    let place = Place::new();
    let (mut reading, writing) = (place.connection(), place.connection());
    let tx = reading.transaction().expect("deferred");
    let _: i64 = tx.query_row("SELECT count(*) FROM effect", [], |row| row.get(0)).expect("a read");
    effect(&writing, "meanwhile");
    let begun = std::time::Instant::now();
    let Err(TransactionError::Restart(reason)) = once(tx, &operation("key")) else {
        panic!("it cannot write")
    };
    assert!(reason.to_string().contains("IMMEDIATE"), "{reason}");
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "the busy_timeout of 60 s cannot help, so nobody waits for it"
    );
    assert!(matches!(once(begin(&mut reading), &operation("key")), Ok(Once::Run(_))));
}

#[test]
fn c45_a_claim_that_comes_first_in_a_deferred_transaction_waits_for_the_lock() {
    let place = Place::new();
    let (mut first, mut second) = (place.connection(), place.connection());
    let held = run(begin(&mut first), "key");
    let file = place.file();
    let (claims, claimed) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        let tx = second.transaction().expect("deferred");
        claims.send(()).expect("heard");
        let replayed = matches!(once(tx, &operation("key")), Ok(Once::Replay { .. }));
        drop(file);
        replayed
    });
    claimed.recv().expect("it claims");
    held.complete("receipt").expect("completed").commit().expect("committed");
    assert!(waiting.join().expect("no panic"), "it waits for the first, and replays");
}

#[test]
fn c45_many_threads_claim_few_keys_and_none_is_ever_busy() {
    let place = Arc::new(Place::new());
    let threads: Vec<_> = (0..8_u64)
        .map(|thread| {
            let place = Arc::clone(&place);
            std::thread::spawn(move || {
                let mut connection = place.connection();
                for claim in 0..250 {
                    let key = ((claim * 7 + thread * 31) % 200).to_string();
                    if let Once::Run(run) =
                        once(begin(&mut connection), &operation(&key)).expect("never busy")
                    {
                        effect(&run, &key);
                        run.complete("done").expect("completed").commit().expect("committed");
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let mut effects = place.effects();
    effects.sort();
    let all = effects.len();
    effects.dedup();
    assert_eq!((all, effects.len()), (200, 200), "each key ran once");
}

#[test]
fn a_file_without_the_tables_is_refused_and_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut connection = connection(&folder.path().join("other.db"));
    let Err(TransactionError::Refused(reason)) = once(begin(&mut connection), &operation("key")) else {
        panic!("there are no tables")
    };
    assert!(reason.to_string().contains("semel migrate"), "{reason}");
}

fn pay(whole: Whole, connection: &mut Connection, busy: u32) -> (Result<Once<Ran<()>, ()>, WholeError>, u32) {
    let mut calls = 0;
    let answer = whole.once(connection, &operation("key"), |tx, _| {
        calls += 1;
        effect(tx, "paid");
        if calls <= busy {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            return Err(BoxError::from(rusqlite::Error::SqliteFailure(code, None)));
        }
        Ok(Done::Keep(Outcome::value("receipt"), ()))
    });
    (answer, calls)
}

#[test]
fn c72_a_whole_operation_repeats_only_work_that_is_declared_pure() {
    let place = Place::new();
    let mut connection = place.connection();
    let (answer, calls) = pay(Whole::default(), &mut connection, 2);
    assert!(matches!(answer, Err(WholeError::Work(_))) && calls == 1, "{answer:?}");
    assert!(place.effects().is_empty());
    let (answer, calls) = pay(Whole::default().rerun(Rerun::Pure), &mut connection, 2);
    assert!(matches!(answer, Ok(Once::Run(_))) && calls == 3, "{answer:?}");
    let (answer, calls) = pay(Whole::default(), &mut connection, 0);
    assert!(matches!(answer, Ok(Once::Replay { .. })) && calls == 0, "{answer:?}");
    assert_eq!(place.effects(), ["paid"]);
}

#[test]
fn x6_a_whole_operation_keeps_refuses_or_rolls_back() {
    let place = Place::new();
    let mut connection = place.connection();
    let mut end = |key: &str, done: fn() -> Done<()>| {
        let ended = Whole::default().once(&mut connection, &operation(key), |tx, _| {
            effect(tx, key);
            Ok(done())
        });
        let Ok(Once::Run(ran)) = ended else { panic!("it runs") };
        ran.kept
    };
    assert!(end("kept", || Done::Keep(Outcome::value("yes"), ())));
    assert!(end("refused", || Done::Refuse(Outcome::value("no"), ())));
    assert!(!end("undone", || Done::RollBack(())));
    assert_eq!(place.effects(), ["kept"]);
    assert!(place.is_done("kept") && place.is_done("refused") && !place.is_done("undone"));
}
