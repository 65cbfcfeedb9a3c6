//! What happened to a key, for people: a timeline beside the record. Nothing here decides anything.
//!
//! 1. **One event for each end of an attempt that a person may ask about**: it was released, parked or buried, its lease
//!    was lost or had lapsed, its answer came late, a probe or an operator ended it, or it completed what others had
//!    tried. A key that runs once and completes has none: its record says it all, and its cost is unchanged.
//! 2. **Best effort.** An event is written after the settlement that it tells of, and nobody waits for it; one that
//!    cannot be written is missing. The record is the truth, and the timeline may have holes.
//! 3. **Bounded**: the last [`EVENTS_MAX`] of a key, and texts of [`Event::BYTES_MAX`] bytes.
//! 4. **It goes with the record**: what is forgotten has no history, and a key that is made anew begins with none. A
//!    store reads only what happened since the record's first claim.
//! 5. An append may be repeated: an attempt ends in one way once.

use std::time::Duration;

use async_trait::async_trait;

use crate::instance::AttemptId;
use crate::key::{Key, Scope};
use crate::store::{Cause, Fence, Lease, Settlement, Store, StoreError};

/// How many events a key has at most: the last ones.
pub const EVENTS_MAX: u32 = 100;

/// A store that keeps timelines.
#[async_trait]
pub trait History: Store {
    /// Adds an event to a key that has a record; without one nothing is added. The store's clock says when.
    async fn append(&self, scope: &Scope, key: &Key, event: &Event) -> Result<(), StoreError>;

    /// The events of a key since its record's first claim, oldest first; none where there is no record.
    async fn history(&self, scope: &Scope, key: &Key) -> Result<Vec<Past>, StoreError>;
}

/// An event, and how long ago it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Time since it was written.
    pub ago: Duration,
    /// What happened.
    pub event: Event,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The fence of its claim. For [`What::Lapsed`] of the claim that took over.
    pub fence: Fence,
    /// The attempt.
    pub attempt: AttemptId,
    /// Attempts so far.
    pub attempts: u32,
    /// What happened.
    pub what: What,
    /// Who said so.
    pub through: Through,
    /// Why it was parked or buried; and why released, where the run said so.
    pub cause: Option<Cause>,
    /// How long it ran, where it ran.
    pub ran_for: Option<Duration>,
    /// An operator's name, at most [`Event::BYTES_MAX`] bytes.
    pub by: Option<String>,
    /// An operator's reason, at most [`Event::BYTES_MAX`] bytes.
    pub reason: Option<String>,
}

impl Event {
    /// Longer names and reasons are cut by the engine, at a character's border.
    pub const BYTES_MAX: usize = 300;

    pub(crate) fn settled(lease: &Lease, settlement: &Settlement, through: Through) -> Event {
        let cause = match settlement {
            Settlement::Park { cause } | Settlement::Bury { cause } => Some(cause.clone()),
            Settlement::Complete { .. } | Settlement::Release { .. } => None,
        };
        Event { cause, ..Event::of(lease, What::of(settlement), through) }
    }

    pub(crate) fn of(lease: &Lease, what: What, through: Through) -> Event {
        Event {
            fence: lease.fence,
            attempt: lease.attempt,
            attempts: lease.attempts,
            what,
            through,
            cause: None,
            ran_for: None,
            by: None,
            reason: None,
        }
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every one.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The word, as stores keep it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            /// What has that word.
            #[must_use]
            pub fn parse(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }
    };
}

words! {
    /// What happened.
    What {
        /// It has its outcome.
        Completed = "completed",
        /// It took no effect, and the key is free.
        Released = "released",
        /// Nobody knows.
        Parked = "parked",
        /// It was given up.
        Buried = "buried",
        /// It ended after another one had taken the key: its end was refused.
        Lost = "lost",
        /// The lease of the one before had run out, and this one took over.
        Lapsed = "lapsed",
    }
}

words! {
    /// Who said so.
    Through {
        /// The run itself.
        Run = "run",
        /// The run, after its caller had been told that nobody knows.
        Late = "late",
        /// A probe.
        Probe = "probe",
        /// An operator.
        Operator = "operator",
    }
}

impl What {
    fn of(settlement: &Settlement) -> What {
        match settlement {
            Settlement::Complete { .. } => What::Completed,
            Settlement::Release { .. } => What::Released,
            Settlement::Park { .. } => What::Parked,
            Settlement::Bury { .. } => What::Buried,
        }
    }
}
