//! What a store is opened on, and what it says where it is not.

use std::time::{Duration, Instant};

use semel::Store;
use semel::testing::sample::run;
use semel_store::postgres::PostgresStore;
use semel_store::{ConnectError, Options, connect, migrations};
use semel_testbed::{Postgres, Settings};

use super::harness::{Mode, control, with_mode};
use super::{HASTY, acquire, open_within};

/// Opens what cannot be opened, within its time and a little.
async fn refused(url: &str) -> String {
    let begun = Instant::now();
    let error = open_within(url, Duration::from_secs(2)).await.expect_err("an error");
    assert!(begun.elapsed() < Duration::from_secs(30), "{url} took {:?}", begun.elapsed());
    assert!(!error.contains("semel-test") && !error.contains("wrong-one"), "a password: {error}");
    error
}

fn with_database(url: &str, name: &str) -> String {
    let (server, _) = url.rsplit_once('/').expect("a database");
    format!("{server}/{name}")
}

#[tokio::test]
async fn a_server_that_refuses_says_what_to_do() {
    let database = semel_testbed::postgres().await;
    let url = database.url();
    let error = refused(&url.replace("semel-test", "wrong-one")).await;
    assert!(error.contains("refuses the user or the password"), "{error}");
    let error = refused(&with_database(url, "nobody_has_it")).await;
    assert!(error.contains("there is no such database"), "{error}");
    let error = refused(&format!("{url}?functionss=off")).await;
    assert!(error.contains("did you mean functions?"), "{error}");
    let error = refused(&format!("{url}?sslmode=require")).await;
    assert!(error.to_lowercase().contains("tls"), "{error}");
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_said_within_the_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let error = refused(&format!("postgres://u:semel-test@127.0.0.1:{port}/db")).await;
    assert!(error.contains("in time"), "{error}");
    drop(silent);
    let error = refused(&format!("postgres://u:semel-test@127.0.0.1:{port}/db")).await;
    assert!(error.contains("refused"), "{error}");
    refused("postgres://u:semel-test@no-such-host.invalid/db").await;
}

