//! Retention: sweeping beside live claims.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use semel::testing::{ManualClock, run};
use semel::{Clock, Swept};

use super::*;

/// So many records whose time is over, each with an outcome, written past the store.
fn overdue(file: &Path, count: u32, now: i64) {
    let connection = Connection::open(file).expect("a connection");
    connection
        .execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
             INSERT INTO settled (key, scope, scope_hash, state, fence, attempt, spent, attempts, bound_by, doubt,
                 first_at, since, label, replay_until, outcome_format, forget_at, outcome)
             SELECT 'old-' || i, 's', 0, 3, 1, zeroblob(16), x'', 1, 1, 0, ?2, ?2, '', ?2 - 2, 0,
                 ?2 - i % 2 * 2 + 1, zeroblob(300)
             FROM n",
            params![count, now],
        )
        .expect("rows");
    connection
        .execute("INSERT INTO due SELECT id >> 6, min(sweep_at) FROM settled GROUP BY id >> 6", [])
        .expect("blocks");
}

/// Case C73: while 60,000 overdue rows are swept by three sweepers, claims go on.
#[test]
fn c73_claims_go_on_while_the_backlog_is_swept() {
    const OVERDUE: u32 = 60_000;
    let place = Place::new();
    let clock = ManualClock::new();
    let options = Options { clock: Arc::new(clock.clone()), migrate: true, ..Options::default() };
    let store = Arc::new(SqliteStore::open(place.file(), &options).expect("a store"));
    overdue(&place.file(), OVERDUE, clock.now().0);
    run(async {
        let swept = Arc::new(AtomicBool::new(false));
        let live = tokio::spawn(claims_until(store.clone(), swept.clone()));
        let begun = Instant::now();
        let sweepers: Vec<_> = (0..3)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { store.sweep(u32::MAX).await.expect("a sweep") })
            })
            .collect();
        let mut total = Swept::default();
        for sweeper in sweepers {
            let part = sweeper.await.expect("it ends");
            total = Swept { outcomes: total.outcomes + part.outcomes, records: total.records + part.records };
        }
        let took = begun.elapsed();
        swept.store(true, Ordering::SeqCst);
        let (claims, slowest) = live.await.expect("it ends");
        assert_eq!(total, Swept { outcomes: OVERDUE / 2, records: OVERDUE / 2 });
        assert!(claims >= 50, "{claims} claims beside the sweep");
        assert!(slowest < took / 4, "a claim and its settlement took {slowest:?}, the sweep {took:?}");
        assert_eq!(store.sweep(10).await.expect("a sweep"), Swept::default(), "nothing is left");
    });
}

async fn claims_until(store: Arc<SqliteStore>, end: Arc<AtomicBool>) -> (u64, Duration) {
    let (mut claims, mut slowest) = (0, Duration::ZERO);
    while !end.load(Ordering::SeqCst) {
        let begun = Instant::now();
        complete(store.as_ref(), &format!("live-{claims}"), claims).await;
        slowest = slowest.max(begun.elapsed());
        claims += 1;
    }
    (claims, slowest)
}

/// Case C10: a key that was completed without its body is remembered without it, and what is swept leaves no bytes.
#[test]
fn a_sweep_frees_the_outcomes_bytes_and_keeps_the_key() {
    let place = Place::new();
    let clock = ManualClock::new();
    let options = Options { clock: Arc::new(clock.clone()), migrate: true, ..Options::default() };
    let store = SqliteStore::open(place.file(), &options).expect("a store");
    let count = || -> [u32; 3] {
        let sql = "SELECT count(*), count(outcome), count(input) FROM settled";
        Connection::open(place.file())
            .expect("a connection")
            .query_row(sql, [], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
            .expect("counts")
    };
    run(async {
        complete(&store, "k", 1).await;
        assert_eq!(count(), [1, 1, 1]);
        clock.advance(sample::REPLAY);
        assert_eq!(store.sweep(10).await.expect("a sweep"), Swept { outcomes: 1, records: 0 });
        assert_eq!(count(), [1, 0, 1]);
        assert_eq!(sample::name(&replay(&store, "k").await), "forgotten");
        clock.advance(sample::REMEMBER);
        assert_eq!(store.sweep(10).await.expect("a sweep"), Swept { outcomes: 0, records: 1 });
        assert_eq!(count(), [0, 0, 0]);
        assert_eq!(store.sweep(10).await.expect("a sweep"), Swept::default());
    });
}
