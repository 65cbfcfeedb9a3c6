//! Keeping a delivery: the broker's deadline is moved for as long as the message is held, whether it runs or waits for
//! its lane (M7). The lease is the engine's, renewed there.
//!
//! 1. The deadline is moved at a third of it, to its full length from now (C86). A failed call is repeated.
//! 2. When the deadline passes without that, the delivery is lost: what has not begun does not begin (C21). What runs
//!    is settled by the engine, and the next delivery finds out.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::source::{Delivery, ReceiptError};

/// Keeps a delivery until it is dropped.
#[derive(Debug)]
pub(super) struct Kept(Option<JoinHandle<()>>);

impl Kept {
    /// Of a broker whose deadline cannot be moved it does nothing.
    pub(super) fn new(delivery: &Delivery) -> Kept {
        let has_deadline = delivery.receipt.deadline().is_some();
        Kept(has_deadline.then(|| tokio::spawn(keep(delivery.clone()))))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

async fn keep(delivery: Delivery) {
    let Some(deadline) = delivery.receipt.deadline() else { return };
    let within = deadline.within();
    let mut until = Instant::now() + within;
    while !delivery.lost.is_cancelled() {
        sleep((within / 3).min(until.saturating_duration_since(Instant::now()))).await;
        let asked = Instant::now();
        match deadline.extend().await {
            Ok(()) => until = asked + within,
            Err(ReceiptError::Lost) => return delivery.lost.cancel(),
            Err(error) if Instant::now() < until => {
                tracing::warn!(origin = %delivery.origin, %error, "cannot move the deadline of a message");
                sleep((within / 30).max(Duration::from_millis(1))).await;
            }
            Err(_) => return delivery.lost.cancel(),
        }
    }
}
