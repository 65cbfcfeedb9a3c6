//! Stopping in good order.

use std::time::Duration;

use semel::{Cause, View};
use semel_messaging::{Drained, Failure};

use crate::support::{World, in_lane, order, text};

#[tokio::test(start_paused = true)]
async fn what_runs_ends_and_what_has_not_begun_is_the_brokers() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder().in_flight_max(1), move |work| {
        let journal = journal.clone();
        async move {
            journal.write(text(&work));
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(())
        }
    });
    for id in ["a", "b"] {
        world.send(in_lane("lane", id)).await;
        world.send(order(&format!("{id}{id}"))).await;
    }
    world.journal.wait_for("a", 1).await;
    assert_eq!(process.stop().await, Drained { parked: 0 });
    assert_eq!(world.journal.lines(), ["a"]);
    assert!(matches!(world.entry("a").await.unwrap().view, View::Completed { .. }));
    assert_eq!(world.broker.left(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_runs_for_too_long_is_parked_and_comes_again() {
    let world = World::new();
    let journal = world.journal.clone();
    let handle = move |work: semel_messaging::Work| {
        journal.write(format!("attempt {}", work.attempt));
        async move { if work.attempt == 1 { std::future::pending().await } else { Ok(()) } }
    };
    let process = world.start(world.builder(), handle.clone());
    world.send(order("a")).await;
    world.journal.wait_for("attempt 1", 1).await;
    assert_eq!(process.stop().await, Drained { parked: 1 });
    assert_eq!(world.entry("a").await.unwrap().view, View::Unknown { cause: Cause::SHUTDOWN });
    let process = world.start(world.builder(), handle);
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.lines(), ["attempt 1", "attempt 2"]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_to_be_tried_again_does_not_hold_up_the_end() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder(), move |work| {
        journal.write(text(&work));
        async { Err(Failure::transient_for(Duration::from_secs(600), "no")) }
    });
    world.send(in_lane("lane", "a")).await;
    world.journal.wait_for("a", 1).await;
    let begun = tokio::time::Instant::now();
    process.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(world.broker.left(), 1);
}
