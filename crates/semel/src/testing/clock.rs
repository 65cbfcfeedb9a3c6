//! Clocks for stores under test.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::environment::{Clock, Timestamp};

/// Some moment of the year 2025.
const START: i64 = 1_750_000_000_000;

/// A clock that stands still until it is moved. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows some moment of the year 2025.
    #[must_use]
    pub fn new() -> ManualClock {
        ManualClock(Arc::new(AtomicI64::new(START)))
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
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

/// A clock that runs with tokio's time, which a test can pause, and that can be set. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    begun: Instant,
    offset: Arc<AtomicI64>,
}

impl VirtualClock {
    /// A clock that shows some moment of the year 2025 now.
    #[must_use]
    pub fn new() -> VirtualClock {
        VirtualClock { begun: Instant::now(), offset: Arc::new(AtomicI64::new(START)) }
    }

    /// Sets it forward, or back, by so many milliseconds: what an administrator or a time server does.
    pub fn step(&self, millis: i64) {
        self.offset.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for VirtualClock {
    fn default() -> VirtualClock {
        VirtualClock::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.offset.load(Ordering::SeqCst)).after(self.begun.elapsed())
    }
}
