//! Dead letters: looking at them, sending them back, and throwing them away (M6).
//!
//! 1. **A redrive knows what became of the message.** One whose effect is there is not sent back: it would be
//!    acknowledged as a duplicate. One that was given up is: its record is released first, so that it runs and counts
//!    anew (C48). One of which nobody knows is not sent back until a person has resolved its key.
//! 2. **Released, then sent and confirmed, then taken out.** A redrive that dies in between is repeated: a released
//!    record is sent again, and one that has run meanwhile is told apart by rule 1. So nothing runs twice for it.
//! 3. **The message keeps its id**, its payload and its headers; what is written on its grave is taken off.
//! 4. What is not chosen, or refused, stays where it is, in its errand. While one person looks, another sees nothing of
//!    what the first one holds.
//!
//! Two copies of one message may be among the dead. The second is told apart once the first has run; before, both run
//! under one key, one after the other, and the second finds the first one's outcome.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use semel::{Cause, Engine, Entry, Key, Resolved, Scope, Settlement, Store, StoreError, View, Word};
use tokio::time::timeout;

use crate::grave::{Grave, reason};
use crate::message::Message;
use crate::sink::{SendError, Sink};
use crate::source::{Delivery, ReceiptError, Source, SourceError};

/// The dead letters of one queue.
pub struct DeadLetters {
    sources: Box<dyn Fn() -> Arc<dyn Source> + Send + Sync>,
    sink: Arc<dyn Sink>,
    store: Arc<dyn Store>,
    engine: Engine,
    remember_for: Duration,
}

/// What becomes of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// Sent back, or thrown away.
    Gone,
    /// It would be.
    WouldGo,
    /// Its effect is there, since the key's first delivery so long ago. Throw it away.
    Done {
        /// Time since the key's first claim.
        age: Duration,
    },
    /// It stays, and this is why.
    Stays(&'static str),
}

/// How far to go, and who says so.
#[derive(Debug, Clone, Default)]
pub struct Errand {
    /// At most so many.
    pub limit: usize,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Who, and why: for the key's history.
    pub word: Word,
}

/// Why it was not done to the end. What was done before stands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedriveError {
    /// The dead letters cannot be read.
    #[error("the dead letters: {0}")]
    Source(#[from] SourceError),
    /// One of them was not taken out; it may have been sent back already, and is told apart the next time.
    #[error("a dead letter was not taken out: {0}")]
    Receipt(#[from] ReceiptError),
    /// It was not sent back, or nobody knows whether it was. Do it again.
    #[error("not sent back: {0}")]
    Send(#[from] SendError),
    /// Its record was not read or not released.
    #[error("its record: {0}")]
    Store(#[from] StoreError),
}

/// So many are looked at in one go.
const LOOKED_AT_MAX: u32 = 10_000;

/// After so long without another one, there is none.
const LAST: Duration = Duration::from_secs(2);

impl DeadLetters {
    /// Each time from a source of their own; sent back through this sink, by the name of the queue they came from.
    /// Released records are remembered for as long as the consumer remembers.
    pub fn new(
        sources: impl Fn() -> Arc<dyn Source> + Send + Sync + 'static,
        sink: Arc<dyn Sink>,
        store: Arc<dyn Store>,
        engine: Engine,
        remember_for: Duration,
    ) -> DeadLetters {
        DeadLetters { sources: Box::new(sources), sink, store, engine, remember_for }
    }

    /// All of them, the oldest first; they stay.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub async fn list(&self) -> Result<Vec<Arc<Message>>, RedriveError> {
        let look = self.look(LOOKED_AT_MAX).await?;
        let letters = look.letters().cloned().collect();
        look.close().await;
        Ok(letters)
    }

    /// Sends those back that are chosen and may go.
    ///
    /// # Errors
    ///
    /// [`RedriveError`]; those before it are done.
    pub async fn redrive(
        &self,
        errand: &Errand,
        choose: impl Fn(&Message) -> bool,
    ) -> Result<Vec<(Arc<Message>, Fate)>, RedriveError> {
        self.each(errand, choose, async |delivery| self.redrive_one(delivery, errand).await).await
    }

    /// Throws those away that are chosen.
    ///
    /// # Errors
    ///
    /// [`RedriveError`]; those before it are done.
    pub async fn discard(
        &self,
        errand: &Errand,
        choose: impl Fn(&Message) -> bool,
    ) -> Result<Vec<(Arc<Message>, Fate)>, RedriveError> {
        self.each(errand, choose, async |delivery| self.discard_one(delivery, errand).await).await
    }

    /// Takes hold of so many of them at most until the look is closed, the oldest first: nobody else sees them meanwhile.
    /// Where there are fewer, it takes two seconds to be sure of that.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub async fn look(&self, at_most: u32) -> Result<Look<'_>, RedriveError> {
        let source = (self.sources)();
        match gather(&*source, at_most.min(LOOKED_AT_MAX)).await {
            Ok(held) => Ok(Look { dead: self, source, held }),
            Err(error) => {
                source.close().await;
                Err(error.into())
            }
        }
    }

    async fn each(
        &self,
        errand: &Errand,
        choose: impl Fn(&Message) -> bool,
        one: impl AsyncFn(&Delivery) -> Result<Fate, RedriveError>,
    ) -> Result<Vec<(Arc<Message>, Fate)>, RedriveError> {
        let look = self.look(LOOKED_AT_MAX).await?;
        let done = async {
            let mut fates = Vec::new();
            for delivery in look.held.iter().filter(|delivery| choose(&delivery.message)).take(errand.limit) {
                fates.push((delivery.message.clone(), one(delivery).await?));
            }
            Ok(fates)
        };
        let done = done.await;
        look.close().await;
        done
    }

    async fn redrive_one(&self, delivery: &Delivery, errand: &Errand) -> Result<Fate, RedriveError> {
        let message = &delivery.message;
        let Some(origin) = message.headers.text(Grave::ORIGIN) else {
            return Ok(Fate::Stays("nothing says where it came from"));
        };
        if message.headers.text(Grave::REASON) == Some(reason::KEY_REUSED) {
            return Ok(Fate::Stays("its id belongs to another message: it would only come back"));
        }
        let entry = self.record(message).await?;
        if let Some(fate) = entry.as_ref().and_then(stays) {
            return Ok(fate);
        }
        if errand.dry_run {
            return Ok(Fate::WouldGo);
        }
        if let Some(entry) = entry.filter(|entry| matches!(entry.view, View::Dead { .. }))
            && self.release(&entry, &errand.word).await? == Resolved::Moved
        {
            return Ok(Fate::Stays(MOVED));
        }
        self.sink.send(&risen(message, origin)).await?;
        delivery.receipt.ack().await?;
        Ok(Fate::Gone)
    }

    /// A record that was given up says from then on who threw its message away; one of which nobody knows stays open.
    async fn discard_one(&self, delivery: &Delivery, errand: &Errand) -> Result<Fate, RedriveError> {
        if errand.dry_run {
            return Ok(Fate::WouldGo);
        }
        let entry = self.record(&delivery.message).await?;
        if let Some(entry) = entry.filter(|entry| matches!(entry.view, View::Dead { .. })) {
            let discarded = Settlement::Bury { cause: Cause::new(DISCARDED) };
            if self.engine.resolve_by(&entry, &discarded, false, &errand.word).await? == Resolved::Moved {
                return Ok(Fate::Stays(MOVED));
            }
        }
        delivery.receipt.ack().await?;
        Ok(Fate::Gone)
    }

    /// What the store knows of a message's key: for people.
    ///
    /// # Errors
    ///
    /// When the store does not answer.
    pub async fn entry(&self, message: &Message) -> Result<Option<Entry>, StoreError> {
        self.record(message).await
    }

    /// What the store knows of it. For the choice of words only: the release is fenced.
    async fn record(&self, message: &Message) -> Result<Option<Entry>, StoreError> {
        let name = |header| message.headers.text(header);
        let (Some(scope), Some(key)) = (name(Grave::SCOPE), name(Grave::KEY)) else { return Ok(None) };
        let (Ok(scope), Ok(key)) = (Scope::new(scope), Key::new(key)) else { return Ok(None) };
        self.store.find(&scope, &key).await
    }

    async fn release(&self, entry: &Entry, word: &Word) -> Result<Resolved, StoreError> {
        let (not_before, remember_for) = (None, self.remember_for);
        let settlement = Settlement::Release { not_before, unbind: false, ran: true, remember_for };
        self.engine.resolve_by(entry, &settlement, false, word).await
    }
}

const MOVED: &str = "its record has changed meanwhile: look again";

/// The cause of a record whose message was thrown away.
const DISCARDED: &str = "discarded";

/// Dead letters that are held.
#[derive(Debug)]
pub struct Look<'a> {
    dead: &'a DeadLetters,
    source: Arc<dyn Source>,
    held: Vec<Delivery>,
}

