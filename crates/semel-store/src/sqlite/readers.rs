//! Connections for look-ups by key, beside the writer.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use super::error::Failure;
use super::file::File;

/// More would not help: a look-up takes microseconds.
const READERS_MAX: usize = 8;

/// A look-up runs on the caller's thread, so it hardly waits: a claim is decided by the writer then.
const BUSY_FOR: Duration = Duration::from_millis(10);

pub(super) struct Readers {
    pool: Box<[Mutex<Connection>]>,
}

/// Threads that have looked something up, counted to give each a connection of its own.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

impl Readers {
    /// As many as threads run at once.
    pub(super) fn open(file: &File) -> Result<Readers, Failure> {
        let count = thread::available_parallelism().map_or(1, |count| count.get().min(READERS_MAX));
        let pool = (0..count).map(|_| file.reader(BUSY_FOR).map(Mutex::new)).collect::<Result<_, _>>()?;
        Ok(Readers { pool })
    }

    /// Reads on this thread's connection, whose pages are in its processor's cache; on another one that is free while
    /// somebody else has it; where none is, waits for it, which is a wait for one look-up. A look-up holds no half-made
    /// state, so a panic in one leaves a sound connection behind.
    pub(super) fn with<T>(&self, read: impl FnOnce(&Connection) -> T) -> T {
        let own = NUMBER.with(|number| *number) % self.pool.len();
        let (before, from) = self.pool.split_at(own);
        let free = from.iter().chain(before).find_map(|reader| reader.try_lock().ok());
        let reader = free.unwrap_or_else(|| self.pool[own].lock().unwrap_or_else(PoisonError::into_inner));
        read(&reader)
    }
}

/// So many look-ups that found nothing, one after the other, and the next would find nothing either.
const MISSES_MAX: u32 = 32;

/// Whether a claim is looked up before it goes to the writer.
///
/// A look-up of a fresh key is in vain, and is an eighth of what a claim and its settlement cost. So
/// after [`MISSES_MAX`] of them in a row claims go straight to the writer, until anything is found, here or there, or
/// fails. It is a guess about what comes next; nothing but time depends on it.
#[derive(Default)]
pub(super) struct LookUps {
    misses: AtomicU32,
}

impl LookUps {
    pub(super) fn are_worth_it(&self) -> bool {
        self.misses.load(Ordering::Relaxed) < MISSES_MAX
    }

    pub(super) fn missed(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn found(&self) {
        // Written only where it changes, since all threads read it.
        if self.misses.load(Ordering::Relaxed) != 0 {
            self.misses.store(0, Ordering::Relaxed);
        }
    }

    /// As after so many misses.
    #[cfg(test)]
    pub(super) fn have_been_in_vain(&self) {
        self.misses.store(MISSES_MAX, Ordering::Relaxed);
    }
}
