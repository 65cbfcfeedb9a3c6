//! Stores that cannot be used: said in one line, and left as they are.

use std::path::Path;

use rusqlite::Connection;

use crate::support::{Call, Launch, Service};
use crate::{Said, run};

/// A gateway on this file, which is expected to end by itself.
fn gateway(file: &Path, more: &[&str]) -> Said {
    let store = format!("sqlite://{}", file.display());
    let args =
        ["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    run(&[&args[..], &["--store", &store], more].concat())
}

#[test]
fn no_migrate_refuses_a_store_without_its_schema() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("semel.db");
    let store = format!("sqlite://{}", file.display());
    assert!(gateway(&file, &["--no-migrate"]).error(1).contains("semel migrate"));
    assert!(!file.exists(), "and makes none");
    for args in [&["keys"][..], &["show", "k"], &["resolve", "k", "--rerun"], &["sweep"]] {
        let said = run(&[args, &["--store", &store]].concat());
        assert!(said.error(1).contains("semel migrate"), "{}", said.err);
        assert!(!file.exists(), "{args:?}");
    }
    let printed = run(&["migrate", "--print", "--store", &store]);
    assert!(printed.out.contains("CREATE TABLE"), "{}", printed.out);
    assert!(!file.exists(), "--print changes nothing");
    assert!(run(&["migrate", "--store", &store]).out.starts_with("applied "));
    assert_eq!(run(&["migrate", "--store", &store]).out, "the schema is up to date\n");
    let launch = Launch::new(Service::plain().address()).args(["--no-migrate"]);
    std::fs::copy(&file, launch.store_file()).unwrap();
    assert_eq!(launch.start().admin("/readyz").status, 200);
}

#[test]
fn what_migrate_prints_makes_the_schema_by_hand() {
    let service = Service::plain();
    let launch = Launch::new(service.address()).args(["--no-migrate"]);
    let printed = run(&["migrate", "--print", "--store", &launch.store()]).out;
    Connection::open(launch.store_file()).unwrap().execute_batch(&printed).expect("it is SQL");
    let gateway = launch.start();
    assert_eq!(gateway.call(&Call::post("/charges", "k")).status, 201);
    assert!(gateway.call(&Call::post("/charges", "k")).is_replay());
}

#[test]
fn migrate_prints_the_schema_of_a_database_by_its_name() {
    let printed = |name| run(&["migrate", "--print", name]).out;
    assert!(printed("postgres").contains("CREATE FUNCTION semel.claim("), "{}", printed("postgres"));
    assert!(printed("mysql").contains("CREATE TABLE"), "{}", printed("mysql"));
    assert_eq!(printed("mariadb"), printed("mysql"));
    assert_eq!(printed("sqlite"), run(&["migrate", "--print"]).out);
    assert!(run(&["migrate", "--print", "postgre"]).error(2).contains("postgres"), "the nearest name");
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let file = migrated();
    let connection = Connection::open(&file.1).unwrap();
    let known: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let set = |number| connection.pragma_update(None, "user_version", number).unwrap();
    set(known + 7);
    let said = gateway(&file.1, &[]);
    assert!(said.error(1).contains("newer"), "{}", said.err);
    let store = format!("sqlite://{}", file.1.display());
    for args in [&["keys"][..], &["sweep"], &["migrate"]] {
        assert!(run(&[args, &["--store", &store]].concat()).error(1).contains("newer"), "{args:?}");
    }
    set(known);
    assert_eq!(run(&["keys", "--store", &store]).code, Some(0));
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let noise = directory.path().join("noise.db");
    std::fs::write(&noise, "this is no database at all, and longer than any header of one. ".repeat(100))
        .unwrap();
    let theirs = directory.path().join("theirs.db");
    Connection::open(&theirs).unwrap().execute_batch("CREATE TABLE invoices (id)").unwrap();
    for file in [&noise, &theirs] {
        let before = std::fs::read(file).unwrap();
        let said = gateway(file, &[]);
        assert!(said.error(1).contains("--store"), "{}", said.err);
        for args in [&["keys"][..], &["migrate"]] {
            run(&[args, &["--store", &format!("sqlite://{}", file.display())]].concat()).error(1);
        }
        assert_eq!(std::fs::read(file).unwrap(), before);
    }
    assert!(gateway(directory.path(), &[]).error(1).contains("directory"));
    assert!(gateway(&directory.path().join("missing/semel.db"), &[]).error(1).contains("missing"));
}

#[test]
fn memory_is_a_store_that_is_empty_each_time() {
    let said = run(&["keys", "--store", "memory:"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "no such keys in memory:\n"));
}

fn migrated() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("semel.db");
    assert_eq!(run(&["migrate", "--store", &format!("sqlite://{}", file.display())]).code, Some(0));
    (directory, file)
}
