//! Where messages go, whatever the broker.
//!
//! 1. **Sent means kept.** [`Sink::send`] succeeds only when the broker has confirmed the message and had a place for
//!    it: RabbitMQ by publisher confirms and `mandatory` (what is returned is not sent), Kafka by `acks=all`, NATS by
//!    the stream's acknowledgement.
//! 2. **A message keeps its id** however often it is sent (C111): whoever sends after [`SendError::Indeterminate`]
//!    sends the very same message, and the consumer's inbox does the rest.
//! 3. A broker that recognises a repetition says so ([`Sent::duplicate`]): it kept nothing new (C48).

use std::fmt;

use async_trait::async_trait;
use semel::BoxError;

use crate::message::Message;

/// A place to send messages to.
#[async_trait]
pub trait Sink: fmt::Debug + Send + Sync + 'static {
    /// Sends a message by its subject, and waits until the broker has it. It reconnects when it has to.
    ///
    /// # Cancel safety
    ///
    /// Dropped: as after [`SendError::Indeterminate`].
    async fn send(&self, message: &Message) -> Result<Sent, SendError>;

    /// Ends the connection, after what is being sent.
    async fn close(&self);
}

/// The broker has the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// It had it before, recognised that, and kept nothing new.
    pub duplicate: bool,
}

/// Why the broker does not have the message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The broker has no place for it: no queue is bound, no stream listens. Nothing was kept. Somebody must make the
    /// place; until then every repetition ends like this.
    #[error("the broker has no place for {subject:?}: {reason}")]
    Unroutable {
        /// Its subject.
        subject: String,
        /// In the broker's words.
        reason: String,
    },
    /// Nothing was kept. Send it again.
    #[error("the broker did not take it: {0}")]
    Unavailable(#[source] BoxError),
    /// It may have been kept. Send it again, with the same id.
    #[error("the broker did not answer: {0}")]
    Indeterminate(#[source] BoxError),
    /// This message will never be taken. Do not repeat it.
    #[error("the broker refuses the message: {0}")]
    Refused(#[source] BoxError),
}
