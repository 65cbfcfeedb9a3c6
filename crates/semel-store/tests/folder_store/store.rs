//! A store for people who learn how one is made: a folder with a file for each key.
//!
//! 1. **One atomic step.** Every verb that writes holds the folder's lock from reading a record until the file that
//!    replaces it is on the disk. The system gives the lock back when the process dies.
//! 2. **The rules are [`record`]'s.** This file reads, asks them, and writes what they say.
//! 3. **Answered means on disk**: the new file is synced, takes the old one's name in one step, and the folder is
//!    synced. Whoever dies before the rename has changed nothing; whoever dies after it has not lost anything.
//!
//! # Limits
//!
//! One writer at a time in the whole folder, two waits for the disk for each call, and a listing reads every file. One
//! machine: locks on network file systems are not to be trusted.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel::record::{self, Record, State};
use semel::{
    Claim, ClaimRequest, Clock, Cursor, Entry, Key, Lease, Scope, Settlement, Store, StoreError, Swept,
    Timestamp,
};

use crate::codec;

#[derive(Debug, Clone)]
pub(crate) struct FolderStore {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
}

impl FolderStore {
    pub(crate) fn open(folder: &Path, clock: Arc<dyn Clock>) -> FolderStore {
        FolderStore { folder: folder.to_owned(), clock }
    }

    /// Runs what waits for the disk off the threads that serve. It goes on when its caller does not, so it may happen
    /// unheard.
    async fn step<T: Send + 'static>(
        &self,
        step: impl FnOnce(&FolderStore, Timestamp) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let lock = File::create(store.folder.join("lock")).map_err(unavailable)?;
            lock.lock().map_err(unavailable)?;
            // The clock is read under the lock: whoever waited for it decides by the time at which it decides.
            step(&store, store.clock.now())
        });
        done.await.unwrap_or_else(|gone| Err(StoreError::Indeterminate(Box::new(gone))))
    }

    fn load(&self, scope: &Scope, key: &Key) -> Result<Option<Record>, StoreError> {
        Ok(self.read(&self.file(scope, key))?.map(|(_, _, record)| record))
    }

    fn read(&self, file: &Path) -> Result<Option<(Scope, Key, Record)>, StoreError> {
        match fs::read(file) {
            Ok(bytes) => codec::decode(&bytes).map(Some).map_err(StoreError::Corrupt),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    // What fails before the rename has changed nothing. What fails after it may be undone by a power failure.
    fn save(&self, scope: &Scope, key: &Key, record: &Record) -> Result<(), StoreError> {
        let new = self.folder.join("new");
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&codec::encode(scope, key, record))?;
            file.sync_all()
        };
        write().map_err(unavailable)?;
        fs::rename(&new, self.file(scope, key)).map_err(unavailable)?;
        self.sync()
    }

    fn sync(&self) -> Result<(), StoreError> {
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| StoreError::Indeterminate(error.into()))
    }

    /// Keys may hold what a file's name may not, and two of them may differ by case alone.
    fn file(&self, scope: &Scope, key: &Key) -> PathBuf {
        self.folder.join(codec::name(scope, key)).with_extension("record")
    }

    fn all(&self) -> Result<Vec<(Scope, Key, Record)>, StoreError> {
        let names = fs::read_dir(&self.folder).map_err(unavailable)?;
        let files = names.filter_map(|name| name.ok().map(|name| name.path()));
        let records = files.filter(|file| file.extension().is_some_and(|kind| kind == "record"));
        records.filter_map(|file| self.read(&file).transpose()).collect()
    }
}

#[async_trait]
impl Store for FolderStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let request = request.clone();
        self.step(move |store, now| {
            let found = store.load(&request.scope, &request.key)?;
            let (write, answer) = record::claim(found.as_ref(), &request, now);
            if let Some(record) = write {
                store.save(&request.scope, &request.key, &record)?;
            }
            Ok(answer)
        })
        .await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.step(move |store, now| {
            let found = store.load(&lease.scope, &lease.key)?;
            let renewed = record::renew(found.as_ref(), &lease, lease_for, now)?;
            store.save(&lease.scope, &lease.key, &renewed)
        })
        .await
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        let (lease, settlement) = (lease.clone(), settlement.clone());
        self.step(move |store, now| {
            let found = store.load(&lease.scope, &lease.key)?;
            match record::settle(found.as_ref(), &lease, &settlement, now)? {
                Some(settled) => store.save(&lease.scope, &lease.key, &settled),
                None => Ok(()),
            }
        })
        .await
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        let (scope, key) = (scope.clone(), key.clone());
        self.step(move |store, now| {
            let found = store.load(&scope, &key)?;
            Ok(found.and_then(|record| record::entry(&record, &scope, &key, Cursor::default(), now)))
        })
        .await
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let after = after.cloned().unwrap_or_default();
        self.step(move |store, now| {
            let mut open: Vec<Entry> = store
                .all()?
                .iter()
                .filter_map(|(scope, key, record)| open(scope, key, record, now))
                .collect();
            open.retain(|entry| entry.cursor.0 > after.0);
            open.sort_by(|one, other| one.cursor.0.cmp(&other.cursor.0));
            open.truncate(limit as usize);
            Ok(open)
        })
        .await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        self.step(move |store, now| {
            let mut swept = Swept::default();
            for (scope, key, record) in store.all()? {
                if swept.total() >= limit {
                    break;
                }
                if record::is_expired(&record, now) {
                    fs::remove_file(store.file(&scope, &key)).map_err(unavailable)?;
                    swept.records += 1;
                } else if let Some(without) = without_outcome(&record, now) {
                    store.save(&scope, &key, &without)?;
                    swept.outcomes += 1;
                }
            }
            store.sync().map(|()| swept)
        })
        .await
    }
}

/// What waits for somebody, and its place in the order of time. The digits sort as the instants do.
fn open(scope: &Scope, key: &Key, record: &Record, now: Timestamp) -> Option<Entry> {
    let waits = match record.state {
        State::Running { until, .. } => now >= until,
        State::Unknown { .. } | State::Dead { .. } => true,
        State::Released { .. } | State::Completed { .. } => false,
    };
    let since = record::since(record, now).0;
    let place = Cursor(format!("{since:020}\0{}\0{}", key.as_str(), scope.as_str()).into_bytes());
    waits.then(|| record::entry(record, scope, key, place, now)).flatten()
}

/// The record as a sweep leaves it, if there is something to free.
fn without_outcome(record: &Record, now: Timestamp) -> Option<Record> {
    match &record.state {
        State::Completed { outcome: Some(_), replay_until, forget_at } if now >= *replay_until => {
            let state =
                State::Completed { outcome: None, replay_until: *replay_until, forget_at: *forget_at };
            Some(Record { state, ..record.clone() })
        }
        _ => None,
    }
}

fn unavailable(error: io::Error) -> StoreError {
    StoreError::Unavailable(error.into())
}
