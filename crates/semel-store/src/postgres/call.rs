//! What a lane is asked: the verbs that write.

use std::time::Duration;

use semel::record::Unfit;
use semel::{Claim, ClaimRequest, Key, Lease, Scope, Settlement};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::Failure;

/// One call of a verb that writes.
#[derive(Debug, Clone)]
pub(super) enum Verb {
    Claim(ClaimRequest),
    Settle(Lease, Ending),
}

/// A fenced write.
#[derive(Debug, Clone)]
pub(super) enum Ending {
    Renew(Duration),
    Settlement(Settlement),
}

/// What it came to.
#[derive(Debug)]
pub(super) enum Answer {
    Claim(Claim),
    Settled(Result<(), Unfit>),
}

/// A verb, who waits for it, and since when.
pub(super) struct Call {
    pub(super) verb: Verb,
    pub(super) answer: oneshot::Sender<Result<Answer, Failure>>,
    pub(super) since: Instant,
}

impl Verb {
    pub(super) fn place(&self) -> (&Key, &Scope) {
        match self {
            Verb::Claim(request) => (&request.key, &request.scope),
            Verb::Settle(lease, _) => (&lease.key, &lease.scope),
        }
    }
}

impl Call {
    /// Whoever asked may have gone; then nobody hears it.
    pub(super) fn answer(self, answer: Result<Answer, Failure>) {
        let _ = self.answer.send(answer);
    }
}
