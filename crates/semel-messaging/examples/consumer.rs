//! What it costs to apply each message once: the measured part of `./bench consumer`.
//!
//! `cargo run --release -p semel-messaging --features amqp --example consumer BROKER DATABASE WHAT MESSAGES PREFETCH`
//!
//! 1. `WHAT` is `plain` (an UPDATE in a transaction, then the acknowledgement), `by-hand` (the same with a table of ids:
//!    INSERT … ON CONFLICT DO NOTHING before it), `semel` (the inbox, one message in a transaction), `savepoints` (the inbox
//!    in batches, a savepoint for each message) or `batches` (the inbox set-wise: one UPDATE for the batch).
//! 2. All consume from the same kind of queue (quorum, durable), hold as many messages, and have [`WORKERS`] connections to
//!    PostgreSQL, one transaction after the other on each; all statements are prepared once. With batches two
//!    transactions are open at most.
//! 3. The messages, each for one of 10,000 accounts, lie in the queue before the clock starts, and accounts are vacuumed. The
//!    clock stops when all are acknowledged.
//! 4. Afterwards there must be as much money as messages say: a measurement that applied twice, or not at all, fails. What
//!    the broker has forgotten the acknowledgement of, when the connection was closed right behind it, is less than the
//!    prefetch, and is taken out.
//!
//! Three lines are printed: `begun` and `ended`, for whoever watches the servers meanwhile; and messages a second, and this
//! process's processor time for each in µs.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use semel::{BoxError, Entropy};
use semel_messaging::amqp::RabbitMq;
use semel_messaging::{Consumer, Failure, Field, Inbox, Source, Work};
use semel_store::postgres::{Begun, Clients, Statements};
use tokio_postgres::{Client, NoTls, Statement};

const ACCOUNTS: u64 = 10_000;
const WORKERS: usize = 16;
const BATCH_MAX: usize = 64;
const QUEUE: &str = "bench";

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, balance bigint NOT NULL);
    INSERT INTO account SELECT id, 0 FROM generate_series(0, 9999) AS id ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS own_inbox (id text PRIMARY KEY, made_at timestamptz NOT NULL DEFAULT now())";
const MONEY: &str = "SELECT sum(balance)::bigint FROM account";
const APPLY: &str = "UPDATE account SET balance = balance + 12 WHERE id = $1";
const APPLY_ALL: &str = "UPDATE account SET balance = balance + 12 * many FROM
    (SELECT account, count(*) AS many FROM unnest($1::bigint[]) AS account GROUP BY account) AS asked WHERE id = account";
const OWN_CLAIM: &str = "INSERT INTO own_inbox (id) VALUES ($1) ON CONFLICT (id) DO NOTHING";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [broker, database, what, messages, prefetch] = arguments.as_slice() else {
        return Err("the arguments are: BROKER DATABASE WHAT MESSAGES PREFETCH".into());
    };
    let (messages, prefetch): (usize, u16) = (messages.parse()?, prefetch.parse()?);
    semel_store::migrations(database)?.migrate().await?;
    let control = client(database).await?;
    control.batch_execute(TABLES).await?;
    let connection = Connection::connect(broker, ConnectionProperties::default()).await?;
    publish(&connection, messages).await?;
    control.batch_execute("VACUUM account").await?;
    control.batch_execute("CHECKPOINT").await?;
    let before = money(&control).await?;
    let pool = Pool::of(database).await?;

    say("begun")?;
    let (processor, begun) = (processor_seconds(), Instant::now());
    match what.as_str() {
        "plain" => by_hand(&connection, pool, false, messages, prefetch).await?,
        "by-hand" => by_hand(&connection, pool, true, messages, prefetch).await?,
        "semel" | "savepoints" | "batches" => semel(broker, database, pool, what, messages, prefetch).await?,
        other => {
            return Err(format!("{other:?} is none of plain, by-hand, semel, savepoints and batches").into());
        }
    }
    let (elapsed, processor) = (begun.elapsed().as_secs_f64(), processor_seconds() - processor);
    say("ended")?;

    let after = money(&control).await?;
    let purge = QueuePurgeOptions::default();
    let left = connection.create_channel().await?.queue_purge(QUEUE.into(), purge).await?;
    if after - before != 12 * i64::try_from(messages)? || left > u32::from(prefetch) {
        return Err(format!("{messages} messages made {before} into {after}, and {left} are left").into());
    }
    let messages = f64::from(u32::try_from(messages)?);
    say(&format!("{:.1} {:.1}", messages / elapsed, processor / messages * 1e6))
}

