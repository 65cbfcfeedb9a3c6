//! What the service counts, and how it is asked for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::wire::{self, Call};

/// Everything that a service has seen since its start, as `GET /ledger` gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Requests to charge, in the order of their arrival.
    pub requests: Vec<Arrived>,
    /// Charges, in their order.
    pub charges: Vec<Charge>,
    /// Questions of the gateway whether an order was charged.
    pub questions: Vec<Question>,
}

/// A request to charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    pub order: String,
    /// Microseconds since 1970.
    pub at: u64,
}

/// A charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// From 1.
    pub number: u64,
    pub order: String,
    /// In cents.
    pub amount: u64,
    /// Microseconds since 1970.
    pub at: u64,
}

/// A question, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub order: String,
    pub charged: bool,
    /// Microseconds since 1970.
    pub at: u64,
}

/// `GET /ledger/summary`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub requests: usize,
    pub charges: usize,
    pub orders_charged: usize,
}

impl Ledger {
    /// How often each order was charged; those that never were are not in it.
    pub fn charges_by_order(&self) -> BTreeMap<&str, usize> {
        let mut count = BTreeMap::new();
        for charge in &self.charges {
            *count.entry(charge.order.as_str()).or_insert(0) += 1;
        }
        count
    }

    /// Its sums.
    pub fn summary(&self) -> Summary {
        Summary {
            requests: self.requests.len(),
            charges: self.charges.len(),
            orders_charged: self.charges_by_order().len(),
        }
    }

    /// The first charge of an order.
    pub fn charge_of(&self, order: &str) -> Option<&Charge> {
        self.charges.iter().find(|charge| charge.order == order)
    }
}

/// Now, as a ledger writes it.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// The time that a ledger wrote.
pub fn time(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

/// The service's sums; `None` where it does not answer.
pub async fn summary(service: SocketAddr) -> Option<Summary> {
    serde_json::from_slice(&asked(service, "/ledger/summary").await?).ok()
}

/// The charge of an order, if there is one.
pub async fn charge_of(service: SocketAddr, order: &str) -> Option<Charge> {
    serde_json::from_slice(&asked(service, &format!("/charges/{order}")).await?).ok()
}

/// The whole ledger as the service wrote it.
pub async fn whole(service: SocketAddr) -> Option<Vec<u8>> {
    asked(service, "/ledger").await
}

async fn asked(service: SocketAddr, path: &str) -> Option<Vec<u8>> {
    const WITHIN: Duration = Duration::from_secs(5);
    let call = Call { method: Method::GET, path, key: None, body: String::new() };
    let reply = timeout(WITHIN, wire::call(service, &call)).await.ok()?.ok()?;
    (reply.head.status == http::StatusCode::OK).then(|| reply.body.to_vec())
}
