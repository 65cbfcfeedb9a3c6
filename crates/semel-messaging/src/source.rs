//! Where messages come from, whatever the broker.
//!
//! 1. **A delivery is settled by its receipt**, and by nothing else: acknowledged, given back, or buried. A receipt
//!    belongs to the connection, the channel's generation or the partition's assignment that the delivery came by;
//!    it never settles another delivery.
//! 2. **A delivery is lost** when the broker will deliver the message again whatever happens here: its connection was
//!    cut, its partition taken away, its deadline over. [`Delivery::lost`] says so, and every verb of its receipt
//!    answers [`ReceiptError::Lost`]. What has not begun is dropped then; what runs is for the engine to settle, and
//!    the next delivery finds out.
//! 3. **At least once.** A receipt's verb may have happened although its answer did not arrive, and an acknowledgement
//!    that the broker never heard is followed by another delivery. A source promises only that nothing is lost.
//! 4. **Buried means confirmed.** [`Receipt::bury`] acknowledges the message only after the broker has confirmed its
//!    copy among the dead letters. When it fails in between, there may be two copies; they carry the same id.
//! 5. **Order** is what [`Abilities::order`] says, and only for what is not given back: a message that comes later
//!    comes after those that were behind it. So whoever keeps an order holds the message instead.
//! 6. **A source reconnects by itself**, in [`Source::receive`], for as long as it is asked; [`Source::open`] does not:
//!    there a wrong password is an error at once, with the words of the broker.
//! 7. **At most `held_max` deliveries** are neither settled nor lost at any time.
//! 8. **What only some brokers can** is handed out by the receipt, so that nobody asks in vain: [`Later`] (RabbitMQ
//!    through queues that wait, NATS; not Kafka, whose consumers hold what is to be tried again) and [`Deadline`]
//!    (NATS, SQS; RabbitMQ has a deadline of half an hour that nobody can move).
//!
//! | | RabbitMQ | Kafka | NATS JetStream | in process |
//! |---|---|---|---|---|
//! | ack | delivery tag, same channel | contiguous offset, committed | double ack | yes |
//! | give back | requeue | seek | nak | yes |
//! | later | waiting queues | no | nak with delay | yes |
//! | deadline | fixed, 30 min | the group's poll interval | in progress | where set |
//! | bury | publish, confirm, ack | produce, then commit | publish, then term | yes |
//! | deliveries counted | quorum queues | no | yes | yes |
//! | order | queue, one consumer | partition | none after a redelivery | queue, one consumer |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel::BoxError;
use tokio_util::sync::CancellationToken;

use crate::grave::Grave;
use crate::message::Message;

/// A queue, a topic or a stream that messages come from.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// What it can.
    fn abilities(&self) -> Abilities;

    /// Connects, and holds at most `held_max` deliveries from then on.
    ///
    /// # Errors
    ///
    /// [`SourceError`], at once: nothing is tried again.
    async fn open(&self, held_max: u32) -> Result<(), SourceError>;

    /// The next delivery. It waits for as long as there is none, and reconnects for as long as that takes.
    ///
    /// # Errors
    ///
    /// [`SourceError::Closed`] after [`stop`](Source::stop) or [`close`](Source::close), or before
    /// [`open`](Source::open); anything else only when reconnecting can never help.
    ///
    /// # Cancel safety
    ///
    /// A delivery is not lost with a future that is dropped: it is given by the next call, or comes again.
    async fn receive(&self) -> Result<Delivery, SourceError>;

    /// Receives no more. What was received can still be settled.
    async fn stop(&self);

    /// Ends the connection. What is not settled comes again, to whoever consumes next.
    async fn close(&self);
}

/// What a source can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// The broker's name: for people, and in metrics.
    pub broker: &'static str,
    /// Its receipts give [`Later`].
    pub later: bool,
    /// Its receipts give [`Deadline`].
    pub deadline: bool,
    /// [`Delivery::deliveries`] is counted by the broker, durably.
    pub counts: bool,
    /// What it keeps the order of.
    pub order: Order,
}

/// What a source keeps the order of, while nothing is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Of nothing.
    None,
    /// Of everything, as long as one consumer has the queue.
    Queue,
    /// Of each partition, which one consumer has at a time.
    Partition,
}

/// A message, delivered.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The message.
    pub message: Arc<Message>,
    /// Where it came from: a queue, or topic, partition and offset. With [`Delivery::number`] it names the delivery
    /// for people.
    pub origin: Arc<str>,
    /// The broker's own name for the message, where it has one that redelivery does not change: stream and sequence,
    /// or topic, partition and offset.
    pub number: Option<String>,
    /// The broker says that it may have been delivered before.
    pub redelivered: bool,
    /// How often it was delivered before, by the broker's own durable count.
    pub deliveries: Option<u32>,
    /// The broker delivers it again, whatever happens here.
    pub lost: CancellationToken,
    /// Settles it.
    pub receipt: Arc<dyn Receipt>,
}

/// Settles one delivery. Only one verb succeeds, once; a verb that failed may be tried again.
///
/// # Cancel safety
///
/// Dropping a verb's future leaves the delivery as after [`ReceiptError::Indeterminate`].
#[async_trait]
pub trait Receipt: fmt::Debug + Send + Sync + 'static {
    /// Done: the broker may forget the message.
    async fn ack(&self) -> Result<(), ReceiptError>;

    /// Not done: deliver it again, to anybody, at once.
    async fn give_back(&self) -> Result<(), ReceiptError>;

    /// Given up: a copy with the grave's headers is confirmed among the dead letters, then the message is acknowledged.
    async fn bury(&self, grave: &Grave) -> Result<(), ReceiptError>;

    /// How to have it delivered again later, where the broker can.
    fn later(&self) -> Option<&dyn Later>;

    /// How to move the time by which it must be settled, where there is one that can be moved.
    fn deadline(&self) -> Option<&dyn Deadline>;
}

/// Gives a message back for later, without holding up what is behind it.
#[async_trait]
pub trait Later: Send + Sync {
    /// Not done: deliver it again, to anybody. Not after `after` has passed: a broker that knows only some times takes
    /// the longest of them that is not longer, and whoever gets it too early gives it back for the rest.
    async fn later(&self, after: Duration) -> Result<(), ReceiptError>;
}

/// Moves the time by which a delivery must be settled.
#[async_trait]
pub trait Deadline: Send + Sync {
    /// How long a delivery may be held unless the deadline is moved.
    fn within(&self) -> Duration;

    /// The deadline is [`within`](Deadline::within) from now: never so long after the last one (C86).
    async fn extend(&self) -> Result<(), ReceiptError>;
}

/// Why a delivery was not settled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiptError {
    /// The broker delivers the message again. There is nothing to be done here.
    #[error("the delivery is lost: the broker delivers the message again")]
    Lost,
    /// Nothing happened. Try again while the delivery is not lost.
    #[error("the broker did not take it: {0}")]
    Unavailable(#[source] BoxError),
    /// It may have happened. Trying again may leave a second copy, with the same id.
    #[error("the broker did not answer: {0}")]
    Indeterminate(#[source] BoxError),
}

/// Why nothing is received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The broker cannot be reached, or the connection ended. Trying again can help.
    #[error("cannot reach the broker at {at}: {reason}")]
    Unreachable {
        /// Host and port, without a password.
        at: String,
        /// In the words of the system.
        reason: BoxError,
    },
    /// The broker refuses. Trying again does not help; the configuration does.
    #[error("{0}")]
    Refused(String),
    /// It was closed here, or never opened.
    #[error("the source is closed")]
    Closed,
}
