//! For people who write a source or a sink. Feature `testing`.
//!
//! - [`broker`]: one named test for every clause of [`source`](crate::source) and [`sink`](crate::sink). A broker's
//!   tests say `semel_messaging::broker_suite!(harness)` and get them all. There is no way to leave one out.
//! - [`FaultySource`]: a source whose receipts fail as a test says, before or after they happened.
//!
//! A clause waits for events, and gives up after [`PATIENCE`].

pub mod broker;
mod fault;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::message::Message;
use crate::sink::Sink;
use crate::source::Source;

pub use fault::{Faults, FaultySource, Verb, When};

/// How long a clause waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a broker's tests bring along: one queue, with nothing in it.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The subject that leads to the queue.
    fn subject(&self) -> &str;

    /// A connection of its own that consumes from the queue. Not opened.
    async fn source(&self) -> Arc<dyn Source>;

    /// A connection of its own that sends.
    async fn sink(&self) -> Arc<dyn Sink>;

    /// Cuts every connection there is. New ones can be made at once.
    async fn cut(&self);

    /// What is among the dead letters now, the oldest first, and takes it out.
    async fn dead(&self) -> Vec<Message>;
}

#[doc(hidden)]
pub use semel::testing::run;
