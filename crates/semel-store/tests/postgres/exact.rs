//! Keys are compared byte for byte, whatever the database's collation; and the plans of the statements.

use semel::testing::sample::{complete, run};
use semel::{Inspect, Store};
use semel_testbed::Postgres;

use super::harness::{Mode, open, with_mode};
use super::{acquire, answer};

/// Told apart by case, accents, their composition, and spaces; ordered otherwise by a language.
const NAMES: [&str; 9] = ["k", "K", "k ", "é", "e\u{301}", "e", "ß", "ss", "-k"];

#[tokio::test]
async fn keys_are_exact_under_every_collation() {
    let server = Postgres::start().await;
    let database = server.database().await;
    for (name, how) in [
        ("icu", "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'"),
        ("swedish", "LOCALE_PROVIDER icu ICU_LOCALE 'sv-SE-u-ks-level1' LOCALE 'C'"),
        ("plain", "LOCALE 'C'"),
        ("utf8", "LOCALE 'C.UTF-8'"),
    ] {
        database.run(&format!("CREATE DATABASE {name} ENCODING UTF8 {how} TEMPLATE template0")).await;
        let (base, _) = database.url().rsplit_once('/').expect("a database");
        for mode in [Mode::Functions, Mode::Tables] {
            let store = open(&with_mode(&format!("{base}/{name}"), mode)).await;
            // What one mode has made, the other finds.
            for key in NAMES {
                let expected = if mode == Mode::Functions { "acquired" } else { "in-flight" };
                assert_eq!(
                    answer(store.as_ref(), &run(key, mode as u64)).await,
                    expected,
                    "{key:?} in {name}"
                );
            }
            let listed = store.list(&semel::Filter::default(), None, 100).await.expect("a list");
            let keys: Vec<_> = listed.iter().map(|entry| entry.key.as_str()).collect();
            let mut sorted = NAMES;
            sorted.sort_unstable();
            assert_eq!(keys, sorted, "{name}");
        }
    }
}

#[tokio::test]
async fn a_nul_in_a_label_is_shown_and_fails_nobody() {
    for mode in [Mode::Functions, Mode::Tables] {
        let database = semel_testbed::postgres().await;
        let store = open(&with_mode(database.url(), mode)).await;
        let odd = semel::ClaimRequest { label: semel::Label::new("a\0b"), ..run("odd", 1) };
        acquire(store.as_ref(), &odd).await;
        let found = store.find(&odd.scope, &odd.key).await.expect("a look").expect("a record");
        assert_eq!(found.label.as_str(), "a\u{fffd}b");
    }
}

/// A row as no store writes it is refused by the database (case C94).
#[tokio::test]
async fn c94_a_running_row_without_an_end_cannot_be_written() {
    let database = semel_testbed::postgres().await;
    let store = open(database.url()).await;
    acquire(store.as_ref(), &run("k", 1)).await;
    let control = super::harness::control(database.url()).await;
    let error = control.execute("UPDATE semel.records SET open_at = NULL", &[]).await.expect_err("a check");
    assert_eq!(error.code().map(|code| code.code()), Some("23514"));
}

/// The plan of each statement that grows with the table would show here: with many rows, and with statistics of none.
#[tokio::test]
async fn statements_go_by_an_index_whatever_the_statistics_say() {
    for mode in [Mode::Functions, Mode::Tables] {
        let database = semel_testbed::postgres().await;
        let store = open(&with_mode(database.url(), mode)).await;
        let control = super::harness::control(database.url()).await;
        // The plans are made while the table is empty, and known to be.
        control.batch_execute("VACUUM ANALYZE semel.records").await.expect("statistics");
        for number in 0..10 {
            let lease = acquire(store.as_ref(), &run(&format!("before-{number}"), number)).await;
            store.settle(&lease, &complete("done")).await.expect("it settles");
        }
        let fill = "INSERT INTO semel.records (key, scope, state, fence, attempt, attempts, bound_by, doubt, first_at, \
                    since, label, not_before, forget_at) SELECT 'old-' || n, 's', 2, 1, gen_random_uuid(), 1, 1, false, 0, \
                    0, '', 0, 9223372036854775806 FROM generate_series(1, 20000) AS n";
        control.batch_execute(fill).await.expect("rows");
        let scans = "SELECT pg_stat_clear_snapshot()::text || coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables \
                     WHERE relname = 'records'";
        let store2 = std::sync::Arc::clone(&store);
        let work = (0..40).map(|number| {
            let store = std::sync::Arc::clone(&store2);
            tokio::spawn(async move {
                let request = run(&format!("after-{number}"), 1);
                let lease = acquire(store.as_ref(), &request).await;
                assert_eq!(answer(store.as_ref(), &run(&format!("after-{number}"), 2)).await, "in-flight");
                store.settle(&lease, &complete("done")).await.expect("it settles");
                assert_eq!(answer(store.as_ref(), &run(&format!("after-{number}"), 2)).await, "completed");
            })
        });
        let work: Vec<_> = work.collect();
        for task in work {
            task.await.expect("no panic");
        }
        // The counters come with the end of the store's sessions.
        drop((store, store2));
        let mut gone = 1;
        while gone > 0 {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'semel'";
            gone = control.query_one(sql, &[]).await.expect("sessions").get::<_, i64>(0);
        }
        let read: String = control.query_one(scans, &[]).await.expect("statistics").get(0);
        let read: i64 = read.parse().expect("a number");
        assert!(read < 20_000, "{mode:?}: {read} rows were read one by one");
    }
}
