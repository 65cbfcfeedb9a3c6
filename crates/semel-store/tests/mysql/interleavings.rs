//! Who waits for whom, forced: another connection holds what the store needs, and lets go at a moment of the test's.
//! Every one at both isolation levels.

use std::sync::Arc;
use std::time::Duration;

use semel::testing::sample::{self, LEASE, REMEMBER, complete, release, rerun, run};
use semel::{Claim, History, Store, StoreError, View};
use semel_testbed::{Database, Mariadb};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use super::{LEVELS, Other, acquire, open};
use semel_store::mysql::MysqlStore;

/// Two stores on one database, as two gateways have them, and a connection beside them.
struct Bed {
    one: Arc<MysqlStore>,
    two: Arc<MysqlStore>,
    other: Other,
    database: Database,
    /// Who waits is counted for the whole server, so one test after the other has it.
    _alone: MutexGuard<'static, ()>,
}

impl Bed {
    async fn at(level: &str) -> Bed {
        static SERVER: OnceCell<Mariadb> = OnceCell::const_new();
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let database = SERVER.get_or_init(Mariadb::start).await.database().await;
        let url = format!("{}?pool=2&{level}", database.url());
        let (one, two) = (Arc::new(open(&url).await), Arc::new(open(&url).await));
        Bed { one, two, other: Other::connect(database.url()).await, database, _alone: alone }
    }

    async fn reads(&self, key: &str) -> Option<View> {
        let entry = self.one.find(&sample::scope(), &sample::key(key)).await.expect("a look");
        entry.map(|entry| entry.view)
    }
}

fn claiming(store: &Arc<MysqlStore>, request: semel::ClaimRequest) -> tokio::task::JoinHandle<Claim> {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.claim(&request).await.expect("a claim is answered") })
}

#[tokio::test]
async fn a_claim_that_meets_another_ones_insertion_waits_for_its_end_and_sees_it() {
    for level in LEVELS {
        let mut bed = Bed::at(level).await;
        acquire(&bed.one, &run("template", 7)).await;
        bed.other.claim("template", "k").await;
        let claims = [claiming(&bed.one, run("k", 1)), claiming(&bed.two, run("k", 2))];
        bed.other.until_waiting(2).await;
        bed.other.run("COMMIT").await;
        for claim in claims {
            let claim = claim.await.expect("a claim");
            assert!(matches!(claim, Claim::InFlight { .. }), "{level}: {claim:?}");
        }
    }
}

/// Both wait for it, and when it is undone both may go on: where gaps are locked, that is a deadlock.
#[tokio::test]
async fn of_two_claims_that_meet_an_insertion_which_is_undone_one_wins() {
    for level in LEVELS {
        let mut bed = Bed::at(level).await;
        acquire(&bed.one, &run("template", 7)).await;
        bed.other.claim("template", "k").await;
        let claims = [claiming(&bed.one, run("k", 1)), claiming(&bed.two, run("k", 2))];
        bed.other.until_waiting(2).await;
        bed.other.run("ROLLBACK").await;
        let mut names = Vec::new();
        for claim in claims {
            names.push(sample::name(&claim.await.expect("a claim")));
        }
        names.sort_unstable();
        assert_eq!(names, ["acquired", "in-flight"], "{level}");
    }
}

/// A batch is many keys in one statement: those that are new are claimed, whatever the others are.
#[tokio::test]
async fn two_batches_that_share_keys_grant_each_key_once() {
    for level in LEVELS {
        let bed = Bed::at(level).await;
        for round in 0..20 {
            let mut claims = Vec::new();
            for number in 0..16u64 {
                // In opposite orders.
                claims.push((number, claiming(&bed.one, run(&format!("{round}-{number}"), number))));
                let number = 15 - number;
                claims.push((number, claiming(&bed.two, run(&format!("{round}-{number}"), 100 + number))));
            }
            let mut wins = [0; 16];
            for (number, claim) in claims {
                match claim.await.expect("a claim") {
                    Claim::Acquired(lease) => {
                        assert_eq!(lease.fence.0, 1);
                        wins[usize::try_from(number).expect("small")] += 1;
                    }
                    Claim::InFlight { .. } => {}
                    other => panic!("{level}: {other:?}"),
                }
            }
            assert_eq!(wins, [1; 16], "{level}");
        }
    }
}

