//! The consumer on RabbitMQ.

use std::sync::Arc;
use std::time::Duration;

use semel::{MemoryStore, OnUnknown};
use semel_messaging::testing::Harness;
use semel_messaging::{Builder, Consumer, Drained, Failure, Field, Grave, Retry, Source, Work};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::Rabbit;

/// What handlers did, in order.
#[derive(Clone)]
pub(crate) struct Journal(Arc<watch::Sender<Vec<String>>>);

impl Journal {
    pub(crate) fn new() -> Journal {
        Journal(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub(crate) fn write(&self, line: impl Into<String>) {
        self.0.send_modify(|lines| lines.push(line.into()));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    pub(crate) async fn wait_for(&self, lines_min: usize) {
        let mut lines = self.0.subscribe();
        let written = lines.wait_for(|lines| lines.len() >= lines_min);
        drop(tokio::time::timeout(Duration::from_secs(60), written).await.expect("it is written in time"));
    }
}

/// A consumer at work.
pub(crate) struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<Drained, semel_messaging::SourceError>>,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it ends by itself").expect("it ends in good order");
    }
}

pub(crate) fn builder() -> Builder {
    let retry = Retry { first: Duration::from_millis(50), max: Duration::from_millis(200) };
    Consumer::builder("billing", OnUnknown::Rerun).lane(Field::Header("lane".into())).retry(retry)
}

pub(crate) fn start<F, Fut>(
    builder: Builder,
    store: &Arc<MemoryStore>,
    source: impl Source,
    handle: F,
) -> Running
where
    F: Fn(Work) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let consumer = builder.build(store.clone(), Arc::new(source), handle).expect("the settings fit");
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let task = tokio::spawn(consumer.run(async move { stopped.cancelled().await }));
    Running { stop, task }
}

pub(crate) fn text(work: &Work) -> String {
    String::from_utf8_lossy(&work.message.body).into_owned()
}

#[tokio::test]
async fn m4_duplicates_are_acknowledged_and_do_not_run() {
    let (rabbit, store, journal) = (Rabbit::new().await, Arc::new(MemoryStore::new()), Journal::new());
    rabbit.send(["a", "b", "a", "c", "b"].map(|id| rabbit.order(id).with_header("lane", "x"))).await;
    let written = journal.clone();
    let running = start(builder(), &store, rabbit.rabbit_source(), move |work| {
        written.write(text(&work));
        async { Ok(()) }
    });
    rabbit.send([rabbit.order("last").with_header("lane", "x")]).await;
    journal.wait_for(4).await;
    running.stop().await;
    assert_eq!(journal.lines(), ["a", "b", "c", "last"]);
}

#[tokio::test]
async fn m5_a_message_that_waits_at_the_broker_holds_up_nothing_and_comes_back() {
    let (rabbit, store, journal) = (Rabbit::new().await, Arc::new(MemoryStore::new()), Journal::new());
    rabbit.send([rabbit.order("late")]).await;
    let written = journal.clone();
    let running =
        start(builder().in_flight_max(1).held_max(1), &store, rabbit.rabbit_source(), move |work| {
            written.write(format!("{} {}", text(&work), work.attempt));
            async move {
                let late = work.message.body.as_ref() == b"late" && work.attempt == 1;
                if late {
                    Err(Failure::transient_for(Duration::from_millis(3_200), "not yet"))
                } else {
                    Ok(())
                }
            }
        });
    journal.wait_for(1).await;
    let begun = tokio::time::Instant::now();
    rabbit.send(["a", "b"].map(|id| rabbit.order(id))).await;
    journal.wait_for(4).await;
    assert!(begun.elapsed() >= Duration::from_millis(2_500), "{:?}", begun.elapsed());
    running.stop().await;
    assert_eq!(journal.lines(), ["late 1", "a 1", "b 1", "late 2"]);
}

#[tokio::test]
async fn m5_dead_letters_say_why() {
    let (rabbit, store, journal) = (Rabbit::new().await, Arc::new(MemoryStore::new()), Journal::new());
    rabbit.send([rabbit.order("poison"), rabbit.order("well")]).await;
    let written = journal.clone();
    let running = start(builder().attempts_max(3), &store, rabbit.rabbit_source(), move |work| {
        written.write(text(&work));
        async move {
            if work.message.body.as_ref() == b"poison" {
                Err(Failure::transient("no account"))
            } else {
                Ok(())
            }
        }
    });
    journal.wait_for(4).await;
    let dead = async {
        loop {
            let dead = rabbit.dead().await;
            if !dead.is_empty() {
                return dead;
            }
        }
    };
    let dead = tokio::time::timeout(Duration::from_secs(30), dead).await.expect("a dead letter");
    running.stop().await;
    let header = |name| dead[0].headers.text(name).unwrap();
    assert_eq!((dead.len(), dead[0].id.as_deref(), &dead[0].subject), (1, Some("poison"), &rabbit.queue));
    assert_eq!((header(Grave::REASON), header(Grave::ATTEMPTS)), ("attempts-exhausted", "3"));
    assert_eq!(header(Grave::HISTORY), "1: no account\n2: no account\n3: no account");
}
