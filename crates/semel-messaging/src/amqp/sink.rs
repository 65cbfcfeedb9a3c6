//! Sending to an exchange.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lapin::Connection;
use lapin::types::ShortString;
use tokio::sync::Mutex;

use super::RabbitMq;
use super::properties::{encode, short};
use super::publisher::{Publisher, Unsent};
use crate::message::Message;
use crate::sink::{SendError, Sent, Sink};
use crate::source::SourceError;

/// Sends to one exchange of a broker; it connects when it has something to send.
pub struct RabbitSink {
    broker: RabbitMq,
    exchange: ShortString,
    link: Mutex<Option<Arc<Link>>>,
}

struct Link {
    connection: Connection,
    publisher: Publisher,
}

impl RabbitSink {
    pub(super) fn new(broker: RabbitMq, exchange: &str) -> Result<RabbitSink, SourceError> {
        let exchange = short(exchange)
            .map_err(|error| SourceError::Refused(format!("no name of an exchange: {error}")))?;
        Ok(RabbitSink { broker, exchange, link: Mutex::default() })
    }

    async fn link(&self) -> Result<Arc<Link>, SourceError> {
        let mut held = self.link.lock().await;
        if let Some(link) = held.as_ref().filter(|link| link.connection.status().connected()) {
            return Ok(link.clone());
        }
        let link = Link { connection: self.broker.connect("sink").await?, publisher: Publisher::default() };
        Ok(held.insert(Arc::new(link)).clone())
    }
}

#[async_trait]
impl Sink for RabbitSink {
    async fn send(&self, message: &Message) -> Result<Sent, SendError> {
        let properties = encode(message).map_err(SendError::Refused)?;
        let subject = short(&message.subject).map_err(SendError::Refused)?;
        let link = self.link().await.map_err(|error| SendError::Unavailable(error.into()))?;
        let sent = link
            .publisher
            .publish(&link.connection, &self.exchange, subject, properties, &message.body)
            .await;
        match sent {
            Ok(()) => Ok(Sent { duplicate: false }),
            Err(Unsent::Unroutable(reason)) => {
                Err(SendError::Unroutable { subject: message.subject.clone(), reason })
            }
            Err(Unsent::Unavailable(error)) => Err(SendError::Unavailable(error)),
            Err(Unsent::Indeterminate(error)) => Err(SendError::Indeterminate(error)),
        }
    }

    async fn close(&self) {
        if let Some(link) = self.link.lock().await.take() {
            let _ = link.connection.close(200, "done".into()).await;
        }
    }
}

impl fmt::Debug for RabbitSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RabbitSink({}, exchange {:?})", self.broker, self.exchange.as_str())
    }
}