#[tokio::test]
async fn c87_a_server_that_may_not_be_written_is_refused() {
    let database = semel_testbed::postgres().await;
    let name = database.url().rsplit('/').next().expect("a name");
    database.run(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    let error = refused(database.url()).await;
    assert!(error.contains("does not allow writes"), "{error}");
}

#[tokio::test]
async fn another_encoding_is_refused() {
    let database = semel_testbed::postgres().await;
    let name = format!("{}_latin", database.url().rsplit('/').next().expect("a name"));
    database.run(&format!("CREATE DATABASE {name} ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")).await;
    let error = refused(&with_database(database.url(), &name)).await;
    database.run(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
    assert!(error.contains("UTF8"), "{error}");
}

#[tokio::test]
async fn too_many_connections_are_waited_for_and_then_said() {
    let server = Postgres::start_with(Settings::fast().set("max_connections", "8")).await;
    let database = server.database().await;
    let store = open_within(&format!("{}?pool=1", database.url()), HASTY).await.expect("a store");
    acquire(&store, &run("before", 1)).await;
    let mut held = Vec::new();
    while let Some(connection) = database.hold().await {
        held.push(connection);
    }
    let error = store.unsettled(None, 1).await.expect_err("too many");
    assert!(matches!(error, semel::StoreError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    acquire(&store, &run("with the one it has", 1)).await;
    drop(held);
    let mut listed = store.unsettled(None, 1).await;
    while listed.is_err() {
        listed = store.unsettled(None, 1).await;
    }
}

#[tokio::test]
async fn opening_makes_nothing_unless_it_is_told_to() {
    let database = semel_testbed::postgres().await;
    let error = PostgresStore::open(database.url(), &Options::default()).await.expect_err("no schema");
    assert!(matches!(error, ConnectError::Behind { .. }), "{error}");
    assert_eq!(database.run("SELECT count(*) FROM pg_namespace WHERE nspname = 'semel'").await.trim(), "0");
    let options = Options { migrate: true, ..Options::default() };
    let connected = connect(database.url(), &options).await.expect("a store");
    assert!(connected.shared);
    assert!(connected.lossy, "the tests' server does not sync");
    PostgresStore::open(database.url(), &Options::default()).await.expect("the schema is there");
}

#[tokio::test]
async fn t4_three_migrate_at_once_and_one_applies() {
    let database = semel_testbed::postgres().await;
    let migrate = || {
        let schema = migrations(database.url()).expect("a URL");
        tokio::spawn(async move { schema.migrate().await.expect("it is migrated").len() })
    };
    let (one, two, three) = tokio::join!(migrate(), migrate(), migrate());
    let mut applied = [one.expect("no panic"), two.expect("no panic"), three.expect("no panic")];
    applied.sort_unstable();
    assert!(applied[0] == 0 && applied[1] == 0 && applied[2] > 0, "{applied:?}");
    assert!(migrations(database.url()).expect("a URL").pending().await.expect("a look").is_empty());
}

#[tokio::test]
async fn t4_a_newer_schema_is_refused() {
    let database = semel_testbed::postgres().await;
    open_within(database.url(), HASTY).await.expect("a store");
    database.run("INSERT INTO semel.migrations (number, name) VALUES (99, 'later')").await;
    let options = Options { migrate: true, ..Options::default() };
    let error = PostgresStore::open(database.url(), &options).await.expect_err("newer");
    assert!(matches!(error, ConnectError::Newer { found: 99, .. }), "{error}");
}

#[tokio::test]
async fn a_schema_of_another_program_is_left_alone() {
    let database = semel_testbed::postgres().await;
    database.run("CREATE SCHEMA semel; CREATE TABLE semel.records (id int)").await;
    let options = Options { migrate: true, ..Options::default() };
    let error = PostgresStore::open(database.url(), &options).await.expect_err("foreign");
    assert!(matches!(error, ConnectError::Foreign { .. }), "{error}");
}

#[tokio::test]
async fn what_is_printed_is_what_is_applied() {
    let database = semel_testbed::postgres().await;
    let schema = migrations(database.url()).expect("a URL");
    database.run(&schema.print()).await;
    assert!(schema.pending().await.expect("a look").is_empty());
    let store = PostgresStore::open(database.url(), &Options::default()).await.expect("a store");
    acquire(&store, &run("k", 1)).await;
}

#[tokio::test]
async fn without_functions_none_is_made_or_needed() {
    let database = semel_testbed::postgres().await;
    let url = with_mode(database.url(), Mode::Tables);
    let store = open_within(&url, HASTY).await.expect("a store");
    acquire(&store, &run("k", 1)).await;
    let sql = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'semel'::regnamespace";
    assert_eq!(database.run(sql).await.trim(), "0");
    assert!(!migrations(&url).expect("a URL").print().contains("CREATE FUNCTION"));
    // Whoever wants them later gets them.
    let error = PostgresStore::open(database.url(), &Options::default()).await.expect_err("no functions");
    assert!(matches!(error, ConnectError::Behind { .. }), "{error}");
    let store = open_within(database.url(), HASTY).await.expect("a store");
    assert_eq!(super::answer(&store, &run("k", 2)).await, "in-flight");
}

#[tokio::test]
async fn a_schema_that_goes_while_it_is_open_is_said() {
    for mode in [Mode::Functions, Mode::Tables] {
        let database = semel_testbed::postgres().await;
        let store = open_within(&with_mode(database.url(), mode), HASTY).await.expect("a store");
        control(database.url()).await.batch_execute("DROP SCHEMA semel CASCADE").await.expect("it is gone");
        let error = store.claim(&run("k", 1)).await.expect_err("no schema");
        assert!(matches!(error, semel::StoreError::Unavailable(_)), "{error:?}");
        assert!(error.to_string().contains("semel migrate"), "{error}");
    }
}
