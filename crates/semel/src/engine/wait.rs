//! Waiting for another attempt of the same operation, where a caller asks for that (H8).
//!
//! 1. While the operation is in flight it is claimed again, a whole claim each time, after a pause that grows from
//!    50 ms to 1 s with jitter. Nothing else tells that the other attempt has ended: it may run in another process.
//! 2. Waiting ends when the operation is no longer in flight, when its time is over, when the caller has gone away,
//!    and when the engine is stopping. Then the last answer stands. A claim that was just given is run, whoever has
//!    gone away (K9).
//! 3. So many wait at once in one engine (`Bounds::waiters_max`), each in a place of its scope. One more does not
//!    wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep};

use super::patience::LONGEST;
use super::{Answer, Bounds, Engine};
use crate::retry::Backoff;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// One operation's waiting.
#[derive(Debug)]
pub(super) struct Waiting {
    until: Instant,
    pauses: Backoff,
    place: Option<OwnedSemaphorePermit>,
}

pub(super) fn places(bounds: Bounds) -> Arc<Semaphore> {
    let most = usize::try_from(bounds.waiters_max).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
}

impl Waiting {
    pub(super) fn new(wait: Duration) -> Waiting {
        let until = Instant::now() + wait.min(LONGEST);
        Waiting { until, pauses: Backoff::new(2 * PAUSE_MIN, PAUSE_MAX), place: None }
    }
}

impl Engine {
    /// Pauses. Whether to claim again.
    pub(super) async fn waits<T>(
        &self,
        waiting: &mut Waiting,
        reply: &mut oneshot::Sender<Answer<T>>,
    ) -> bool {
        let left = waiting.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        if waiting.place.is_none() {
            waiting.place = self.waiters.clone().try_acquire_owned().ok();
        }
        if waiting.place.is_none() {
            return false;
        }
        let pause = waiting.pauses.next(&self.entropy).max(PAUSE_MIN).min(left);
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => false,
            () = reply.closed() => false,
            () = sleep(pause) => true,
        }
    }
}
