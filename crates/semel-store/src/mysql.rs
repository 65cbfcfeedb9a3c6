//! Records in MySQL 8 and MariaDB 10.6 and later.
//!
//! 1. **The rules are [`semel::record`]'s.** Where a row has to be read, it is locked by `SELECT … FOR UPDATE`, the pure
//!    rule is applied here, and the row is written, in one transaction: nobody else changes it in between.
//! 2. **The common calls are one statement that commits by itself.** A new key is inserted, and the unique index decides;
//!    what runs is completed or released by an update that is fenced; what changes nothing is read. What they write is
//!    what the rule makes of such a row, and whatever they cannot answer goes the way of rule 1.
//! 3. **Calls that wait are made together**: one statement for all of them, over a few connections of the store's own. A
//!    call that comes alone waits for nobody.
//! 4. **The server's clock decides**, the wall clock when the statement began, in UTC whatever the session's time zone
//!    is. Machines' clocks do not matter.
//! 5. **Keys are bytes** (`VARBINARY`): case, accents and trailing spaces tell keys apart, whatever the collation is.
//! 6. **Errors by what is known**, by the number of the server's error: before a statement that commits is sent nothing is
//!    written, so it is `Unavailable`; a commit that is not answered is `Indeterminate`; a row that cannot be read is
//!    `Corrupt`. Deadlocks, lock waits, a full or read-only server and lost connections are tried again, whole, until the
//!    call has waited for [`Options::busy_for`]; that is sound because every call may be repeated.
//! 7. **No call of the driver is cancelled.** Tasks of their own make them; one that waits too long gives its connection
//!    up with it. Callers may drop their futures.
//! 8. **Both isolation levels are right**, READ COMMITTED (own connections ask for it) and REPEATABLE READ
//!    (`isolation=repeatable-read`, for a server whose binary log is one of statements). The latter locks gaps, so there
//!    are more deadlocks to repeat.
//! 9. **No background work** but the tasks that have the connections. Nothing sweeps by itself.
//!
//! # Limits
//!
//! - One primary. A fail-over to a replica that lags loses what it had not got; no statement can find that out. With
//!   `innodb_flush_log_at_trx_commit` other than 1 a server that crashes loses its last second: that is said at the
//!   opening ([`Connected::lossy`]).
//! - A record and its outcome travel in one packet: `max_allowed_packet` bounds them.
//! - A statement that waited for a lock has a clock that is old by the wait, a second at most: a lease may then be shorter
//!   by it, never longer.
//! - Written for what MySQL 8 and MariaDB share. The tests run on MariaDB 10.11.

mod address;
mod background;
mod browse;
mod claims;
mod ends;
mod failure;
mod history;
mod in_transaction;
mod job;
mod link;
mod rows;
mod schema;
mod sweep;
mod transaction;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel::{
    Claim, ClaimRequest, Cursor, Entry, Event, Filter, History, Inspect, Key, Lease, Past, Scope, Settlement,
    Store, StoreError, Swept,
};
use tokio::time::Instant;

use crate::{ConnectError, Connected, Migrate, Options};
use address::Address;
#[cfg(feature = "sqlx-mysql")]
pub use in_transaction::SqlxPool;
pub use in_transaction::{Handle, In, Pool, once};
use job::{Answer, Verb};
use link::Link;
pub use schema::MysqlMigrations;
use worker::{Queue, Role};

/// Records in a database of a MySQL or MariaDB server. See the [module](self) for what it promises.
pub struct MysqlStore {
    name: Arc<str>,
    claims: Queue,
    ends: Queue,
    background: Queue,
    is_lossy: bool,
}

