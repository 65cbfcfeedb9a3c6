//! PostgreSQL, through tokio-postgres and sqlx.

use semel::{BoxError, Done, Once, Outcome, Ran, TransactionError, Twin, Whole, WholeError};
use semel_store::postgres::{Clients, Pool, once};
use semel_testbed::{Database, Fault, Proxy};
use sqlx::{Connection, PgConnection, PgPool};
use tokio_postgres::{Client, NoTls};

use crate::operation::operation;

/// A database with the schema and a table of the business.
pub(crate) struct Place {
    pub(crate) database: Database,
    pub(crate) control: Client,
}

impl Place {
    pub(crate) async fn new() -> Place {
        let database = semel_testbed::postgres().await;
        semel_store::migrations(database.url()).expect("a schema").migrate().await.expect("migrated");
        let control = connect(database.url()).await;
        control
            .batch_execute("CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, name text NOT NULL)")
            .await
            .expect("a table");
        Place { database, control }
    }

    pub(crate) async fn effects(&self) -> Vec<String> {
        let rows = self.control.query("SELECT name FROM effect ORDER BY id", &[]).await.expect("rows");
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn outcome(&self, key: &str) -> Option<Outcome> {
        outcome(&mut connect(self.database.url()).await, key).await
    }

    pub(crate) async fn pool(&self) -> PgPool {
        PgPool::connect(self.database.url()).await.expect("a pool")
    }
}

/// What a retry of the key hears; nothing stays of the question.
pub(crate) async fn outcome(client: &mut Client, key: &str) -> Option<Outcome> {
    let tx = client.transaction().await.expect("a transaction");
    match once(tx, &operation(key), Twin::Wait).await.expect("an answer") {
        Once::Replay { outcome, .. } => Some(outcome),
        _ => None,
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

const EFFECT: &str = "INSERT INTO effect (name) VALUES ($1)";

#[tokio::test]
async fn x1_tokio_postgres_effect_and_outcome_are_committed_together() {
    let place = Place::new().await;
    let mut client = connect(place.database.url()).await;
    let tx = client.transaction().await.expect("a transaction");
    let Once::Run(run) = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer") else {
        panic!("new")
    };
    run.execute(EFFECT, &[&"paid"]).await.expect("an effect");
    assert!(place.effects().await.is_empty(), "nothing is seen before the commit");
    run.complete("receipt").await.expect("completed").commit().await.expect("committed");
    assert_eq!(place.effects().await, ["paid"]);
    assert_eq!(place.outcome("key").await, Some(Outcome::value("receipt")));
}

#[tokio::test]
async fn x1_sqlx_effect_and_outcome_are_committed_together() {
    let place = Place::new().await;
    let pool = place.pool().await;
    let tx = pool.begin().await.expect("a transaction");
    let Once::Run(mut run) = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer") else {
        panic!("new")
    };
    sqlx::query(EFFECT).bind("paid").execute(&mut **run).await.expect("an effect");
    run.complete("receipt").await.expect("completed").commit().await.expect("committed");
    assert_eq!(place.effects().await, ["paid"]);
    assert_eq!(place.outcome("key").await, Some(Outcome::value("receipt")));
}

#[tokio::test]
async fn x1_a_run_that_is_dropped_never_was() {
    let place = Place::new().await;
    let pool = place.pool().await;
    let tx = pool.begin().await.expect("a transaction");
    let Once::Run(mut run) = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer") else {
        panic!("new")
    };
    sqlx::query(EFFECT).bind("paid").execute(&mut **run).await.expect("an effect");
    drop(run);
    assert_eq!(place.outcome("key").await, None);
    assert!(place.effects().await.is_empty());
}

#[tokio::test]
async fn a_forgotten_completion_is_refused_at_commit() {
    let place = Place::new().await;
    let mut client = connect(place.database.url()).await;
    let mut tx = client.transaction().await.expect("a transaction");
    tx.execute(EFFECT, &[&"before"]).await.expect("an effect");
    let once = once(&mut tx, &operation("key"), Twin::Refuse).await.expect("an answer");
    assert!(matches!(once, Once::Run(_)));
    drop(once);
    let refused = tx.commit().await.expect_err("it was not completed");
    assert_eq!(refused.code().map(|code| code.code()), Some("SM003"), "{refused}");
    assert!(place.effects().await.is_empty() && place.outcome("key").await.is_none());
}

