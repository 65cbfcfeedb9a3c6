//! Looking at records: for the command line and the operator's page. Nothing here decides anything.

use async_trait::async_trait;

use crate::key::{Key, Scope};
use crate::store::{Cursor, Entry, Store, StoreError, View};

/// A store that can list its records. Every store that [`connect`] hands to an operator can.
///
/// [`connect`]: https://docs.rs/semel-store
#[async_trait]
pub trait Inspect: Store {
    /// The records that fit the filter, in the order of their keys, at most `limit`, from behind `after` on.
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError>;

    /// The records of one key in every scope, in the order of their scopes, at most `limit`.
    async fn find_key(&self, key: &Key, limit: u32) -> Result<Vec<Entry>, StoreError>;
}

/// Which records to list. Everything that is set must fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only records that read as this state now.
    pub state: Option<StateName>,
    /// Only records of this scope.
    pub scope: Option<Scope>,
    /// Only keys that begin so.
    pub prefix: Option<String>,
}

impl Filter {
    /// Whether the entry fits.
    #[must_use]
    pub fn fits(&self, entry: &Entry) -> bool {
        self.state.is_none_or(|state| state.as_str() == entry.view.name())
            && self.scope.as_ref().is_none_or(|scope| *scope == entry.scope)
            && self.prefix.as_ref().is_none_or(|prefix| entry.key.as_str().starts_with(prefix))
    }
}

/// The name of a state, as [`View::name`] gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateName {
    /// An attempt holds the lease.
    Running,
    /// May be claimed again.
    Released,
    /// May or may not have taken effect.
    Unknown,
    /// Done, and replayed.
    Completed,
    /// Done; only the key is remembered.
    Forgotten,
    /// Given up.
    Dead,
}

impl StateName {
    /// Every state.
    pub const ALL: [StateName; 6] = [
        StateName::Running,
        StateName::Released,
        StateName::Unknown,
        StateName::Completed,
        StateName::Forgotten,
        StateName::Dead,
    ];

    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            StateName::Running => "running",
            StateName::Released => "released",
            StateName::Unknown => "unknown",
            StateName::Completed => "completed",
            StateName::Forgotten => "forgotten",
            StateName::Dead => "dead",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<StateName> {
        StateName::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl View {
    /// The state's name, as in metrics, on the command line and in the documentation.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let name = match self {
            View::Running { .. } => StateName::Running,
            View::Released { .. } => StateName::Released,
            View::Unknown { .. } => StateName::Unknown,
            View::Completed { .. } => StateName::Completed,
            View::Forgotten => StateName::Forgotten,
            View::Dead { .. } => StateName::Dead,
        };
        name.as_str()
    }
}
