//! What happens to each order: from the seed alone, so that the clients and the service of both runs know the same.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// All orders of a demo.
#[derive(Debug, Clone)]
pub struct Story {
    /// Brings the same orders back.
    pub seed: u64,
    /// In the order in which they are placed.
    pub orders: Vec<Order>,
}

/// One order of one customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Its number, which is its key: `order-0042`.
    pub key: String,
    /// In cents.
    pub amount: u64,
    /// What happens to it.
    pub kind: Kind,
    /// When it is placed, from the beginning.
    pub placed_after: Duration,
    /// How long its client waits for an answer.
    pub patience: Duration,
    /// For whatever else is drawn about it.
    pub seed: u64,
}

/// What happens to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Ordinary,
    /// The button is pressed twice: two requests at the same instant.
    PressedTwice,
    /// The client hangs up before the answer, and comes back.
    HangsUp,
    /// The service charges, and answers later than the client waits.
    Slow,
    /// The service charges, and the connection breaks before the answer.
    AnswerLost,
    /// The connection breaks before the service has charged.
    RequestLost,
    /// The client hangs up, and while the service still works on it the gateway dies, where there is one.
    Witness,
}

/// Of a hundred orders. The others are ordinary, and one is the witness.
const SHARES: [(Kind, usize); 5] = [
    (Kind::PressedTwice, 12),
    (Kind::HangsUp, 10),
    (Kind::Slow, 10),
    (Kind::AnswerLost, 5),
    (Kind::RequestLost, 3),
];

/// Orders in a second, where the bounds do not say otherwise.
const RATE: f64 = 50.0;

impl Story {
    /// The story of a seed.
    pub fn new(seed: u64, count: u32) -> Story {
        let mut random = Random::new(seed);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut kinds = Vec::with_capacity(count);
        for (kind, share) in SHARES {
            kinds.extend(std::iter::repeat_n(kind, (count * share / 100).max(1)));
        }
        kinds.resize(count.saturating_sub(1), Kind::Ordinary);
        random.shuffle(&mut kinds);
        // Not at the very end: the others shall meet the gateway's death too.
        kinds.insert(kinds.len() * 2 / 5, Kind::Witness);
        let over = lasts(count);
        let mut times: Vec<Duration> = kinds.iter().map(|_| random.between(Duration::ZERO, over)).collect();
        times.sort();
        let orders = kinds.into_iter().zip(times).enumerate().map(|(at, (kind, placed_after))| Order {
            key: format!("order-{:04}", at + 1),
            amount: 100 + random.below(20_000),
            kind,
            placed_after,
            patience: random.between(Duration::from_millis(700), Duration::from_millis(1_300)),
            seed: random.next(),
        });
        Story { seed, orders: orders.collect() }
    }

    /// The order that is shown in full.
    ///
    /// # Panics
    ///
    /// Never: each story has one.
    pub fn witness(&self) -> &Order {
        let found = self.orders.iter().find(|order| order.kind == Kind::Witness);
        found.unwrap_or(&self.orders[0])
    }

    /// An order by its key.
    pub fn order(&self, key: &str) -> Option<&Order> {
        let number: usize = key.strip_prefix("order-")?.parse().ok()?;
        self.orders.get(number.checked_sub(1)?).filter(|order| order.key == key)
    }

    /// How many meet a fault.
    pub fn faults(&self) -> usize {
        self.orders.iter().filter(|order| order.kind != Kind::Ordinary).count()
    }
}

/// How long orders are placed for.
fn lasts(count: usize) -> Duration {
    let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    Duration::from_secs_f64((count / RATE).clamp(2.0, 5.0))
}

/// A seed for who gives none.
pub fn seed_of_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs() ^ u64::from(now.subsec_nanos())) % 100_000
}

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From nothing to one below the bound, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Between the two, both included.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros(from) + self.below(micros(to).saturating_sub(micros(from)) + 1))
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap_or(last);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_brings_the_same_story_back_and_another_one_does_not() {
        let (one, other) = (Story::new(7, 40).orders, Story::new(8, 40).orders);
        assert_eq!(one, Story::new(7, 40).orders);
        assert_ne!(one, other);
    }

    #[test]
    fn every_story_has_every_kind_and_one_witness() {
        for (seed, count) in [(1, 10), (2, 11), (3, 40), (4, 240), (5, 2_000)] {
            let story = Story::new(seed, count);
            let count_of = |kind| story.orders.iter().filter(|order| order.kind == kind).count();
            assert_eq!(story.orders.len(), count as usize);
            assert!(SHARES.iter().all(|(kind, _)| count_of(*kind) > 0), "{seed}");
            assert_eq!(count_of(Kind::Witness), 1);
            assert_eq!(story.witness().kind, Kind::Witness);
            assert!(story.orders.iter().all(|order| story.order(&order.key) == Some(order)));
        }
        assert_eq!(Story::new(1, 10).order("order-0011"), None);
        assert_eq!(Story::new(1, 10).order("order-1"), None);
    }
}
