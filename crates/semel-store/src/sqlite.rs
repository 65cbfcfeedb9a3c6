//! Records in one SQLite file.
//!
//! 1. **One writer.** Every write goes through a bounded queue to one thread. It takes what waits, at most 512
//!    calls, into one transaction, and answers after the commit: many calls share one wait for the disk. A sweep
//!    goes in small pieces, behind the calls that wait.
//! 2. **The rules are [`semel::record`]'s.** Within `BEGIN IMMEDIATE … COMMIT` the writer reads the row, applies
//!    the pure rule, and writes the row. Nobody else writes in between, in this process or in another, so the
//!    step is atomic. The transaction never begins as a reader, which could not wait for a lock (case C45).
//! 3. **What changes nothing does not wait for the writer.** A claim is decided on a snapshot first: a replay, a
//!    mismatch, in flight and the like are the answer as of that snapshot, which holds everything acknowledged
//!    before. If the rule wants to write, the answer is thrown away and the writer decides anew. So outcomes are
//!    replayed on a full disk, and while another process holds the write lock.
//!    What a snapshot said of a completed record is remembered, within a bound, and the next replay of it reads no file:
//!    see `sqlite/replays.rs`.
//!    Where the look-ups before it found nothing, a claim goes straight to the writer. What changes nothing is answered
//!    there with the batch under way, and from a snapshot while another process holds the lock; a claim that the writer
//!    fails is looked up after all; and a writer that is behind, or has been at one batch for long, is passed by.
//! 4. **Answered means on disk**: WAL and `synchronous=FULL`. A commit becomes visible to readers only after it
//!    was synced, so nothing is ever replayed that a power failure could take back.
//! 5. **One bad call hurts nobody else.** If a statement fails, the transaction is rolled back, and the calls of
//!    the batch are made again, each in a transaction of its own. The rules are pure, so that is the same.
//! 6. **Errors by what is known**: until `COMMIT` nothing is written, so it is `Unavailable`; an I/O error in
//!    `COMMIT` is `Indeterminate`; a damaged page or a row that cannot be read is `Corrupt`.
//! 7. **Several processes** may open the file. Their writers take turns, waiting up to
//!    [`Options::busy_for`](crate::Options::busy_for). They must be on one machine: WAL needs shared memory, and
//!    locks on network file systems are not to be trusted.
//! 8. **No background work** but the writer, which ends when the store is dropped, after what it had accepted.
//!    Nothing sweeps by itself.
//!
//! # Limits
//!
//! - What is unsettled is looked for among all that runs: as many rows as there are open claims.
//! - A claim that went straight to the writer waits for the commit under way, however long the disk takes over it.
//! - A completed row that somebody changes or deletes by hand is replayed as it was, where it is remembered, until the
//!   program starts again.
//! - A claim's look-up runs on the caller's thread: some microseconds, but one wait for the disk per page that
//!   is not in memory.
//! - SQLite's pages carry no checksums. A page that is torn or garbage is noticed by its structure; a flipped bit
//!   within an outcome is not.
//! - A key's history costs a commit of its own for each event, behind the calls that somebody waits for: where every
//!   attempt ends without an effect, that is a third of the commits.
//! - The file does not shrink by itself; space that a sweep frees is used again.
//! - A process that reads for long (a backup, an open shell) keeps the WAL from being reused, and it grows.
//! - Dropping the store waits for the writer: for one batch, and [`busy_for`](crate::Options::busy_for) at most
//!   for each batch that another process keeps from being written.

mod browse;
mod error;
mod file;
mod history;
mod readers;
mod replays;
mod rows;
mod schema;
mod sweep;
mod transaction;
mod verbs;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use semel::{
    Claim, ClaimRequest, Clock, Cursor, Entry, Event, Filter, History, Inspect, Key, Lease, Past, Scope,
    Settlement, Store, StoreError, Swept,
};

use crate::{ConnectError, Options};
use error::{Failure, Step};
use file::File;
use readers::{LookUps, Readers};
use replays::Replays;
pub use schema::SqliteMigrations;
pub use transaction::{Begun, Connections, Handle, Run, Whole, once, once_as};
use writer::Writer;

/// Records in one SQLite file. See the [module](self) for what it promises.
pub struct SqliteStore {
    file: File,
    clock: Arc<dyn Clock>,
    readers: Readers,
    look_ups: LookUps,
    replays: Replays,
    browser: Arc<Mutex<rusqlite::Connection>>,
    writer: Writer,
    sweeping: tokio::sync::Mutex<()>,
}

