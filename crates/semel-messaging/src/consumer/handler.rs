//! What a program does with a message, and how it says that it did not.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel::{Cause, Fence, Key, Lease, Operation};

use super::firsts::Together;
use crate::message::Message;

/// Does what a message asks for, under a lease.
///
/// Any `Fn(Work) -> impl Future<Output = Result<(), Failure>>` is one.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Called at most once for each attempt. It is never cancelled while the process lives, except when its lease is
    /// lost to another attempt.
    async fn handle(&self, work: Work) -> Result<(), Failure>;

    /// How it runs first deliveries, if it claims them together with their effects: not at all, for most.
    fn together(&self) -> Option<&dyn Together> {
        None
    }
}

#[async_trait]
impl<F, Fut> Handler for F
where
    F: Fn(Work) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send,
{
    async fn handle(&self, work: Work) -> Result<(), Failure> {
        self(work).await
    }
}

/// One attempt at one message.
#[derive(Debug, Clone)]
pub struct Work {
    /// The message.
    pub message: Arc<Message>,
    /// What it is claimed under: the key to hand on to whatever is called from here.
    pub key: Key,
    /// A number that every claim of this message raises, for systems that can refuse an older one.
    pub fence: Fence,
    /// Which attempt this is, from 1. In an inbox the first delivery of a message that kills its process is not counted.
    pub attempt: u32,
    /// An earlier attempt may have taken effect.
    pub doubt: bool,
    inbox: Operation,
}

impl Work {
    pub(super) fn new(message: Arc<Message>, lease: &Lease, inbox: Operation) -> Work {
        let Lease { key, fence, attempts, doubt, .. } = lease.clone();
        Work { message, key, fence, attempt: attempts, doubt, inbox }
    }

    /// A first delivery, which is claimed in its handler's transaction and nowhere else.
    pub(super) fn first(message: Arc<Message>, key: Key, inbox: Operation) -> Work {
        Work { message, key, fence: Fence(0), attempt: 1, doubt: false, inbox }
    }

    /// The operation to run in a transaction of the handler's own, in the scope `inbox:NAME`: for drivers that
    /// [`Inbox`](crate::Inbox) does not know. It commits the effect and that it is done together; give what it came to
    /// to [`inbox::settled`](crate::inbox::settled).
    #[must_use]
    pub fn in_transaction(&self) -> Operation {
        self.inbox.clone()
    }
}

/// Why an attempt did not do it. What it says goes into logs and, of the latest attempts, onto a dead letter: nothing
/// secret.
///
/// An error that a handler passes on with `?` is transient: it took no effect, and is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub(super) kind: Kind,
    pub(super) said: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Transient { after: Option<Duration> },
    Permanent,
    Reused,
    Unknown { cause: Cause },
    NotRun,
}

impl Failure {
    /// It took no effect, and may succeed another time: tried again, with a pause that grows.
    #[must_use]
    pub fn transient(said: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Transient { after: None }, said: said.to_string() }
    }

    /// The same, not before so long from now.
    #[must_use]
    pub fn transient_for(after: Duration, said: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Transient { after: Some(after) }, said: said.to_string() }
    }

    /// It took no effect and never will: a dead letter, reason `rejected`.
    #[must_use]
    pub fn permanent(said: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Permanent, said: said.to_string() }
    }

    /// Its id belongs to another message, which the inbox knows: a dead letter, reason `key-reused`.
    pub(crate) fn reused() -> Failure {
        Failure { kind: Kind::Reused, said: "its id is in the inbox, with another payload".to_owned() }
    }

    /// Nobody can tell whether it took effect: what the consumer was told to do with that is done.
    #[must_use]
    pub fn unknown(said: impl fmt::Display) -> Failure {
        Failure::unknown_by(Cause::SAID, said)
    }

    /// The same, with a cause of one's own in the record, by which it can be found: [`Cause::TIMEOUT`], say.
    #[must_use]
    pub fn unknown_by(cause: Cause, said: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Unknown { cause }, said: said.to_string() }
    }

    /// Nothing was begun, because something that it needs is away: tried again for as long as that takes, and not
    /// counted as an attempt. Not for what the message itself may be the reason of.
    #[must_use]
    pub fn not_run(said: impl fmt::Display) -> Failure {
        Failure { kind: Kind::NotRun, said: said.to_string() }
    }
}

impl Failure {
    /// Whether it is that nothing was begun.
    pub(crate) fn is_not_run(&self) -> bool {
        self.kind == Kind::NotRun
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let mut said = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            said.push_str(": ");
            said.push_str(&cause.to_string());
            source = cause.source();
        }
        Failure::transient(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_an_error_that_is_passed_on_is_transient_and_says_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot book")]
        struct Outer(#[source] std::io::Error);
        let failure = Failure::from(Outer(std::io::Error::other("disk full")));
        assert_eq!(failure, Failure::transient("cannot book: disk full"));
    }
}
