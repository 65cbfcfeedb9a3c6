//! MySQL and MariaDB, through mysql_async and sqlx.

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use semel::{BoxError, Done, Once, Outcome, Ran, Rerun, TransactionError, Twin, Whole};
use semel_store::mysql::{In, Pool, SqlxPool, once};
use semel_testbed::Database;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{Connection, MySqlConnection, MySqlPool};

use crate::operation::operation;
use crate::schedule::{self, Begin, Onlooker, Raw};

/// A database with the schema and a table of the business.
struct Place {
    database: Database,
}

impl Place {
    async fn new() -> Place {
        let database = semel_testbed::mariadb().await;
        semel_store::migrations(database.url()).expect("a schema").migrate().await.expect("migrated");
        let place = Place { database };
        let sql = "CREATE TABLE effect (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(200) NOT NULL) ENGINE = InnoDB";
        place.connect().await.query_drop(sql).await.expect("a table");
        place
    }

    async fn connect(&self) -> Conn {
        Conn::from_url(self.database.url()).await.expect("a connection")
    }

    async fn effects(&self) -> Vec<String> {
        self.connect().await.query("SELECT name FROM effect ORDER BY id").await.expect("rows")
    }

    async fn outcome(&self, key: &str) -> Option<Outcome> {
        outcome(&mut self.connect().await, key).await
    }
}

/// What a retry of the key hears; nothing stays of the question.
async fn outcome(connection: &mut Conn, key: &str) -> Option<Outcome> {
    let tx = connection.start_transaction(TxOpts::default()).await.expect("a transaction");
    match once(tx, &operation(key), Twin::Wait).await.expect("an answer") {
        Once::Replay { outcome, tx, .. } => {
            tx.rollback().await.expect("ended");
            Some(outcome)
        }
        Once::Run(run) => {
            drop(run);
            None
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn x1_mysql_async_effect_and_outcome_are_committed_together() {
    let place = Place::new().await;
    let mut connection = place.connect().await;
    let tx = connection.start_transaction(TxOpts::default()).await.expect("a transaction");
    let Once::Run(mut run) = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer") else {
        panic!("new")
    };
    run.query_drop("INSERT INTO effect (name) VALUES ('paid')").await.expect("an effect");
    assert!(place.effects().await.is_empty(), "nothing is seen before the commit");
    run.complete("receipt").await.expect("completed").commit().await.expect("committed");
    assert_eq!(place.effects().await, ["paid"]);
    assert_eq!(place.outcome("key").await, Some(Outcome::value("receipt")));
}

#[tokio::test]
async fn x1_sqlx_effect_and_outcome_are_committed_together() {
    let place = Place::new().await;
    let pool = MySqlPool::connect(place.database.url()).await.expect("a pool");
    let tx = pool.begin().await.expect("a transaction");
    let Once::Run(mut run) = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer") else {
        panic!("new")
    };
    sqlx::query("INSERT INTO effect (name) VALUES ('paid')").execute(&mut **run).await.expect("an effect");
    run.complete("receipt").await.expect("completed").commit().await.expect("committed");
    assert_eq!(place.effects().await, ["paid"]);
    let tx = pool.begin().await.expect("a transaction");
    let again = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer");
    assert!(
        matches!(again, Once::Replay { ref outcome, .. } if *outcome == Outcome::value("receipt")),
        "{again:?}"
    );
}

#[tokio::test]
async fn x1_a_run_that_is_dropped_never_was() {
    let place = Place::new().await;
    let pool = MySqlPool::connect(place.database.url()).await.expect("a pool");
    let tx = pool.begin().await.expect("a transaction");
    let Once::Run(mut run) = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer") else {
        panic!("new")
    };
    sqlx::query("INSERT INTO effect (name) VALUES ('paid')").execute(&mut **run).await.expect("an effect");
    drop(run);
    assert_eq!(place.outcome("key").await, None);
    assert!(place.effects().await.is_empty());
}