#[tokio::test]
async fn a_completion_that_a_savepoint_takes_back_is_refused_at_commit() {
    let place = Place::new().await;
    let claim =
        "BEGIN; SELECT * FROM semel.once('s', 'k', 'a5a5a5a5-0000-0000-0000-000000000001', sha256('x'))";
    let complete = "SELECT semel.complete('s', 'k', 1, 'a5a5a5a5-0000-0000-0000-000000000001', 'done')";
    place.control.batch_execute(claim).await.expect("claimed");
    place.control.batch_execute("SAVEPOINT a").await.expect("a savepoint");
    place.control.batch_execute(complete).await.expect("completed");
    place.control.batch_execute("ROLLBACK TO a").await.expect("rolled back");
    let refused = place.control.batch_execute("COMMIT").await.expect_err("it is not completed");
    assert_eq!(refused.code().map(|code| code.code()), Some("SM003"));
    place.control.batch_execute(claim).await.expect("claimed, since it never was");
    place.control.batch_execute(complete).await.expect("completed");
    place.control.batch_execute("COMMIT").await.expect("committed");
}

#[tokio::test]
async fn a_savepoint_of_the_callers_takes_its_own_claim_with_it() {
    let place = Place::new().await;
    let mut client = connect(place.database.url()).await;
    let mut tx = client.transaction().await.expect("a transaction");
    let mut savepoint = tx.savepoint("nested").await.expect("a savepoint");
    let Once::Run(run) = once(&mut savepoint, &operation("inner"), Twin::Wait).await.expect("an answer")
    else {
        panic!("new")
    };
    run.execute(EFFECT, &[&"inner"]).await.expect("an effect");
    run.complete("inner").await.expect("completed");
    savepoint.rollback().await.expect("rolled back");
    let Once::Run(run) = once(&mut tx, &operation("outer"), Twin::Wait).await.expect("an answer") else {
        panic!("new")
    };
    run.execute(EFFECT, &[&"outer"]).await.expect("an effect");
    run.complete("outer").await.expect("completed");
    tx.commit().await.expect("committed");
    assert_eq!(place.effects().await, ["outer"]);
    assert_eq!(place.outcome("inner").await, None);
    assert_eq!(place.outcome("outer").await, Some(Outcome::value("outer")));
}

