//! Asking the store again: how long one call may take, and for how long it is repeated.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout_at};

use super::Engine;
use crate::retry::Backoff;
use crate::store::StoreError;

/// How long the engine waits for its store while a caller waits for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// One call. What takes longer may have happened. 2 s.
    pub call: Duration,
    /// A claim, with its repetitions. 3 s.
    pub claim: Duration,
    /// A settlement, with its repetitions, before the caller is answered without it. 2 s.
    pub settle: Duration,
}

/// Why a call was not repeated any more.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: StoreError,
    /// It, or one that it repeats, may have happened.
    pub(super) perhaps: bool,
}

/// "For ever", for an instant that is added to: a century.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            call: Duration::from_secs(2),
            claim: Duration::from_secs(3),
            settle: Duration::from_secs(2),
        }
    }
}

impl Engine {
    /// Repeats a call while that can help, `within` a time; the first call is always made.
    ///
    /// The error is [`StoreError::Indeterminate`] when any of the calls may have happened and the last one did
    /// nothing.
    pub(super) async fn patiently<'a, T>(
        &self,
        verb: &'static str,
        within: Duration,
        call: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.persistently(verb, within, call).await.map_err(|Failed { error, perhaps }| match error {
            StoreError::Unavailable(source) if perhaps => StoreError::Indeterminate(source),
            error => error,
        })
    }

    /// The same, and the error says whether any of the calls may have happened, whatever the last one said.
    pub(super) async fn persistently<'a, T>(
        &self,
        verb: &'static str,
        within: Duration,
        call: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, Failed> {
        let until = Instant::now() + within.min(LONGEST);
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut perhaps = false;
        loop {
            let error = match self.bounded_by(until, verb, call()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            perhaps |= matches!(error, StoreError::Indeterminate(_));
            if !error.is_transient() {
                return Err(Failed { error, perhaps });
            }
            sleep(backoff.next(&self.entropy)).await;
            if Instant::now() >= until {
                return Err(Failed { error, perhaps });
            }
            if verb == "settle" {
                self.meters.settle_repeated();
            }
        }
    }

    /// One call, for `Patience::call` at most.
    pub(super) async fn bounded<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.bounded_by(Instant::now() + self.patience.call, verb, call).await
    }

    /// One call, for `Patience::call` at most and not beyond `until`.
    async fn bounded_by<T>(
        &self,
        until: Instant,
        verb: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let until = until.min(begun + self.patience.call);
        let answer = match timeout_at(until, call).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(StoreError::Indeterminate(elapsed.into())),
        };
        self.meters.called(verb, begun.elapsed());
        if let Err(error) = &answer
            && !matches!(error, StoreError::LeaseLost)
        {
            self.meters.store_failed(verb, error);
        }
        answer
    }
}
