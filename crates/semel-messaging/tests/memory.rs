//! The broker in this process passes the suite, with a deadline and without.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_messaging::memory::MemoryBroker;
use semel_messaging::testing::Harness;
use semel_messaging::{Message, ReceiptError, Sink, Source};

struct Memory {
    broker: MemoryBroker,
    seen: std::sync::Mutex<usize>,
}

impl Memory {
    fn new(broker: MemoryBroker) -> Memory {
        Memory { broker, seen: std::sync::Mutex::new(0) }
    }
}

#[async_trait]
impl Harness for Memory {
    fn subject(&self) -> &str {
        "orders"
    }

    async fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.broker.source())
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.broker.sink())
    }

    async fn cut(&self) {
        self.broker.cut();
    }

    async fn dead(&self) -> Vec<Message> {
        let mut seen = self.seen.lock().unwrap();
        let dead = self.broker.dead().split_off(*seen);
        *seen += dead.len();
        dead
    }
}

mod plain {
    use super::*;
    semel_messaging::broker_suite!(Memory::new(MemoryBroker::new("orders")));
}

mod with_a_deadline {
    use super::*;
    semel_messaging::broker_suite!(Memory::new(MemoryBroker::with_deadline(
        "orders",
        Duration::from_secs(60)
    )));
}

#[tokio::test(start_paused = true)]
async fn c86_a_deadline_that_is_moved_is_never_further_than_its_length() {
    let within = Duration::from_secs(10);
    let broker = MemoryBroker::with_deadline("orders", within);
    let source = broker.source();
    source.open(1).await.unwrap();
    broker.sink().send(&Message::new("orders", "a")).await.unwrap();
    let delivery = source.receive().await.unwrap();
    for _ in 0..100 {
        tokio::time::advance(Duration::from_secs(9)).await;
        delivery.receipt.deadline().unwrap().extend().await.unwrap();
    }
    tokio::time::advance(within + Duration::from_millis(1)).await;
    assert!(matches!(delivery.receipt.ack().await, Err(ReceiptError::Lost)));
    assert!(delivery.lost.is_cancelled());
    assert!(source.receive().await.unwrap().redelivered);
}
