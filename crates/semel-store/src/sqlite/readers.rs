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
    next: AtomicUsize,
}

impl Readers {
    /// As many as threads run at once.
    pub(super) fn open(file: &File) -> Result<Readers, Failure> {
        let count = thread::available_parallelism().map_or(1, |count| count.get().min(READERS_MAX));
        let pool = (0..count).map(|_| file.reader(BUSY_FOR).map(Mutex::new)).collect::<Result<_, _>>()?;
        Ok(Readers { pool, next: AtomicUsize::new(0) })
    }

    /// Reads on a connection that is free; where none is, waits for one, which is a wait for one look-up. A look-up
    /// holds no half-made state, so a panic in one leaves a sound connection behind.
    pub(super) fn with<T>(&self, read: impl FnOnce(&Connection) -> T) -> T {
        let free = self.pool.iter().find_map(|reader| reader.try_lock().ok());
        let reader = free.unwrap_or_else(|| {
            let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.pool.len();
            self.pool[turn].lock().unwrap_or_else(PoisonError::into_inner)
        });
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
        self.misses.store(0, Ordering::Relaxed);
    }

    /// As after so many misses.
    #[cfg(test)]
    pub(super) fn have_been_in_vain(&self) {
        self.misses.store(MISSES_MAX, Ordering::Relaxed);
    }
}
