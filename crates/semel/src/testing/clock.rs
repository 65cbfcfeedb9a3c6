//! A clock that moves when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::environment::{Clock, Timestamp};

/// A clock that stands still until it is moved. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows some moment of the year 2025.
    #[must_use]
    pub fn new() -> ManualClock {
        ManualClock(Arc::new(AtomicI64::new(1_750_000_000_000)))
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        self.step(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
    }

    /// Sets it forward, or back, by so many milliseconds: what an administrator or a time server does.
    pub fn step(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
