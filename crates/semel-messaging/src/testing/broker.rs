//! The broker suite: one named test for every clause of the [`Source`] and [`Sink`](crate::Sink) contract.

use std::sync::Arc;
use std::time::Duration;

use semel::Cause;
use tokio::time::timeout;

use super::{Harness, PATIENCE};
use crate::grave::{Grave, reason};
use crate::message::Message;
use crate::sink::SendError;
use crate::source::{Delivery, ReceiptError, Source, SourceError};

/// Makes a test of each clause. The expression gives a [`Harness`] with an empty queue.
#[macro_export]
macro_rules! broker_suite {
    ($harness:expr) => {
        $crate::broker_suite!(@clauses $harness,
            what_is_sent_is_delivered_as_it_was
            a_body_of_ten_mebibytes_arrives_whole
            an_acknowledged_message_does_not_come_again
            what_is_not_settled_comes_again_and_is_flagged
            what_is_given_back_comes_again_and_is_flagged
            the_broker_counts_deliveries_where_it_says_so
            messages_come_in_the_order_in_which_they_were_sent
            no_more_are_held_than_is_said
            two_consumers_share_a_queue
            what_is_given_back_for_later_holds_up_nothing
            what_is_cut_is_lost_and_comes_again
            m8_an_acknowledgement_of_an_old_connection_settles_nothing
            c113_a_buried_message_is_confirmed_among_the_dead
            what_is_lost_is_not_buried
            a_receipt_is_good_once
            what_was_received_can_be_settled_after_stopping
            receiving_that_is_dropped_loses_nothing
            what_has_no_place_is_not_sent
            a_sink_sends_after_a_cut
            a_source_that_is_not_open_says_so
            receipts_hand_out_what_the_source_says
        );
    };
    (@clauses $harness:expr, $($clause:ident)*) => {
        $(
            #[test]
            fn $clause() {
                $crate::testing::run(async {
                    let harness = $harness;
                    $crate::testing::broker::$clause(&harness).await;
                });
            }
        )*
    };
}

async fn open(harness: &dyn Harness, held_max: u32) -> Arc<dyn Source> {
    let source = harness.source().await;
    source.open(held_max).await.expect("the source opens");
    source
}

async fn send(harness: &dyn Harness, bodies: &[&str]) {
    let sink = harness.sink().await;
    for body in bodies {
        let message = Message::new(harness.subject(), (*body).to_owned()).with_id(*body);
        sink.send(&message).await.expect("the message is sent");
    }
    sink.close().await;
}

async fn receive(source: &Arc<dyn Source>) -> Delivery {
    let received = timeout(PATIENCE, source.receive()).await.expect("a delivery comes");
    received.expect("the source gives deliveries")
}

fn body(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.message.body).expect("a body of the suite's")
}

/// Only the message of this body is there, so those before it are not.
async fn nothing_before(source: &Arc<dyn Source>, marker: &str) {
    let delivery = receive(source).await;
    assert_eq!(body(&delivery), marker);
    delivery.receipt.ack().await.expect("it is acknowledged");
}

fn grave(harness: &dyn Harness) -> Grave {
    Grave {
        reason: Cause::new(reason::REJECTED),
        said: "no such account".into(),
        consumer: "billing".into(),
        origin: harness.subject().into(),
        key: Some("m-1".into()),
        scope: Some("message:billing".into()),
        attempts: 3,
        history: vec!["1: timeout".into(), "2: timeout".into()],
    }
}

