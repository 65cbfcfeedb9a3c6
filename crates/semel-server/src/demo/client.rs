//! The clients: they behave as good ones do, and know nothing of what is in front of the service.
//!
//! 1. Every request of an order has the same key and the same body.
//! 2. A client waits as long as its patience is, then tries again; so it does after a broken or refused connection, and
//!    after 408, 409, 425, 429, 502, 503 and 504: not before `Retry-After`, else with exponential backoff and jitter.
//! 3. An order ends with a 200 or 201. Any other status is a surprise, which nobody should see.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{Method, header};
use semel_http::IDEMPOTENT_REPLAYED;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::ledger::Charge;
use super::service::Asked;
use super::story::{Kind, Order, Random, Story};
use super::wire::{self, Call, Reply, Unanswered};

/// When a client that means to hang up does so: the service has charged by then, and not answered.
const HANGS_UP_AFTER: Duration = Duration::from_millis(150);

/// The first pause, doubled from try to try.
const BACKOFF: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// All clients of a run.
#[derive(Debug)]
pub struct Storm<'a> {
    story: &'a Story,
    address: SocketAddr,
    done: Cell<usize>,
    witness_hung_up: Notify,
}

/// What a client saw of one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Its key.
    pub order: String,
    /// In the order of time.
    pub seen: Vec<(SystemTime, Seen)>,
}

/// Something that a client saw or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A request was begun.
    Sent,
    /// The client hung up.
    HungUp,
    /// No answer in time.
    TimedOut,
    /// No connection.
    Refused,
    /// The connection broke.
    Broke,
    /// An answer that says: later.
    Later { status: u16, code: String, retry_after: Option<u64> },
    /// The end: the charge that it names.
    Charged { status: u16, number: u64, replayed: bool },
    /// What no client should be told.
    Surprise { status: u16, body: String },
}

impl<'a> Storm<'a> {
    /// Clients of an address.
    pub fn new(story: &'a Story, address: SocketAddr) -> Storm<'a> {
        Storm { story, address, done: Cell::new(0), witness_hung_up: Notify::new() }
    }

    /// Places every order, and carries each one through.
    pub async fn run(&self) -> Vec<Carried> {
        let begun = Instant::now();
        let carried = self.story.orders.iter().map(|order| self.carry(order, begun));
        let mut carried: Vec<Carried> = carried.collect::<FuturesUnordered<_>>().collect().await;
        carried.sort_by(|one, other| one.order.cmp(&other.order));
        carried
    }

    /// How many orders there are.
    pub fn orders(&self) -> usize {
        self.story.orders.len()
    }

    /// How many have ended.
    pub fn done(&self) -> usize {
        self.done.get()
    }

    /// Waits until the client of that order is gone.
    pub async fn witness_hung_up(&self) {
        self.witness_hung_up.notified().await;
    }

    async fn carry(&self, order: &Order, begun: Instant) -> Carried {
        let diary = RefCell::new(Vec::new());
        let one = Customer { storm: self, order, diary: &diary };
        sleep_until(begun + order.placed_after).await;
        match order.kind {
            Kind::PressedTwice => {
                tokio::join!(one.order(1), one.order(2));
            }
            Kind::HangsUp | Kind::Witness => {
                one.hang_up().await;
                one.order(1).await;
            }
            _ => one.order(1).await,
        }
        self.done.set(self.done.get() + 1);
        Carried { order: order.key.clone(), seen: diary.into_inner() }
    }
}

struct Customer<'a> {
    storm: &'a Storm<'a>,
    order: &'a Order,
    diary: &'a RefCell<Vec<(SystemTime, Seen)>>,
}

impl Customer<'_> {
    fn saw(&self, seen: Seen) {
        self.diary.borrow_mut().push((SystemTime::now(), seen));
    }

    async fn send(&self) -> Result<Reply, Unanswered> {
        self.saw(Seen::Sent);
        let Order { key, amount, .. } = self.order;
        let asked = Asked { order: key.clone(), amount: *amount };
        let body = serde_json::to_string(&asked).unwrap_or_default();
        let call = Call { method: Method::POST, path: "/charges", key: Some(key), body };
        wire::call(self.storm.address, &call).await
    }

    /// Sends, does not wait for the answer, and comes back after a while.
    async fn hang_up(&self) {
        let mut random = Random::new(self.order.seed);
        // The answer is not looked at, should it be early.
        let _ = timeout(HANGS_UP_AFTER, self.send()).await;
        self.saw(Seen::HungUp);
        if self.order.kind == Kind::Witness {
            self.storm.witness_hung_up.notify_one();
        }
        sleep(random.between(Duration::from_millis(300), Duration::from_millis(600))).await;
    }

    /// Tries until there is an end.
    async fn order(&self, press: u64) {
        let mut random = Random::new(self.order.seed ^ press);
        for tried in 0_u32.. {
            let seen = match timeout(self.order.patience, self.send()).await {
                Ok(Ok(reply)) => judged(&reply),
                Ok(Err(Unanswered::Refused)) => Seen::Refused,
                Ok(Err(Unanswered::Broken)) => Seen::Broke,
                Err(_) => Seen::TimedOut,
            };
            let pause = pause(&seen, tried, &mut random);
            self.saw(seen);
            let Some(pause) = pause else { return };
            sleep(pause).await;
        }
    }
}

/// What an answer says.
fn judged(reply: &Reply) -> Seen {
    let (status, headers) = (reply.head.status.as_u16(), &reply.head.headers);
    let charge = serde_json::from_slice::<Charge>(&reply.body);
    match (status, charge) {
        (200 | 201, Ok(charge)) => {
            let replayed = headers.contains_key(IDEMPOTENT_REPLAYED);
            Seen::Charged { status, number: charge.number, replayed }
        }
        (408 | 409 | 425 | 429 | 502 | 503 | 504, _) => {
            let problem: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let retry_after =
                headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Seen::Later { status, code: problem["code"].as_str().unwrap_or_default().to_owned(), retry_after }
        }
        _ => Seen::Surprise { status, body: String::from_utf8_lossy(&reply.body).into_owned() },
    }
}

/// How long to wait before the next try; `None` at the end.
fn pause(seen: &Seen, tried: u32, random: &mut Random) -> Option<Duration> {
    let backoff = BACKOFF.saturating_mul(1 << tried.min(8)).min(BACKOFF_MAX);
    match seen {
        Seen::Charged { .. } | Seen::Surprise { .. } => None,
        Seen::Later { retry_after: Some(seconds), .. } => {
            Some(Duration::from_secs(*seconds) + random.between(Duration::ZERO, BACKOFF))
        }
        _ => Some(random.between(backoff / 2, backoff)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_comes_back_before_retry_after_and_backoff_has_an_upper_bound() {
        let mut random = Random::new(1);
        let later = |retry_after| Seen::Later { status: 409, code: String::new(), retry_after };
        for tried in 0..40 {
            assert!(pause(&later(Some(2)), tried, &mut random).unwrap() >= Duration::from_secs(2));
            let pause = pause(&later(None), tried, &mut random).unwrap();
            assert!(pause >= BACKOFF / 2 && pause <= BACKOFF_MAX, "{pause:?}");
        }
        let end = Seen::Charged { status: 201, number: 1, replayed: false };
        assert_eq!(pause(&end, 0, &mut random), None);
    }
}