impl SqliteStore {
    /// Opens the file, and makes or updates it first if [`Options::migrate`] says so. Waits for the disk.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: the file is missing, not readable and writable, damaged, another program's, or its
    /// schema is not this program's.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<SqliteStore, ConnectError> {
        let file = File::new(path.as_ref(), options.busy_for)?;
        schema::ready(&file, options.migrate)?;
        let writing = file.writer()?;
        Ok(SqliteStore {
            clock: Arc::clone(&options.clock),
            readers: Readers::open(&file)?,
            look_ups: LookUps::default(),
            replays: Replays::default(),
            browser: Arc::new(Mutex::new(file.reader(file.busy_for())?)),
            writer: Writer::start(file.clone(), writing, Arc::clone(&options.clock))?,
            sweeping: tokio::sync::Mutex::new(()),
            file,
        })
    }

    /// The answer as of a snapshot; `None` if the rule wants to write.
    fn glance(&self, request: &ClaimRequest) -> rusqlite::Result<Option<Claim>> {
        let glanced = self.readers.with(|reader| verbs::glance(reader, request, self.clock.as_ref()))?;
        Ok(glanced.map(|(answer, record)| {
            if let Some(record) = record {
                self.replays.remember(request, record);
            }
            answer
        }))
    }

    /// Lists on a thread that may wait: a listing reads many rows. It has a connection of its own, so that it
    /// never holds one that a claim needs.
    async fn browse<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection, &dyn Clock) -> Result<T, browse::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (browser, clock, file) = (Arc::clone(&self.browser), Arc::clone(&self.clock), self.file.clone());
        let listing = tokio::task::spawn_blocking(move || {
            let connection = browser.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            read(&connection, clock.as_ref()).map_err(|error| error.in_file(&file))
        });
        listing.await.unwrap_or_else(|gone| Err(StoreError::Unavailable(Box::new(gone))))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        if let Some(answer) = self.replays.answer(request, self.clock.now()) {
            return Ok(answer);
        }
        let is_looked_up = self.look_ups.are_worth_it() || !self.writer.is_prompt();
        if is_looked_up {
            // A reader's error decides nothing: the writer meets it too, or does not.
            if let Ok(Some(answer)) = self.glance(request) {
                self.look_ups.found();
                return Ok(answer);
            }
            self.look_ups.missed();
        }
        match self.writer.ask(request.clone()).await {
            Ok(lease @ Claim::Acquired(_)) => Ok(lease),
            Ok(answer) => {
                self.look_ups.found();
                Ok(answer)
            }
            Err(error) => {
                self.look_ups.found();
                if is_looked_up { Err(error) } else { self.glance(request).ok().flatten().ok_or(error) }
            }
        }
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        Ok(self.writer.ask(verbs::Renew { lease: lease.clone(), lease_for }).await??)
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        let verb = verbs::Settle { lease: lease.clone(), settlement: settlement.clone() };
        Ok(self.writer.ask(verb).await??)
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.readers
            .with(|reader| browse::find(reader, scope, key, self.clock.as_ref()))
            .map_err(|cause| Failure::new(&self.file, Step::Read, cause).into())
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let after = after.cloned();
        self.browse(move |reader, clock| browse::unsettled(reader, after.as_ref(), limit, clock)).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        let _alone = self.sweeping.lock().await;
        let mut swept = Swept::default();
        while swept.total() < limit {
            let piece = self.writer.ask(sweep::Piece::of(limit - swept.total())).await?;
            swept.outcomes += piece.freed.outcomes;
            swept.records += piece.freed.records;
            if !piece.more {
                break;
            }
        }
        Ok(swept)
    }
}

#[async_trait]
impl Inspect for SqliteStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let (filter, after) = (filter.clone(), after.cloned());
        self.browse(move |reader, clock| browse::list(reader, &filter, after.as_ref(), limit, clock)).await
    }

    async fn find_key(&self, key: &Key, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let key = key.clone();
        self.browse(move |reader, clock| browse::find_key(reader, &key, limit, clock)).await
    }
}

#[async_trait]
impl History for SqliteStore {
    async fn append(&self, scope: &Scope, key: &Key, event: &Event) -> Result<(), StoreError> {
        let append = history::Append { scope: scope.clone(), key: key.clone(), event: event.clone() };
        self.writer.ask(append).await
    }

    async fn history(&self, scope: &Scope, key: &Key) -> Result<Vec<Past>, StoreError> {
        let (scope, key) = (scope.clone(), key.clone());
        self.browse(move |reader, clock| Ok(history::read(reader, &scope, &key, clock)?)).await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("file", &self.file.path()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
