//! Publishing, until the broker has confirmed and routed it.

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::protocol::AMQPErrorKind;
use lapin::protocol::AMQPSoftError;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Error, ErrorKind};
use semel::BoxError;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::connection::PATIENCE;

/// A channel with confirms, made again when it was closed for somebody's mistake.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    channel: Mutex<Option<Channel>>,
}

/// Why something is not published.
#[derive(Debug)]
pub(super) enum Unsent {
    /// There is no place for it.
    Unroutable(String),
    /// Nothing was kept.
    Unavailable(BoxError),
    /// It may have been kept.
    Indeterminate(BoxError),
}

impl Publisher {
    /// Publishes, and waits until the broker has it.
    pub(super) async fn publish(
        &self,
        connection: &Connection,
        exchange: &ShortString,
        routing_key: ShortString,
        properties: BasicProperties,
        body: &[u8],
    ) -> Result<(), Unsent> {
        let channel = self.channel(connection).await?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let published = async {
            let confirm =
                channel.basic_publish(exchange.clone(), routing_key, options, body, properties).await?;
            confirm.await
        };
        match timeout(PATIENCE, published).await {
            Ok(Ok(Confirmation::Ack(None))) => Ok(()),
            // Confirmed, and returned: there was no queue for it.
            Ok(Ok(Confirmation::Ack(Some(returned)))) => {
                Err(Unsent::Unroutable(returned.reply_text.to_string()))
            }
            Ok(Ok(Confirmation::Nack(_))) => {
                Err(Unsent::Indeterminate("the broker could not keep it".into()))
            }
            Ok(Ok(Confirmation::NotRequested)) => {
                Err(Unsent::Indeterminate("the channel has no confirms".into()))
            }
            Ok(Err(error)) => Err(failed(error)),
            // A confirm that comes later would be taken for another message's: the channel is not used again.
            Err(elapsed) => {
                *self.channel.lock().await = None;
                Err(Unsent::Indeterminate(elapsed.into()))
            }
        }
    }

    /// Makes a durable quorum queue, if there is none of that name.
    pub(super) async fn declare(
        &self,
        connection: &Connection,
        name: &str,
        further: impl IntoIterator<Item = (&'static str, AMQPValue)>,
    ) -> Result<(), Error> {
        let channel = self.open(connection).await?;
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name.into(), options, quorum(further)).await.map(drop)
    }

    async fn channel(&self, connection: &Connection) -> Result<Channel, Unsent> {
        let opened = timeout(PATIENCE, self.open(connection)).await;
        let opened = opened.map_err(|elapsed| Unsent::Unavailable(elapsed.into()))?;
        opened.map_err(|error| Unsent::Unavailable(error.into()))
    }

    async fn open(&self, connection: &Connection) -> Result<Channel, Error> {
        let mut held = self.channel.lock().await;
        if let Some(channel) = held.as_ref().filter(|channel| channel.status().connected()) {
            return Ok(channel.clone());
        }
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(held.insert(channel).clone())
    }
}

/// The arguments of a quorum queue.
pub(super) fn quorum(further: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    for (name, value) in further {
        arguments.insert(name.into(), value);
    }
    arguments
}

fn failed(error: Error) -> Unsent {
    match error.kind() {
        // An exchange that is not there: the channel is closed for it, and nothing was kept.
        ErrorKind::ProtocolError(said) if *said.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
            Unsent::Unroutable(said.get_message().to_string())
        }
        // Before anything was written.
        ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidConnectionState(..) => {
            Unsent::Unavailable(error.into())
        }
        _ => Unsent::Indeterminate(error.into()),
    }
}
