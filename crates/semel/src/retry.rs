//! When to try again.
//!
//! Exponential backoff with full jitter: each wait is drawn evenly between nothing and a bound that doubles up to
//! a maximum, so that callers who failed together do not come back together (Marc Brooker, "Exponential Backoff
//! And Jitter", AWS Architecture Blog, 2015).

use std::time::Duration;

use crate::environment::Entropy;

/// The waits between tries.
#[derive(Debug, Clone)]
pub struct Backoff {
    bound: Duration,
    max: Duration,
}

impl Backoff {
    /// The first wait is at most `first`, each later one at most twice the bound before it, none above `max`.
    #[must_use]
    pub fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { bound: first.min(max), max }
    }

    /// How long to wait before the next try.
    #[must_use]
    pub fn next(&mut self, entropy: &Entropy) -> Duration {
        let bound = u64::try_from(self.bound.as_micros()).unwrap_or(u64::MAX);
        self.bound = self.bound.saturating_mul(2).min(self.max);
        Duration::from_micros(entropy.next() % bound.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(40));
        let largest = Entropy::new(|| u64::MAX - 1);
        for bound in [10, 20, 40, 40] {
            assert_eq!(backoff.bound, Duration::from_millis(bound));
            assert!(backoff.next(&largest) <= Duration::from_millis(bound));
        }
    }

    #[test]
    fn the_jitter_is_full() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(40));
        assert_eq!(backoff.next(&Entropy::new(|| 0)), Duration::ZERO);
        assert_eq!(backoff.next(&Entropy::new(|| 20_000)), Duration::from_millis(20));
    }
}
