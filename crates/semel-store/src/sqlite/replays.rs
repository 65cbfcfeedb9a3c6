//! Completed records, remembered from the look-ups that found them: the next replay asks no file.
//!
//! 1. A completed record never changes. Time alone ends it, and here as there the rule judges the time anew for each
//!    claim. What the rule does not replay any more is dropped, and the file is asked.
//! 2. Only what a reader's snapshot held is remembered: it was on disk before anybody could see it.
//! 3. The memory has a bound. What nobody asks for while half of it fills up anew goes.
//!
//! What it cannot see: a completed row that somebody changes or deletes by hand, beside this program. It is replayed as
//! it was until it is dropped or the program starts again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use semel::record::{self, Record, State};
use semel::{Claim, ClaimRequest, Key, Purpose, Scope, Timestamp};

/// All of it together.
pub(super) const BYTES_MAX: usize = 96 * 1024 * 1024;

/// A larger record is read each time: it would drive out many small ones, and reading it is not what it costs.
pub(super) const RECORD_BYTES_MAX: usize = 64 * 1024;

/// So that threads seldom wait for one another.
const SHARDS: usize = 16;

/// What an entry takes beside its record and its texts: its place in the map, and what an allocator adds.
const BESIDE: usize = 128;

type Records = HashMap<(Scope, Key), Arc<Record>>;

#[derive(Default)]
pub(super) struct Replays {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
}

/// Two halves: when the young one is full it becomes the old one, which goes.
#[derive(Default)]
struct Shard {
    young: Records,
    young_bytes: usize,
    old: Records,
}

impl Replays {
    /// The answer to a run that is done, if it is remembered.
    pub(super) fn answer(&self, request: &ClaimRequest, now: Timestamp) -> Option<Claim> {
        let Purpose::Run { .. } = request.purpose else { return None };
        let name = (request.scope.clone(), request.key.clone());
        let mut shard = self.shard(&name).lock().unwrap_or_else(PoisonError::into_inner);
        let record = shard.get(&name)?;
        match record::claim(Some(&record), request, now) {
            (None, answer @ (Claim::Completed { .. } | Claim::Mismatch { .. })) => Some(answer),
            _ => {
                shard.forget(&name);
                None
            }
        }
    }

    /// Remembers a record of the file, if it is one to replay.
    pub(super) fn remember(&self, request: &ClaimRequest, record: Record) {
        let State::Completed { outcome: Some(outcome), .. } = &record.state else { return };
        let name = (request.scope.clone(), request.key.clone());
        let texts = name.0.as_str().len() + name.1.as_str().len() + record.label.as_str().len();
        let others = outcome.bytes.len()
            + record.spent.len() * 16
            + record.input.as_ref().map_or(0, |input| input.len());
        let bytes = mem::size_of::<Record>() + BESIDE + texts + others;
        if bytes <= RECORD_BYTES_MAX {
            let mut shard = self.shard(&name).lock().unwrap_or_else(PoisonError::into_inner);
            shard.put(name, Arc::new(record), bytes);
        }
    }

    fn shard(&self, name: &(Scope, Key)) -> &Mutex<Shard> {
        &self.shards[self.hasher.hash_one(&name.1) as usize % SHARDS]
    }
}

impl Shard {
    fn get(&mut self, name: &(Scope, Key)) -> Option<Arc<Record>> {
        self.young.get(name).or_else(|| self.old.get(name)).cloned()
    }

    fn put(&mut self, name: (Scope, Key), record: Arc<Record>, bytes: usize) {
        if self.young_bytes + bytes > BYTES_MAX / SHARDS / 2 {
            self.old = mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(name, record).is_none() {
            self.young_bytes += bytes;
        }
    }

    fn forget(&mut self, name: &(Scope, Key)) {
        self.young.remove(name);
        self.old.remove(name);
    }
}
