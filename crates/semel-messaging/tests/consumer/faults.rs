//! Brokers that do not hear, stores that are away, deadlines that pass.

use std::sync::atomic::Ordering;
use std::time::Duration;

use semel_messaging::Failure;
use semel_messaging::memory::MemoryBroker;
use semel_messaging::testing::{Verb, When};

use crate::support::{World, in_lane, order, text};

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_is_lost_is_repeated_and_nothing_runs_again() {
    for (verb, when) in [(Verb::Ack, When::Before), (Verb::Ack, When::After)] {
        let world = World::new();
        world.faults.fail(verb, when, 3);
        let journal = world.journal.clone();
        let process = world.start(world.builder(), move |work| {
            journal.write(text(&work));
            async { Ok(()) }
        });
        world.send(in_lane("lane", "a")).await;
        world.send(in_lane("lane", "b")).await;
        world.journal.wait_for("b", 1).await;
        world.empty().await;
        process.stop().await;
        assert_eq!(world.journal.lines(), ["a", "b"], "{when:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c113_a_message_is_acknowledged_only_after_its_dead_letter_is_confirmed() {
    for (when, dead) in [(When::Before, 1), (When::After, 1)] {
        let world = World::new();
        world.faults.fail(Verb::Bury, when, 2);
        let process = world.start(world.builder(), |_| async { Err(Failure::permanent("no")) });
        world.send(order("a")).await;
        world.empty().await;
        process.stop().await;
        assert_eq!(world.broker.dead().len(), dead, "{when:?}");
        assert_eq!(world.faults.calls(Verb::Ack), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn c113_killed_before_the_dead_letter_it_is_buried_by_the_next() {
    let world = World::new();
    world.faults.fail(Verb::Bury, When::Before, 1_000);
    let journal = world.journal.clone();
    let handle = move |work| {
        journal.write(text(&work));
        async { Err(Failure::permanent("no")) }
    };
    let first = world.start(world.builder(), handle.clone());
    world.send(order("a")).await;
    world.journal.wait_for("a", 1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    first.kill().await;
    assert!(world.broker.dead().is_empty());
    // The next process buries it by what the store says, and does not run it.
    let next = world.without_faults();
    let second = next.start(next.builder(), handle);
    next.empty().await;
    second.stop().await;
    assert_eq!((world.journal.lines(), world.reasons()), (vec!["a".to_owned()], vec!["rejected".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_given_back_is_held() {
    for when in [When::Before, When::After] {
        let world = World::new();
        world.faults.fail(Verb::Later, when, 1);
        let journal = world.journal.clone();
        let process = world.start(world.builder(), move |work| {
            journal.write(format!("attempt {}", work.attempt));
            async move {
                let wait = Failure::transient_for(Duration::from_secs(20), "not yet");
                if work.attempt == 1 { Err(wait) } else { Ok(()) }
            }
        });
        world.send(order("a")).await;
        world.empty().await;
        process.stop().await;
        assert_eq!(world.journal.lines(), ["attempt 1", "attempt 2"], "{when:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c88_while_the_store_is_away_nothing_runs_nothing_is_buried_and_nothing_is_lost() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder(), move |work| {
        journal.write(format!("{} attempt {}", text(&work), work.attempt));
        async { Ok(()) }
    });
    world.away.store(true, Ordering::SeqCst);
    for number in 0..20 {
        world.send(order(&number.to_string())).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.journal.lines().is_empty() && world.broker.dead().is_empty());
    assert_eq!(world.broker.left(), 20);
    world.away.store(false, Ordering::SeqCst);
    world.empty().await;
    process.stop().await;
    let mut lines = world.journal.lines();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 20);
    assert!(lines.iter().all(|line| line.ends_with("attempt 1")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_done_while_the_store_is_away_is_not_run_again() {
    let world = World::new();
    let (journal, away) = (world.journal.clone(), world.away.clone());
    let process = world.start(world.builder(), move |work| {
        journal.write(text(&work));
        away.store(true, Ordering::SeqCst);
        async { Ok(()) }
    });
    world.send(order("a")).await;
    world.journal.wait_for("a", 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.away.store(false, Ordering::SeqCst);
    // The engine writes it down late; a copy that came before that would find the lease lapsed, and run under `Rerun`.
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.send(order("a")).await;
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.lines(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_while_a_message_runs_does_not_run_it_twice() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder(), move |work| {
        let journal = journal.clone();
        async move {
            journal.write(text(&work));
            tokio::time::sleep(Duration::from_secs(120)).await;
            Ok(())
        }
    });
    world.send(in_lane("lane", "a")).await;
    world.send(in_lane("lane", "b")).await;
    world.journal.wait_for("a", 1).await;
    for _ in 0..5 {
        world.broker.cut();
        tokio::time::sleep(Duration::from_secs(7)).await;
    }
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.lines(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn m7_a_handler_slower_than_the_deadline_keeps_its_message_and_those_behind_it() {
    let deadline = Duration::from_secs(1);
    let world = World::with(MemoryBroker::with_deadline("orders", deadline));
    let journal = world.journal.clone();
    let builder = || world.builder().in_flight_max(2).held_max(10);
    let handler = || {
        let journal = journal.clone();
        move |work| {
            let journal = journal.clone();
            async move {
                journal.write(text(&work));
                tokio::time::sleep(Duration::from_millis(800)).await;
                Ok(())
            }
        }
    };
    let (one, other) = (world.start(builder(), handler()), world.start(builder(), handler()));
    for number in 0..10 {
        world.send(order(&number.to_string())).await;
    }
    world.empty().await;
    one.stop().await;
    other.stop().await;
    let mut lines = world.journal.lines();
    lines.sort();
    assert_eq!(lines, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert_eq!(world.faults.calls(Verb::Ack), 10, "none of them was delivered twice");
}

#[tokio::test(start_paused = true)]
async fn c21_a_delivery_whose_deadline_passed_does_not_begin() {
    let world = World::with(MemoryBroker::with_deadline("orders", Duration::from_secs(3)));
    world.faults.fail(Verb::Extend, When::Before, 30);
    let journal = world.journal.clone();
    let process = world.start(world.builder().in_flight_max(1).held_max(2), move |work| {
        let (journal, first) = (journal.clone(), work.message.body.as_ref() == b"a");
        async move {
            journal.write(text(&work));
            tokio::time::sleep(if first { Duration::from_secs(20) } else { Duration::ZERO }).await;
            Ok(())
        }
    });
    world.send(order("a")).await;
    world.send(order("b")).await;
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.lines(), ["a", "b"]);
}
