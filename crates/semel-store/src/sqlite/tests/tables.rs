//! Two tables that read as one.

use semel::{ClaimRequest, Cursor, Lease};

use super::*;

fn request(scope: &str, key: &str, number: u64) -> ClaimRequest {
    ClaimRequest { scope: Scope::new(scope).expect("a scope"), ..sample::run(key, number) }
}

async fn claim(fresh: &Fresh, scope: &str, key: &str, number: u64) -> Lease {
    sample::lease(fresh.store.claim(&request(scope, key, number)).await.unwrap())
}

/// How many rows there are of each: running, settled.
fn counts(fresh: &Fresh) -> (u32, u32) {
    let sql = "SELECT (SELECT count(*) FROM running), (SELECT count(*) FROM settled)";
    fresh.other().query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("counts")
}

/// One key in many scopes, and many keys in one; some run, some are settled, in turn.
#[tokio::test]
async fn a_listing_in_pages_goes_over_what_runs_and_what_is_settled_in_one_order() {
    let fresh = Fresh::new();
    let mut wanted = Vec::new();
    for number in 0..300_u64 {
        let (scope, key) = match number % 2 {
            0 => (format!("scope-{}", (number * 7_919) % 1_000), "a".to_owned()),
            _ => ("scope".to_owned(), format!("b{}", (number * 7_919) % 1_000)),
        };
        let lease = claim(&fresh, &scope, &key, number).await;
        if number % 3 == 0 {
            fresh.store.settle(&lease, &sample::complete("done")).await.unwrap();
        }
        wanted.push((key, scope));
    }
    wanted.sort();
    assert_eq!(counts(&fresh), (200, 100));
    for limit in [1, 7, 128, 129, 1_000] {
        let mut found = Vec::new();
        let mut after: Option<Cursor> = None;
        loop {
            let page = fresh.store.list(&Filter::default(), after.as_ref(), limit).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.cursor.clone());
            found.extend(
                page.iter().map(|entry| (entry.key.as_str().to_owned(), entry.scope.as_str().to_owned())),
            );
        }
        assert_eq!(found, wanted, "in pages of {limit}");
    }
    let of_a = fresh.store.find_key(&sample::key("a"), 1_000).await.unwrap();
    assert_eq!(of_a.len(), 150);
    assert!(of_a.is_sorted_by_key(|entry| entry.scope.as_str().to_owned()));
}

/// What has lapsed stays in the one table, what was parked or buried is in the other.
#[tokio::test]
async fn what_is_open_is_found_oldest_first_in_both_tables() {
    let fresh = Fresh::new();
    let mut wanted = Vec::new();
    for number in 0..40_u64 {
        let key = format!("k{}", (number * 17) % 40);
        let lease = claim(&fresh, "s", &key, number).await;
        match number % 3 {
            // Lapses after its lease, so behind those that are parked in that time.
            0 => wanted.push((fresh.clock.now().after(sample::LEASE), key)),
            1 => {
                fresh.store.settle(&lease, &sample::park()).await.unwrap();
                wanted.push((fresh.clock.now(), key));
            }
            _ => {
                fresh.store.settle(&lease, &sample::bury()).await.unwrap();
                wanted.push((fresh.clock.now(), key));
            }
        }
        // Several at the same instant.
        if number % 4 == 0 {
            fresh.clock.advance(sample::LEASE / 20);
        }
    }
    wanted.sort();
    fresh.clock.advance(sample::LEASE);
    for limit in [1, 3, 100] {
        let mut found = Vec::new();
        let mut after: Option<Cursor> = None;
        loop {
            let page = fresh.store.unsettled(after.as_ref(), limit).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.cursor.clone());
            found.extend(page.iter().map(|entry| entry.key.as_str().to_owned()));
        }
        assert!(found.iter().eq(wanted.iter().map(|(_, key)| key)), "in pages of {limit}: {found:?}");
    }
}

