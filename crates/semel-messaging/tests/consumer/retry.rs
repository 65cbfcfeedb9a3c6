//! What fails, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use semel::{OnUnknown, View};
use semel_messaging::{Consumer, Failure, Grave, Retry};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::support::{World, in_lane, order, text};

#[tokio::test(start_paused = true)]
async fn c28_a_message_that_is_tried_again_is_no_duplicate() {
    for send in [order, |id: &str| in_lane("lane", id)] {
        let world = World::new();
        let journal = world.journal.clone();
        let process = world.start(world.builder(), move |work| {
            journal.write(format!("{} {}", text(&work), work.attempt));
            async move { if work.attempt < 3 { Err(Failure::transient("not yet")) } else { Ok(()) } }
        });
        world.send(send("a")).await;
        world.empty().await;
        process.stop().await;
        assert_eq!(world.journal.lines(), ["a 1", "a 2", "a 3"]);
        let entry = world.entry("a").await.unwrap();
        assert!(matches!(entry.view, View::Completed { .. }) && entry.attempts == 3, "{entry:?}");
        assert!(world.broker.dead().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn m5_what_fails_too_often_is_buried_with_its_history() {
    let world = World::new();
    let process = world.start(world.builder(), |work| async move {
        Err(Failure::transient(format!("no answer to attempt {}", work.attempt)))
    });
    world.send(in_lane("lane", "a")).await;
    world.empty().await;
    process.stop().await;
    let dead = world.broker.dead();
    assert_eq!(world.reasons(), ["attempts-exhausted"]);
    let header = |name| dead[0].headers.text(name).unwrap();
    assert_eq!((header(Grave::ATTEMPTS), header(Grave::KEY)), ("10", "a"));
    assert_eq!((header(Grave::CONSUMER), header(Grave::ORIGIN)), ("billing", "orders"));
    let history = header(Grave::HISTORY);
    assert_eq!(history.lines().count(), 10);
    assert!(history.ends_with("10: no answer to attempt 10"), "{history}");
    assert!(matches!(world.entry("a").await.unwrap().view, View::Dead { .. }));
}

#[tokio::test(start_paused = true)]
async fn m5_what_is_permanent_is_buried_at_once() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder(), move |work| {
        journal.write(text(&work));
        async { Err(Failure::permanent("no such account")) }
    });
    world.send(order("a")).await;
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.lines(), ["a"]);
    assert_eq!(world.reasons(), ["rejected"]);
    assert_eq!(world.broker.dead()[0].headers.text(Grave::SAID), Some("no such account"));
}

#[tokio::test(start_paused = true)]
async fn m5_the_pauses_grow() {
    let world = World::new();
    let begun = Instant::now();
    let journal = world.journal.clone();
    let retry = Retry { first: Duration::from_secs(10), max: Duration::from_secs(600) };
    let process = world.start(world.builder().retry(retry), move |_| {
        journal.write(begun.elapsed().as_secs().to_string());
        async { Err(Failure::transient("no")) }
    });
    world.send(in_lane("lane", "a")).await;
    world.empty().await;
    process.stop().await;
    let at: Vec<u64> = world.journal.lines().iter().map(|line| line.parse().unwrap()).collect();
    let bounds = [10, 20, 40, 80, 160, 320, 600, 600, 600];
    for (pause, bound) in at.windows(2).map(|two| two[1] - two[0]).zip(bounds) {
        assert!(pause <= bound + 6, "{at:?}");
    }
    assert!(at[9] > 300, "ten attempts take minutes: {at:?}");
}