#[tokio::test]
async fn of_two_takeovers_at_the_leases_border_one_wins() {
    for level in LEVELS {
        let mut bed = Bed::at(level).await;
        acquire(&bed.one, &run("k", 1)).await;
        bed.other.lapse("k").await;
        bed.other.hold("k").await;
        let claims = [claiming(&bed.one, rerun("k", 2)), claiming(&bed.two, rerun("k", 3))];
        bed.other.until_waiting(2).await;
        bed.other.run("COMMIT").await;
        let mut fences = Vec::new();
        for claim in claims {
            match claim.await.expect("a claim") {
                Claim::Acquired(lease) => fences.push(lease.fence.0),
                Claim::InFlight { .. } => {}
                other => panic!("{level}: {other:?}"),
            }
        }
        assert_eq!(fences, [2], "{level}");
    }
}

/// Whichever has the row first is right, and the other one hears of it.
#[tokio::test]
async fn a_late_end_and_a_takeover_that_wait_for_one_row_agree() {
    for level in LEVELS {
        for round in 0..6 {
            let mut bed = Bed::at(level).await;
            let lease = acquire(&bed.one, &run("k", 1)).await;
            bed.other.lapse("k").await;
            bed.other.hold("k").await;
            let (one, mine) = (Arc::clone(&bed.one), lease.clone());
            let ending = tokio::spawn(async move { one.settle(&mine, &complete("done")).await });
            if round % 2 == 0 {
                bed.other.until_waiting(1).await;
            }
            let claim = claiming(&bed.two, rerun("k", 2));
            bed.other.until_waiting(2).await;
            bed.other.run("COMMIT").await;
            match (ending.await.expect("an end"), claim.await.expect("a claim")) {
                (Ok(()), Claim::Completed { .. }) => {
                    assert!(matches!(bed.reads("k").await, Some(View::Completed { .. })));
                }
                (Err(StoreError::LeaseLost), Claim::Acquired(taken)) => {
                    assert_eq!(taken.fence.0, 2);
                    assert!(matches!(bed.reads("k").await, Some(View::Running { .. })));
                }
                other => panic!("{level}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_renewal_and_a_takeover_that_wait_for_one_row_agree() {
    for level in LEVELS {
        let mut bed = Bed::at(level).await;
        let lease = acquire(&bed.one, &run("k", 1)).await;
        bed.other.lapse("k").await;
        bed.other.hold("k").await;
        let (one, mine) = (Arc::clone(&bed.one), lease.clone());
        let renewing = tokio::spawn(async move { one.renew(&mine, LEASE).await });
        let claim = claiming(&bed.two, rerun("k", 2));
        bed.other.until_waiting(2).await;
        bed.other.run("COMMIT").await;
        match (renewing.await.expect("a renewal"), claim.await.expect("a claim")) {
            (Ok(()), Claim::InFlight { .. }) | (Err(StoreError::LeaseLost), Claim::Acquired(_)) => {}
            other => panic!("{level}: {other:?}"),
        }
    }
}

/// Two keys in one transaction, and another one that takes them in the opposite order and has written more: the server
/// ends the store's, which is made again, whole.
#[tokio::test]
async fn a_transaction_that_a_deadlock_ended_is_made_again() {
    for level in LEVELS {
        let mut bed = Bed::at(level).await;
        for key in ["a", "b", "c", "w1", "w2", "w3", "w4"] {
            acquire(&bed.two, &run(key, 1)).await;
        }
        for key in ["a", "b"] {
            bed.other.lapse(key).await;
        }
        let deadlocks = "SELECT CAST(variable_value AS UNSIGNED) FROM information_schema.global_status \
                         WHERE variable_name = 'Innodb_deadlocks'";
        let before = bed.other.number(deadlocks).await;
        // The one worker for claims waits for c, so that the two claims behind it come in one batch.
        bed.other.lapse("c").await;
        let mut blocking = Other::connect(bed.database.url()).await;
        blocking.hold("c").await;
        let first = claiming(&bed.one, rerun("c", 2));
        bed.other.until_waiting(1).await;
        let claims = [claiming(&bed.one, rerun("a", 2)), claiming(&bed.one, rerun("b", 2))];
        tokio::time::sleep(Duration::from_millis(20)).await;
        bed.other.hold("b").await;
        bed.other
            .run("UPDATE semel_records FORCE INDEX (semel_records_key) SET label = 'x' WHERE `key` >= 'w'")
            .await;
        blocking.run("COMMIT").await;
        assert!(matches!(first.await.expect("a claim"), Claim::Acquired(_)));
        blocking.until_waiting(1).await;
        bed.other.lock("a").await;
        assert!(blocking.number(deadlocks).await > before, "{level}: there was no deadlock");
        bed.other.run("COMMIT").await;
        for claim in claims {
            assert_eq!(sample::lease(claim.await.expect("a claim")).fence.0, 2, "{level}");
        }
    }
}

/// Longer than the session waits for a lock, shorter than the call may wait.
#[tokio::test]
async fn a_lock_that_is_held_for_long_is_waited_for_again() {
    let mut bed = Bed::at(LEVELS[0]).await;
    acquire(&bed.one, &run("k", 1)).await;
    bed.other.lapse("k").await;
    bed.other.hold("k").await;
    let claim = claiming(&bed.one, rerun("k", 2));
    bed.other.until_waiting(1).await;
    // Longer than a lock is waited for; the claims of other keys go on meanwhile.
    let until = tokio::time::Instant::now() + Duration::from_millis(2_200);
    let mut number = 0;
    while tokio::time::Instant::now() < until {
        number += 1;
        acquire(&bed.two, &run(&format!("other-{number}"), 1)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!claim.is_finished(), "it waits");
    bed.other.run("COMMIT").await;
    assert_eq!(sample::lease(claim.await.expect("a claim")).fence.0, 2);
}

/// What somebody else has is passed by, and what was claimed anew stays.
#[tokio::test]
async fn a_sweep_waits_for_nobody_and_frees_only_what_is_due() {
    for level in LEVELS {
        let mut bed = Bed::at(level).await;
        for key in ["held", "free", "claimed"] {
            let lease = acquire(&bed.one, &run(key, 1)).await;
            bed.one.settle(&lease, &release()).await.expect("an end");
        }
        let millis = REMEMBER.as_millis();
        bed.other
            .run(&format!(
                "UPDATE semel_records SET first_at = first_at - {millis}, due_at = due_at - {millis}, \
                 not_before = not_before - {millis}, forget_at = forget_at - {millis}"
            ))
            .await;
        bed.other.hold("held").await;
        acquire(&bed.two, &run("claimed", 2)).await;
        let swept = bed.one.sweep(100).await.expect("a sweep");
        assert_eq!(swept.records, 1, "{level}: {swept:?}");
        assert_eq!(bed.other.number("SELECT COUNT(*) FROM semel_records").await, 2, "{level}");
        // And the claim of a key that is being held waits and is granted.
        let claim = claiming(&bed.two, run("held", 2));
        bed.other.run("COMMIT").await;
        assert!(matches!(claim.await.expect("a claim"), Claim::Acquired(_)), "{level}");
    }
}

/// No order of locks is left to chance: nothing here fails, and what is granted is granted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_ends_sweeps_and_history_go_on_beside_one_another() {
    for level in LEVELS {
        let bed = Bed::at(level).await;
        let work = (0..6u64).map(|worker| {
            let store = Arc::clone(if worker % 2 == 0 { &bed.one } else { &bed.two });
            tokio::spawn(async move {
                let mut granted = 0;
                for step in 0..60u64 {
                    let request = run(&format!("{}", step % 7), worker * 1_000 + step);
                    if let Claim::Acquired(lease) = store.claim(&request).await.expect("a claim is answered")
                    {
                        granted += 1;
                        let gone = semel::Settlement::Release {
                            not_before: None,
                            unbind: step % 2 == 0,
                            ran: step % 3 == 0,
                            remember_for: Duration::ZERO,
                        };
                        store.settle(&lease, &gone).await.expect("the holder settles");
                    }
                    if step % 5 == worker % 5 {
                        store.sweep(10).await.expect("a sweep");
                        store.history(&request.scope, &request.key).await.expect("a history");
                    }
                }
                granted
            })
        });
        let mut granted = 0;
        for work in work.collect::<Vec<_>>() {
            granted += work.await.expect("all calls are answered");
        }
        assert!(granted > 0, "{level}");
    }
}
