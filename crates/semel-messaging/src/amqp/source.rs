//! Consuming a queue, over as many connections as it takes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::options::{
    BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, Error};
use semel::Entropy;
use semel::retry::Backoff;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::RabbitMq;
use super::connection::PATIENCE;
use super::properties::decode;
use super::publisher::{Publisher, quorum};
use super::receipt::RabbitReceipt;
use crate::source::{Abilities, Delivery, Order, Source, SourceError};

/// Consumes one queue.
pub struct RabbitSource {
    broker: RabbitMq,
    names: Arc<Names>,
    declare: bool,
    single_active: bool,
    counts: bool,
    connected: AtomicBool,
    /// Of the last [`Source::open`]; 0 before.
    held_max: AtomicU16,
    /// One connection at a time.
    current: tokio::sync::Mutex<Option<Current>>,
    stopped: CancellationToken,
    entropy: Entropy,
}

const DEAD: &str = ".dead";

/// Whoever looks at the dead letters gives them back, and from RabbitMQ 4.0 on what was given back twenty times is
/// dropped, unless the queue says otherwise.
pub(super) const KEPT_WHILE_LOOKED_AT: (&str, AMQPValue) = ("x-delivery-limit", AMQPValue::LongInt(i32::MAX));

/// The queue, and the names that are made of its name.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) queue: String,
    /// Where its dead letters go; the queue of dead letters has none.
    dead: Option<String>,
}

impl Names {
    pub(super) fn dead(&self) -> String {
        self.dead.clone().unwrap_or_else(|| format!("{}{DEAD}", self.queue))
    }

    pub(super) fn waiting(&self, seconds: u64) -> String {
        format!("{}.semel.{seconds}s", self.queue)
    }
}

/// One connection, with the channel that deliveries come by and the one that their copies go by.
pub(super) struct Generation {
    pub(super) connection: Connection,
    pub(super) publisher: Publisher,
    pub(super) names: Arc<Names>,
    /// The queues that were declared by it.
    pub(super) made: tokio::sync::Mutex<BTreeSet<String>>,
    lost: CancellationToken,
}

struct Current {
    generation: Arc<Generation>,
    channel: Channel,
    tag: ShortString,
    /// As many as the prefetch at most.
    deliveries: UnboundedReceiver<lapin::message::Delivery>,
}

impl RabbitSource {
    /// The longest name of a queue: others are made of it.
    pub const NAME_BYTES_MAX: usize = 230;

    pub(super) fn new(broker: RabbitMq, name: &str) -> Result<RabbitSource, SourceError> {
        if name.is_empty() || name.len() > RabbitSource::NAME_BYTES_MAX {
            let most = RabbitSource::NAME_BYTES_MAX;
            return Err(SourceError::Refused(format!(
                "the name of a queue has 1 to {most} bytes, not {}",
                name.len()
            )));
        }
        Ok(RabbitSource {
            broker,
            names: Arc::new(Names {
                queue: name.to_owned(),
                dead: (!name.ends_with(DEAD)).then(|| format!("{name}{DEAD}")),
            }),
            declare: false,
            single_active: false,
            counts: false,
            connected: AtomicBool::new(false),
            held_max: AtomicU16::new(0),
            current: tokio::sync::Mutex::new(None),
            stopped: CancellationToken::new(),
            entropy: Entropy::system(),
        })
    }

    /// Makes the queue, a durable quorum queue, if there is none of that name. One that is there with other settings is
    /// an error.
    #[must_use]
    pub fn declare(self) -> RabbitSource {
        RabbitSource { declare: true, counts: true, ..self }
    }

    /// The same, and the broker delivers to one consumer at a time, the next one when that is gone
    /// (`x-single-active-consumer`): so lanes keep their order over several processes.
    #[must_use]
    pub fn declare_single_active(self) -> RabbitSource {
        RabbitSource { declare: true, single_active: true, counts: true, ..self }
    }

