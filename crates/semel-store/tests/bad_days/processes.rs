//! Several processes: one that sleeps, three that make the schema, and one with another clock.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use semel::View;
use semel::testing::sample::{LEASE, complete, name, rerun, run};
use semel_testbed::Kind;

use crate::child::Process;
use crate::place::{Place, acquire, claim, find, lapsed, patiently};

/// Stopped with the lease in its hand, until that has lapsed.
async fn sleeper(place: &Place) -> Process {
    let store = place.beside().await;
    let mut sleeper = Process::start("sleep", place.database.url());
    assert_eq!(sleeper.says(), "claimed");
    sleeper.signal("STOP");
    lapsed(&store, "slept").await;
    sleeper
}

/// K3: a zombie changes nothing.
pub(crate) async fn a_process_that_slept_past_its_lease_is_refused_after_a_takeover(kind: Kind) {
    let place = Place::shared(kind).await;
    let mut sleeper = sleeper(&place).await;
    let store = place.beside().await;
    let lease = acquire(&store, &rerun("slept", 2)).await;
    sleeper.signal("CONT");
    sleeper.go();
    assert_eq!(sleeper.says(), semel::StoreError::LeaseLost.to_string());
    patiently!(store.settle(&lease, &complete("by the other")));
    let View::Completed { outcome } = find(&store, "slept").await.expect("a record").view else {
        panic!("it was completed");
    };
    assert_eq!(outcome.bytes, "by the other");
}

/// K7: until the fence has moved, the owner's late settlement is the truth.
pub(crate) async fn a_process_that_slept_past_its_lease_is_accepted_without_a_takeover(kind: Kind) {
    let place = Place::shared(kind).await;
    let mut sleeper = sleeper(&place).await;
    let store = place.beside().await;
    // Asking changes nothing: this one may not take what is unknown.
    assert_eq!(name(&claim(&store, &run("slept", 2)).await), "unknown");
    sleeper.signal("CONT");
    sleeper.go();
    assert_eq!(sleeper.says(), "accepted");
    let View::Completed { outcome } = find(&store, "slept").await.expect("a record").view else {
        panic!("it was completed");
    };
    assert_eq!(outcome.bytes, "by the sleeper");
}

pub(crate) async fn three_processes_that_migrate_at_once_make_one_schema(kind: Kind) {
    let place = Place::shared(kind).await;
    let schema = semel_store::migrations(place.database.url()).expect("a schema");
    let pending = schema.pending().await.expect("a look").len();
    let mut processes: Vec<_> = (0..3).map(|_| Process::start("migrate", place.database.url())).collect();
    for process in &mut processes {
        assert_eq!(process.says(), "ready");
    }
    processes.iter_mut().for_each(Process::go);
    let applied: Vec<usize> =
        processes.iter_mut().map(Process::says).map(|said| said.parse().expect(&said)).collect();
    assert_eq!(applied.iter().sum::<usize>(), pending, "each migration once: {applied:?}");
    assert_eq!(schema.pending().await.expect("a look"), []);
    let store = place.beside().await;
    acquire(&store, &run("on the new schema", 1)).await;
}

/// K5: the store's clock decides. The other process believes that it is an hour later, and changes nothing by it; what it
/// claims itself lasts as long as anybody's.
pub(crate) async fn a_clock_that_is_an_hour_off_changes_nothing(kind: Kind) {
    let place = Place::shared(kind).await;
    let store = place.beside().await;
    acquire(&store, &run("held", 1)).await;
    for offset in ["+1h", "-1h"] {
        let mut faketime = Command::new("faketime");
        // The monotonic clock runs as ever: no machine's jumps.
        faketime.args(["-m", "-f", offset]).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        let mut other = Process::start_under(faketime, "claim", place.database.url());
        let there: u64 = other.says().parse().expect("a time");
        let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        assert!(there.abs_diff(here) > 3000, "its clock is not off: install Debian's package faketime");
        assert_eq!(other.says(), "in-flight");
        let left: u64 = other.says().parse().expect("a time");
        assert!(left <= LEASE.as_secs() && left + 30 >= LEASE.as_secs(), "{left} s");
        assert_eq!(other.says(), "claimed");
        let entry = find(&store, "by another clock").await.expect("it is there");
        let View::Running { lease_left } = entry.view else { panic!("{:?}", entry.view) };
        assert!(lease_left <= LEASE && lease_left + Duration::from_secs(30) >= LEASE, "{lease_left:?}");
        assert!(entry.age < Duration::from_secs(60), "{:?}", entry.age);
        // The next one has the same attempt id, and gets the same lease.
        other.go();
        other.ends();
    }
}
