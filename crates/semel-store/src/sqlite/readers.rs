//! Connections for look-ups by key, beside the writer.

use std::sync::atomic::{AtomicUsize, Ordering};
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