impl MysqlStore {
    /// Connects to the database of a URL, `mysql://user:password@host:3306/database`, and makes or updates its tables first
    /// if [`Options::migrate`] says so. Its tasks run on the runtime that this is called on.
    ///
    /// Parameters: `pool` (connections for claims and settlements, 8; one more is for listings and sweeps), `isolation`
    /// (`read-committed` or `repeatable-read`), `require_ssl` (`true` or `false`), `ssl_ca`, `ssl_cert`, `ssl_key` (files).
    /// With TLS the server's certificate and name are verified always.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: the URL is not understood, the server cannot be reached within [`Options::busy_for`] or refuses,
    /// or the schema is not this program's.
    pub async fn open(url: &str, options: &Options) -> Result<MysqlStore, ConnectError> {
        let address = Address::parse(url)?;
        trust(&address);
        schema::ready(&address, options.migrate, options.busy_for).await?;
        let link = Link::open(&address, Instant::now() + options.busy_for).await?;
        let is_lossy = link.is_lossy;
        link.close().await;
        let queue = |role, workers| Queue::start(role, workers, &address, options.busy_for);
        Ok(MysqlStore {
            claims: queue(Role::Claims, address.pool.div_ceil(2)),
            ends: queue(Role::Ends, (address.pool / 2).max(1)),
            background: queue(Role::Background, 1),
            name: address.name,
            is_lossy,
        })
    }
}

pub(crate) async fn open(url: &str, options: &Options) -> Result<Connected, ConnectError> {
    let store = MysqlStore::open(url, options).await?;
    let is_lossy = store.is_lossy;
    Ok(Connected::shared(store, is_lossy))
}

pub(crate) fn migrations(url: &str) -> Result<Arc<dyn Migrate>, ConnectError> {
    let address = Address::parse(url)?;
    trust(&address);
    Ok(Arc::new(MysqlMigrations::new(address)))
}

/// The driver asks the process for its cryptography. A program that has chosen one keeps it.
fn trust(address: &Address) {
    if address.is_encrypted && rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

#[async_trait]
impl Store for MysqlStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        match self.claims.ask(Verb::Claim(request.clone())).await? {
            Answer::Claim(claim) => Ok(claim),
            other => unexpected(&other),
        }
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        self.ends.ask(Verb::Renew { lease: lease.clone(), lease_for }).await.map(drop)
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        let verb = Verb::Settle { lease: lease.clone(), settlement: settlement.clone() };
        self.ends.ask(verb).await.map(drop)
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        match self.claims.ask(Verb::Find { scope: scope.clone(), key: key.clone() }).await? {
            Answer::Entry(entry) => Ok(entry),
            other => unexpected(&other),
        }
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        browse::unsettled(&self.background, after, limit).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        while swept.total() < limit {
            let piece = self.background.ask(Verb::Sweep { limit: limit - swept.total() }).await?;
            let Answer::Swept(freed, more) = piece else { unexpected(&piece) };
            swept.outcomes += freed.outcomes;
            swept.records += freed.records;
            if !more {
                break;
            }
        }
        Ok(swept)
    }
}

#[async_trait]
impl Inspect for MysqlStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        browse::list(&self.background, filter, after, limit).await
    }

    async fn find_key(&self, key: &Key, limit: u32) -> Result<Vec<Entry>, StoreError> {
        browse::find_key(&self.background, key, limit).await
    }
}

#[async_trait]
impl History for MysqlStore {
    async fn append(&self, scope: &Scope, key: &Key, event: &Event) -> Result<(), StoreError> {
        let append = Verb::Append { scope: scope.clone(), key: key.clone(), event: event.clone() };
        self.background.ask(append).await.map(drop)
    }

    async fn history(&self, scope: &Scope, key: &Key) -> Result<Vec<Past>, StoreError> {
        match self.background.ask(Verb::History { scope: scope.clone(), key: key.clone() }).await? {
            Answer::Past(past) => Ok(past),
            other => unexpected(&other),
        }
    }
}

/// Each verb has one kind of answer.
fn unexpected(answer: &Answer) -> ! {
    unreachable!("a call was answered with {answer:?}")
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore").field("name", &self.name).finish_non_exhaustive()
    }
}