#[tokio::test(start_paused = true)]
async fn m5_a_message_that_waits_holds_up_no_other() {
    let world = World::new();
    let journal = world.journal.clone();
    let builder = world.builder().in_flight_max(1).held_max(4);
    let process = world.start(builder, move |work| {
        let (journal, text) = (journal.clone(), text(&work));
        async move {
            if text.starts_with("poison") {
                return Err(Failure::transient_for(Duration::from_secs(60), "no"));
            }
            journal.write(text);
            Ok(())
        }
    });
    for number in 0..3 {
        world.send(in_lane(&format!("lane {number}"), &format!("poison {number}"))).await;
    }
    world.send(order("poison without a lane")).await;
    for number in 0..50 {
        world.send(in_lane("well", &number.to_string())).await;
    }
    let begun = Instant::now();
    world.journal.wait_for("49", 1).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(world.broker.dead().is_empty());
    world.empty().await;
    process.stop().await;
    assert_eq!(world.reasons(), ["attempts-exhausted"; 4]);
}

#[tokio::test(start_paused = true)]
async fn k8_a_message_that_kills_the_process_is_counted_and_buried() {
    let world = World::new();
    world.send(order("poison")).await;
    for number in 1..=10 {
        let (journal, begun) = (world.journal.clone(), Arc::new(Notify::new()));
        let begins = begun.clone();
        let process = world.start(world.builder(), move |work| {
            journal.write(format!("attempt {}", work.attempt));
            begins.notify_one();
            std::future::pending()
        });
        begun.notified().await;
        assert_eq!(world.journal.lines().len(), number);
        process.kill().await;
    }
    let process = world.start(world.builder(), |_| async { panic!("it does not run again") });
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.lines().last().unwrap(), "attempt 10");
    assert_eq!(world.reasons(), ["attempts-exhausted"]);
}

#[tokio::test(start_paused = true)]
async fn c82_waiting_for_another_attempt_is_no_attempt() {
    let world = World::new();
    world.send(order("a")).await;
    let journal = world.journal.clone();
    let first = world.start(world.builder(), move |work| {
        journal.write(text(&work));
        std::future::pending()
    });
    world.journal.wait_for("a", 1).await;
    first.kill().await;
    // Its lease goes on for half a minute: the second asks, and asks.
    let journal = world.journal.clone();
    let second = world.start(world.builder(), move |work| {
        journal.write(format!("attempt {}", work.attempt));
        async { Ok(()) }
    });
    world.empty().await;
    second.stop().await;
    assert_eq!(world.journal.lines(), ["a", "attempt 2"]);
}

#[tokio::test(start_paused = true)]
async fn k7_under_park_a_message_of_which_nobody_knows_is_buried_and_not_run_again() {
    let world = World::new();
    world.send(order("a")).await;
    let park = || Consumer::builder("billing", OnUnknown::Park);
    let journal = world.journal.clone();
    let first = world.start(park(), move |work| {
        journal.write(text(&work));
        std::future::pending()
    });
    world.journal.wait_for("a", 1).await;
    first.kill().await;
    let second = world.start(park(), |_| async { panic!("it does not run again") });
    world.empty().await;
    second.stop().await;
    assert_eq!(world.reasons(), ["outcome-unknown"]);
    assert!(matches!(world.entry("a").await.unwrap().view, View::Unknown { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_or_does_not_know_is_treated_alike() {
    for panics in [true, false] {
        let world = World::new();
        let journal = world.journal.clone();
        let handle = move |work: semel_messaging::Work| {
            journal.write(format!("attempt {}", work.attempt));
            async move {
                match (work.attempt, panics) {
                    (3, _) => Ok(()),
                    (_, true) => panic!("a test's"),
                    (_, false) => Err(Failure::unknown("the answer was lost")),
                }
            }
        };
        let process = world.start(world.builder(), handle.clone());
        world.send(order("a")).await;
        world.empty().await;
        process.stop().await;
        assert_eq!(world.journal.lines(), ["attempt 1", "attempt 2", "attempt 3"]);

        let process = world.start(Consumer::builder("parks", OnUnknown::Park), handle);
        world.send(order("a")).await;
        world.empty().await;
        process.stop().await;
        assert_eq!(world.reasons(), ["outcome-unknown"]);
    }
}