/// Its caller goes away in the middle of the work, while the server is still at a statement.
#[tokio::test]
async fn x1_a_future_that_is_cancelled_within_its_work_never_was() {
    let place = Place::new().await;
    let mut connection = place.connect().await;
    let (at_work, is_at_work) = tokio::sync::oneshot::channel();
    let work = tokio::spawn(async move {
        let tx = connection.start_transaction(TxOpts::default()).await?;
        let Once::Run(mut run) = once(tx, &operation("key"), Twin::Wait).await? else { panic!("new") };
        run.exec_drop("INSERT INTO effect (name) VALUES ('paid')", ()).await?;
        at_work.send(()).expect("somebody waits");
        run.exec_drop("SELECT SLEEP(1)", ()).await?;
        run.complete("receipt").await?.commit().await?;
        Ok::<(), BoxError>(())
    });
    is_at_work.await.expect("it works");
    work.abort();
    assert!(work.await.expect_err("it was ended").is_cancelled());
    // Waits until the server has ended the session, and with it the claim.
    let mut other = place.connect().await;
    let tx = other.start_transaction(TxOpts::default()).await.expect("a transaction");
    let again = once(tx, &operation("key"), Twin::Wait).await.expect("an answer");
    let Once::Run(mut run) = again else { panic!("it never was: {again:?}") };
    assert_eq!(run.lease().attempts, 1);
    run.exec_drop("INSERT INTO effect (name) VALUES ('paid again')", ()).await.expect("an effect");
    run.complete("receipt").await.expect("completed").commit().await.expect("committed");
    assert_eq!(place.effects().await, ["paid again"]);
}

/// Where nothing can refuse the COMMIT, the key stays claimed: nobody runs it a second time.
#[tokio::test]
async fn a_forgotten_completion_is_never_run_again() {
    let place = Place::new().await;
    let mut connection = place.connect().await;
    let mut tx = connection.start_transaction(TxOpts::default()).await.expect("a transaction");
    let forgotten = once(&mut tx, &operation("key"), Twin::Refuse).await.expect("an answer");
    assert!(matches!(forgotten, Once::Run(_)));
    drop(forgotten);
    tx.commit().await.expect("nothing can refuse it");
    let tx = connection.start_transaction(TxOpts::default()).await.expect("a transaction");
    let again = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer");
    assert!(matches!(again, Once::InFlight { .. }), "{again:?}");
    let lapse = "UPDATE semel_records SET lease_until = lease_until - 3600000, due_at = due_at - 3600000";
    drop(again);
    connection.query_drop(lapse).await.expect("time passes");
    let tx = connection.start_transaction(TxOpts::default()).await.expect("a transaction");
    let later = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer");
    assert!(matches!(later, Once::Unknown { .. }), "{later:?}");
}

