//! The bridge's source: RabbitMQ's, watched.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_messaging::amqp::RabbitSource;
use semel_messaging::source::{Abilities, Delivery, Source, SourceError};
use tokio_util::sync::CancellationToken;

/// How often it is looked whether there is a connection.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Passes everything on, and knows when the queue was opened for the first time.
#[derive(Debug)]
pub struct Watched {
    source: RabbitSource,
    opened: CancellationToken,
}

impl Watched {
    pub fn new(source: RabbitSource) -> Watched {
        Watched { source, opened: CancellationToken::new() }
    }

    pub fn is_connected(&self) -> bool {
        self.source.is_connected()
    }

    /// Waits until the queue is open.
    pub async fn opened(&self) {
        self.opened.cancelled().await;
    }

    /// Shows whether there is a connection.
    pub async fn show_for_ever(self: Arc<Watched>) {
        loop {
            metrics::gauge!("semel_broker_connected").set(f64::from(u8::from(self.is_connected())));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[async_trait]
impl Source for Watched {
    fn abilities(&self) -> Abilities {
        self.source.abilities()
    }

    async fn open(&self, held_max: u32) -> Result<(), SourceError> {
        self.source.open(held_max).await?;
        self.opened.cancel();
        Ok(())
    }

    async fn receive(&self) -> Result<Delivery, SourceError> {
        self.source.receive().await
    }

    async fn stop(&self) {
        self.source.stop().await;
    }

    async fn close(&self) {
        self.source.close().await;
    }
}
