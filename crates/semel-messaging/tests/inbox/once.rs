//! Each effect once, on every database, however the handler is called.

use std::sync::atomic::Ordering;
use std::time::Duration;

use semel_messaging::Failure;
use semel_messaging::testing::{Verb, When};

use crate::databases::Books;
use crate::world::{How, World, fine};

pub(crate) async fn m3_key_and_effect_are_committed_together_and_a_duplicate_is_acknowledged<D: Books>(
    how: How,
) {
    let world = World::<D>::new().await;
    let (one, other) = (world.start(how, fine), world.start(how, fine));
    for id in ["a", "b", "a", "c", "b", "a"] {
        world.send(id).await;
    }
    world.empty().await;
    one.stop().await;
    other.stop().await;
    assert_eq!(world.books.booked().await, ["a", "b", "c"]);
    assert!(world.dead().is_empty());
}

pub(crate) async fn c88_what_fails_leaves_nothing_and_what_succeeds_at_last_is_there_once<D: Books>(
    how: How,
) {
    let world = World::<D>::new().await;
    let process = world.start(how, |work| match (work.key.as_str(), work.attempt) {
        ("never", _) => Err(Failure::permanent("no such account")),
        (_, 1 | 2) => Err(Failure::transient("after its effect")),
        _ => Ok(()),
    });
    for id in ["a", "never"] {
        world.send(id).await;
    }
    world.empty().await;
    process.stop().await;
    assert_eq!(world.books.booked().await, ["a"]);
    assert_eq!(world.attempts("a").await, Some(3));
    assert_eq!(world.dead(), [("never".to_owned(), "rejected".to_owned())]);
}

/// The commit is there, and no acknowledgement reaches the broker any more.
pub(crate) async fn m3_killed_between_commit_and_acknowledgement_it_is_acknowledged_the_next_time<
    D: Books,
>(
    how: How,
) {
    let world = World::<D>::new().await;
    world.faults.fail(Verb::Ack, When::Before, 1_000);
    let first = world.start(how, fine);
    world.send("a").await;
    while world.books.booked().await.is_empty() || world.faults.calls(Verb::Ack) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.kill().await;
    world.faults.heal();
    let second = world.start(how, fine);
    world.empty().await;
    second.stop().await;
    assert_eq!((world.books.booked().await, world.runs("a")), (vec!["a".to_owned()], 1));
    assert!(world.dead().is_empty());
}

pub(crate) async fn a_database_that_is_away_is_no_attempt_and_buries_nothing<D: Books>(how: How) {
    let world = World::<D>::new().await;
    world.away.store(true, Ordering::SeqCst);
    let process = world.start(how, fine);
    world.send("a").await;
    // Long enough for more tries than a message has.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((world.books.booked().await.len(), world.dead().len()), (0, 0));
    world.away.store(false, Ordering::SeqCst);
    world.empty().await;
    process.stop().await;
    assert_eq!((world.books.booked().await, world.runs("a")), (vec!["a".to_owned()], 1));
}

/// The second payload is nobody's duplicate, and the first one's copies still are.
pub(crate) async fn m4_the_same_id_with_another_payload_is_a_dead_letter<D: Books>(how: How) {
    let world = World::<D>::new().await;
    let process = world.start(how, fine);
    world.send_with("a", "one").await;
    world.empty().await;
    world.send_with("a", "other").await;
    world.empty().await;
    world.send_with("a", "one").await;
    world.empty().await;
    process.stop().await;
    assert_eq!(world.books.booked().await, ["a"]);
    assert_eq!(world.dead(), [("a".to_owned(), "key-reused".to_owned())]);
}

/// K8: what kills its process is told by the broker's count, then by the store's.
pub(crate) async fn k8_a_message_that_breaks_its_handler_ends_among_the_dead<D: Books>(how: How) {
    let world = World::<D>::new().await;
    let process = world.start(how, |work| match work.key.as_str() {
        "killer" => panic!("as a process would die"),
        _ => Ok(()),
    });
    for id in ["a", "killer", "b"] {
        world.send(id).await;
    }
    world.empty().await;
    process.stop().await;
    assert_eq!(world.books.booked().await, ["a", "b"]);
    assert_eq!(world.dead(), [("killer".to_owned(), "attempts-exhausted".to_owned())]);
}
