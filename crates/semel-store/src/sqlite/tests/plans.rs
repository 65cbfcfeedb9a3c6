//! Each statement finds its rows by an index, and costs the same at any size of the table.

use rusqlite::{StatementStatus, params};

use super::*;

/// Ten years in milliseconds.
const FAR: i64 = 315_360_000_000;

fn plan(connection: &Connection, sql: &str) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("a plan");
    let count = statement.parameter_count();
    let nothing = vec![rusqlite::types::Value::Null; count];
    let lines = statement.query_map(rusqlite::params_from_iter(nothing), |row| row.get::<_, String>(3));
    lines.expect("lines").collect::<rusqlite::Result<Vec<_>>>().expect("texts").join("\n")
}

#[test]
fn every_statement_goes_by_its_index() {
    let fresh = Fresh::new();
    let connection = fresh.other();
    let by_key = "settled_key (key=? AND scope_hash=?)";
    let pair = "running USING PRIMARY KEY (key=? AND scope=?)";
    for (sql, indexes) in [
        (rows::LOAD, &[by_key, pair][..]),
        (rows::LOAD_RUNNING, &[pair]),
        (browse::BY_KEY, &["settled_key (key>? AND key<?)", "running USING PRIMARY KEY ("]),
        (browse::OPEN_BY_KEY, &["settled_open", "running USING PRIMARY KEY ("]),
        // All that runs is looked through.
        (browse::UNSETTLED, &["settled_open (since>?)", "SCAN running"]),
        (sweep::DUE, &["due USING COVERING INDEX due_first (due_at<?)"]),
        (sweep::DUE_IN_BLOCK, &["settled USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]),
        (history::ADD, &["history USING PRIMARY KEY (key=? AND scope=?)"]),
        (history::TRIM, &["history USING PRIMARY KEY (key=? AND scope=? AND number<?)"]),
        (history::READ, &["history USING PRIMARY KEY (key=? AND scope=?)"]),
        (history::FORGET, &["history USING PRIMARY KEY (key=? AND scope=?)"]),
        (sweep::NEXT_IN_BLOCK, &["settled USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"]),
    ] {
        let plan = plan(&connection, sql);
        assert!(indexes.iter().all(|index| plan.contains(index)), "{sql}\n{plan}");
        // Through an index of open rows, where it is one.
        let scans =
            plan.lines().any(|line| line.starts_with("SCAN settled") && !line.ends_with("settled_open"));
        assert!(!scans && !plan.contains("SCAN due"), "{sql}\n{plan}");
    }
}

/// Completed records that nobody waits for: half of them are kept for ever, the others fall due far ahead.
fn fill(connection: &Connection, count: u32, now: i64) {
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO settled (key, scope, scope_hash, state, fence, attempt, spent, attempts, bound_by, doubt,
             first_at, since, label, replay_until, forget_at)
         SELECT 'bulk-' || i, 's', ?4, 3, 1, zeroblob(16), x'', 1, 1, 0, ?2, ?2, '', ?2,
             CASE WHEN i % 2 THEN 9223372036854775807 ELSE ?2 + ?3 + i END
         FROM n";
    connection.execute(sql, params![count, now, FAR, rows::hash("s")]).expect("rows");
    let sql = "INSERT INTO due SELECT id >> 6, min(sweep_at) FROM settled WHERE sweep_at IS NOT NULL GROUP BY id >> 6
         ON CONFLICT DO NOTHING";
    connection.execute(sql, []).expect("blocks");
}

/// Steps of SQLite's machine that a statement takes until its last row.
fn steps(connection: &Connection, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> (i32, usize) {
    let mut statement = connection.prepare(sql).expect("a statement");
    let rows = statement.query(parameters).expect("rows").mapped(|_| Ok(())).count();
    (statement.get_status(StatementStatus::VmStep), rows)
}

#[tokio::test]
async fn sweep_and_unsettled_cost_by_what_they_find_and_not_by_what_is_there() {
    let fresh = Fresh::new();
    for number in 0..20 {
        let lease =
            sample::lease(fresh.store.claim(&sample::run(&format!("k{number}"), number)).await.unwrap());
        let settlement = if number % 2 == 0 { sample::complete("done") } else { sample::park() };
        fresh.store.settle(&lease, &settlement).await.unwrap();
    }
    fresh.clock.advance(sample::REPLAY);
    let now = fresh.clock.now().0;
    let connection = fresh.other();
    let cost = || {
        let (blocks, _) = steps(&connection, sweep::DUE, params![now]);
        let (rows, due) = steps(&connection, sweep::DUE_IN_BLOCK, params![now, 0, 63, 256]);
        let open = steps(&connection, browse::UNSETTLED, params![i64::MIN, "", "", now, 100]);
        ((blocks, rows, due), open)
    };
    let small = cost();
    assert_eq!((small.0.2, small.1.1), (10, 10), "what is due and what is open is found");
    // The block that they are in is filled up here, and not with the others.
    fill(&connection, 50, now);
    let small = cost();
    fill(&connection, 50_000, now);
    assert_eq!(small, cost(), "50,000 rows more change nothing");
}

#[tokio::test]
async fn a_statement_without_its_index_would_be_seen_to_cost_more() {
    let fresh = Fresh::new();
    let connection = fresh.other();
    let unindexed = "SELECT id FROM settled NOT INDEXED WHERE sweep_at <= ?1";
    let before = steps(&connection, unindexed, &[&fresh.clock.now().0]).0;
    fill(&connection, 1_000, fresh.clock.now().0);
    assert!(steps(&connection, unindexed, &[&fresh.clock.now().0]).0 > before + 1_000);
}