fn say(line: &str) -> Result<(), BoxError> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

// --- the messages ------------------------------------------------------------------------------------------------------

async fn declare(channel: &Channel) -> Result<(), BoxError> {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(QUEUE.into(), options, arguments).await?;
    Ok(())
}

/// All are confirmed when this returns.
async fn publish(connection: &Connection, messages: usize) -> Result<(), BoxError> {
    let channel = connection.create_channel().await?;
    declare(&channel).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let entropy = Entropy::system();
    let numbers: Vec<usize> = (0..messages).collect();
    for some in numbers.chunks(500) {
        let mut confirms = Vec::new();
        for _ in some {
            let id = format!("{:016x}{:016x}", entropy.next(), entropy.next());
            let account = (entropy.next() % ACCOUNTS).to_string();
            let mut headers = FieldTable::default();
            headers.insert("account".into(), AMQPValue::LongString(account.clone().into()));
            let properties = BasicProperties::default()
                .with_message_id(id.into())
                .with_headers(headers)
                .with_delivery_mode(2);
            let options = BasicPublishOptions::default();
            confirms.push(
                channel
                    .basic_publish("".into(), QUEUE.into(), options, account.as_bytes(), properties)
                    .await?,
            );
        }
        for confirm in join_all(confirms).await {
            confirm?;
        }
    }
    channel.close(200, "done".into()).await?;
    Ok(())
}

// --- PostgreSQL --------------------------------------------------------------------------------------------------------

