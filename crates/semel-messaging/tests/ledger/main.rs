//! The ledger: messages, a fifth of them twice, while consumers, broker and database are killed.
//!
//! Each message is applied once, each lane in its order, and among the dead letters is exactly the poison. The consumers
//! are processes of their own: this test's binary, started as [`consumer_process`]. Every other one takes batches.
//! `SEMEL_LONG` makes it the whole one.
//!
//! What was held when a consumer or the broker died, RabbitMQ 3.10 delivers again in another order than the first time:
//! seen on the wire. So there are two ledgers. Where many messages are held, the order is that of the first deliveries;
//! where one is held, it is the whole order.

#![cfg(feature = "amqp")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use semel::testing::Random;
use semel_messaging::amqp::RabbitMq;
use semel_messaging::{Consumer, Failure, Field, Grave, Inbox, Message, Retry, Sink, Source, Work};
use semel_store::postgres::{Begun, Clients};
use semel_testbed::{Postgres, Rabbitmq};
use tokio_postgres::{Client, NoTls};

const QUEUE: &str = "orders";
const LANES: u64 = 100;

/// Not a test: what the ledger starts, and kills.
#[tokio::test]
async fn consumer_process() {
    let (Ok(broker), Ok(database)) = (std::env::var("LEDGER_BROKER"), std::env::var("LEDGER_DATABASE"))
    else {
        return;
    };
    // It does not outlive the ledger.
    let parent = std::os::unix::process::parent_id();
    tokio::spawn(async move {
        while std::os::unix::process::parent_id() == parent {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        std::process::exit(0);
    });
    // Broker and database may be down just now.
    loop {
        let _ = consume(&broker, &database).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn consume(broker: &str, database: &str) -> Result<(), Box<dyn std::error::Error>> {
    let connected = semel_store::connect(database, &semel_store::Options::default()).await?;
    let (url, idle) = (database.to_owned(), Idle::default());
    let take = move || take(url.clone(), idle.clone()).boxed();
    let clients = Clients::new(take, Pooled::client);
    let inbox = match std::env::var("LEDGER_BATCH_MAX") {
        Ok(batch_max) => Inbox::in_batches(clients, batch_max.parse()?, apply),
        Err(_) => Inbox::new(clients, apply),
    };
    let source = RabbitMq::new(broker)?.queue(QUEUE)?.declare_single_active();
    let held_max: u32 = std::env::var("LEDGER_HELD_MAX")?.parse()?;
    let retry = Retry { first: Duration::from_millis(20), max: Duration::from_millis(200) };
    Consumer::inbox("ledger")
        .lane(Field::Header("lane".into()))
        .retry(retry)
        .held_max(held_max)
        .in_flight_max(held_max.min(16))
        .attempts_max(ATTEMPTS_MAX)
        .lease_for(Duration::from_secs(1))
        .build(connected.store, Arc::new(source), inbox)?
        .run(std::future::pending())
        .await?;
    Ok(())
}

/// So many that no message is given up for the kills, which are attempts too; the poison is.
const ATTEMPTS_MAX: u32 = 12;

/// Connections that nobody uses. To log in takes longer than everything else.
type Idle = Arc<Mutex<Vec<Client>>>;

struct Pooled {
    /// `None` once it was given back.
    client: Option<Client>,
    idle: Idle,
}

impl Pooled {
    fn client(&self) -> &Client {
        self.client.as_ref().expect("it is given back when this is dropped")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().filter(|client| !client.is_closed()) {
            self.idle.lock().expect("a list").push(client);
        }
    }
}

async fn take(url: String, idle: Idle) -> Result<Pooled, semel::BoxError> {
    let free = idle.lock().expect("a list").pop().filter(|client| !client.is_closed());
    let client = match free {
        Some(client) => client,
        None => connect(&url).await?,
    };
    Ok(Pooled { client: Some(client), idle })
}

fn apply(tx: &mut Begun<Pooled>, work: Work) -> BoxFuture<'_, Result<(), Failure>> {
    async move {
        let id = work.key.as_str();
        if id.starts_with("killer") {
            // Those that run beside it get done first: each death is an attempt of theirs too.
            tokio::time::sleep(Duration::from_millis(300)).await;
            std::process::abort();
        }
        let lane: i64 = work.message.headers.text("lane").unwrap_or("-1").parse()?;
        let again = work.message.headers.text("x-delivery-count").is_some();
        let insert = "INSERT INTO effect (message, lane, again) VALUES ($1, $2, $3)";
        tx.client().execute(insert, &[&id, &lane, &again]).await?;
        if id.starts_with("poison") {
            return Err(Failure::permanent("poison"));
        }
        if work.attempt == 1 && id.ends_with('7') {
            return Err(Failure::transient("the first time it fails"));
        }
        Ok(())
    }
    .boxed()
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

struct Ledger {
    held_max: u32,
    broker: Rabbitmq,
    database: Postgres,
    children: Vec<Child>,
    started: usize,
}

impl Ledger {
    async fn new(held_max: u32) -> Ledger {
        let (broker, database) = (Rabbitmq::start().await, Postgres::start().await);
        semel_store::migrations(&database.url()).expect("a schema").migrate().await.expect("migrated");
        let table = "CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY, message text, lane bigint, \
                     again boolean)";
        connect(&database.url()).await.expect("a connection").batch_execute(table).await.expect("a table");
        let source = RabbitMq::new(&broker.url()).unwrap().queue(QUEUE).unwrap().declare_single_active();
        source.open(1).await.expect("the queue is made");
        source.close().await;
        // In good order, once: 3.10 writes down the name of a new quorum queue a while later, and one that it forgot when
        // it was killed takes nothing.
        broker.stop().await;
        broker.restart().await;
        Ledger { held_max, broker, database, children: Vec::new(), started: 0 }
    }

    /// Starts consumers in the place of those that have gone.
    fn keep(&mut self, consumers: usize) {
        self.children.retain_mut(|child| child.try_wait().expect("a child").is_none());
        while self.children.len() < consumers {
            self.started += 1;
            let mut command = Command::new(std::env::current_exe().expect("this binary"));
            if self.held_max > 1 && self.started.is_multiple_of(2) {
                command.env("LEDGER_BATCH_MAX", "20");
            }
            let child = command
                .args(["--exact", "consumer_process", "--nocapture"])
                .env("LEDGER_HELD_MAX", self.held_max.to_string())
                .env("LEDGER_BROKER", self.broker.url())
                .env("LEDGER_DATABASE", self.database.url())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            self.children.push(child.expect("a consumer starts"));
        }
    }

    fn kill_one(&mut self, random: &Random) {
        let number = random.below(self.children.len() as u64);
        let child = &mut self.children[usize::try_from(number).expect("few")];
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
    }

    async fn applied(&self) -> Option<i64> {
        let client = connect(&self.database.url()).await.ok()?;
        Some(client.query_one("SELECT count(*) FROM effect", &[]).await.ok()?.get(0))
    }

    /// What was applied, in its order: number, lane, and whether it had been delivered before.
    async fn effects(&self) -> Vec<(u64, i64, bool)> {
        let client = connect(&self.database.url()).await.expect("a connection");
        let rows = "SELECT message, lane, again FROM effect ORDER BY id";
        let rows = client.query(rows, &[]).await.expect("rows");
        let number = |message: &str| message.trim_start_matches("order-").parse().expect("a number");
        rows.iter().map(|row| (number(row.get(0)), row.get(1), row.get(2))).collect()
    }

    /// Ids and reasons.
    async fn dead(&self) -> BTreeSet<(String, String)> {
        let source = RabbitMq::new(&self.broker.url()).unwrap().queue(&format!("{QUEUE}.dead")).unwrap();
        source.open(1_000).await.expect("the dead letters are there");
        let mut dead = BTreeSet::new();
        while let Ok(delivery) = tokio::time::timeout(Duration::from_secs(5), source.receive()).await {
            let delivery = delivery.expect("a delivery");
            let reason = delivery.message.headers.text(Grave::REASON).expect("a reason").to_owned();
            dead.insert((delivery.message.id.clone().expect("an id"), reason));
        }
        source.close().await;
        dead
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends it all; gives how many are to be applied.
async fn send(ledger: &Ledger, messages: u64, killer: Option<u64>, random: &Random) -> i64 {
    let sink = RabbitMq::new(&ledger.broker.url()).unwrap().sink("").unwrap();
    let mut lanes: BTreeMap<u64, Vec<Message>> = BTreeMap::new();
    for number in 0..messages {
        let lane = random.below(LANES);
        let kind = match number {
            n if killer == Some(n) => "killer",
            n if n % 100 == 50 => "poison",
            _ => "order",
        };
        let id = format!("{kind}-{number}");
        let message = Message::new(QUEUE, id.clone()).with_id(id);
        // What kills its process would hold up its lane's neighbours for long; it has no lane.
        let message = if kind == "killer" { message } else { message.with_header("lane", lane.to_string()) };
        let copies = if random.chance(20) { 2 } else { 1 };
        lanes.entry(lane).or_default().extend(std::iter::repeat_n(message, copies));
    }
    // Each lane one after the other: what is on its way at once has no order.
    let sink_of = &sink;
    let sent = lanes.values().map(|lane| async move {
        for message in lane {
            sink_of.send(message).await.expect("it is sent");
        }
    });
    futures_util::future::join_all(sent).await;
    sink.close().await;
    let poison = (0..messages).filter(|n| n % 100 == 50 || killer == Some(*n)).count();
    i64::try_from(messages).expect("few") - i64::try_from(poison).expect("few")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_once_and_only_poison_among_the_dead() {
    let (effects, is_long) = (run(256, 600, 50_000).await, std::env::var("SEMEL_LONG").is_ok());
    let first = effects.iter().filter(|(.., again)| !again);
    in_order(first.map(|(number, lane, _)| (*number, *lane)));
    assert!(!is_long || effects.iter().any(|(.., again)| *again), "no fault struck a message");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m7_with_one_message_held_each_lane_is_in_order_whoever_dies() {
    let effects = run(1, 1_000, 5_000).await;
    in_order(effects.into_iter().map(|(number, lane, _)| (number, lane)));
}

/// Each lane is in the order in which it was sent.
fn in_order(effects: impl Iterator<Item = (u64, i64)>) {
    let mut lanes: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    effects.for_each(|(number, lane)| lanes.entry(lane).or_default().push(number));
    for (lane, numbers) in lanes {
        assert!(numbers.is_sorted_by(|one, other| one < other), "lane {lane}: {numbers:?}");
    }
}

/// A ledger of so many messages; gives what was applied. Each was once, and the dead letters are the poison.
async fn run(held_max: u32, short: u64, long: u64) -> Vec<(u64, i64, bool)> {
    let is_long = std::env::var("SEMEL_LONG").is_ok();
    let messages = if is_long { long } else { short };
    let random = Random::new(20_261_130);
    let mut ledger = Ledger::new(held_max).await;
    // It holds up whatever is not held beside it, for as long as it is tried.
    let killer = (held_max > 1).then_some(messages / 3);
    let expected = send(&ledger, messages, killer, &random).await;
    let (begun, limit) = (Instant::now(), Duration::from_secs(if is_long { 3_000 } else { 300 }));
    let (mut rounds, mut kills, mut last) = (0, 0, 0);
    loop {
        ledger.keep(2);
        tokio::time::sleep(Duration::from_millis(3_000 + random.below(3_000))).await;
        let applied = ledger.applied().await.unwrap_or(last);
        if applied == expected {
            break;
        }
        rounds += 1;
        match rounds % 9 {
            3 => {
                ledger.broker.kill().await;
                ledger.broker.restart().await;
            }
            6 => {
                ledger.database.kill().await;
                ledger.database.restart().await;
            }
            _ if applied > last => {
                ledger.kill_one(&random);
                kills += 1;
            }
            // Nothing was applied since: a round without a kill.
            _ => {}
        }
        last = applied;
        assert!(begun.elapsed() < limit, "{applied} of {expected} applied in {limit:?}, after {kills} kills");
    }
    // The dead letters may come after the last effect: what kills its process is tried for long.
    let due: BTreeSet<(String, String)> = (0..messages)
        .filter_map(|n| match n {
            n if killer == Some(n) => Some((format!("killer-{n}"), "attempts-exhausted".to_owned())),
            n if n % 100 == 50 => Some((format!("poison-{n}"), "rejected".to_owned())),
            _ => None,
        })
        .collect();
    let mut dead = BTreeSet::new();
    while !dead.is_superset(&due) {
        ledger.keep(2);
        dead.append(&mut ledger.dead().await);
        assert!(
            begun.elapsed() < limit,
            "missing among the dead: {:?}",
            due.difference(&dead).collect::<Vec<_>>()
        );
    }
    assert_eq!(dead, due);
    let effects = ledger.effects().await;
    let numbers: BTreeSet<u64> = effects.iter().map(|(number, ..)| *number).collect();
    assert_eq!(i64::try_from(numbers.len()).expect("few"), expected, "each was applied");
    assert_eq!(effects.len(), numbers.len(), "none twice");
    #[allow(clippy::print_stderr, reason = "what a person wants to know of a long run")]
    {
        let again = effects.iter().filter(|(.., again)| *again).count();
        eprintln!(
            "{messages} messages, {held_max} held at most, {kills} kills of consumers, {rounds} rounds, {again} applied \
             at a later delivery, {:?}",
            begun.elapsed()
        );
    }
    effects
}
