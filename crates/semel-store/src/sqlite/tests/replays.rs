//! What is remembered of completed records: the file's answers, for as long as the file would give them, and no more of
//! them than there is room for.

use semel::Outcome;
use semel::record::{self, Record};
use semel::testing::sample::{REMEMBER, REPLAY};

use super::*;
use crate::sqlite::replays::{BYTES_MAX, RECORD_BYTES_MAX, Replays};

/// A store with a completed key, which was asked for once.
async fn replayed_once() -> Fresh {
    let fresh = Fresh::new();
    let lease = sample::lease(fresh.store.claim(&sample::run("k", 1)).await.unwrap());
    fresh.store.settle(&lease, &sample::complete("done")).await.unwrap();
    assert_eq!(name(&fresh, 2).await, "completed");
    fresh
}

async fn name(fresh: &Fresh, attempt: u64) -> &'static str {
    sample::name(&fresh.store.claim(&sample::run("k", attempt)).await.unwrap())
}

#[tokio::test]
async fn a_replay_that_was_read_is_not_read_again() {
    let fresh = replayed_once().await;
    // Nobody does this who wants to be understood; it shows where the answer comes from.
    assert_eq!(fresh.other().execute("DELETE FROM settled", []).unwrap(), 1);
    assert_eq!(name(&fresh, 3).await, "completed");
    let mismatch = fresh.store.claim(&sample::run_for("k", 4, "another")).await.unwrap();
    assert_eq!(sample::name(&mismatch), "mismatch");
}

#[tokio::test]
async fn what_is_remembered_ends_when_the_files_does() {
    let fresh = replayed_once().await;
    fresh.clock.advance(REPLAY + Duration::from_secs(1));
    assert_eq!(name(&fresh, 3).await, "forgotten");
    fresh.clock.advance(REMEMBER);
    assert_eq!(name(&fresh, 4).await, "acquired", "it is a new key");
    assert_eq!(name(&fresh, 5).await, "in-flight");
}

#[tokio::test]
async fn what_settles_asks_the_file() {
    let fresh = replayed_once().await;
    fresh.other().execute("DELETE FROM settled", []).unwrap();
    let seen = semel::Fence(1);
    let answer = fresh.store.claim(&sample::settling("k", 3, seen)).await.unwrap();
    assert_eq!(sample::name(&answer), "moved");
}

/// The record of a key that was completed with so many bytes.
fn completed(request: &ClaimRequest, bytes: usize) -> Record {
    let now = ManualClock::new().now();
    let (Some(running), claim) = record::claim(None, request, now) else { panic!("a fresh key was taken") };
    let settlement = Settlement::Complete {
        outcome: Outcome::value(vec![b'x'; bytes]),
        replay_for: REPLAY,
        remember_for: REMEMBER,
    };
    record::settle(Some(&running), &sample::lease(claim), &settlement, now)
        .unwrap()
        .expect("a record to write")
}

#[test]
fn no_more_is_remembered_than_there_is_room_for_and_the_latest_is() {
    let (replays, now) = (Replays::default(), ManualClock::new().now());
    let bytes = RECORD_BYTES_MAX / 2;
    let count = u64::try_from(2 * BYTES_MAX / bytes).unwrap();
    let request = |number: u64| sample::run(&format!("k{number}"), number);
    for number in 0..count {
        replays.remember(&request(number), completed(&request(number), bytes));
    }
    let again = |number: u64| ClaimRequest { attempt: sample::attempt(count + number), ..request(number) };
    let remembered: Vec<u64> =
        (0..count).filter(|number| replays.answer(&again(*number), now).is_some()).collect();
    assert!(remembered.len() * bytes <= BYTES_MAX, "{} of {bytes} bytes each", remembered.len());
    assert!(remembered.len() * bytes > BYTES_MAX / 4, "only {} of {bytes} bytes each", remembered.len());
    assert!(remembered.contains(&(count - 1)) && !remembered.contains(&0));
}

#[test]
fn a_large_record_drives_out_no_others() {
    let (replays, now, request) = (Replays::default(), ManualClock::new().now(), sample::run("k", 1));
    replays.remember(&request, completed(&request, RECORD_BYTES_MAX));
    assert!(replays.answer(&sample::run("k", 2), now).is_none());
}