/// Id, correlation, producer, media type, headers and a body of any bytes.
pub async fn what_is_sent_is_delivered_as_it_was(harness: &dyn Harness) {
    let bytes: Vec<u8> = (0..=255).collect();
    let sent = Message {
        correlation_id: Some("c-1".into()),
        producer: Some("shop".into()),
        content_type: Some("application/octet-stream".into()),
        ..Message::new(harness.subject(), bytes).with_id("m-1").with_header("account", "a-42")
    };
    let sink = harness.sink().await;
    sink.send(&sent).await.expect("it is sent");
    sink.send(&Message::new(harness.subject(), "")).await.expect("a bare one too");
    let source = open(harness, 2).await;
    let delivery = receive(&source).await;
    assert_eq!(*delivery.message, sent);
    assert!(!delivery.redelivered && !delivery.lost.is_cancelled());
    assert!(!delivery.origin.is_empty());
    let bare = receive(&source).await;
    assert_eq!((&bare.message.id, bare.message.body.len()), (&None, 0));
}

/// Ten times what a broker may take in one frame.
pub async fn a_body_of_ten_mebibytes_arrives_whole(harness: &dyn Harness) {
    let large: Vec<u8> = (0..10 * 1024 * 1024u32).map(|n| n.to_le_bytes()[1]).collect();
    harness.sink().await.send(&Message::new(harness.subject(), large.clone())).await.expect("it is sent");
    let delivery = receive(&open(harness, 1).await).await;
    assert!(delivery.message.body == large);
    delivery.receipt.ack().await.expect("it is acknowledged");
}

/// Not even to another connection.
pub async fn an_acknowledged_message_does_not_come_again(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 10).await;
    receive(&source).await.receipt.ack().await.expect("it is acknowledged");
    source.close().await;
    send(harness, &["marker"]).await;
    nothing_before(&open(harness, 10).await, "marker").await;
}

/// After the connection was closed in good order.
pub async fn what_is_not_settled_comes_again_and_is_flagged(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 10).await;
    let first = receive(&source).await;
    source.close().await;
    timeout(PATIENCE, first.lost.cancelled()).await.expect("it is lost");
    let again = receive(&open(harness, 10).await).await;
    assert_eq!((body(&again), again.redelivered), ("a", true));
}

/// At once, and to anybody.
pub async fn what_is_given_back_comes_again_and_is_flagged(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 10).await;
    receive(&source).await.receipt.give_back().await.expect("it is given back");
    let again = receive(&source).await;
    assert_eq!((body(&again), again.redelivered), ("a", true));
}

/// How often it was delivered before.
pub async fn the_broker_counts_deliveries_where_it_says_so(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 10).await;
    for before in 0..3 {
        let delivery = receive(&source).await;
        let expected = source.abilities().counts.then_some(before);
        assert_eq!(delivery.deliveries, expected);
        delivery.receipt.give_back().await.expect("it is given back");
    }
}

