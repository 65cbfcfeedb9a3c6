//! Reading: `find` and `unsettled`.

use std::time::Duration;

use super::{Harness, Trial};
use crate::store::{Cause, Cursor, Entry, Fence, Outcome, View};
use crate::testing::sample::{
    LEASE, REMEMBER, REPLAY, bury, complete, fingerprint, key, park, release, release_for, run, scope,
    settling,
};

/// No record, no entry.
pub async fn nothing_is_found_where_nothing_is(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.reads("k", "absent").await;
    assert_eq!(trial.store.unsettled(None, 10).await.expect("a list"), []);
}

/// An entry has everything that the claim brought.
pub async fn an_entry_shows_the_record(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let request = run("k", 1);
    trial.acquire(&request).await;
    trial.advance(LEASE / 2).await;
    let entry = trial.entry("k").await;
    assert_eq!((entry.scope, entry.key), (scope(), key("k")));
    assert_eq!((entry.fence, entry.attempt, entry.attempts), (Fence(1), request.attempt, 1));
    assert_eq!(entry.fingerprint, Some(fingerprint("same")));
    assert_eq!((entry.label, entry.input), (request.label, request.input));
    let View::Running { lease_left } = entry.view else { panic!("{:?}", entry.view) };
    trial.remaining(lease_left, LEASE / 2);
    trial.elapsed(entry.age, LEASE / 2);
    trial.elapsed(entry.since, LEASE / 2);
}

/// An entry reads as what the record is now, expiry included, and since when.
pub async fn an_entry_shows_every_state(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("released", 1), &release()).await;
    trial.ended(&run("waiting", 1), &release_for(LEASE * 3)).await;
    trial.ended(&run("completed", 1), &complete("done")).await;
    trial.ended(&run("unknown", 1), &park()).await;
    trial.ended(&run("dead", 1), &bury()).await;
    trial.acquire(&run("lapsed", 1)).await;
    trial.advance(LEASE * 2).await;
    for (key, since) in [("released", LEASE * 2), ("waiting", LEASE * 2), ("completed", LEASE * 2)] {
        trial.elapsed(trial.entry(key).await.since, since);
    }
    trial.elapsed(trial.entry("lapsed").await.since, LEASE);
    assert_eq!(trial.entry("released").await.view, View::Released { not_before: Duration::ZERO });
    let View::Released { not_before } = trial.entry("waiting").await.view else { panic!("it was released") };
    trial.remaining(not_before, LEASE);
    assert_eq!(trial.entry("completed").await.view, View::Completed { outcome: Outcome::value("done") });
    assert_eq!(trial.entry("unknown").await.view, View::Unknown { cause: Cause::CUT });
    assert_eq!(trial.entry("dead").await.view, View::Dead { cause: Cause::new("rejected") });
    assert_eq!(trial.entry("lapsed").await.view, View::Unknown { cause: Cause::LAPSED });
    trial.advance(REPLAY).await;
    assert_eq!(trial.entry("completed").await.view, View::Forgotten);
    trial.elapsed(trial.entry("completed").await.since, LEASE * 2);
    trial.advance(REMEMBER).await;
    trial.reads("completed", "absent").await;
    trial.reads("released", "absent").await;
}

/// A key that is claimed again runs since that claim, and is as old as its first.
pub async fn an_entry_counts_from_the_latest_claim(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.ended(&run("k", 1), &release()).await;
    trial.advance(LEASE).await;
    trial.acquire(&run("k", 2)).await;
    trial.advance(LEASE / 2).await;
    let entry = trial.entry("k").await;
    trial.elapsed(entry.since, LEASE / 2);
    trial.elapsed(entry.age, LEASE + LEASE / 2);
}

/// Looking changes nothing: the lapsed owner still settles, and what a listing showed is as it was.
pub async fn reads_do_not_write(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let lease = trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE).await;
    for _ in 0..3 {
        trial.reads("k", "unknown").await;
        assert_eq!(trial.store.unsettled(None, 10).await.expect("a list").len(), 1);
    }
    trial.store.renew(&lease, LEASE).await.expect("nobody has taken it");
    trial.reads("k", "running").await;
    assert_eq!(trial.store.unsettled(None, 10).await.expect("a list"), []);
    trial.end(&lease, &complete("done")).await;
}