    /// Its dead letters go there, instead of to `NAME.dead`.
    ///
    /// # Errors
    ///
    /// [`SourceError::Refused`] when that is no name for a queue, or the name of this one.
    pub fn dead_letters(self, name: &str) -> Result<RabbitSource, SourceError> {
        let queue = self.names.queue.clone();
        if name.is_empty() || name.len() > RabbitSource::NAME_BYTES_MAX || name == queue {
            return Err(SourceError::Refused(format!("{name:?} cannot be the dead letters of {queue:?}")));
        }
        Ok(RabbitSource { names: Arc::new(Names { queue, dead: Some(name.to_owned()) }), ..self })
    }

    /// The queue holds dead letters itself: it has none of its own, whatever it is called.
    #[must_use]
    pub fn of_dead_letters(self) -> RabbitSource {
        let queue = self.names.queue.clone();
        RabbitSource { names: Arc::new(Names { queue, dead: None }), ..self }
    }

    /// Whether there is a connection, as far as is known: between a loss and the next one there is none.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// The queue was made by somebody else, as a quorum queue: it counts its deliveries, and an inbox leaves the first one
    /// to that count. Never say it of another queue: there a message that kills its process would come for ever.
    #[must_use]
    pub fn quorum(self) -> RabbitSource {
        RabbitSource { counts: true, ..self }
    }

    async fn connect(&self) -> Result<Current, SourceError> {
        let connection = self.broker.connect(&self.names.queue).await?;
        let began = timeout(PATIENCE, self.begin(connection)).await;
        let began = began
            .map_err(|elapsed| self.broker.unreachable(elapsed))?
            .map_err(|error| self.broker.refused_or_not(error))?;
        self.connected.store(true, Ordering::Relaxed);
        Ok(began)
    }

    async fn begin(&self, connection: Connection) -> Result<Current, Error> {
        let channel = connection.create_channel().await?;
        let queue = ShortString::from(self.names.queue.as_str());
        let options =
            QueueDeclareOptions { passive: !self.declare, durable: true, ..QueueDeclareOptions::default() };
        let single = self.single_active.then_some(("x-single-active-consumer", AMQPValue::Boolean(true)));
        let arguments = if self.declare { quorum(single) } else { FieldTable::default() };
        channel.queue_declare(queue.clone(), options, arguments).await?;
        let publisher = Publisher::default();
        if let Some(dead) = &self.names.dead {
            publisher.declare(&connection, dead, [KEPT_WHILE_LOOKED_AT]).await?;
        }
        channel.basic_qos(self.held_max(), BasicQosOptions::default()).await?;
        let consume = (BasicConsumeOptions::default(), FieldTable::default());
        let consumer = channel.basic_consume(queue, "".into(), consume.0, consume.1).await?;
        let (names, made) = (self.names.clone(), tokio::sync::Mutex::default());
        let generation = Generation { connection, publisher, names, made, lost: CancellationToken::new() };
        let (to, deliveries) = unbounded_channel();
        let tag = consumer.tag();
        tokio::spawn(pump(consumer, to, generation.lost.clone(), self.stopped.clone()));
        Ok(Current { generation: Arc::new(generation), channel, tag, deliveries })
    }

    /// Connects for as long as it takes.
    async fn connect_again(&self) -> Result<Current, SourceError> {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        loop {
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return Err(SourceError::Closed),
                connected = self.connect() => match connected {
                    Ok(current) => return Ok(current),
                    Err(error) => tracing::error!(queue = self.names.queue, %error, "cannot consume; trying again"),
                },
            }
            tokio::select! {
                () = self.stopped.cancelled() => return Err(SourceError::Closed),
                () = sleep(backoff.next(&self.entropy)) => {}
            }
        }
    }

    fn held_max(&self) -> u16 {
        self.held_max.load(Ordering::Relaxed)
    }

    fn delivery(&self, generation: &Arc<Generation>, delivered: lapin::message::Delivery) -> Delivery {
        let lapin::message::Delivery { exchange, routing_key, redelivered, properties, data, acker, .. } =
            delivered;
        let (body, lost) = (bytes::Bytes::from(data), generation.lost.child_token());
        let message = Arc::new(decode(&routing_key, &properties, body.clone()));
        let before = properties.headers().as_ref().and_then(|table| table.inner().get("x-delivery-count"));
        let before = before.and_then(AMQPValue::as_long_long_int).and_then(|count| u32::try_from(count).ok());
        // It was given back for later, or is a dead letter of another queue's: its count begins anew.
        let has_waited = properties.headers().as_ref().is_some_and(|table| table.contains_key("x-death"));
        let receipt = RabbitReceipt {
            generation: generation.clone(),
            lost: lost.clone(),
            acker,
            exchange,
            routing_key,
            properties,
            body,
        };
        Delivery {
            message,
            origin: self.names.queue.as_str().into(),
            number: None,
            redelivered: redelivered || has_waited,
            // A quorum queue writes nothing for none.
            deliveries: self.counts.then(|| before.unwrap_or(0)),
            lost,
            receipt: Arc::new(receipt),
        }
    }
}

