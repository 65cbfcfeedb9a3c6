//! One file, and connections to it.
//!
//! Nothing opens an existing file but SQLite: closing any other descriptor of it would drop this process's POSIX
//! locks on it, all of them.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::{Failure, Step};

/// WAL pages between two checkpoints. The writer makes them, within a commit, and everybody waits for the sync of all
/// pages that it has written to the file: more pages are fewer waits, each of them longer. With ten million keys and 128
/// callers, 8,000 pages and 1,000 differ by less than the noise in pairs a second, and the slowest hundredth waits 130 ms
/// and 30.
const CHECKPOINT_PAGES: u32 = 1_000;

/// How long a wait for the lock sleeps between two looks. Short, because another gateway's writer leaves only
/// short gaps between its transactions, and SQLite's own handler soon sleeps 100 ms at a time.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Even an idle writer needs a moment, so no shorter wait makes sense. The other border is one that every clock and
/// counter can hold.
const BUSY_FOR_MIN: Duration = Duration::from_millis(10);
const BUSY_FOR_MAX: Duration = Duration::from_secs(3_600);

/// Statements that a connection keeps prepared; more than there are.
const STATEMENTS_MAX: usize = 32;

/// A database file.
#[derive(Debug, Clone)]
pub(super) struct File {
    path: Arc<Path>,
    busy_for: Duration,
}

/// Which file a path led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl File {
    /// Made absolute, so that a change of the working directory changes nothing.
    pub(super) fn new(path: &Path, busy_for: Duration) -> Result<File, Failure> {
        let busy_for = busy_for.clamp(BUSY_FOR_MIN, BUSY_FOR_MAX);
        match std::path::absolute(path) {
            Ok(absolute) => Ok(File { path: absolute.into(), busy_for }),
            Err(error) => Err(Failure::system(&File { path: path.into(), busy_for }, error)),
        }
    }

    pub(super) fn path(&self) -> Arc<Path> {
        Arc::clone(&self.path)
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn busy_for(&self) -> Duration {
        self.busy_for
    }

    /// A connection that writes.
    pub(super) fn writer(&self) -> Result<Connection, Failure> {
        let connection = self.open()?;
        self.for_writing(&connection)?;
        Ok(connection)
    }

    /// Makes a connection one that writes, and the file one in WAL mode, which lasts in it. From here on only
    /// [`patiently`](File::patiently) waits for locks.
    pub(super) fn for_writing(&self, connection: &Connection) -> Result<(), Failure> {
        let set = || {
            connection.busy_timeout(Duration::ZERO)?;
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            // The checks are for whoever else writes the file. What this program writes is made by the types in
            // `rows`, and tested with the checks on; evaluating them is more than half of an INSERT's work.
            connection.pragma_update(None, "ignore_check_constraints", true)?;
            // Where a sync may stop in the drive's cache: on macOS. Elsewhere it changes nothing.
            connection.pragma_update(None, "fullfsync", true)?;
            connection.pragma_update(None, "checkpoint_fullfsync", true)?;
            connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))
        };
        self.patiently(Instant::now() + self.busy_for, set).map_err(|cause| self.failure(cause))
    }

    /// A connection that reads, and waits so long where it meets a lock: readers of a WAL do so only while
    /// somebody recovers it or takes it down. It may write all the same: the first one after a crash recovers the
    /// WAL.
    pub(super) fn reader(&self, busy_for: Duration) -> Result<Connection, Failure> {
        let connection = self.open()?;
        let set = connection.pragma_update(None, "query_only", true);
        set.and_then(|()| connection.busy_timeout(busy_for)).map_err(|cause| self.failure(cause))?;
        Ok(connection)
    }

    /// Makes an empty file, readable by its owner alone, since outcomes may hold secrets. SQLite gives its
    /// companions the same mode. No connection of this process has the file open, or it would exist.
    pub(super) fn make(&self) -> Result<(), Failure> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(Failure::system(self, error))
            }
            _ => Ok(()),
        }
    }

    /// Opens what exists.
    /// SQLite reads no URI here, so every path is one file and no parameter can be hidden in it.
    pub(super) fn open(&self) -> Result<Connection, Failure> {
        if self.path.is_dir() {
            return Err(Failure::system(self, std::io::ErrorKind::IsADirectory.into()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&self.path, flags).map_err(|cause| self.failure(cause))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        self.prepare(&connection).map_err(|cause| self.failure(cause))?;
        // SQLite falls back to reading alone, silently.
        match connection.is_readonly("main") {
            Ok(false) => Ok(connection),
            _ => Err(Failure::read_only(self)),
        }
    }

    fn prepare(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.busy_timeout(self.busy_for)?;
        // A damaged page is noticed when it is read, not when it is used.
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "trusted_schema", false)
    }

    /// Repeats what met a lock, until it has it or the time is over. The whole transaction is begun anew each
    /// time, so its snapshot is never an old one.
    pub(super) fn patiently<T>(
        &self,
        until: Instant,
        mut attempt: impl FnMut() -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        loop {
            match attempt() {
                Err(error) if is_busy(&error) && Instant::now() < until => thread::sleep(LOOK_EVERY),
                done => return done,
            }
        }
    }

    fn failure(&self, cause: rusqlite::Error) -> Failure {
        Failure::new(self, Step::Open, cause)
    }

    pub(super) fn exists(&self) -> Result<bool, Failure> {
        self.path.try_exists().map_err(|error| Failure::system(self, error))
    }

    /// What the path leads to now; `None` where there is nothing, or the system cannot say.
    pub(super) fn identity(&self) -> Option<Identity> {
        identity(&self.path)
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| Identity(file.dev(), file.ino()))
}

/// An open file cannot be moved away there.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}

/// Whether somebody else has the lock.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