/// With one consumer, and nothing given back.
pub async fn messages_come_in_the_order_in_which_they_were_sent(harness: &dyn Harness) {
    let bodies: Vec<String> = (0..50).map(|n| format!("{n:02}")).collect();
    send(harness, &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let source = open(harness, 100).await;
    for expected in &bodies {
        let delivery = receive(&source).await;
        assert_eq!(body(&delivery), expected);
        delivery.receipt.ack().await.expect("it is acknowledged");
    }
}

/// The next one goes to another consumer.
pub async fn no_more_are_held_than_is_said(harness: &dyn Harness) {
    send(harness, &["a", "b", "c"]).await;
    let greedy = open(harness, 2).await;
    let held = [receive(&greedy).await, receive(&greedy).await];
    let other = open(harness, 1).await;
    assert_eq!(body(&receive(&other).await), "c");
    send(harness, &["d"]).await;
    held[0].receipt.ack().await.expect("it is acknowledged");
    assert_eq!(body(&receive(&greedy).await), "d");
}

/// Each message goes to one of them.
pub async fn two_consumers_share_a_queue(harness: &dyn Harness) {
    let (one, other) = (open(harness, 1).await, open(harness, 1).await);
    send(harness, &["a", "b"]).await;
    let (a, b) = (receive(&one).await, receive(&other).await);
    let mut bodies = [body(&a), body(&b)];
    bodies.sort_unstable();
    assert_eq!(bodies, ["a", "b"]);
}

/// What is behind it comes at once; it comes when its time has come, and not before.
pub async fn what_is_given_back_for_later_holds_up_nothing(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 1).await;
    let first = receive(&source).await;
    let Some(later) = first.receipt.later() else {
        assert!(!source.abilities().later);
        return;
    };
    let asked = tokio::time::Instant::now();
    later.later(Duration::from_secs(2)).await.expect("it is given back");
    send(harness, &["b"]).await;
    nothing_before(&source, "b").await;
    let again = receive(&source).await;
    assert!(asked.elapsed() >= Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!((body(&again), again.message.id.as_deref()), ("a", Some("a")));
    assert!(first.receipt.ack().await.is_err(), "it is settled by being given back");
    again.receipt.ack().await.expect("it is acknowledged");
    send(harness, &["marker"]).await;
    nothing_before(&source, "marker").await;
}

/// The source finds its way back by itself.
pub async fn what_is_cut_is_lost_and_comes_again(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 10).await;
    let first = receive(&source).await;
    harness.cut().await;
    let again = receive(&source).await;
    assert_eq!((body(&again), again.redelivered), ("a", true));
    timeout(PATIENCE, first.lost.cancelled()).await.expect("it is lost");
    assert!(matches!(first.receipt.ack().await, Err(ReceiptError::Lost)));
    assert!(matches!(first.receipt.give_back().await, Err(ReceiptError::Lost)));
    again.receipt.ack().await.expect("it is acknowledged");
}

/// Delivery tags begin anew with each channel: the old one must not name the new delivery.
pub async fn m8_an_acknowledgement_of_an_old_connection_settles_nothing(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 10).await;
    let old = receive(&source).await;
    harness.cut().await;
    let new = receive(&source).await;
    assert!(old.receipt.ack().await.is_err());
    drop(new);
    source.close().await;
    let again = receive(&open(harness, 10).await).await;
    assert_eq!(body(&again), "a");
}

/// With what is written on its grave, and what it was.
pub async fn c113_a_buried_message_is_confirmed_among_the_dead(harness: &dyn Harness) {
    let sent = Message::new(harness.subject(), &b"\xff not text"[..])
        .with_id("m-1")
        .with_header("account", "a-42")
        .with_header(Grave::REASON, "of an earlier time");
    harness.sink().await.send(&sent).await.expect("it is sent");
    let source = open(harness, 10).await;
    receive(&source).await.receipt.bury(&grave(harness)).await.expect("it is buried");
    let dead = harness.dead().await;
    assert_eq!(dead.len(), 1);
    let dead = &dead[0];
    assert_eq!((&dead.id, &dead.body), (&sent.id, &sent.body));
    assert_eq!(dead.headers.text("account"), Some("a-42"));
    for (name, value) in grave(harness).headers() {
        assert_eq!(dead.headers.text(name), Some(value.as_str()), "{name}");
    }
    send(harness, &["marker"]).await;
    nothing_before(&source, "marker").await;
}

/// Its copy would be a second one.
pub async fn what_is_lost_is_not_buried(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 10).await;
    let first = receive(&source).await;
    harness.cut().await;
    let again = receive(&source).await;
    timeout(PATIENCE, first.lost.cancelled()).await.expect("it is lost");
    assert!(matches!(first.receipt.bury(&grave(harness)).await, Err(ReceiptError::Lost)));
    assert!(harness.dead().await.is_empty());
    again.receipt.bury(&grave(harness)).await.expect("it is buried");
    assert_eq!(harness.dead().await.len(), 1);
}

/// A second verb changes nothing.
pub async fn a_receipt_is_good_once(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 10).await;
    let delivery = receive(&source).await;
    delivery.receipt.ack().await.expect("it is acknowledged");
    assert!(delivery.receipt.give_back().await.is_err());
    assert!(delivery.receipt.bury(&grave(harness)).await.is_err());
    assert!(harness.dead().await.is_empty());
    send(harness, &["marker"]).await;
    nothing_before(&source, "marker").await;
}

