//! The timeline of a key, where the store keeps one. After the settlement, in a task of its own, once: nobody waits for
//! it, and nothing depends on it.

use tokio::time::timeout;

use super::Engine;
use crate::history::{Event, History, Through, What};
use crate::store::{Lease, Settlement, Was};

/// What an operator says of a resolution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word {
    /// Who.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// Whether the end of a run is one that nobody will ask about: the first attempt completed in time, or nothing ran.
pub(super) fn is_plain(lease: &Lease, settlement: &Settlement, through: Through) -> bool {
    match settlement {
        Settlement::Complete { .. } => lease.was == Was::New && through == Through::Run,
        Settlement::Release { ran, .. } => !ran,
        Settlement::Park { .. } | Settlement::Bury { .. } => false,
    }
}

impl Engine {
    /// Writes the event when it can.
    pub(super) fn note(&self, lease: &Lease, event: impl FnOnce() -> Event) {
        let Some(history) = self.history.clone() else { return };
        let (engine, lease, event) = (self.clone(), lease.clone(), event());
        self.tasks.spawn(async move {
            engine.append(&*history, &lease, &event).await;
        });
    }

    /// Notes that a claim took over from one whose lease had run out.
    pub(super) fn note_takeover(&self, lease: &Lease) {
        if lease.was == Was::Lapsed {
            self.note(lease, || Event::of(lease, What::Lapsed, Through::Run));
        }
    }

    /// Writes an operator's event before the command ends.
    pub(super) async fn note_word(&self, lease: &Lease, settlement: &Settlement, word: &Word) {
        let Some(history) = &self.history else { return };
        let mut event = Event::settled(lease, settlement, Through::Operator);
        let short = |text: &Option<String>| {
            text.clone().map(|mut text| {
                text.truncate(text.floor_char_boundary(Event::BYTES_MAX));
                text
            })
        };
        (event.by, event.reason) = (short(&word.by), short(&word.reason));
        self.append(&**history, lease, &event).await;
    }

    /// Not among the store's calls that are measured: nobody waits for this one.
    async fn append(&self, history: &dyn History, lease: &Lease, event: &Event) {
        match timeout(self.patience.call, history.append(&lease.scope, &lease.key, event)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "an event is missing in a key's history"),
            Err(_) => tracing::debug!("an event may be missing in a key's history: the store did not answer"),
        }
    }
}
