//! Records in PostgreSQL, 12 and later, shared by any number of machines.
//!
//! 1. **The decision is made in the database**, by SQL functions that repeat the rules of [`semel::record`], or, with
//!    `functions=off` in the URL, by those rules themselves on locked rows. Either way a claim is one atomic step: an
//!    INSERT that meets nothing, or a judgement under the row's lock. A test compares both with the rules on random
//!    histories.
//! 2. **The clock is the server's**, at the statement: a claim that has waited for a lock is judged by what time it is then.
//! 3. **Calls that come together go together**: see `postgres/lanes.rs`. Each batch is a statement, a round trip and a commit (with
//!    `functions=off` up to four round trips and two commits).
//! 4. **Answered means committed**, and on the disk unless the server says otherwise (`fsync`, `synchronous_commit`): then
//!    the store is said to be lossy.
//! 5. **Errors by what is known**: not connected, or refused by the server: nothing was written, `Unavailable`. Connection
//!    gone or no answer in time: `Indeterminate`.
//! 6. **A pooler in transaction mode is no danger**: every statement carries its types, and none is prepared unless the
//!    server names our own socket as the other end of its connection, or the URL says so (`prepare=on`).
//! 7. **The primary only.** A standby may lag; it is refused at the start, and of several hosts in the URL the primary is
//!    taken, also after a fail-over (case C87).
//! 8. Nothing runs in the background but the connections' tasks, which end with the store. Nothing sweeps by itself.
//!
//! # Limits
//!
//! - After a fail-over to a standby that is not synchronous, what was acknowledged last may be gone. The server does not
//!   tell, so neither does the store.
//! - A transaction of somebody else's that holds a key for long holds up the lane of that key, for two seconds each time.
//! - A connection that breaks is found out when it is used: the calls under way are `Indeterminate`, and come again.
//! - The database's encoding must be UTF8.

mod address;
mod browse;
mod call;
mod error;
mod functions;
mod history;
mod in_transaction;
mod lanes;
mod link;
mod reader;
mod rows;
mod schema;
mod session;
mod sweep;
mod tables;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel::{
    Claim, ClaimRequest, Cursor, Entry, Event, Filter, History, Inspect, Key, Lease, Past, Scope, Settlement,
    Store, StoreError, Swept,
};

use crate::{ConnectError, Connected, Migrate, Options};
use address::Address;
use call::{Answer, Ending, Verb};
#[cfg(feature = "sqlx-postgres")]
pub use in_transaction::Pool;
pub use in_transaction::{Begun, Clients, Handle, In, Prepared, Statements, complete_and_commit, once};
use lanes::Lanes;
use reader::Reader;
use schema::Schema;

/// Records in a PostgreSQL database. See the [module](self) for what it promises.
pub struct PostgresStore {
    name: String,
    lanes: Lanes,
    reader: Reader,
    sweeper: Reader,
    is_lossy: bool,
}

impl PostgresStore {
    /// Opens the database at a URL; makes or updates its schema first if [`Options::migrate`] says so. Must be called
    /// within a tokio runtime, which the connections' tasks then live in.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: the URL is not understood, the server is not reachable within [`Options::busy_for`], refuses, is
    /// a standby, or the schema is not this program's.
    pub async fn open(url: &str, options: &Options) -> Result<PostgresStore, ConnectError> {
        let address = Arc::new(Address::parse(url)?);
        let busy_for = options.busy_for;
        let connecting = tokio::time::timeout(busy_for.max(OPEN_FOR_MIN), session::connect(&address));
        let late = |_| error::Failure::said(error::Kind::Unavailable, "the server cannot be reached in time");
        let mut client = connecting.await.map_err(late)??;
        let found = Schema::new(Arc::clone(&address)).ready(&mut client, options.migrate).await?;
        Ok(PostgresStore {
            name: address.name(),
            lanes: Lanes::start(&address, client, busy_for),
            reader: Reader::new(&address, busy_for),
            sweeper: Reader::new(&address, busy_for),
            is_lossy: found.lossy,
        })
    }

    async fn end(&self, lease: &Lease, ending: Ending) -> Result<(), StoreError> {
        match self.lanes.ask(Verb::Settle(lease.clone(), ending)).await? {
            Answer::Settled(settled) => Ok(settled?),
            Answer::Claim(_) => Err(rows::strange().into()),
        }
    }
}

/// Opening waits at least so long, however short a call may wait.
const OPEN_FOR_MIN: Duration = Duration::from_secs(1);

pub(crate) async fn open(url: &str, options: &Options) -> Result<Connected, ConnectError> {
    let store = PostgresStore::open(url, options).await?;
    let is_lossy = store.is_lossy;
    Ok(Connected::shared(store, is_lossy))
}

pub(crate) fn migrations(url: &str) -> Result<Arc<dyn Migrate>, ConnectError> {
    Ok(Arc::new(Schema::new(Arc::new(Address::parse(url)?))))
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        match self.lanes.ask(Verb::Claim(request.clone())).await? {
            Answer::Claim(claim) => Ok(claim),
            Answer::Settled(_) => Err(rows::strange().into()),
        }
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        self.end(lease, Ending::Renew(lease_for)).await
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        self.end(lease, Ending::Settlement(settlement.clone())).await
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        browse::find(&self.reader, scope, key).await
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        browse::unsettled(&self.reader, after, limit).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        sweep::sweep(&self.sweeper, limit).await
    }
}

#[async_trait]
impl Inspect for PostgresStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        browse::list(&self.reader, filter, after, limit).await
    }

    async fn find_key(&self, key: &Key, limit: u32) -> Result<Vec<Entry>, StoreError> {
        browse::find_key(&self.reader, key, limit).await
    }
}

#[async_trait]
impl History for PostgresStore {
    async fn append(&self, scope: &Scope, key: &Key, event: &Event) -> Result<(), StoreError> {
        history::append(&self.reader, scope, key, event).await
    }

    async fn history(&self, scope: &Scope, key: &Key) -> Result<Vec<Past>, StoreError> {
        history::read(&self.reader, scope, key).await
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("database", &self.name).finish_non_exhaustive()
    }
}
