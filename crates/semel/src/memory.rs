//! The smallest correct reading of the contract: the rules of [`record`] behind one lock.
//!
//! For tests, examples and as the model that other stores are compared with. Nothing survives the process.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::environment::{Clock, SystemClock, Timestamp};
use crate::history::{EVENTS_MAX, Event, History, Past};
use crate::inspect::{Filter, Inspect};
use crate::key::{Key, Scope};
use crate::record::{self, Record, State, Unfit};
use crate::store::{Claim, ClaimRequest, Cursor, Entry, Lease, Settlement, Store, StoreError, Swept};

/// Records in this process's memory.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    records: Mutex<Records>,
    /// Locked within the other lock.
    events: Mutex<Events>,
}

type Records = BTreeMap<(Key, Scope), Record>;
type Events = BTreeMap<(Key, Scope), VecDeque<(Timestamp, Event)>>;

impl MemoryStore {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(Arc::new(SystemClock))
    }

    /// An empty store on a clock of the caller's.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore { clock, records: Mutex::default(), events: Mutex::default() }
    }

    /// The lock is held for one pure step and never across an await, so a panic cannot leave half a write.
    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(
        &self,
        after: Option<&Cursor>,
        fits: impl Fn(&Entry) -> bool,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let now = self.clock.now();
        let records = self.records();
        let from = after.map(place).transpose()?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(records
            .range((from, Bound::Unbounded))
            .filter_map(|((key, scope), record)| record::entry(record, scope, key, cursor(key, scope), now))
            .filter(fits)
            .take(limit as usize)
            .collect())
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("records", &self.records().len()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let mut records = self.records();
        let id = (request.key.clone(), request.scope.clone());
        let (write, answer) = record::claim(records.get(&id), request, self.clock.now());
        if let Some(record) = write {
            records.insert(id, record);
        }
        Ok(answer)
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        let mut records = self.records();
        let id = (lease.key.clone(), lease.scope.clone());
        let record = record::renew(records.get(&id), lease, lease_for, self.clock.now())?;
        records.insert(id, record);
        Ok(())
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        let mut records = self.records();
        let id = (lease.key.clone(), lease.scope.clone());
        if let Some(record) = record::settle(records.get(&id), lease, settlement, self.clock.now())? {
            records.insert(id, record);
        }
        Ok(())
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        let now = self.clock.now();
        let records = self.records();
        let found = records.get(&(key.clone(), scope.clone()));
        Ok(found.and_then(|record| record::entry(record, scope, key, cursor(key, scope), now)))
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let now = self.clock.now();
        let records = self.records();
        let mut open: Vec<_> = records
            .iter()
            .filter_map(|((key, scope), record)| {
                let cursor = open_cursor(open_since(record, now)?, key, scope);
                record::entry(record, scope, key, cursor, now)
            })
            .filter(|entry| after.is_none_or(|after| entry.cursor.0 > after.0))
            .collect();
        open.sort_by(|one, other| one.cursor.0.cmp(&other.cursor.0));
        open.truncate(limit as usize);
        Ok(open)
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        let now = self.clock.now();
        let mut records = self.records();
        let mut swept = Swept::default();
        records.retain(|id, record| {
            if swept.total() >= limit {
                return true;
            }
            if record::is_expired(record, now) {
                swept.records += 1;
                self.events().remove(id);
                return false;
            }
            if let State::Completed { outcome, replay_until, .. } = &mut record.state
                && now >= *replay_until
                && outcome.take().is_some()
            {
                swept.outcomes += 1;
            }
            true
        });
        Ok(swept)
    }
}

#[async_trait]
impl Inspect for MemoryStore {
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        self.entries(after, |entry| filter.fits(entry), limit)
    }

    async fn find_key(&self, key: &Key, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.entries(None, |entry| entry.key == *key, limit)
    }
}

#[async_trait]
impl History for MemoryStore {
    async fn append(&self, scope: &Scope, key: &Key, event: &Event) -> Result<(), StoreError> {
        let now = self.clock.now();
        let records = self.records();
        let id = (key.clone(), scope.clone());
        if records.get(&id).is_none_or(|record| record::is_expired(record, now)) {
            return Ok(());
        }
        let mut events = self.events();
        let events = events.entry(id).or_default();
        let is_it = |(_, past): &(Timestamp, Event)| (past.attempt, past.what) == (event.attempt, event.what);
        if !events.iter().any(is_it) {
            events.push_back((now, event.clone()));
        }
        if events.len() > EVENTS_MAX as usize {
            events.pop_front();
        }
        Ok(())
    }

    async fn history(&self, scope: &Scope, key: &Key) -> Result<Vec<Past>, StoreError> {
        let now = self.clock.now();
        let records = self.records();
        let id = (key.clone(), scope.clone());
        let Some(record) = records.get(&id).filter(|record| !record::is_expired(record, now)) else {
            return Ok(Vec::new());
        };
        let events = self.events();
        let past = |(at, event): &(Timestamp, Event)| Past { ago: now.since(*at), event: event.clone() };
        let since = |(at, _): &&(Timestamp, Event)| *at >= record.first_at;
        Ok(events.get(&id).into_iter().flatten().filter(since).map(past).collect())
    }
}

impl From<Unfit> for StoreError {
    fn from(unfit: Unfit) -> StoreError {
        match unfit {
            Unfit::LeaseLost => StoreError::LeaseLost,
            Unfit::Settled => StoreError::Refused(Box::new(unfit)),
        }
    }
}

/// Since when a record waits for somebody; `None` when it does not.
fn open_since(record: &Record, now: Timestamp) -> Option<Timestamp> {
    match record.state {
        State::Running { until, .. } => (now >= until).then_some(until),
        State::Unknown { .. } | State::Dead { .. } => Some(record.since),
        State::Released { .. } | State::Completed { .. } => None,
    }
}

/// A key and a scope hold no control characters, so NUL is a border.
fn cursor(key: &Key, scope: &Scope) -> Cursor {
    Cursor([key.as_str(), "\0", scope.as_str()].concat().into_bytes())
}

/// In the order of time, then of key and scope. The digits sort as the instants do: none lies before 1970.
fn open_cursor(since: Timestamp, key: &Key, scope: &Scope) -> Cursor {
    Cursor(format!("{:020}\0{}\0{}", since.0, key.as_str(), scope.as_str()).into_bytes())
}

fn place(cursor: &Cursor) -> Result<(Key, Scope), StoreError> {
    let text = String::from_utf8_lossy(&cursor.0);
    let parts =
        text.split_once('\0').and_then(|(key, scope)| Some((Key::new(key).ok()?, Scope::new(scope).ok()?)));
    parts.ok_or_else(|| StoreError::Refused("the cursor is none of this store's".into()))
}
