//! Several processes on one file, and processes that are killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use semel::Claim;
use semel::testing::{Random, run};
use tokio::task::JoinSet;

use super::child::{Process, command};
use super::*;

const KEYS: u64 = 200;

/// Claims keys in turn, each claim with an attempt of its own, and settles what it was given. Gives how many it was
/// given. Any error fails the test.
pub(super) async fn executions(store: Arc<SqliteStore>, callers: u64, claims: u64, first: u64) -> usize {
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let store = store.clone();
        tasks.spawn(async move {
            let mut executed = 0;
            for number in (0..claims).filter(|number| number % callers == caller) {
                let key = format!("k{}", (number * 7) % KEYS);
                match store.claim(&sample::run(&key, first + number)).await.expect("no error surfaces") {
                    Claim::Acquired(lease) => {
                        executed += 1;
                        store.settle(&lease, &sample::complete("done")).await.expect("no error surfaces");
                    }
                    Claim::InFlight { .. } | Claim::Completed { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            executed
        });
    }
    tasks.join_all().await.into_iter().sum()
}

/// Case C45: 8 callers and a second process, 2,000 claims on 200 keys.
#[test]
fn c45_callers_of_two_processes_execute_each_key_once_and_meet_no_lock() {
    let place = Place::new();
    let store = Arc::new(place.store());
    let mut process = Process::start(command("contend", &place.file()));
    assert_eq!(process.says().as_deref(), Some("ready"));
    let begun = Instant::now();
    process.go();
    let here = run(executions(store.clone(), 8, 1_600, 0));
    let there: usize = process.says().expect("a number").parse().expect("a number");
    process.ends_well();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(here + there, KEYS as usize, "{here} here, {there} there");
    run(async {
        for number in 0..KEYS {
            assert!(matches!(replay(store.as_ref(), &format!("k{number}")).await, Claim::Completed { .. }));
        }
    });
    is_sound(&place);
}

/// Case C87: what one process was told is written, every other process reads at once.
#[test]
fn c87_what_is_settled_is_replayed_by_another_handle_at_once() {
    let place = Place::new();
    let (one, other) = (place.store(), place.store());
    run(async {
        for number in 0..200 {
            let key = format!("k{number}");
            complete(&one, &key, number).await;
            assert!(matches!(replay(&other, &key).await, Claim::Completed { .. }));
        }
    });
}

/// A process is killed while it works, again and again, each time a random moment after it was heard: everything
/// that it said it had completed is replayed.
#[test]
fn whatever_was_acknowledged_survives_a_kill() {
    let place = Place::new();
    let random = Random::new(7);
    let mut acknowledged = Vec::new();
    for round in 1..=8 {
        let mut process = Process::start(command("complete", &place.file()));
        let killed_after = 25 * round;
        acknowledged.extend(std::iter::from_fn(|| process.says()).take(killed_after));
        std::thread::sleep(Duration::from_micros(random.below(3_000)));
        process.kill();
        acknowledged.extend(std::iter::from_fn(|| process.says()));
    }
    assert!(acknowledged.len() >= 25 * 36, "{}", acknowledged.len());
    let store = place.store();
    run(async {
        for key in &acknowledged {
            let Claim::Completed { outcome, .. } = replay(&store, key).await else { panic!("{key} is lost") };
            assert_eq!(outcome.bytes, *key);
        }
    });
    drop(store);
    is_sound(&place);
}

/// Its structure is, and no record is in both tables or twice in one. Nothing but the write lock sees to that.
fn is_sound(place: &Place) {
    let file = Connection::open(place.file()).expect("a connection");
    let check: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(check, "ok");
    let twice =
        "SELECT count(*) FROM (SELECT key, scope FROM running UNION ALL SELECT key, scope FROM settled)
         GROUP BY key, scope HAVING count(*) > 1";
    assert!(!file.prepare(twice).expect("a statement").exists([]).expect("an answer"));
}

/// The system lets the file grow no further: that is an I/O error in the commit, so nobody can say whether the
/// commit is there. Everything acknowledged before is.
#[cfg(unix)]
#[test]
fn an_io_error_in_a_commit_is_indeterminate() {
    use std::process::{Command, Stdio};
    let place = Place::new();
    let plain = command("fill", &place.file());
    // 2,048 blocks of 512 bytes, or of 1,024 in some shells.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\""]);
    limited.arg(plain.get_program()).args(plain.get_args());
    limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Process::start(limited);
    let said = process.says().expect("a failure");
    let (kept, text) = said.split_once(' ').expect("a number and a text");
    assert!(kept.parse::<u32>().expect("a number") > 5, "{said}");
    assert!(text.contains("the disk reports an error"), "{said}");
    assert!(process.says().expect("the error").starts_with("Indeterminate"), "{said}");
    process.ends_well();
    let store = place.store();
    run(async {
        for number in 0..kept.parse().expect("a number") {
            assert!(matches!(replay(&store, &format!("k{number}")).await, Claim::Completed { .. }));
        }
    });
}