#[tokio::test]
async fn c19_a_duplicate_does_not_abort_the_transaction() {
    let place = Place::new().await;
    let pool = place.pool().await;
    for key in ["3", "50", "99"] {
        let tx = pool.begin().await.expect("a transaction");
        let Once::Run(run) = once(tx, &operation(key), Twin::Wait).await.expect("an answer") else {
            panic!("new")
        };
        run.complete("done").await.expect("completed").commit().await.expect("committed");
    }
    let mut tx = pool.begin().await.expect("a transaction");
    for number in 0..100 {
        let key = number.to_string();
        match once(&mut *tx, &operation(&key), Twin::Refuse).await.expect("an answer") {
            Once::Run(mut run) => {
                sqlx::query(EFFECT).bind("handled").execute(&mut **run).await.expect("an effect");
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
async fn a_failed_statement_of_the_callers_cannot_be_completed_away() {
    let place = Place::new().await;
    let mut client = connect(place.database.url()).await;
    let tx = client.transaction().await.expect("a transaction");
    let Once::Run(run) = once(tx, &operation("key"), Twin::Refuse).await.expect("an answer") else {
        panic!("new")
    };
    run.execute("SELECT 1 / 0", &[]).await.expect_err("overlooked by the caller");
    let Err(TransactionError::Unavailable(reason)) = run.complete("receipt").await else {
        panic!("not completed")
    };
    assert!(reason.to_string().contains("earlier statement"), "{reason}");
    assert_eq!(place.outcome("key").await, None);
}

#[tokio::test]
async fn without_a_transaction_nothing_is_claimed() {
    let place = Place::new().await;
    let mut client = connect(place.database.url()).await;
    let claimed = once(&mut client, &operation("key"), Twin::Refuse).await;
    let Err(TransactionError::Refused(reason)) = claimed else { panic!("no transaction") };
    assert!(reason.to_string().contains("no transaction"), "{reason}");
    assert_eq!(place.outcome("key").await, None);
}

#[tokio::test]
async fn a_database_without_the_schema_is_refused_and_says_what_to_do() {
    let database = semel_testbed::postgres().await;
    let mut client = connect(database.url()).await;
    let tx = client.transaction().await.expect("a transaction");
    let Err(TransactionError::Refused(reason)) = once(tx, &operation("key"), Twin::Wait).await else {
        panic!("no schema")
    };
    assert!(reason.to_string().contains("semel migrate"), "{reason}");
}

#[tokio::test]
async fn x3_who_waits_longer_than_the_lock_timeout_is_to_begin_anew() {
    let place = Place::new().await;
    let (mut first, mut second) = (connect(place.database.url()).await, connect(place.database.url()).await);
    let tx = first.transaction().await.expect("a transaction");
    let Once::Run(held) = once(tx, &operation("key"), Twin::Wait).await.expect("an answer") else {
        panic!("new")
    };
    let tx = second.transaction().await.expect("a transaction");
    tx.batch_execute("SET LOCAL lock_timeout = '50ms'").await.expect("set");
    let Err(TransactionError::Restart(reason)) = once(tx, &operation("key"), Twin::Wait).await else {
        panic!("it is held")
    };
    assert!(reason.to_string().contains("lock_timeout"), "{reason}");
    let tx = second.transaction().await.expect("a transaction");
    let told = once(tx, &operation("key"), Twin::Refuse).await.expect("told at once");
    assert!(matches!(told, Once::InFlight { .. }), "{told:?}");
    drop(told);
    held.complete("receipt").await.expect("completed").commit().await.expect("committed");
    assert_eq!(place.outcome("key").await, Some(Outcome::value("receipt")));
}

/// A statement timeout in the middle: the transaction is aborted, and nothing of it is there.
#[tokio::test]
async fn a_statement_timeout_in_the_middle_leaves_nothing() {
    let place = Place::new().await;
    let mut client = connect(place.database.url()).await;
    let tx = client.transaction().await.expect("a transaction");
    let Once::Run(run) = once(tx, &operation("key"), Twin::Wait).await.expect("an answer") else {
        panic!("new")
    };
    run.execute(EFFECT, &[&"paid"]).await.expect("an effect");
    run.batch_execute("SET LOCAL statement_timeout = '20ms'").await.expect("set");
    run.batch_execute("SELECT pg_sleep(60)").await.expect_err("timed out");
    assert!(run.complete("receipt").await.is_err());
    assert!(place.effects().await.is_empty() && place.outcome("key").await.is_none());
}

/// A future that is dropped while the claim waits for a twin.
#[tokio::test]
async fn a_cancelled_claim_leaves_nothing_behind() {
    let place = Place::new().await;
    let pool = place.pool().await;
    let mut holder = connect(place.database.url()).await;
    let tx = holder.transaction().await.expect("a transaction");
    let Once::Run(held) = once(tx, &operation("key"), Twin::Wait).await.expect("an answer") else {
        panic!("new")
    };
    let mut tx = pool.begin().await.expect("a transaction");
    sqlx::query(EFFECT).bind("before").execute(&mut *tx).await.expect("an effect");
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *tx).await.expect("a pid");
    let waiting = tokio::spawn(async move { once(tx, &operation("key"), Twin::Wait).await.map(drop) });
    while !is_blocked(&place.control, pid).await {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    assert!(waiting.await.expect_err("cancelled").is_cancelled());
    held.complete("receipt").await.expect("completed").commit().await.expect("committed");
    // The pool hands the connection out again, clean.
    sqlx::query(EFFECT).bind("after").execute(&pool).await.expect("an effect");
    assert_eq!(place.effects().await, ["after"], "the cancelled transaction never was, and this one is seen");
    assert_eq!(place.outcome("key").await, Some(Outcome::value("receipt")));
}

pub(crate) async fn is_blocked(control: &Client, pid: i32) -> bool {
    let sql = "SELECT cardinality(pg_blocking_pids($1)) > 0";
    control.query_one(sql, &[&pid]).await.expect("a look").get(0)
}

fn clients(url: String) -> Clients<Client> {
    let take = move || -> futures_util::future::BoxFuture<'static, Result<Client, BoxError>> {
        let url = url.clone();
        Box::pin(async move {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        })
    };
    Clients::new(take, |client| client)
}

async fn pay_by_clients(whole: &Whole<Clients<Client>>, key: &str) -> Result<Once<Ran<()>, ()>, WholeError> {
    whole
        .once(operation(key), Twin::Wait, |tx, _| {
            Box::pin(async move {
                tx.execute(EFFECT, &[&"paid"]).await?;
                Ok(Done::Keep(Outcome::value("receipt"), ()))
            })
        })
        .await
}

/// C3 of the cases, at COMMIT: the answer is lost, the operation is not.
#[tokio::test]
async fn x6_a_connection_cut_at_commit_is_found_out_under_the_attempts_id() {
    let place = Place::new().await;
    let proxy = Proxy::before(place.database.addr());
    let whole = Whole::new(clients(place.database.url_at(proxy.addr())));
    let lost = proxy.arm_on(Fault::CutAfterAnswer, "COMMIT");
    let ran = pay_by_clients(&whole, "answered").await;
    assert!(matches!(ran, Ok(Once::Run(Ran { kept: true, .. }))), "{ran:?}");
    assert_eq!(lost.count(), 1);
    assert_eq!(place.effects().await, ["paid"]);
    let lost = proxy.arm_on(Fault::CutBeforeRequest, "COMMIT");
    let not = pay_by_clients(&whole, "never arrived").await;
    assert!(matches!(not, Err(WholeError::Transaction(_))), "{not:?}");
    assert_eq!(lost.count(), 1);
    assert_eq!(place.effects().await, ["paid"], "it never was");
    assert_eq!(place.outcome("never arrived").await, None);
}

#[tokio::test]
async fn x6_a_whole_operation_by_sqlx_keeps_refuses_or_rolls_back() {
    let place = Place::new().await;
    let whole = Whole::new(Pool::new(place.pool().await));
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
                    sqlx::query(EFFECT).bind(key).execute(&mut **tx).await?;
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

/// A pooler in transaction mode: sqlx with its statement cache off, and tokio-postgres as it is.
#[tokio::test]
async fn x1_a_pooler_in_transaction_mode_changes_nothing() {
    let postgres = semel_testbed::Postgres::start().await;
    semel_store::migrations(&postgres.url()).expect("a schema").migrate().await.expect("migrated");
    let pooler = semel_testbed::Pgbouncer::before(&postgres).await;
    let options: sqlx::postgres::PgConnectOptions = pooler.url().parse().expect("a URL");
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..8 {
        let (url, options) = (pooler.url(), options.clone().statement_cache_capacity(0));
        tasks.spawn(async move {
            let mut by_sqlx = PgConnection::connect_with(&options).await.expect("a connection");
            let mut by_tokio = connect(&url).await;
            let mut ran = 0;
            for turn in 0..25 {
                let operation = operation(&format!("key-{}", (turn + client * 3) % 25));
                let tx = by_sqlx.begin().await.expect("a transaction");
                match once(tx, &operation, Twin::Wait).await.expect("an answer") {
                    Once::Run(run) => {
                        run.complete("done").await.expect("completed").commit().await.expect("committed");
                        ran += 1;
                    }
                    // Ended, not dropped: sqlx would roll back only with the next statement, and until then the pooler
                    // has one server connection less.
                    Once::Replay { tx, .. } => tx.rollback().await.expect("ended"),
                    other => panic!("{other:?}"),
                }
                let tx = by_tokio.transaction().await.expect("a transaction");
                let again = once(tx, &operation, Twin::Wait).await.expect("an answer");
                assert!(
                    matches!(again, Once::Replay { ref outcome, .. } if *outcome == Outcome::value("done"))
                );
            }
            ran
        });
    }
    assert_eq!(tasks.join_all().await.iter().sum::<u32>(), 25, "each key ran once");
}
