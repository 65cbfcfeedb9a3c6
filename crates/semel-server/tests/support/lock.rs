//! Another process at the store's file, as far as SQLite can tell: a connection that holds the write lock.

use std::path::Path;

use rusqlite::Connection;

use super::DEADLINE;

/// The write lock. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct WriteLock(Connection);

impl WriteLock {
    /// Waits for it.
    pub(crate) fn take(file: &Path) -> WriteLock {
        let connection = Connection::open(file).expect("the store's file");
        connection.busy_timeout(DEADLINE).expect("a timeout");
        connection.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
        WriteLock(connection)
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        let _ = self.0.execute_batch("ROLLBACK");
    }
}
