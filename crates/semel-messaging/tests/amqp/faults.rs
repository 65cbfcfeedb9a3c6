//! What happens on the way to a broker, and to the broker.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use semel::MemoryStore;
use semel_messaging::amqp::RabbitMq;
use semel_messaging::testing::Harness;
use semel_messaging::{Failure, Message, Sink, Source};
use semel_testbed::{Fault, Rabbitmq};

use crate::consumer::{Journal, builder, start, text};
use crate::support::{Rabbit, drain};

fn world() -> (Arc<MemoryStore>, Journal) {
    (Arc::new(MemoryStore::new()), Journal::new())
}

#[tokio::test]
async fn an_acknowledgement_that_is_lost_brings_the_message_back_and_it_does_not_run() {
    let (rabbit, (store, journal)) = (Rabbit::new().await, world());
    let (written, proxy) = (journal.clone(), rabbit.proxy.clone());
    let running = start(builder(), &store, rabbit.rabbit_source(), move |work| {
        // The acknowledgement is the next that goes out.
        if work.message.body.as_ref() == b"a" {
            proxy.arm(Fault::CutBeforeRequest);
        }
        written.write(text(&work));
        async { Ok(()) }
    });
    rabbit
        .send([rabbit.order("a").with_header("lane", "x"), rabbit.order("b").with_header("lane", "x")])
        .await;
    journal.wait_for(2).await;
    // `b` may have run before the cut was noticed. What is sent now comes behind the copies, and waits for its lane.
    rabbit.send([rabbit.order("c").with_header("lane", "x")]).await;
    journal.wait_for(3).await;
    running.stop().await;
    assert_eq!(journal.lines(), ["a", "b", "c"]);
    assert!(
        drain(rabbit.broker.url(), &rabbit.queue).await.iter().all(|left| left.id.as_deref() != Some("a"))
    );
}

#[tokio::test]
async fn a_connection_that_is_cut_again_and_again_loses_nothing() {
    let (rabbit, (store, journal)) = (Rabbit::new().await, world());
    let written = journal.clone();
    let running = start(builder().in_flight_max(4), &store, rabbit.rabbit_source(), move |work| {
        let (written, text) = (written.clone(), text(&work));
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            written.write(text);
            Ok(())
        }
    });
    let ids: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    rabbit.send(ids.iter().map(|id| rabbit.order(id).with_header("lane", id.len().to_string()))).await;
    for done in [10, 30, 50, 70] {
        journal.wait_for(done).await;
        rabbit.proxy.cut_all();
    }
    journal.wait_for(100).await;
    running.stop().await;
    let lines = journal.lines();
    for length in [1, 2] {
        let lane: Vec<&String> = lines.iter().filter(|line| line.len() == length).collect();
        assert!(lane.is_sorted() && lane.len() == [10, 90][length - 1], "{lane:?}");
    }
}

#[tokio::test]
async fn c113_a_confirm_of_a_dead_letter_that_is_lost_leaves_copies_of_one_id_and_no_message() {
    let (rabbit, (store, journal)) = (Rabbit::new().await, world());
    let struck = rabbit.proxy.arm_on(Fault::CutAfterAnswer, "semel-reason");
    let written = journal.clone();
    let running = start(builder(), &store, rabbit.rabbit_source(), move |work| {
        written.write(text(&work));
        let poison = work.message.body.as_ref() == b"poison";
        async move { if poison { Err(Failure::permanent("no")) } else { Ok(()) } }
    });
    rabbit
        .send([rabbit.order("poison").with_header("lane", "x"), rabbit.order("b").with_header("lane", "x")])
        .await;
    struck.happened().await;
    journal.wait_for(2).await;
    running.stop().await;
    assert_eq!(journal.lines(), ["poison", "b"]);
    let dead = rabbit.dead().await;
    assert!(
        (1..=2).contains(&dead.len()) && dead.iter().all(|dead| dead.id.as_deref() == Some("poison")),
        "{dead:?}"
    );
}

#[tokio::test]
async fn a_confirm_of_a_waiting_message_that_is_lost_does_not_make_two_attempts_of_one() {
    let (rabbit, (store, journal)) = (Rabbit::new().await, world());
    let struck = rabbit.proxy.arm_on(Fault::CutAfterAnswer, "semel-subject");
    let written = journal.clone();
    let running = start(builder(), &store, rabbit.rabbit_source(), move |work| {
        written.write(format!("{} {}", text(&work), work.attempt));
        async move {
            let wait = Failure::transient_for(Duration::from_millis(1_500), "not yet");
            if work.attempt < 3 { Err(wait) } else { Ok(()) }
        }
    });
    rabbit.send([rabbit.order("a")]).await;
    struck.happened().await;
    journal.wait_for(3).await;
    running.stop().await;
    assert_eq!(journal.lines(), ["a 1", "a 2", "a 3"]);
}

#[tokio::test]
async fn a_confirm_that_is_lost_is_said_and_the_message_keeps_its_id() {
    let rabbit = Rabbit::new().await;
    let sink = rabbit.rabbit_sink();
    sink.send(&rabbit.order("first")).await.unwrap();
    for fault in [Fault::CutAfterAnswer, Fault::CutBeforeRequest] {
        let struck = rabbit.proxy.arm_on(fault, "the message");
        let message = rabbit.order("the message");
        sink.send(&message).await.expect_err("nobody knows");
        struck.happened().await;
        while sink.send(&message).await.is_err() {}
    }
    sink.close().await;
    let there = drain(rabbit.broker.url(), &rabbit.queue).await;
    let ids: BTreeSet<&str> = there.iter().filter_map(|message| message.id.as_deref()).collect();
    assert_eq!(ids, BTreeSet::from(["first", "the message"]));
    assert!((3..=4).contains(&there.len()), "{there:?}");
}

/// Makes the queues, and restarts the broker in good order: 3.10 writes down the name of a new quorum queue a while
/// later, and one that it forgot when it was killed takes nothing.
async fn settled(broker: &Rabbitmq) {
    let source = RabbitMq::new(&broker.url()).unwrap().queue("orders").unwrap().declare();
    source.open(1).await.expect("the queues are made");
    source.close().await;
    broker.stop().await;
    broker.restart().await;
}

#[tokio::test]
async fn a_broker_that_is_killed_comes_back_and_nothing_is_lost() {
    let broker = Rabbitmq::start().await;
    let (store, journal) = world();
    let rabbit = RabbitMq::new(&broker.url()).unwrap();
    settled(&broker).await;
    let source = rabbit.queue("orders").unwrap().declare();
    let written = journal.clone();
    let running = start(builder().in_flight_max(2), &store, source, move |work| {
        let (written, text) = (written.clone(), text(&work));
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            written.write(text);
            Ok(())
        }
    });
    let sink = rabbit.sink("").unwrap();
    for number in 0..60 {
        let message = Message::new("orders", number.to_string()).with_id(number.to_string());
        // The queue is made by the consumer, which may be slower.
        while sink.send(&message).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    journal.wait_for(20).await;
    broker.kill().await;
    broker.restart().await;
    journal.wait_for(60).await;
    running.stop().await;
    let lines = journal.lines();
    assert_eq!((lines.len(), lines.iter().collect::<BTreeSet<_>>().len()), (60, 60));
}