impl Look<'_> {
    /// They, the oldest first.
    pub fn letters(&self) -> impl ExactSizeIterator<Item = &Arc<Message>> {
        self.held.iter().map(|delivery| &delivery.message)
    }

    /// Whether there may be more than are held.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.held.len() >= LOOKED_AT_MAX as usize
    }

    /// Sends one of them back, by its place among [`letters`](Look::letters), if it may go.
    ///
    /// # Errors
    ///
    /// [`RedriveError`].
    ///
    /// # Panics
    ///
    /// When there is none in that place.
    pub async fn redrive(&self, at: usize, errand: &Errand) -> Result<Fate, RedriveError> {
        self.dead.redrive_one(&self.held[at], errand).await
    }

    /// Throws one of them away.
    ///
    /// # Errors
    ///
    /// [`RedriveError`].
    ///
    /// # Panics
    ///
    /// When there is none in that place.
    pub async fn discard(&self, at: usize, errand: &Errand) -> Result<Fate, RedriveError> {
        self.dead.discard_one(&self.held[at], errand).await
    }

    /// Lets go of those that are left.
    pub async fn close(self) {
        self.source.close().await;
    }
}

async fn gather(source: &dyn Source, at_most: u32) -> Result<Vec<Delivery>, SourceError> {
    source.open(at_most).await?;
    let mut held = Vec::new();
    while held.len() < at_most as usize {
        match timeout(LAST, source.receive()).await {
            Ok(delivery) => held.push(delivery?),
            Err(_) => break,
        }
    }
    Ok(held)
}

fn stays(entry: &Entry) -> Option<Fate> {
    match entry.view {
        View::Completed { .. } | View::Forgotten => Some(Fate::Done { age: entry.age }),
        View::Unknown { .. } => Some(Fate::Stays("it may have taken effect: resolve its key first")),
        View::Running { .. } => Some(Fate::Stays("an attempt runs")),
        View::Released { .. } | View::Dead { .. } => None,
    }
}

/// The message without its grave, addressed to the queue that it came from.
fn risen(message: &Message, origin: &str) -> Message {
    let mut risen = message.clone();
    for header in Grave::HEADERS {
        risen.headers.remove(header);
    }
    // A broker that routes by the subject would lose what it was.
    if risen.subject != origin {
        risen.headers.set(Grave::SUBJECT, risen.subject.clone());
        origin.clone_into(&mut risen.subject);
    }
    risen
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters").field("sink", &self.sink).finish_non_exhaustive()
    }
}
