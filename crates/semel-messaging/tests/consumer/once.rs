//! Each message once, and each by its name.

use std::sync::Arc;
use std::time::Duration;

use semel::View;
use semel_messaging::{Id, Message};
use tokio::sync::Notify;

use crate::support::{World, order, text};

#[tokio::test(start_paused = true)]
async fn m4_a_duplicate_is_acknowledged_and_does_not_run() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder(), move |work| {
        journal.write(text(&work));
        async { Ok(()) }
    });
    for id in ["a", "b", "a", "a", "b"] {
        world.send(order(id)).await;
    }
    world.empty().await;
    world.send(order("a")).await;
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.lines(), ["a", "b"]);
    assert!(world.broker.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn c52_two_processes_with_one_message_at_one_instant_run_it_once() {
    let world = World::new();
    let (begun, go) = (world.journal.clone(), Arc::new(Notify::new()));
    let handler = || {
        let (begun, go) = (begun.clone(), go.clone());
        move |work| {
            let (begun, go) = (begun.clone(), go.clone());
            async move {
                begun.write(text(&work));
                go.notified().await;
                Ok(())
            }
        }
    };
    let builder = || world.builder().in_flight_max(1).held_max(1);
    let (one, other) = (world.start(builder(), handler()), world.start(builder(), handler()));
    world.send(order("a")).await;
    world.send(order("a")).await;
    world.journal.wait_for("a", 1).await;
    // Long enough for the other one to have asked many times: the first one renews its lease.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(world.journal.count("a"), 1);
    go.notify_waiters();
    world.empty().await;
    assert_eq!(world.journal.count("a"), 1);
    assert!(world.broker.dead().is_empty());
    one.stop().await;
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn m4_the_same_id_with_another_payload_is_no_duplicate() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder(), move |work| {
        journal.write(text(&work));
        async { Ok(()) }
    });
    world.send(order("a")).await;
    world.empty().await;
    world.send(Message::new("orders", "another").with_id("a")).await;
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.lines(), ["a"]);
    assert_eq!(world.reasons(), ["key-reused"]);
    assert_eq!(world.broker.dead()[0].body.as_ref(), b"another");
    assert!(matches!(world.entry("a").await.unwrap().view, View::Completed { .. }));
}

#[tokio::test(start_paused = true)]
async fn c69_two_consumers_each_get_their_copy() {
    let world = World::new();
    let names = ["billing", "mail"];
    for name in names {
        let journal = world.journal.clone();
        let builder = semel_messaging::Consumer::builder(name, semel::OnUnknown::Rerun);
        let process = world.start(builder, move |work| {
            journal.write(format!("{name} {}", text(&work)));
            async { Ok(()) }
        });
        world.send(order("a")).await;
        world.send(order("a")).await;
        world.empty().await;
        process.stop().await;
    }
    assert_eq!(world.journal.lines(), ["billing a", "mail a"]);
}

#[tokio::test(start_paused = true)]
async fn m2_what_has_no_name_is_buried_and_not_run() {
    let world = World::new();
    let journal = world.journal.clone();
    let builder =
        world.builder().id(Id::Field(semel_messaging::Field::Json("/id".into()))).body_bytes_max(1_000);
    let process = world.start(builder, move |work| {
        journal.write(text(&work));
        async { Ok(()) }
    });
    let bodies: [Vec<u8>; 5] =
        [b"not json".to_vec(), b"\xff\xfe".to_vec(), Vec::new(), br#"{"id":""}"#.to_vec(), vec![b' '; 1_001]];
    for body in bodies {
        world.send(Message::new("orders", body)).await;
    }
    world.send(Message::new("orders", format!(r#"{{"id":"{}"}}"#, "k".repeat(256)))).await;
    world.send(Message::new("orders", r#"{"id":7}"#)).await;
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.lines(), [r#"{"id":7}"#]);
    let mut reasons = world.reasons();
    reasons.sort();
    let missing = ["key-missing"; 4];
    assert_eq!(reasons, [&["body-too-large", "key-malformed"][..], &missing].concat());
}

#[tokio::test(start_paused = true)]
async fn a_body_of_any_bytes_reaches_the_handler() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder(), move |work| {
        journal.write(work.message.body.len().to_string());
        async { Ok(()) }
    });
    world.send(Message::new("orders", vec![0xff; 10 * 1024 * 1024]).with_id("large")).await;
    world.send(Message::new("orders", &b"\xff\0"[..]).with_id("small")).await;
    world.empty().await;
    process.stop().await;
    let mut lengths = world.journal.lines();
    lengths.sort();
    assert_eq!(lengths, ["10485760", "2"]);
}

#[tokio::test(start_paused = true)]
async fn c102_what_a_handler_does_to_its_copy_changes_nothing() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder(), move |work| {
        let mut own = (*work.message).clone();
        own.id = Some("mutated".into());
        journal.write(text(&work));
        async { Err(semel_messaging::Failure::transient("no")) }
    });
    world.send(order("a")).await;
    world.empty().await;
    process.stop().await;
    assert_eq!(world.journal.count("a"), 10);
    assert!(world.entry("a").await.is_some() && world.entry("mutated").await.is_none());
}