/// Lapsed, unknown and dead records are listed, and no others.
pub async fn unsettled_lists_what_is_open(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.acquire(&run("lapsed", 1)).await;
    trial.advance(LEASE).await;
    trial.ended(&run("unknown", 1), &park()).await;
    trial.advance(LEASE).await;
    trial.ended(&run("dead", 1), &bury()).await;
    trial.ended(&run("completed", 1), &complete("done")).await;
    trial.ended(&run("released", 1), &release()).await;
    trial.acquire(&run("running", 1)).await;
    let open = trial.store.unsettled(None, 10).await.expect("a list");
    assert_eq!(keys(&open), ["lapsed", "unknown", "dead"]);
    for entry in &open {
        let found = trial.entry(entry.key.as_str()).await;
        assert_eq!((&entry.view, entry.fence, entry.attempt), (&found.view, found.fence, found.attempt));
        assert_eq!((&entry.label, &entry.input), (&found.label, &found.input));
    }
}

/// The longest open comes first: a lapsed lease is open from its end, the others from their settlement.
pub async fn unsettled_is_in_the_order_of_time(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    let gap = Duration::from_secs(10);
    trial.acquire(&run("c-lapses-third", 1)).await;
    trial.ended(&run("d-first", 1), &park()).await;
    trial.advance(gap).await;
    trial.ended(&run("b-second", 1), &bury()).await;
    trial.advance(LEASE).await;
    trial.ended(&run("a-last", 1), &park()).await;
    let open = trial.store.unsettled(None, 10).await.expect("a list");
    assert_eq!(keys(&open), ["d-first", "b-second", "c-lapses-third", "a-last"]);
}

/// A page goes on behind the last entry of the one before, also among entries of one instant.
pub async fn unsettled_comes_in_pages(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for number in 0..10 {
        trial.ended(&run(&format!("k{number}"), 1), &park()).await;
        trial.ended(&run(&format!("k{number} "), 1), &bury()).await;
        if number % 5 == 4 {
            trial.advance(LEASE).await;
        }
    }
    let all = trial.store.unsettled(None, 100).await.expect("a list");
    assert_eq!(all.len(), 20);
    for limit in [1, 3, 20] {
        let mut paged: Vec<Entry> = Vec::new();
        loop {
            let after: Option<Cursor> = paged.last().map(|entry| entry.cursor.clone());
            let page = trial.store.unsettled(after.as_ref(), limit).await.expect("a list");
            assert!(page.len() <= limit as usize);
            if page.is_empty() {
                break;
            }
            paged.extend(page);
        }
        assert_eq!(keys(&paged), keys(&all), "in pages of {limit}");
    }
}

/// Settling what a page showed does not make the next page skip anything.
pub async fn unsettled_can_be_settled_while_it_is_read(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    for number in 0..9 {
        trial.ended(&run(&format!("k{number}"), 1), &park()).await;
        trial.advance(Duration::from_secs(10)).await;
    }
    let (mut settled, mut after) = (0, None);
    loop {
        let page = trial.store.unsettled(after.as_ref(), 2).await.expect("a list");
        let Some(last) = page.last() else { break };
        after = Some(last.cursor.clone());
        for entry in &page {
            trial.ended(&settling(entry.key.as_str(), 2, entry.fence), &complete("found out")).await;
            settled += 1;
        }
    }
    assert_eq!(settled, 9);
    assert_eq!(trial.store.unsettled(None, 10).await.expect("a list"), []);
}

/// What a listing shows is enough to settle it.
pub async fn an_unsettled_entry_can_be_resolved(harness: &dyn Harness) {
    let trial = Trial::new(harness).await;
    trial.acquire(&run("k", 1)).await;
    trial.advance(LEASE).await;
    let open = trial.store.unsettled(None, 1).await.expect("a list");
    trial.ended(&settling("k", 2, open[0].fence), &release()).await;
    assert_eq!(trial.acquire(&run("k", 3)).await.fence, Fence(3));
}

fn keys(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}
