//! Group commit, and what happens when it fails.

use std::future::Future;
use std::time::Instant;

use semel::{Outcome, Settlement};
use tokio::task::{JoinSet, yield_now};

use super::*;

/// Starts calls and lets each of them reach the queue: on a runtime of one thread, all have run once after this.
async fn start<F>(calls: impl IntoIterator<Item = F>) -> JoinSet<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let set: JoinSet<_> = calls.into_iter().collect();
    yield_now().await;
    set
}

async fn claim(store: Arc<SqliteStore>, key: String, number: u64) -> Result<Claim, StoreError> {
    store.claim(&sample::run(&key, number)).await
}

/// Commits in the WAL: the frames whose header tells the size of the database. Nothing locks by the WAL file, so
/// it may be read beside SQLite.
fn commits(fresh: &Fresh) -> usize {
    let wal = std::fs::read(fresh.path().with_extension("db-wal")).expect("a WAL");
    wal.get(32..).unwrap_or_default().chunks(24 + 4_096).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn calls_that_wait_together_share_one_commit() {
    let mut fresh = Fresh::new();
    let before = commits(&fresh);
    let lock = fresh.other();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = Arc::new(fresh.store);
    let calls = start((0..500).map(|number| claim(Arc::clone(&store), format!("k{number}"), number))).await;
    lock.execute_batch("COMMIT").unwrap();
    for answer in calls.join_all().await {
        took(answer);
    }
    fresh.store = Arc::into_inner(store).expect("the only one");
    let made = commits(&fresh) - before;
    // One each would be 500. How many take part in the first ones is the scheduler's choice.
    assert!((1..=20).contains(&made), "500 claims in {made} commits");
}

/// Tasks of two runtimes of one thread each, and callers that are no task.
#[test]
fn callers_are_answered_wherever_they_are() {
    let fresh = Fresh::new();
    let store = Arc::new(fresh.store);
    let calls = |from: u64| {
        let store = Arc::clone(&store);
        (from..from + 50).map(move |number| claim(Arc::clone(&store), format!("k{number}"), number))
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    std::thread::scope(|scope| {
        for from in [0, 100] {
            let calls = calls(from);
            let tasks = async { calls.collect::<JoinSet<_>>().join_all().await };
            scope.spawn(|| runtime().block_on(tasks).into_iter().for_each(took));
        }
        scope.spawn(|| calls(200).for_each(|call| took(runtime().block_on(call))));
    });
}

/// A verb that fails as it is told.
#[derive(Clone, Copy)]
enum Bad {
    Constraint,
    Panic,
}

impl Verb for Bad {
    type Answer = ();

    fn apply(&self, rows: &mut rows::Rows<'_>, _: &dyn Clock) -> rusqlite::Result<()> {
        match self {
            Bad::Constraint => rows.connection().execute_batch("UPDATE running SET fence = NULL"),
            Bad::Panic => {
                rows.connection().execute_batch("DELETE FROM running")?;
                panic!("a verb that panics")
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_fails_or_panics_fails_no_other_of_its_batch() {
    for bad in [Bad::Constraint, Bad::Panic] {
        let fresh = Fresh::new();
        took(fresh.store.claim(&sample::run("earlier", 99)).await);
        let lock = fresh.other();
        lock.execute_batch("BEGIN IMMEDIATE").unwrap();
        let store = Arc::new(fresh.store);
        let before =
            start((0..20).map(|number| claim(Arc::clone(&store), format!("a{number}"), number))).await;
        let failing = Arc::clone(&store);
        let failing = start([async move { failing.writer.ask(bad).await }]).await;
        let after =
            start((0..20).map(|number| claim(Arc::clone(&store), format!("b{number}"), number))).await;
        lock.execute_batch("COMMIT").unwrap();
        let failed = failing.join_all().await.remove(0).expect_err("it is bad");
        match bad {
            Bad::Constraint => assert!(matches!(failed, StoreError::Refused(_)), "{failed:?}"),
            Bad::Panic => assert!(matches!(failed, StoreError::Unavailable(_)), "{failed:?}"),
        }
        for answer in before.join_all().await.into_iter().chain(after.join_all().await) {
            took(answer);
        }
        assert_eq!(store.list(&Filter::default(), None, 100).await.unwrap().len(), 41);
    }
}

/// Case C45: a lock held outside for a second is waited for.
#[tokio::test]
async fn c45_claims_wait_for_a_lock_held_outside_and_then_succeed() {
    let fresh = Fresh::new();
    let lock = fresh.other();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = Arc::new(fresh.store);
    let mut calls =
        start((0..50).map(|number| claim(Arc::clone(&store), format!("k{number}"), number))).await;
    let held = tokio::time::timeout(Duration::from_secs(1), calls.join_next()).await;
    assert!(held.is_err(), "nobody is answered while the lock is held");
    lock.execute_batch("COMMIT").unwrap();
    let answers = calls.join_all().await;
    assert_eq!(answers.len(), 50);
    answers.into_iter().for_each(took);
}

#[tokio::test]
async fn while_nothing_can_be_written_outcomes_are_replayed_and_claims_are_told_in_bounded_time() {
    let busy_for = Duration::from_millis(300);
    let fresh = Fresh::with(busy_for);
    let lease = sample::lease(fresh.store.claim(&sample::run("done", 1)).await.unwrap());
    fresh.store.settle(&lease, &sample::complete("outcome")).await.unwrap();
    let running = sample::lease(fresh.store.claim(&sample::run("running", 2)).await.unwrap());

    let lock = fresh.other();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    for (key, number, what, answer) in [
        ("done", 3, "same", "completed"),
        ("done", 4, "else", "mismatch"),
        ("running", 5, "same", "in-flight"),
    ] {
        let begun = Instant::now();
        let claim = fresh.store.claim(&sample::run_for(key, number, what)).await.unwrap();
        assert_eq!(sample::name(&claim), answer);
        assert!(begun.elapsed() < busy_for, "it waits for nobody");
    }
    // More calls than the queue takes: those it takes wait for the lock, the others for room.
    let store = Arc::new(fresh.store);
    let begun = Instant::now();
    let calls =
        start((0..6_000).map(|number| claim(Arc::clone(&store), format!("k{number}"), 10 + number))).await;
    for answer in calls.join_all().await {
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    }
    let waited = begun.elapsed();
    assert!(waited >= busy_for && waited < 20 * busy_for, "{waited:?}");
    let refused = store.renew(&running, sample::LEASE).await.expect_err("it must write");
    assert!(refused.to_string().contains("another process holds the write lock"), "{refused}");

    lock.execute_batch("COMMIT").unwrap();
    store.renew(&running, sample::LEASE).await.expect("the lock is free again");
    took(claim(Arc::clone(&store), "k1".to_owned(), 11).await);
    let kept = store.list(&Filter::default(), None, 10_000).await.unwrap().len();
    assert_eq!(kept, 3, "nothing of what was refused was written");
}

#[tokio::test]
async fn on_a_full_disk_outcomes_are_replayed_claims_are_refused_and_nothing_is_lost() {
    let fresh = Fresh::new();
    let lease = sample::lease(fresh.store.claim(&sample::run("done", 1)).await.unwrap());
    fresh.store.settle(&lease, &sample::complete("outcome")).await.unwrap();
    let running = sample::lease(fresh.store.claim(&sample::run("running", 2)).await.unwrap());
    fresh.pragma("PRAGMA max_page_count = 1").await;

    let large = Settlement::Complete {
        outcome: Outcome::value(vec![b'x'; 1 << 20]),
        replay_for: sample::REPLAY,
        remember_for: sample::REMEMBER,
    };
    let full = fresh.store.settle(&running, &large).await.expect_err("it has no room");
    assert!(matches!(full, StoreError::Unavailable(_)), "{full:?}");
    assert!(full.to_string().contains("semel.db: the disk is full"), "{full}");
    let replay = fresh.store.claim(&sample::run("done", 3)).await.unwrap();
    assert_eq!(sample::name(&replay), "completed");
    // What needs no page more still gets through, beside what does.
    let lock = fresh.other();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let store = Arc::new(fresh.store);
    let (one, other) = (Arc::clone(&store), Arc::clone(&store));
    let (large_lease, small_lease) = (running.clone(), running.clone());
    let mut failing = start([async move { one.settle(&large_lease, &large).await }]).await;
    let mut fitting = start([async move { other.renew(&small_lease, sample::LEASE).await }]).await;
    lock.execute_batch("COMMIT").unwrap();
    assert!(matches!(failing.join_next().await.unwrap().unwrap(), Err(StoreError::Unavailable(_))));
    fitting.join_next().await.unwrap().unwrap().expect("a renewal needs no page");

    store.writer.ask(Pragma("PRAGMA max_page_count = 1000000")).await.expect("there is room again");
    store.settle(&running, &sample::complete("late")).await.expect("nothing was lost");
    assert_eq!(sample::name(&store.claim(&sample::run("running", 4)).await.unwrap()), "completed");
}

#[tokio::test]
async fn a_store_that_turns_read_only_says_so_and_replays() {
    let fresh = Fresh::new();
    let lease = sample::lease(fresh.store.claim(&sample::run("done", 1)).await.unwrap());
    fresh.store.settle(&lease, &sample::complete("outcome")).await.unwrap();
    fresh.pragma("PRAGMA query_only = 1").await;
    let refused = fresh.store.claim(&sample::run("new", 2)).await.expect_err("it must write");
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused:?}");
    assert!(refused.to_string().contains("it is read-only"), "{refused}");
    assert_eq!(sample::name(&fresh.store.claim(&sample::run("done", 3)).await.unwrap()), "completed");
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_moved_away_is_not_written_to() {
    let fresh = Fresh::new();
    let away = fresh.directory.path().join("away.db");
    std::fs::rename(fresh.path(), &away).unwrap();
    let refused = fresh.store.claim(&sample::run("k", 1)).await.expect_err("there is no file");
    assert!(
        matches!(refused, StoreError::Unavailable(_)) && refused.to_string().contains("moved"),
        "{refused}"
    );
    std::fs::write(fresh.path(), "another").unwrap();
    fresh.store.claim(&sample::run("k", 1)).await.expect_err("it is another file");
    std::fs::rename(&away, fresh.path()).unwrap();
    took(fresh.store.claim(&sample::run("k", 1)).await);
}

/// A wait of no length is one that is as short as it can be.
#[tokio::test]
async fn a_store_that_may_not_wait_works_while_nobody_is_in_its_way() {
    for busy_for in [Duration::ZERO, Duration::MAX] {
        let fresh = Fresh::with(busy_for);
        took(fresh.store.claim(&sample::run("k", 1)).await);
    }
}

#[tokio::test]
async fn a_store_that_is_dropped_finishes_what_it_accepted() {
    let fresh = Fresh::new();
    let lock = fresh.other();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let request = sample::run("k", 1);
    {
        let mut call = std::pin::pin!(fresh.store.claim(&request));
        let once =
            std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context).is_ready()));
        assert!(!once.await, "it waits for the lock");
    }
    let dropping = tokio::task::spawn_blocking(move || drop(fresh.store));
    lock.execute_batch("COMMIT").unwrap();
    dropping.await.unwrap();
    let kept: u32 = lock.query_row("SELECT count(*) FROM running", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 1);
}
