//! Settling a delivery, on the channel that it came by and no other.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::types::{AMQPValue, ShortString};
use lapin::{Acker, BasicProperties, Error};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connection::PATIENCE;
use super::moved::copied;
use super::publisher::Unsent;
use super::source::{Generation, KEPT_WHILE_LOOKED_AT};
use crate::grave::Grave;
use crate::source::{Deadline, Later, Receipt, ReceiptError};

/// The longest time that a queue waits, in seconds: a little over an hour. A longer pause is made of several.
const WAIT_SECONDS_MAX: u64 = 4_096;

pub(super) struct RabbitReceipt {
    pub(super) generation: Arc<Generation>,
    pub(super) lost: CancellationToken,
    pub(super) acker: Acker,
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) body: Bytes,
}

impl RabbitReceipt {
    /// The broker confirms no acknowledgement. One that failed on the way, or came too late, leaves the message with
    /// the broker: it comes again.
    fn heard(&self, said: Result<bool, Error>) -> Result<(), ReceiptError> {
        match said {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => {
                if self.acker.poisoned() {
                    self.lost.cancel();
                }
                Err(ReceiptError::Lost)
            }
        }
    }

    async fn moved_to(
        &self,
        queue: &str,
        further: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<(), ReceiptError> {
        if !self.acker.usable() {
            return self.heard(Ok(false));
        }
        let properties = copied(&self.properties, &self.exchange, &self.routing_key, further);
        let Generation { connection, publisher, .. } = &*self.generation;
        let sent = publisher.publish(connection, &"".into(), queue.into(), properties, &self.body).await;
        sent.map_err(|unsent| match unsent {
            Unsent::Unroutable(reason) => {
                ReceiptError::Unavailable(format!("queue {queue:?}: {reason}").into())
            }
            Unsent::Unavailable(error) => ReceiptError::Unavailable(error),
            Unsent::Indeterminate(error) => ReceiptError::Indeterminate(error),
        })?;
        self.ack().await
    }

    /// Makes the queue, once in a generation.
    async fn make(
        &self,
        queue: &str,
        further: impl IntoIterator<Item = (&'static str, AMQPValue)>,
    ) -> Result<(), ReceiptError> {
        let Generation { connection, publisher, made, .. } = &*self.generation;
        let mut made = made.lock().await;
        if made.contains(queue) {
            return Ok(());
        }
        match timeout(PATIENCE, publisher.declare(connection, queue, further)).await {
            Ok(Ok(())) => drop(made.insert(queue.to_owned())),
            Ok(Err(error)) => return Err(ReceiptError::Unavailable(error.into())),
            Err(elapsed) => return Err(ReceiptError::Unavailable(elapsed.into())),
        }
        Ok(())
    }
}

#[async_trait]
impl Receipt for RabbitReceipt {
    async fn ack(&self) -> Result<(), ReceiptError> {
        self.heard(self.acker.ack(BasicAckOptions::default()).await)
    }

    async fn give_back(&self) -> Result<(), ReceiptError> {
        self.heard(self.acker.nack(BasicNackOptions { requeue: true, ..BasicNackOptions::default() }).await)
    }

    async fn bury(&self, grave: &Grave) -> Result<(), ReceiptError> {
        let queue = self.generation.names.dead();
        if self.acker.usable() {
            self.make(&queue, [KEPT_WHILE_LOOKED_AT]).await?;
        }
        let sent = self.moved_to(&queue, grave.headers()).await;
        if matches!(sent, Err(ReceiptError::Unavailable(_))) {
            // Somebody deleted it, perhaps.
            self.generation.made.lock().await.remove(&queue);
        }
        sent
    }

    fn later(&self) -> Option<&dyn Later> {
        Some(self)
    }

    fn deadline(&self) -> Option<&dyn Deadline> {
        None
    }
}

#[async_trait]
impl Later for RabbitReceipt {
    async fn later(&self, after: Duration) -> Result<(), ReceiptError> {
        let seconds = wait_seconds(after);
        let queue = self.generation.names.waiting(seconds);
        if self.acker.usable() {
            self.make(&queue, waits(seconds, &self.generation.names.queue)).await?;
        }
        let sent = self.moved_to(&queue, []).await;
        if matches!(sent, Err(ReceiptError::Unavailable(_))) {
            self.generation.made.lock().await.remove(&queue);
        }
        sent
    }
}

/// The longest time for which there is a queue and that is not longer than this; a second at least.
fn wait_seconds(after: Duration) -> u64 {
    let seconds = after.as_secs().clamp(1, WAIT_SECONDS_MAX);
    1 << seconds.ilog2()
}

/// After its time a message goes back, and is kept until it has arrived there.
fn waits(seconds: u64, back_to: &str) -> [(&'static str, AMQPValue); 5] {
    let text = |text: &str| AMQPValue::LongString(text.into());
    [
        ("x-message-ttl", AMQPValue::LongLongInt(i64::try_from(seconds * 1_000).unwrap_or(i64::MAX))),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(back_to)),
        ("x-dead-letter-strategy", text("at-least-once")),
        ("x-overflow", text("reject-publish")),
    ]
}

impl fmt::Debug for RabbitReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RabbitReceipt({})", self.generation.names.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_the_longest_power_of_two_that_is_not_longer() {
        let millis = |millis| wait_seconds(Duration::from_millis(millis));
        assert_eq!([0, 999, 1_000, 1_999, 2_000, 3_999, 13_000].map(millis), [1, 1, 1, 1, 2, 2, 8]);
        assert_eq!(wait_seconds(Duration::MAX), 4_096);
    }
}