#[tokio::test]
async fn c19_a_duplicate_does_not_abort_the_transaction() {
    let place = Place::new().await;
    let mut connection = place.connect().await;
    for key in ["3", "50", "99"] {
        let tx = connection.start_transaction(TxOpts::default()).await.expect("a transaction");
        let Once::Run(run) = once(tx, &operation(key), Twin::Wait).await.expect("an answer") else {
            panic!("new")
        };
        run.complete("done").await.expect("completed").commit().await.expect("committed");
    }
    let mut tx = connection.start_transaction(TxOpts::default()).await.expect("a transaction");
    for number in 0..100 {
        let twin = if number % 2 == 0 { Twin::Wait } else { Twin::Refuse };
        match once(&mut tx, &operation(&number.to_string()), twin).await.expect("an answer") {
            Once::Run(mut run) => {
                run.query_drop("INSERT INTO effect (name) VALUES ('handled')").await.expect("an effect");
                run.complete("done").await.expect("completed");
            }
            Once::Replay { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    tx.commit().await.expect("committed");
    assert_eq!(place.effects().await.len(), 97);
}

#[tokio::test]
async fn a_database_without_the_tables_is_refused_and_says_what_to_do() {
    let database = semel_testbed::mariadb().await;
    let mut connection = Conn::from_url(database.url()).await.expect("a connection");
    let tx = connection.start_transaction(TxOpts::default()).await.expect("a transaction");
    let Err(TransactionError::Refused(reason)) = once(tx, &operation("key"), Twin::Wait).await else {
        panic!("no tables")
    };
    assert!(reason.to_string().contains("semel migrate"), "{reason}");
}

#[tokio::test]
async fn x3_who_waits_longer_than_the_lock_wait_is_to_begin_anew() {
    let place = Place::new().await;
    let (mut first, mut second) = (place.connect().await, place.connect().await);
    let tx = first.start_transaction(TxOpts::default()).await.expect("a transaction");
    let Once::Run(held) = once(tx, &operation("key"), Twin::Wait).await.expect("an answer") else {
        panic!("new")
    };
    second.query_drop("SET SESSION innodb_lock_wait_timeout = 1").await.expect("set");
    let tx = second.start_transaction(TxOpts::default()).await.expect("a transaction");
    let Err(TransactionError::Restart(reason)) = once(tx, &operation("key"), Twin::Wait).await else {
        panic!("it is held")
    };
    assert!(reason.to_string().contains("innodb_lock_wait_timeout"), "{reason}");
    let mut tx = second.start_transaction(TxOpts::default()).await.expect("a transaction");
    tx.query_drop("INSERT INTO effect (name) VALUES ('before')").await.expect("an effect");
    let told = once(tx, &operation("key"), Twin::Refuse).await.expect("told at once");
    let Once::InFlight { tx, .. } = told else { panic!("it is held") };
    tx.commit().await.expect("what it had written is committed");
    held.complete("receipt").await.expect("completed").commit().await.expect("committed");
    assert_eq!(place.effects().await, ["before"]);
    assert_eq!(place.outcome("key").await, Some(Outcome::value("receipt")));
}

/// Two operations in a circle of keys: one of them is the server's victim, and is begun anew.
#[tokio::test]
async fn a_deadlocks_victim_is_begun_anew_and_both_take_effect() {
    let place = Place::new().await;
    let pool = mysql_async::Pool::from_url(place.database.url()).expect("a pool");
    let sql = "INSERT INTO effect (name) VALUES ('one'), ('two')";
    place.connect().await.query_drop(sql).await.expect("rows");
    let whole = Whole::new(Pool::new(pool.clone())).rerun(Rerun::Pure);
    let met = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let mut both = tokio::task::JoinSet::new();
    for (key, first, second) in [("a", 1, 2), ("b", 2, 1)] {
        let (whole, met) = (whole.clone(), std::sync::Arc::clone(&met));
        both.spawn(async move {
            let mut tries = 0;
            whole
                .once(operation(key), Twin::Wait, move |tx, _| {
                    tries += 1;
                    let met = (tries == 1).then(|| std::sync::Arc::clone(&met));
                    Box::pin(async move {
                        tx.exec_drop("UPDATE effect SET name = CONCAT(name, '!') WHERE id = ?", (first,))
                            .await?;
                        if let Some(met) = met {
                            met.wait().await;
                        }
                        tx.exec_drop("UPDATE effect SET name = CONCAT(name, '!') WHERE id = ?", (second,))
                            .await?;
                        Ok(Done::Keep(Outcome::value("done"), tries))
                    })
                })
                .await
        });
    }
    let mut tries = 0;
    while let Some(ended) = both.join_next().await {
        let Ok(Ok(Once::Run(Ran { value, kept: true, .. }))) = ended else { panic!("{ended:?}") };
        tries += value;
    }
    assert!(tries >= 3, "one of them was the victim");
    assert_eq!(place.effects().await, ["one!!", "two!!"], "each took effect once");
    pool.disconnect().await.expect("closed");
}

#[tokio::test]
async fn x6_a_whole_operation_by_sqlx_keeps_refuses_or_rolls_back() {
    let place = Place::new().await;
    let whole = Whole::new(SqlxPool::new(MySqlPool::connect(place.database.url()).await.expect("a pool")));
    for (key, done) in [
        ("kept", Done::Keep(Outcome::value("yes"), ())),
        ("refused", Done::Refuse(Outcome::value("no"), ())),
        ("undone", Done::RollBack(())),
    ] {
        let kept = done != Done::RollBack(());
        let ended = whole
            .once(operation(key), Twin::Refuse, move |tx, _| {
                let done = done.clone();
                Box::pin(async move {
                    sqlx::query("INSERT INTO effect (name) VALUES (?)").bind(key).execute(&mut **tx).await?;
                    Ok(done)
                })
            })
            .await;
        assert!(matches!(ended, Ok(Once::Run(ran)) if ran.kept == kept));
    }
    assert_eq!(place.effects().await, ["kept"]);
    assert_eq!(place.outcome("refused").await, Some(Outcome::value("no")));
    assert_eq!(place.outcome("undone").await, None);
}

/// A COMMIT whose answer is lost, and one that never arrives.
#[tokio::test]
async fn x6_a_connection_cut_at_commit_is_found_out_under_the_attempts_id() {
    let place = Place::new().await;
    let proxy = semel_testbed::Proxy::before(place.database.addr());
    // Not past the proxy by the server's socket.
    let url = format!("{}?prefer_socket=false", place.database.url_at(proxy.addr()));
    let whole = Whole::new(Pool::new(mysql_async::Pool::from_url(url.as_str()).expect("a pool")));
    for (key, fault, happens) in [
        ("answered", semel_testbed::Fault::CutAfterAnswer, true),
        ("never", semel_testbed::Fault::CutBeforeRequest, false),
    ] {
        // COM_QUERY comes before it: READ COMMITTED is another statement.
        let lost = proxy.arm_on(fault, "\x03COMMIT");
        let ended = whole
            .once(operation(key), Twin::Wait, move |tx, _| {
                Box::pin(async move {
                    tx.exec_drop("INSERT INTO effect (name) VALUES (?)", (key,)).await?;
                    Ok(Done::Keep(Outcome::value("done"), ()))
                })
            })
            .await;
        assert_eq!(matches!(ended, Ok(Once::Run(Ran { kept: true, .. }))), happens, "{ended:?}");
        assert_eq!(lost.count(), 1);
    }
    assert_eq!(place.effects().await, ["answered"]);
    assert_eq!(place.outcome("never").await, None);
}

/// A deadlock over the gap is REPEATABLE READ's, and the look's of `Refuse`.
const LEVELS: [(Begin, bool); 2] = [
    (
        &[
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "START TRANSACTION",
            "SELECT count(*) FROM effect",
        ],
        false,
    ),
    (
        &[
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "START TRANSACTION",
            "SELECT count(*) FROM effect",
        ],
        true,
    ),
];

#[async_trait]
impl Raw for Conn {
    type In = In<Conn>;

    fn wrap(self) -> In<Conn> {
        In::new(self)
    }

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError> {
        Ok(self.query_drop(sql).await?)
    }

    fn is_restart(error: &BoxError) -> bool {
        let error = error.downcast_ref::<mysql_async::Error>();
        matches!(error, Some(mysql_async::Error::Server(error)) if error.code == 1213)
    }
}

#[async_trait]
impl Raw for MySqlConnection {
    type In = In<MySqlConnection>;

    fn wrap(self) -> In<MySqlConnection> {
        In::new(self)
    }

    async fn execute(&mut self, sql: &str) -> Result<(), BoxError> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(self).await?;
        Ok(())
    }

    fn is_restart(error: &BoxError) -> bool {
        let error = error.downcast_ref::<sqlx::Error>().and_then(|error| error.as_database_error());
        error
            .and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
            .is_some_and(|error| error.number() == 1213)
    }
}

struct Control(Conn, Conn);

/// From the engine's own report: the tables of information_schema are a tenth of a second old.
#[async_trait]
impl Onlooker for Control {
    async fn is_blocked(&mut self, id: i64) -> bool {
        let status: Option<(String, String, String)> =
            self.0.query_first("SHOW ENGINE INNODB STATUS").await.expect("a report");
        let report = status.expect("a report").2;
        let thread = format!("thread id {id},");
        report
            .split("---TRANSACTION")
            .any(|transaction| transaction.contains("LOCK WAIT") && transaction.contains(&thread))
    }

    async fn kill(&mut self, id: i64) {
        self.0.query_drop(format!("KILL {id}")).await.expect("killed");
        let sql = format!("SELECT id FROM information_schema.processlist WHERE id = {id}");
        while self.0.query_first::<u64, _>(&sql).await.expect("a look").is_some() {
            tokio::task::yield_now().await;
        }
    }
    async fn effects(&mut self, key: &str) -> Vec<String> {
        let sql = "SELECT SUBSTR(name, CHAR_LENGTH(?) + 2) FROM effect WHERE name LIKE CONCAT(?, ':%')";
        self.1.exec(sql, (key, key)).await.expect("rows")
    }

    async fn kept(&mut self, key: &str) -> Option<Outcome> {
        outcome(&mut self.1, key).await
    }
}

async fn all<R: Raw>(connect: impl AsyncFn(&str) -> (R, i64)) {
    let place = Place::new().await;
    let mut control = Control(place.connect().await, place.connect().await);
    schedule::all(&LEVELS, async || connect(place.database.url()).await, &mut control).await;
}

#[tokio::test]
async fn x4_every_order_of_two_transactions_by_mysql_async() {
    let connect = async |url: &str| {
        let connection = Conn::from_url(url).await.expect("a connection");
        let id = i64::from(connection.id());
        (connection, id)
    };
    all(connect).await;
}

#[tokio::test]
async fn x4_every_order_of_two_transactions_by_sqlx() {
    let connect = async |url: &str| {
        let mut connection = MySqlConnection::connect(url).await.expect("a connection");
        let id: u64 =
            sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(&mut connection).await.expect("an id");
        (connection, i64::try_from(id).expect("small"))
    };
    all(connect).await;
}