async fn client(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn money(client: &Client) -> Result<i64, tokio_postgres::Error> {
    Ok(client.query_one(MONEY, &[]).await?.get(0))
}

/// A connection with statements.
struct Teller {
    client: Client,
    apply: Statement,
    apply_all: Statement,
    own_claim: Statement,
    semels: Statements,
}

#[derive(Clone)]
struct Pool(Arc<Mutex<Vec<Teller>>>, Arc<tokio::sync::Semaphore>);

struct Pooled {
    /// `None` once it was given back.
    teller: Option<Teller>,
    pool: Pool,
    _place: tokio::sync::OwnedSemaphorePermit,
}

impl Pool {
    async fn of(url: &str) -> Result<Pool, BoxError> {
        let mut tellers = Vec::new();
        for _ in 0..WORKERS {
            let client = client(url).await?;
            let (apply, apply_all) = (client.prepare(APPLY).await?, client.prepare(APPLY_ALL).await?);
            let (own_claim, semels) = (client.prepare(OWN_CLAIM).await?, Statements::prepare(&client).await?);
            tellers.push(Teller { apply, apply_all, own_claim, semels, client });
        }
        Ok(Pool(Arc::new(Mutex::new(tellers)), Arc::new(tokio::sync::Semaphore::new(WORKERS))))
    }

    async fn take(self) -> Result<Pooled, BoxError> {
        let place = self.1.clone().acquire_owned().await?;
        let teller = self.0.lock().expect("a list").pop();
        Ok(Pooled { teller, pool: self, _place: place })
    }
}

impl Pooled {
    fn teller(&self) -> &Teller {
        self.teller.as_ref().expect("it is given back when this is dropped")
    }

    fn teller_mut(&mut self) -> &mut Teller {
        self.teller.as_mut().expect("it is given back when this is dropped")
    }

    fn client(&self) -> &Client {
        &self.teller().client
    }

    fn semels(&self) -> &Statements {
        &self.teller().semels
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.0.lock().expect("a list").extend(self.teller.take());
    }
}

// --- by hand -----------------------------------------------------------------------------------------------------------

async fn by_hand(
    connection: &Connection,
    pool: Pool,
    remembers: bool,
    messages: usize,
    prefetch: u16,
) -> Result<(), BoxError> {
    let channel = connection.create_channel().await?;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(QUEUE.into(), "".into(), options, FieldTable::default()).await?;
    let applied = consumer.take(messages).map(|delivery| {
        let pool = pool.clone();
        async move {
            let delivery = delivery?;
            let id = delivery.properties.message_id().as_ref().map(|id| id.as_str().to_owned());
            let account: i64 = std::str::from_utf8(&delivery.data)?.parse()?;
            let mut pooled = pool.take().await?;
            apply_by_hand(pooled.teller_mut(), id.filter(|_| remembers), account).await?;
            delivery.acker.ack(BasicAckOptions::default()).await?;
            Ok::<(), BoxError>(())
        }
    });
    let mut applied = applied.map(tokio::spawn).buffer_unordered(WORKERS);
    while let Some(one) = applied.next().await {
        one??;
    }
    channel.close(200, "done".into()).await?;
    Ok(())
}

async fn apply_by_hand(teller: &mut Teller, id: Option<String>, account: i64) -> Result<(), BoxError> {
    let tx = teller.client.transaction().await?;
    if let Some(id) = id
        && tx.execute(&teller.own_claim, &[&id]).await? == 0
    {
        return Ok(());
    }
    tx.execute(&teller.apply, &[&account]).await?;
    Ok(tx.commit().await?)
}

// --- Semel -------------------------------------------------------------------------------------------------------------

async fn semel(
    broker: &str,
    database: &str,
    pool: Pool,
    what: &str,
    messages: usize,
    prefetch: u16,
) -> Result<(), BoxError> {
    let store = semel_store::connect(database, &semel_store::Options::default()).await?.store;
    let source: Arc<dyn Source> = Arc::new(RabbitMq::new(broker)?.queue(QUEUE)?.quorum());
    let done = Arc::new(Applied { left: AtomicUsize::new(messages), none: tokio::sync::Notify::new() });
    let clients = Clients::new(move || pool.clone().take().boxed(), Pooled::client).prepared(Pooled::semels);
    let inbox = match what {
        "semel" => Inbox::new(clients, apply(done.clone())),
        "savepoints" => Inbox::in_batches(clients, BATCH_MAX, apply(done.clone())),
        _ => Inbox::set_wise(clients, BATCH_MAX, apply_all(done.clone())),
    };
    let in_flight_max = if what == "semel" { WORKERS } else { 2 * BATCH_MAX };
    let consumer = Consumer::inbox("bench")
        .lane(Field::Header("account".into()))
        .in_flight_max(u32::try_from(in_flight_max)?)
        .held_max(u32::from(prefetch))
        .build(store, source, inbox)?;
    // What runs when the last one was applied is committed and acknowledged while the consumer drains.
    consumer.run(async move { done.none.notified().await }).await?;
    Ok(())
}

struct Applied {
    left: AtomicUsize,
    none: tokio::sync::Notify,
}

impl Applied {
    fn count(&self, many: usize) {
        if self.left.fetch_sub(many, Ordering::SeqCst) == many {
            self.none.notify_one();
        }
    }
}

type Handling<'t> = BoxFuture<'t, Result<(), Failure>>;

fn account(work: &Work) -> Result<i64, Failure> {
    std::str::from_utf8(&work.message.body).map_err(Failure::permanent)?.parse().map_err(Failure::permanent)
}

fn apply(
    done: Arc<Applied>,
) -> impl for<'t> Fn(&'t mut Begun<Pooled>, Work) -> Handling<'t> + Send + Sync + 'static {
    move |tx, work| {
        let done = done.clone();
        async move {
            let teller = tx.teller();
            teller.client.execute(&teller.apply, &[&account(&work)?]).await?;
            done.count(1);
            Ok(())
        }
        .boxed()
    }
}

fn apply_all(
    done: Arc<Applied>,
) -> impl for<'t> Fn(&'t mut Begun<Pooled>, Vec<Work>) -> Handling<'t> + Send + Sync + 'static {
    move |tx, works| {
        let done = done.clone();
        async move {
            let teller = tx.teller();
            let accounts: Vec<i64> = works.iter().map(account).collect::<Result<_, _>>()?;
            teller.client.execute(&teller.apply_all, &[&accounts]).await?;
            done.count(works.len());
            Ok(())
        }
        .boxed()
    }
}

/// Of this process so far.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}
