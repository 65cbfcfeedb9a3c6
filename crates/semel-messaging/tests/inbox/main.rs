//! The inbox on PostgreSQL: key and effect in one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use semel::testing::fault::{Fault, FaultyStore};
use semel::{Key, MemoryStore, Scope, Store};
use semel_messaging::memory::MemoryBroker;
use semel_messaging::{
    Builder, Consumer, Drained, Failure, Grave, Inbox, Message, Retry, Sink, Source, SourceError, Work,
};
use semel_store::postgres::{Begun, Clients};
use semel_testbed::Database;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;

type Handling<'t> = BoxFuture<'t, Result<(), Failure>>;

struct World {
    database: Database,
    control: Client,
    broker: MemoryBroker,
    store: Arc<MemoryStore>,
    /// No connection can be had.
    away: Arc<AtomicBool>,
    runs: Arc<AtomicU32>,
}

struct Process {
    stop: CancellationToken,
    /// Nothing reaches the store any more.
    dead: Arc<AtomicBool>,
    source: Arc<dyn Source>,
    task: JoinHandle<Result<Drained, SourceError>>,
}

impl World {
    async fn new() -> World {
        let database = semel_testbed::postgres().await;
        semel_store::migrations(database.url()).expect("a schema").migrate().await.expect("migrated");
        let control = connect(database.url().to_owned()).await.expect("a connection");
        control.batch_execute("CREATE TABLE effect (id text NOT NULL)").await.expect("a table");
        let (broker, store) = (MemoryBroker::new("orders"), Arc::new(MemoryStore::new()));
        World { database, control, broker, store, away: Arc::default(), runs: Arc::default() }
    }

    fn start<H>(&self, handler: H) -> Process
    where
        H: for<'t> Fn(&'t mut Begun<Client>, Work) -> Handling<'t> + Send + Sync + 'static,
    {
        let (url, away) = (self.database.url().to_owned(), self.away.clone());
        let take = move || {
            let (url, away) = (url.clone(), away.clone());
            async move {
                if away.load(Ordering::SeqCst) {
                    return Err("the database is away, says the test".into());
                }
                Ok(connect(url).await?)
            }
            .boxed()
        };
        let (stop, dead) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let is_dead = dead.clone();
        let store = FaultyStore::deciding(self.store.clone(), move |_| {
            is_dead.load(Ordering::SeqCst).then_some(Fault::HangBefore)
        });
        let source: Arc<dyn Source> = Arc::new(self.broker.source());
        let inbox = Inbox::new(Clients::new(take, |client: &Client| client), handler);
        let consumer = builder().build(Arc::new(store), source.clone(), inbox).expect("the settings fit");
        let stopped = stop.clone();
        let task = tokio::spawn(consumer.run(async move { stopped.cancelled().await }));
        Process { stop, dead, source, task }
    }

    async fn send(&self, id: &str) {
        self.broker
            .sink()
            .send(&Message::new("orders", id.to_owned()).with_id(id))
            .await
            .expect("it is sent");
    }

    async fn empty(&self) {
        let empty = async {
            while self.broker.left() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), empty)
            .await
            .expect("the queue empties within a minute");
    }

    async fn effects(&self) -> Vec<String> {
        let rows = self.control.query("SELECT id FROM effect ORDER BY id", &[]).await.expect("rows");
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn attempts(&self, id: &str) -> u32 {
        let (scope, key) = (Scope::new("message:billing").unwrap(), Key::new(id).unwrap());
        self.store.find(&scope, &key).await.unwrap().expect("a record").attempts
    }
}

impl Process {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it ends by itself").expect("it ends in good order");
    }

    async fn kill(self) {
        self.dead.store(true, Ordering::SeqCst);
        self.task.abort();
        self.source.close().await;
    }
}

fn builder() -> Builder {
    let retry = Retry { first: Duration::from_millis(20), max: Duration::from_millis(100) };
    Consumer::inbox("billing").retry(retry).lease_for(Duration::from_millis(500))
}

async fn connect(url: String) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn book(tx: &mut Begun<Client>, work: &Work) -> Result<(), Failure> {
    let id = std::str::from_utf8(&work.message.body)?;
    tx.execute("INSERT INTO effect (id) VALUES ($1)", &[&id]).await?;
    Ok(())
}

fn books(tx: &mut Begun<Client>, work: Work) -> Handling<'_> {
    async move { book(tx, &work).await }.boxed()
}

#[tokio::test]
async fn m3_key_and_effect_are_committed_together_and_a_duplicate_is_acknowledged() {
    let world = World::new().await;
    let (one, other) = (world.start(books), world.start(books));
    for id in ["a", "b", "a", "c", "b", "a"] {
        world.send(id).await;
    }
    world.empty().await;
    one.stop().await;
    other.stop().await;
    assert_eq!(world.effects().await, ["a", "b", "c"]);
}

#[tokio::test]
async fn c88_what_fails_leaves_nothing_and_what_succeeds_at_last_is_there_once() {
    let world = World::new().await;
    let process = world.start(|tx, work| {
        async move {
            book(tx, &work).await?;
            match (&work.message.body[..], work.attempt) {
                (b"never", _) => Err(Failure::permanent("no such account")),
                (_, 1 | 2) => Err(Failure::transient("after its effect")),
                _ => Ok(()),
            }
        }
        .boxed()
    });
    for id in ["a", "never"] {
        world.send(id).await;
    }
    world.empty().await;
    process.stop().await;
    assert_eq!(world.effects().await, ["a"]);
    assert_eq!(world.attempts("a").await, 3);
    let dead = world.broker.dead();
    assert_eq!((dead.len(), dead[0].headers.text(Grave::REASON)), (1, Some("rejected")));
}

fn counted(
    runs: Arc<AtomicU32>,
) -> impl for<'t> Fn(&'t mut Begun<Client>, Work) -> Handling<'t> + Send + Sync + 'static {
    move |tx, work| {
        runs.fetch_add(1, Ordering::SeqCst);
        books(tx, work)
    }
}

/// The process dies after COMMIT and before anything else has heard of it.
#[tokio::test]
async fn m3_killed_between_commit_and_acknowledgement_it_is_acknowledged_the_next_time() {
    let world = World::new().await;
    let first = world.start(counted(world.runs.clone()));
    let dead = first.dead.clone();
    let runs = world.runs.clone();
    // It is dead for the store from the moment that its handler runs.
    let dies = tokio::spawn(async move {
        while runs.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        dead.store(true, Ordering::SeqCst);
    });
    world.send("a").await;
    dies.await.unwrap();
    while world.effects().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.kill().await;
    let second = world.start(counted(world.runs.clone()));
    world.empty().await;
    second.stop().await;
    assert_eq!((world.effects().await, world.runs.load(Ordering::SeqCst)), (vec!["a".to_owned()], 1));
    assert!(world.broker.dead().is_empty());
}

#[tokio::test]
async fn a_database_that_is_away_is_no_attempt_and_buries_nothing() {
    let world = World::new().await;
    world.away.store(true, Ordering::SeqCst);
    let process = world.start(books);
    world.send("a").await;
    // Long enough for far more tries than a message has.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((world.effects().await.len(), world.broker.dead().len()), (0, 0));
    world.away.store(false, Ordering::SeqCst);
    world.empty().await;
    process.stop().await;
    assert_eq!((world.effects().await, world.attempts("a").await), (vec!["a".to_owned()], 1));
}