/// A record goes to and fro, and is never in both tables or in none.
#[tokio::test]
async fn a_record_is_in_one_table_through_all_of_its_life() {
    let fresh = Fresh::new();
    let first = claim(&fresh, "s", "k", 1).await;
    assert_eq!(counts(&fresh), (1, 0));
    took(fresh.store.claim(&request("s", "k", 1)).await);
    fresh.store.renew(&first, sample::LEASE).await.unwrap();
    assert_eq!(counts(&fresh), (1, 0), "asked again and renewed");
    fresh.store.settle(&first, &sample::release()).await.unwrap();
    assert_eq!(counts(&fresh), (0, 1), "released");
    let second = claim(&fresh, "s", "k", 2).await;
    assert_eq!(counts(&fresh), (1, 0), "claimed again");
    fresh.store.settle(&second, &sample::park()).await.unwrap();
    fresh.store.settle(&second, &sample::complete("late")).await.unwrap();
    fresh.store.settle(&second, &sample::complete("late")).await.unwrap();
    assert_eq!(counts(&fresh), (0, 1), "parked, and its truth found out late, and told twice");
    assert_eq!(sample::name(&fresh.store.claim(&request("s", "k", 3)).await.unwrap()), "completed");
    fresh.clock.advance(sample::REMEMBER);
    took(fresh.store.claim(&request("s", "k", 4)).await);
    assert_eq!(counts(&fresh), (1, 0), "forgotten, not swept, and new");
    assert_eq!(fresh.store.sweep(10).await.unwrap(), semel::Swept::default(), "there is nothing to free");
}

/// The index holds a hash of the scope; these two have the same.
#[tokio::test]
async fn scopes_of_the_same_hash_are_kept_apart() {
    const TWINS: [&str; 2] = ["tenant-1030091", "tenant-8405500"];
    assert_eq!(rows::hash(TWINS[0]), rows::hash(TWINS[1]));
    let fresh = Fresh::new();
    for (number, scope) in (0..).zip(TWINS) {
        let lease = claim(&fresh, scope, "k", number).await;
        fresh.store.settle(&lease, &sample::complete(scope)).await.unwrap();
    }
    for (number, scope) in (10..).zip(TWINS) {
        let Claim::Completed { outcome, .. } = fresh.store.claim(&request(scope, "k", number)).await.unwrap()
        else {
            panic!("no replay")
        };
        assert_eq!(outcome.bytes, scope);
    }
    assert_eq!(fresh.store.find_key(&sample::key("k"), 10).await.unwrap().len(), 2);
}

/// Blocks hold rows of many retentions; a sweep finds all that is due, whatever its limit, and nothing else.
#[tokio::test]
async fn a_sweep_finds_whatever_is_due_in_any_block() {
    let fresh = Fresh::new();
    let random = Random::new(3);
    let due = || -> u32 {
        let sql = "SELECT count(*) FROM settled WHERE sweep_at <= ?1";
        fresh.other().query_row(sql, [fresh.clock.now().0], |row| row.get(0)).expect("a count")
    };
    for round in 0..12_u64 {
        for number in 0..60 {
            let lease = claim(&fresh, "s", &format!("k{round}-{number}"), number).await;
            let replay_for = sample::REPLAY * random.below(20) as u32;
            let settlement = semel::Settlement::Complete {
                outcome: semel::Outcome::value("done"),
                replay_for,
                remember_for: replay_for + sample::REPLAY * random.below(20) as u32,
            };
            fresh.store.settle(&lease, &settlement).await.unwrap();
        }
        fresh.clock.advance(sample::REPLAY * random.below(6) as u32);
        let (before, limit) = (due(), 1 + random.below(100) as u32);
        let freed = fresh.store.sweep(limit).await.unwrap();
        // What is over by now is freed whole, in one step.
        assert_eq!(freed.total(), before.min(limit), "round {round}");
        assert_eq!(due(), before - freed.total(), "round {round}");
        assert!(round_trip::is_noted(&fresh.other()), "round {round}");
    }
    fresh.clock.advance(sample::REPLAY * 40);
    fresh.store.sweep(u32::MAX).await.unwrap();
    assert_eq!(counts(&fresh), (0, 0));
    let blocks: u32 = fresh.other().query_row("SELECT count(*) FROM due", [], |row| row.get(0)).unwrap();
    assert_eq!(blocks, 0);
}
