//! How much one scope may have going on in this process, asked before the store is (K11): a client that floods
//! must not take the store away from the others.
//!
//! 1. **Open claims**: what is being claimed or run now. It ends with its settlement; one whose answer
//!    never came, when it was given back.
//! 2. **New keys**: after so many in one second, every claim of the scope is refused until the second is over;
//!    replays too, because before the store is asked nobody knows what a claim is.
//! 3. A refusal says nothing about the operation: an earlier attempt may have run.
//! 4. Each process counts its own. A scope is forgotten when it has nothing open and its second is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::Scope;

/// What may go on at once in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Claims and runs of one scope at once, waiting included. 10,000.
    pub open_claims_max: u32,
    /// New keys of one scope in one second. 100,000.
    pub new_keys_a_second_max: u32,
    /// Callers that wait for another attempt, in all scopes together. Beyond it a caller is told at once that the
    /// operation is in flight. 1,000.
    pub waiters_max: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { open_claims_max: 10_000, new_keys_a_second_max: 100_000, waiters_max: 1_000 }
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Scopes are looked through for what can be forgotten when there are twice as many as the last look left, and
/// not below this many.
const FEW: usize = 1_024;

/// What each scope has going on.
#[derive(Debug)]
pub(super) struct Scopes {
    bounds: Bounds,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    scopes: BTreeMap<Scope, Use>,
    look_at: usize,
}

#[derive(Debug)]
struct Use {
    open: u32,
    new: u32,
    /// When the second began.
    since: Instant,
}

/// One open claim. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Place {
    scopes: Arc<Scopes>,
    scope: Scope,
}

impl Scopes {
    pub(super) fn new(bounds: Bounds) -> Arc<Scopes> {
        let used = Used { scopes: BTreeMap::new(), look_at: FEW };
        Arc::new(Scopes { bounds, used: Mutex::new(used) })
    }

    /// A place for one more claim, if the scope has one left.
    pub(super) fn enter(self: &Arc<Scopes>, scope: &Scope) -> Option<Place> {
        let now = Instant::now();
        let mut used = self.used();
        used.forget_idle(now);
        let entry = used.scopes.entry(scope.clone()).or_insert(Use { open: 0, new: 0, since: now });
        if now.duration_since(entry.since) >= SECOND {
            (entry.new, entry.since) = (0, now);
        }
        if entry.open >= self.bounds.open_claims_max || entry.new >= self.bounds.new_keys_a_second_max {
            return None;
        }
        entry.open += 1;
        Some(Place { scopes: self.clone(), scope: scope.clone() })
    }

    /// Numbers only, so a panic elsewhere leaves them right.
    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Used {
    fn forget_idle(&mut self, now: Instant) {
        if self.scopes.len() < self.look_at {
            return;
        }
        self.scopes.retain(|_, scope| scope.open > 0 || now.duration_since(scope.since) < SECOND);
        self.look_at = (2 * self.scopes.len()).max(FEW);
    }
}

impl Place {
    /// The claim made a new key.
    pub(super) fn counts_new(&self) {
        if let Some(scope) = self.scopes.used().scopes.get_mut(&self.scope) {
            scope.new += 1;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(scope) = self.scopes.used().scopes.get_mut(&self.scope) {
            scope.open -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(name: &str) -> Scope {
        Scope::new(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_scope_has_so_many_places_and_another_has_its_own() {
        let scopes = Scopes::new(Bounds { open_claims_max: 2, ..Bounds::default() });
        let (one, two) = (scopes.enter(&scope("a")), scopes.enter(&scope("a")));
        assert!(one.is_some() && two.is_some());
        assert!(scopes.enter(&scope("a")).is_none());
        assert!(scopes.enter(&scope("b")).is_some());
        drop(one);
        assert!(scopes.enter(&scope("a")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_has_so_many_new_keys() {
        let scopes = Scopes::new(Bounds { new_keys_a_second_max: 2, ..Bounds::default() });
        for _ in 0..2 {
            scopes.enter(&scope("a")).expect("a place").counts_new();
        }
        assert!(scopes.enter(&scope("a")).is_none());
        assert!(scopes.enter(&scope("b")).is_some());
        tokio::time::advance(SECOND).await;
        assert!(scopes.enter(&scope("a")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_scopes_are_forgotten() {
        let scopes = Scopes::new(Bounds::default());
        let _held = scopes.enter(&scope("held"));
        for number in 0..10 * FEW {
            tokio::time::advance(Duration::from_millis(10)).await;
            drop(scopes.enter(&scope(&number.to_string())));
        }
        let left = scopes.used().scopes.len();
        assert!(left <= 2 * FEW, "{left} scopes are remembered");
        assert!(scopes.used().scopes.contains_key(&scope("held")));
    }
}
