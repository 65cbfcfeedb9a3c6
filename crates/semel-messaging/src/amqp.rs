//! RabbitMQ.
//!
//! 1. **Its own reconnect.** lapin's recovery is off: an acknowledgement of an old channel could settle another message
//!    there (amqp-rs/lapin, 4.12.3). Here a connection with its two channels is a *generation*. A receipt belongs to one,
//!    and when that ends its deliveries are lost, at once and whether or not anybody receives.
//! 2. **Sent is confirmed and routed.** Every publish is `mandatory` on a channel with confirms. What the broker returns
//!    is not sent, although it confirms it.
//! 3. **Queues that are declared here are quorum queues**, durable and with a delivery count. [`RabbitMq::queue`] takes a
//!    queue as it is and declares nothing of that name, so that a wrong name is an error and not an empty queue;
//!    [`RabbitSource::declare`] makes it. The dead letters, `NAME.dead`, are made.
//! 4. **Later** is a queue for each power of two of seconds, `NAME.semel.8s`, made when it is needed. A message waits
//!    there for the queue's time, and the broker puts it back into `NAME`, at least once (RabbitMQ 3.10 and later). It is
//!    published there, confirmed, and then acknowledged, so it holds up nothing and no order; it may be there twice
//!    after a fault, with the same id. Too early it is given back for the rest: 13 s are 8, 4 and 1. One queue with a
//!    time for each message would not do: only its head expires. The plugin for delayed messages would, but it keeps
//!    them on one node, and Debian does not have it.
//! 5. **Dead letters** are published to `NAME.dead` with the headers of a [`Grave`](crate::Grave), confirmed, and only
//!    then is the message acknowledged. The broker's own dead-lettering knows no attempts and is not confirmed.
//!    [`RabbitSource::dead_letters`] names another queue for them. It drops none that was looked at often.
//! 6. A message that moves keeps its properties, but for what would change where it goes (`CC`, `BCC`, expiration), what
//!    the broker writes itself (`x-death`, `x-delivery-count`) and `user-id`, which only its sender may claim. Where it
//!    was published to is kept in `semel-exchange` and `semel-subject`.
//!
//! Limits. The time in which a message must be acknowledged cannot be moved (`consumer_timeout`, 30 minutes): a
//! handler that takes longer loses its delivery, ends all the same, and the copy finds its outcome. A queue with
//! `x-delivery-limit` (20 by default from RabbitMQ 4.0) drops or dead-letters by itself what that many connections
//! have lost: give it a dead-letter exchange. Order holds for one consumer; where several processes consume, declare
//! the queue with `x-single-active-consumer`. RabbitMQ 3.10 that is killed moments after a quorum queue was made may
//! forget the queue's name; it then takes nothing, and what would go there is held and said to be. An IPv6 address as
//! host is not understood by the client library.

mod connection;
mod moved;
mod properties;
mod publisher;
mod queue;
mod receipt;
mod sink;
mod source;

use std::fmt;
use std::sync::Arc;

use lapin::uri::AMQPUri;

use crate::source::SourceError;

pub use sink::RabbitSink;
pub use source::RabbitSource;

/// A broker, by its URL. Nothing is connected yet.
#[derive(Clone)]
pub struct RabbitMq {
    uri: Arc<AMQPUri>,
}

impl RabbitMq {
    /// `amqp://user:password@host:5672/vhost`, or `amqps://` for TLS, checked by the system's certificates. The virtual
    /// host `/` is written `%2f`. Without `?heartbeat=` a silent connection ends after 10 to 20 seconds.
    ///
    /// # Errors
    ///
    /// [`SourceError::Refused`] when it is no such URL.
    pub fn new(url: &str) -> Result<RabbitMq, SourceError> {
        let mut uri: AMQPUri = url.parse().map_err(|_| {
            SourceError::Refused("no URL of a broker: amqp://user:password@host:port/vhost".into())
        })?;
        uri.query.heartbeat.get_or_insert(connection::HEARTBEAT_SECONDS);
        Ok(RabbitMq { uri: Arc::new(uri) })
    }

    /// A consumer of this queue.
    ///
    /// # Errors
    ///
    /// [`SourceError::Refused`] when the name has more than [`RabbitSource::NAME_BYTES_MAX`] bytes.
    pub fn queue(&self, name: &str) -> Result<RabbitSource, SourceError> {
        RabbitSource::new(self.clone(), name)
    }

    /// A producer. A message's subject is its routing key; without an exchange that is the name of a queue.
    ///
    /// # Errors
    ///
    /// [`SourceError::Refused`] when the name has more than 255 bytes.
    pub fn sink(&self, exchange: &str) -> Result<RabbitSink, SourceError> {
        RabbitSink::new(self.clone(), exchange)
    }

    /// Host, port and virtual host.
    fn place(&self) -> String {
        let authority = &self.uri.authority;
        format!("{}:{}, virtual host {:?}", authority.host, authority.port, self.uri.vhost)
    }
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RabbitMq({})", self.place())
    }
}

impl fmt::Display for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_in_no_text() {
        let broker = RabbitMq::new("amqp://user:secret@127.0.0.1:5673/%2f").unwrap();
        assert_eq!(broker.to_string(), r#"127.0.0.1:5673, virtual host "/""#);
        for text in [format!("{broker:?}"), format!("{:?}", broker.queue("orders").unwrap())] {
            assert!(!text.contains("secret"), "{text}");
        }
        let refused = RabbitMq::new("http://user:secret@host").unwrap_err();
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }

    #[test]
    fn a_name_that_leaves_no_room_for_the_names_made_of_it_is_refused() {
        let broker = RabbitMq::new("amqp://127.0.0.1").unwrap();
        assert!(broker.queue(&"q".repeat(RabbitSource::NAME_BYTES_MAX)).is_ok());
        assert!(broker.queue(&"q".repeat(RabbitSource::NAME_BYTES_MAX + 1)).is_err());
        assert!(broker.queue("").is_err());
    }
}
