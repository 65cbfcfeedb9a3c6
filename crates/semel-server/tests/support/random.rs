//! Random numbers that a printed seed brings back.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The seed in `SEMEL_SEED`, else a new one.
    pub(crate) fn seed() -> u64 {
        match std::env::var("SEMEL_SEED") {
            Ok(seed) => seed.parse().expect("SEMEL_SEED is a number"),
            Err(_) => Random::seed_of_now() % 1_000_000_007,
        }
    }

    pub(super) fn seed_of_now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64)
    }

    /// Another sequence, for a thread of its own.
    pub(crate) fn split(&mut self) -> Random {
        Random(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From nothing to one below the bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Between the two, both included.
    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from * 1000 + self.below((to - from) * 1000 + 1))
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}