/// Takes deliveries from the channel until it ends, so that their loss is known although nobody receives.
async fn pump(
    mut consumer: lapin::Consumer,
    to: UnboundedSender<lapin::message::Delivery>,
    lost: CancellationToken,
    stopped: CancellationToken,
) {
    while let Some(Ok(delivery)) = consumer.next().await {
        if to.send(delivery).is_err() {
            break;
        }
    }
    // A consumer that was cancelled here ends too, and what it delivered can still be settled.
    if !stopped.is_cancelled() {
        lost.cancel();
    }
}

#[async_trait]
impl Source for RabbitSource {
    fn abilities(&self) -> Abilities {
        Abilities {
            broker: "rabbitmq",
            later: true,
            deadline: false,
            counts: self.counts,
            order: Order::Queue,
        }
    }

    async fn open(&self, held_max: u32) -> Result<(), SourceError> {
        if self.stopped.is_cancelled() {
            return Err(SourceError::Closed);
        }
        self.held_max.store(u16::try_from(held_max).unwrap_or(u16::MAX), Ordering::Relaxed);
        *self.current.lock().await = Some(self.connect().await?);
        Ok(())
    }

    async fn receive(&self) -> Result<Delivery, SourceError> {
        if self.held_max() == 0 {
            return Err(SourceError::Closed);
        }
        // Waiting for the lock too ends when the source is stopped, which takes the lock itself.
        let mut current = tokio::select! {
            biased;
            () = self.stopped.cancelled() => return Err(SourceError::Closed),
            current = self.current.lock() => current,
        };
        loop {
            let held = match current.as_mut() {
                Some(held) => held,
                None => current.insert(self.connect_again().await?),
            };
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return Err(SourceError::Closed),
                delivered = held.deliveries.recv() => match delivered {
                    Some(delivered) => return Ok(self.delivery(&held.generation, delivered)),
                    // Its connection, or its channel, or its queue has ended.
                    None => {
                        held.generation.lost.cancel();
                        self.connected.store(false, Ordering::Relaxed);
                        *current = None;
                    }
                },
            }
        }
    }

    async fn stop(&self) {
        self.stopped.cancel();
        let mut current = self.current.lock().await;
        let Some(held) = current.as_mut() else { return };
        let _ = held.channel.basic_cancel(held.tag.clone(), BasicCancelOptions::default()).await;
        held.deliveries.close();
        // What nobody has received goes to whoever consumes next, without waiting for the end of what runs.
        while let Some(delivered) = held.deliveries.recv().await {
            let _ =
                delivered.acker.nack(BasicNackOptions { requeue: true, ..BasicNackOptions::default() }).await;
        }
    }

    async fn close(&self) {
        self.stop().await;
        if let Some(held) = self.current.lock().await.take() {
            let _ = timeout(PATIENCE, held.generation.connection.close(200, "done".into())).await;
            held.generation.lost.cancel();
        }
        self.connected.store(false, Ordering::Relaxed);
    }
}

impl fmt::Debug for RabbitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RabbitSource({}, queue {:?})", self.broker, self.names.queue)
    }
}
