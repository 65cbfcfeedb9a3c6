//! Dead letters, sent back and thrown away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use semel::{Engine, Entropy, FOREVER, MemoryStore, Word};
use semel_messaging::amqp::RabbitMq;
use semel_messaging::{DeadLetters, Errand, Failure, Fate, Grave, Message, Sink};

use crate::consumer::{Journal, builder, start, text};
use crate::support::Rabbit;

fn dead_letters(rabbit: &Rabbit, store: &Arc<MemoryStore>) -> DeadLetters {
    let broker = RabbitMq::new(rabbit.broker.url()).unwrap();
    let (queue, sink) = (format!("{}.dead", rabbit.queue), broker.sink("").unwrap());
    let sources = move || Arc::new(broker.queue(&queue).unwrap()) as Arc<dyn semel_messaging::Source>;
    let engine = Engine::new(store.clone(), Entropy::system());
    DeadLetters::new(sources, Arc::new(sink), store.clone(), engine, FOREVER)
}

fn errand(dry_run: bool) -> Errand {
    Errand { limit: 10, dry_run, word: Word::default() }
}

fn fates(done: Vec<(Arc<Message>, Fate)>) -> Vec<(String, Fate)> {
    done.into_iter().map(|(message, fate)| (message.id.clone().unwrap(), fate)).collect()
}

#[tokio::test]
async fn c48_a_redrive_runs_what_failed_and_not_what_is_done() {
    let (rabbit, store, journal) = (Rabbit::new().await, Arc::new(MemoryStore::new()), Journal::new());
    let fixed = Arc::new(AtomicBool::new(false));
    let (written, is_fixed) = (journal.clone(), fixed.clone());
    let running = start(builder(), &store, rabbit.rabbit_source(), move |work| {
        written.write(text(&work));
        let fails = work.message.id.as_deref() == Some("a") && !is_fixed.load(Ordering::SeqCst);
        async move { if fails { Err(Failure::permanent("no such account")) } else { Ok(()) } }
    });
    rabbit.send(["a", "b"].map(|id| rabbit.order(id).with_header("lane", "x"))).await;
    journal.wait_for(2).await;
    // A copy of one whose effect is there, as a consumer leaves it that died before its acknowledgement.
    let copy = Message { subject: format!("{}.dead", rabbit.queue), ..rabbit.order("b") };
    let copy = [(Grave::SCOPE, "message:billing"), (Grave::KEY, "b"), (Grave::ORIGIN, &rabbit.queue)]
        .into_iter()
        .fold(copy, |copy, (name, value)| copy.with_header(name, value.to_owned()));
    rabbit.send([copy]).await;

    let dead = dead_letters(&rabbit, &store);
    let listed: Vec<String> =
        dead.list().await.unwrap().iter().map(|dead| dead.id.clone().unwrap()).collect();
    assert_eq!(listed, ["a", "b"]);
    let dry = fates(dead.redrive(&errand(true), |_| true).await.unwrap());
    assert!(matches!(&dry[..], [(_, Fate::WouldGo), (_, Fate::Done { .. })]), "{dry:?}");

    fixed.store(true, Ordering::SeqCst);
    let done = fates(dead.redrive(&errand(false), |_| true).await.unwrap());
    assert!(matches!(&done[..], [(_, Fate::Gone), (_, Fate::Done { .. })]), "{done:?}");
    journal.wait_for(3).await;
    running.stop().await;
    assert_eq!(journal.lines(), ["a", "b", "a"]);

    let left = fates(dead.discard(&errand(false), |dead| dead.id.as_deref() == Some("b")).await.unwrap());
    assert_eq!(left, [("b".to_owned(), Fate::Gone)]);
    assert!(dead.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn m6_a_message_of_another_id_and_one_of_which_nobody_knows_stay() {
    let (rabbit, store, journal) = (Rabbit::new().await, Arc::new(MemoryStore::new()), Journal::new());
    let written = journal.clone();
    let parks = semel_messaging::Consumer::builder("billing", semel::OnUnknown::Park);
    let running = start(parks, &store, rabbit.rabbit_source(), move |work| {
        written.write(text(&work));
        let unknown = work.message.id.as_deref() == Some("unknown");
        async move { if unknown { Err(Failure::unknown("the answer was lost")) } else { Ok(()) } }
    });
    let sink = rabbit.rabbit_sink();
    for (id, body) in [("unknown", "unknown"), ("a", "a"), ("a", "another")] {
        sink.send(&Message::new(rabbit.queue.clone(), body).with_id(id)).await.unwrap();
        journal.wait_for(if body == "unknown" { 1 } else { 2 }).await;
    }
    let dead = dead_letters(&rabbit, &store);
    while dead.list().await.unwrap().len() < 2 {}
    running.stop().await;
    let mut stay = fates(dead.redrive(&errand(false), |_| true).await.unwrap());
    stay.sort_by(|one, other| one.0.cmp(&other.0));
    let [(_, Fate::Stays(reused)), (_, Fate::Stays(unknown))] = &stay[..] else { panic!("{stay:?}") };
    assert!(reused.contains("another message") && unknown.contains("resolve its key"), "{stay:?}");
    assert_eq!(journal.lines().len(), 2);
}
