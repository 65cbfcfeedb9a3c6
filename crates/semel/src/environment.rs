//! What the core is given from outside: a clock and randomness.
//!
//! The core reaches for neither by itself; `clippy.toml` beside this crate forbids it. A program takes the
//! system's, a simulation hands in its own, and the same code runs in both. Waiting goes through
//! `tokio::time`, which a test can pause.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A point in time on a store's clock: milliseconds since 1970-01-01 UTC.
///
/// Instants stay inside the store. What crosses [`Store`](crate::Store) is a [`Duration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Later than every other instant: what "for ever" becomes.
    pub const NEVER: Timestamp = Timestamp(i64::MAX);

    /// This instant moved on by `duration`; [`Timestamp::NEVER`] where that cannot be counted.
    #[must_use]
    pub fn after(self, duration: Duration) -> Timestamp {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.0.saturating_add(millis))
    }

    /// The time from `earlier` until this instant; zero where the clock has stepped back between them.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Where a store reads the time. The store's clock alone decides leases and retention (K5).
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The wall clock now.
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where the core is handed the machine's clock"
    )]
    fn now(&self) -> Timestamp {
        let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(0).after(elapsed)
    }
}

/// Draws for which the operating system is asked once.
const DRAWN_AT_ONCE: usize = 64;

/// Where attempt ids and jitter come from.
#[derive(Clone)]
pub struct Entropy(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Entropy {
    /// Randomness from a function: a simulation's seeded generator.
    pub fn new(next: impl Fn() -> u64 + Send + Sync + 'static) -> Entropy {
        Entropy(Arc::new(next))
    }

    /// Randomness from the operating system, which is asked once for many draws. A process that forks after the
    /// first draw must make a new one.
    ///
    /// # Panics
    ///
    /// When drawing from it, if the operating system has none to give: an attempt id that another process
    /// may also have is worse than no service.
    #[must_use]
    pub fn system() -> Entropy {
        let drawn = Mutex::new(Vec::new());
        Entropy::new(move || {
            let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
            if drawn.is_empty() {
                let mut bytes = [0; 8 * DRAWN_AT_ONCE];
                getrandom::fill(&mut bytes).expect("the operating system gives randomness");
                drawn.extend(bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes));
            }
            drawn.pop().expect("it was just filled")
        })
    }

    /// The next 64 random bits.
    #[must_use]
    pub fn next(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}