/// A consumer that drains still says what it has done.
pub async fn what_was_received_can_be_settled_after_stopping(harness: &dyn Harness) {
    send(harness, &["a", "b"]).await;
    let source = open(harness, 1).await;
    let delivery = receive(&source).await;
    source.stop().await;
    assert!(matches!(timeout(PATIENCE, source.receive()).await, Ok(Err(SourceError::Closed))));
    delivery.receipt.ack().await.expect("it is acknowledged");
    source.close().await;
    nothing_before(&open(harness, 1).await, "b").await;
}

/// A delivery is given by the next call, or comes again.
pub async fn receiving_that_is_dropped_loses_nothing(harness: &dyn Harness) {
    let source = open(harness, 100).await;
    let mut expected: Vec<String> = (0..30).map(|n| format!("{n:02}")).collect();
    for body in &expected {
        let _ = timeout(Duration::ZERO, source.receive()).await.map(|delivery| drop(delivery.expect("open")));
        send(harness, &[body]).await;
    }
    source.close().await;
    let source = open(harness, 100).await;
    while !expected.is_empty() {
        let delivery = receive(&source).await;
        let known = expected.iter().position(|one| one == body(&delivery));
        expected.remove(known.expect("each comes once"));
        delivery.receipt.ack().await.expect("it is acknowledged");
    }
}

/// It is an error, and nothing came of it (O4).
pub async fn what_has_no_place_is_not_sent(harness: &dyn Harness) {
    let sink = harness.sink().await;
    let nowhere = Message::new("semel.nowhere", "a").with_id("a");
    for _ in 0..2 {
        let sent = sink.send(&nowhere).await;
        assert!(
            matches!(&sent, Err(SendError::Unroutable { subject, .. }) if subject == "semel.nowhere"),
            "{sent:?}"
        );
    }
    sink.send(&Message::new(harness.subject(), "b")).await.expect("the next one is sent");
}

/// It finds its way back by itself; the call that was cut may say that nobody knows.
pub async fn a_sink_sends_after_a_cut(harness: &dyn Harness) {
    let sink = harness.sink().await;
    let message = |body: &'static str| Message::new(harness.subject(), body).with_id(body);
    sink.send(&message("a")).await.expect("it is sent");
    harness.cut().await;
    let sent = async {
        while let Err(error) = sink.send(&message("b")).await {
            assert!(matches!(error, SendError::Unavailable(_) | SendError::Indeterminate(_)), "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, sent).await.expect("it is sent after all");
    let source = open(harness, 10).await;
    assert_eq!((body(&receive(&source).await), body(&receive(&source).await)), ("a", "b"));
}

/// Not opened yet, and closed.
pub async fn a_source_that_is_not_open_says_so(harness: &dyn Harness) {
    let source = harness.source().await;
    assert!(matches!(timeout(PATIENCE, source.receive()).await, Ok(Err(SourceError::Closed))));
    source.open(1).await.expect("it opens");
    source.close().await;
    assert!(matches!(timeout(PATIENCE, source.receive()).await, Ok(Err(SourceError::Closed))));
}

/// What a source declares, its receipts have.
pub async fn receipts_hand_out_what_the_source_says(harness: &dyn Harness) {
    send(harness, &["a"]).await;
    let source = open(harness, 1).await;
    let (delivery, abilities) = (receive(&source).await, source.abilities());
    assert_eq!(delivery.receipt.later().is_some(), abilities.later);
    assert_eq!(delivery.receipt.deadline().is_some(), abilities.deadline);
    assert_eq!(delivery.deliveries.is_some(), abilities.counts);
    if let Some(deadline) = delivery.receipt.deadline() {
        deadline.extend().await.expect("the deadline moves");
    }
}
