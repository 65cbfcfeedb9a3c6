//! Seeded randomness, and the seeds that a test runs with.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::environment::Entropy;

/// A small generator (SplitMix64): the same seed gives the same numbers, on every machine and in every version.
///
/// Clones draw from the same stream.
#[derive(Debug, Clone)]
pub struct Random(Arc<AtomicU64>);

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(Arc::new(AtomicU64::new(seed)))
    }

    /// The next 64 bits.
    pub fn next(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(step, Ordering::SeqCst).wrapping_add(step);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    ///
    /// When `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).expect("an index fits")]
    }

    /// A generator of its own, that this one seeds.
    #[must_use]
    pub fn fork(&self) -> Random {
        Random::new(self.next())
    }

    /// The core's view of it.
    #[must_use]
    pub fn entropy(&self) -> Entropy {
        let random = self.clone();
        Entropy::new(move || random.next())
    }
}

/// Calls `test` with each seed from 0 to `count`, or with the one that `SEMEL_SEED` names. `SEMEL_SEEDS` replaces
/// `count`. A seed that fails is printed with the way to run it again, and the panic goes on.
///
/// # Panics
///
/// When `test` does, or when one of the variables is no number.
pub fn each_seed(count: u64, test: impl Fn(u64)) {
    let seeds = match from_environment("SEMEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_environment("SEMEL_SEEDS").unwrap_or(count),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            tracing::error!(seed, "a seeded test failed");
            #[allow(clippy::print_stderr, reason = "this is how a person learns which seed to run again")]
            {
                eprintln!("failed with seed {seed}; to run it again: SEMEL_SEED={seed} cargo test …");
            }
            resume_unwind(panic);
        }
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_gives_others() {
        let draw = |seed| (0..8).map(|_| Random::new(seed).next()).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn it_is_splitmix64() {
        assert_eq!(Random::new(1_234_567).next(), 6_457_827_717_110_365_317);
    }
}
