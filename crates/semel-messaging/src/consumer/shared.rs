//! What the turns of one consumer share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use semel::retry::Backoff;
use semel::{Engine, Entropy, Policy, Probe};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::firsts::Firsts;
use super::handler::Handler;
use crate::field::Field;
use crate::identity::Naming;
use crate::observe::Meters;

pub(super) struct Shared {
    pub(super) name: Arc<str>,
    pub(super) engine: Engine,
    pub(super) entropy: Entropy,
    pub(super) policy: Arc<Policy>,
    pub(super) naming: Naming,
    pub(super) lane: Option<Field>,
    /// Who is asked about what is unknown.
    pub(super) asking: Option<Asking>,
    pub(super) retry: Retry,
    pub(super) body_bytes_max: usize,
    pub(super) handler: Arc<dyn Handler>,
    /// First deliveries are run together with their claims: the handler can, and the broker counts.
    pub(super) counts: bool,
    pub(super) firsts: Firsts,
    /// Places for those that run.
    pub(super) slots: Arc<Semaphore>,
    /// Nothing begins any more.
    pub(super) stopping: CancellationToken,
    pub(super) meters: Meters,
    pub(super) engine_meters: Arc<semel::observe::Meters>,
}

/// Who knows whether a message took effect.
#[derive(Debug, Clone)]
pub(super) struct Asking {
    pub(super) probe: Arc<dyn Probe>,
    /// Counted from the first delivery; after that a person has to say.
    pub(super) ask_for: Duration,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Consumer({})", self.name)
    }
}

/// The pauses between attempts: full jitter under a bound that doubles (M5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The bound of the pause after the first attempt. 200 ms.
    pub first: Duration,
    /// No pause is longer. 30 s.
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { first: Duration::from_millis(200), max: Duration::from_secs(30) }
    }
}

impl Retry {
    /// The pause after so many attempts.
    pub(super) fn after(&self, attempts: u32, entropy: &Entropy) -> Duration {
        Backoff::new(self.bound(attempts), self.max).next(entropy)
    }

    fn bound(&self, attempts: u32) -> Duration {
        self.first.saturating_mul(2u32.saturating_pow(attempts.saturating_sub(1))).min(self.max)
    }

    /// The longest that all pauses of so many attempts can be together.
    pub(super) fn horizon(&self, attempts_max: u32) -> Duration {
        let doubling = attempts_max.min(32);
        let bounds = (1..=doubling).map(|attempts| self.bound(attempts));
        bounds.fold(self.max.saturating_mul(attempts_max - doubling), Duration::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_pauses_are_drawn_under_a_bound_that_doubles() {
        let retry = Retry { first: Duration::from_secs(1), max: Duration::from_secs(10) };
        let (least, most) = (Entropy::new(|| 0), |bound: u64| Entropy::new(move || bound));
        for (attempts, bound) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (50, 10), (u32::MAX, 10)] {
            assert_eq!(
                retry.after(attempts, &most(bound * 1_000_000)),
                Duration::from_secs(bound),
                "{attempts}"
            );
            assert_eq!(retry.after(attempts, &least), Duration::ZERO);
        }
    }

    #[test]
    fn m10_the_horizon_is_the_sum_of_the_bounds() {
        let retry = Retry { first: Duration::from_secs(1), max: Duration::from_secs(10) };
        assert_eq!(retry.horizon(5), Duration::from_secs(1 + 2 + 4 + 8 + 10));
        assert_eq!(retry.horizon(100), Duration::from_secs(15 + 96 * 10));
    }
}
