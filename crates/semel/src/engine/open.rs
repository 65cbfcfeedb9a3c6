//! What waits for somebody: a bounded look, for whoever shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Engine;
use crate::store::{Cause, StoreError, View};

/// What is open in the store: unknown, the lapsed included, and dead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Open {
    /// May or may not have taken effect.
    pub unknown: Waiting,
    /// Given up.
    pub dead: Waiting,
    /// Whether there was more than was looked at. What was looked at is the oldest, so [`Waiting::oldest`] holds.
    pub more: bool,
}

/// Records in one of those states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many, by cause.
    pub by_cause: BTreeMap<String, u32>,
    /// How long the oldest of them has been in its state.
    pub oldest: Option<Duration>,
}

/// Records read at once.
const PAGE: u32 = 250;

impl Engine {
    /// Counts what is open: the oldest first, `at_most` so many. It reads, and never waits for a writer.
    ///
    /// # Errors
    ///
    /// When a page cannot be read.
    pub async fn open(&self, at_most: u32) -> Result<Open, StoreError> {
        let (mut open, mut after, mut left) = (Open::default(), None, at_most);
        while left > 0 {
            let limit = left.min(PAGE);
            let page = self.bounded("unsettled", self.store.unsettled(after.as_ref(), limit)).await?;
            let read = u32::try_from(page.len()).unwrap_or(limit);
            for entry in &page {
                open.count(&entry.view, entry.since);
            }
            after = page.into_iter().next_back().map(|entry| entry.cursor);
            if read < limit {
                return Ok(open);
            }
            left -= read.min(left);
        }
        let behind = self.bounded("unsettled", self.store.unsettled(after.as_ref(), 1)).await?;
        Ok(Open { more: !behind.is_empty(), ..open })
    }
}

impl Open {
    fn count(&mut self, view: &View, since: Duration) {
        match view {
            View::Unknown { cause } => self.unknown.count(cause, since),
            View::Dead { cause } => self.dead.count(cause, since),
            _ => {}
        }
    }
}

impl Waiting {
    fn count(&mut self, cause: &Cause, since: Duration) {
        match self.by_cause.get_mut(cause.as_str()) {
            Some(count) => *count += 1,
            None => drop(self.by_cause.insert(cause.as_str().to_owned(), 1)),
        }
        self.oldest = self.oldest.max(Some(since));
    }

    /// How many.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.by_cause.values().sum()
    }
}
