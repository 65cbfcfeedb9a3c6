//! What a store is opened on, and what it says where it is not.

use std::time::{Duration, Instant};

use semel::Store;
use semel::testing::sample::run;
use semel_store::mysql::MysqlStore;
use semel_store::{ConnectError, Options, connect, migrations};
use semel_testbed::{Mariadb, Settings};

use super::{HASTY, Other, PATIENT, acquire, open, open_within};

/// Opens what cannot be opened, within its time and a little.
async fn refused(url: &str) -> String {
    let begun = Instant::now();
    let error = open_within(url, Duration::from_secs(3)).await.expect_err(url);
    assert!(begun.elapsed() < Duration::from_secs(30), "{url} took {:?}", begun.elapsed());
    assert!(!error.contains("semel-test") && !error.contains("wrong-one"), "a password: {error}");
    error
}

#[tokio::test]
async fn a_server_that_refuses_says_what_to_do() {
    let database = semel_testbed::mariadb().await;
    let url = database.url();
    let error = refused(&url.replace("semel-test", "wrong-one")).await;
    assert!(error.contains("wrong user or password"), "{error}");
    let (server, _) = url.rsplit_once('/').expect("a database");
    let error = refused(&format!("{server}/nobody_has_it")).await;
    assert!(error.contains("there is no such database"), "{error}");
    let error = refused(&format!("{url}?pol=2")).await;
    assert!(error.contains("did you mean pool?"), "{error}");
    let error = refused(&format!("{url}?require_ssl=true")).await;
    assert!(error.to_lowercase().contains("ssl"), "{error}");
    Other::connect(url).await.run("CREATE USER IF NOT EXISTS reader IDENTIFIED BY 'wrong-one'").await;
    let mut reader = url.replacen("semel:semel-test", "reader:wrong-one", 1);
    assert!(refused(&reader).await.contains("grant"), "no right to the database");
    let name = url.rsplit('/').next().expect("a name");
    Other::connect(url).await.run(&format!("GRANT SELECT ON {name}.* TO reader")).await;
    reader.push_str("?pool=2");
    assert!(refused(&reader).await.contains("grant"), "no right to make tables");
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_said_within_the_time() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = nobody.local_addr().expect("an address").port();
    // It takes connections and says nothing.
    let error = refused(&format!("mysql://u:semel-test@127.0.0.1:{port}/db")).await;
    assert!(error.contains("no connection within the time"), "{error}");
    drop(nobody);
    refused(&format!("mysql://u:semel-test@127.0.0.1:{port}/db")).await;
    refused("mysql://u:semel-test@no-such-host.invalid/db").await;
}

#[tokio::test]
async fn too_many_connections_are_waited_for_and_then_said() {
    let server = Mariadb::start_with(Settings::fast().set("max-connections", "10")).await;
    let database = server.database().await;
    let store = open_within(&format!("{}?pool=2", database.url()), HASTY).await.expect("a store");
    acquire(&store, &run("before", 1)).await;
    let mut held = Vec::new();
    while let Some(connection) = database.hold().await {
        held.push(connection);
    }
    // The store needs one more, for listings, and has none to get.
    let error = store.unsettled(None, 1).await.expect_err("too many");
    assert!(matches!(error, semel::StoreError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    acquire(&store, &run("with the one it has", 1)).await;
    drop(held);
    let patient = open_within(&format!("{}?pool=2", database.url()), PATIENT).await.expect("a store");
    patient.unsettled(None, 1).await.expect("there is room again");
}

#[tokio::test]
async fn opening_makes_nothing_unless_it_is_told_to() {
    let database = semel_testbed::mariadb().await;
    let options = Options::default();
    let error = MysqlStore::open(database.url(), &options).await.expect_err("no schema");
    assert!(matches!(&error, ConnectError::Behind { pending, .. } if pending.len() == 1), "{error}");
    assert!(error.to_string().contains("semel migrate"), "{error}");
    let mut other = Other::connect(database.url()).await;
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()";
    assert_eq!(other.number(tables).await, 0);
    let migrate = migrations(database.url()).expect("a schema");
    assert_eq!(migrate.pending().await.expect("a look").len(), 1);
    assert_eq!(migrate.migrate().await.expect("it is made").len(), 1);
    assert_eq!(migrate.pending().await.expect("a look"), []);
    assert_eq!(migrate.migrate().await.expect("nothing is left"), []);
    let connected = connect(database.url(), &options).await.expect("a store");
    assert!(connected.shared);
    assert!(connected.lossy, "this server does not sync at a commit");
}

#[tokio::test]
async fn a_server_that_syncs_at_each_commit_is_not_lossy() {
    let server = Mariadb::start_with(Settings::durable()).await;
    let options = Options { migrate: true, ..Options::default() };
    let connected = connect(&server.url(), &options).await.expect("a store");
    assert!(!connected.lossy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_by_several_at_once_is_made_once() {
    let database = semel_testbed::mariadb().await;
    let all: Vec<_> = (0..6)
        .map(|_| {
            let migrate = migrations(database.url()).expect("a schema");
            tokio::spawn(async move { migrate.migrate().await.expect("a migration").len() })
        })
        .collect();
    let mut applied = Vec::new();
    for one in all {
        applied.push(one.await.expect("a migration"));
    }
    applied.sort_unstable();
    assert_eq!(applied, [0, 0, 0, 0, 0, 1]);
    acquire(&open(database.url()).await, &run("k", 1)).await;
}

/// Each statement commits by itself: after some of them, and before the number was written.
#[tokio::test]
async fn a_migration_that_was_cut_off_is_made_again() {
    let database = semel_testbed::mariadb().await;
    open(database.url()).await;
    let mut other = Other::connect(database.url()).await;
    for undone in ["DELETE FROM semel_schema", "DROP TABLE semel_schema", "DROP TABLE semel_history"] {
        other.run(undone).await;
        other.run("DROP TABLE IF EXISTS semel_history").await;
        other.run("CREATE TABLE IF NOT EXISTS semel_schema (number INT UNSIGNED NOT NULL, name VARBINARY(64) NOT NULL, \
                   applied_at DATETIME(6) NOT NULL, PRIMARY KEY (number))").await;
        other.run("DELETE FROM semel_schema").await;
        let store = open(database.url()).await;
        acquire(&store, &run(undone, 1)).await;
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let database = semel_testbed::mariadb().await;
    open(database.url()).await;
    let newer = "INSERT INTO semel_schema (number, name, applied_at) VALUES (99, 'later', UTC_TIMESTAMP(6))";
    Other::connect(database.url()).await.run(newer).await;
    for migrate in [false, true] {
        let options = Options { migrate, ..Options::default() };
        let error = MysqlStore::open(database.url(), &options).await.expect_err("newer");
        assert!(matches!(error, ConnectError::Newer { found: 99, .. }), "{error}");
    }
}

#[tokio::test]
async fn what_is_printed_can_be_applied_by_hand_twice() {
    let database = semel_testbed::mariadb().await;
    let text = migrations(database.url()).expect("a schema").print();
    for _ in 0..2 {
        database.run(&text).await;
    }
    let store = MysqlStore::open(database.url(), &Options::default()).await.expect("it is up to date");
    acquire(&store, &run("k", 1)).await;
}
