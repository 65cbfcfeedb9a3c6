//! What went wrong in a file, for people and by what the caller must do next.
//!
//! Classified by SQLite's code and by how far the transaction had come, never by the text of a message.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::ErrorCode;
use semel::StoreError;

use super::file::File;
use crate::ConnectError;

/// How far a call had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Opening the file.
    Open,
    /// Reading; nothing was to be written.
    Read,
    /// Taking the write lock.
    Begin,
    /// Within a transaction, which is rolled back.
    Write,
    /// In `COMMIT`.
    Commit,
}

/// A call that failed. Several calls may share one failure, so it can be cloned.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    path: Arc<Path>,
    step: Step,
    cause: Arc<Cause>,
}

#[derive(Debug)]
enum Cause {
    Sqlite(rusqlite::Error),
    ReadOnly,
    Moved,
    Waited,
    Ended,
    Other(std::io::Error),
}

const READ_ONLY: &str = "it is read-only: let this program write the file and its directory";

/// What the caller must do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unavailable,
    Indeterminate,
    Refused,
    Corrupt,
}

impl Failure {
    pub(super) fn new(file: &File, step: Step, cause: rusqlite::Error) -> Failure {
        Failure::of(file, step, Cause::Sqlite(cause))
    }

    /// The file was opened, but not for writing.
    pub(super) fn read_only(file: &File) -> Failure {
        Failure::of(file, Step::Open, Cause::ReadOnly)
    }

    /// The file at the path is not the one that was opened.
    pub(super) fn moved(file: &File) -> Failure {
        Failure::of(file, Step::Begin, Cause::Moved)
    }

    /// A call waited too long before its turn.
    pub(super) fn waited(file: &File) -> Failure {
        Failure::of(file, Step::Begin, Cause::Waited)
    }

    /// The writer is gone, or panicked, at this step.
    pub(super) fn ended(file: &File, step: Step) -> Failure {
        Failure::of(file, step, Cause::Ended)
    }

    /// The system did not give what opening needs.
    pub(super) fn system(file: &File, cause: std::io::Error) -> Failure {
        Failure::of(file, Step::Open, Cause::Other(cause))
    }

    fn of(file: &File, step: Step, cause: Cause) -> Failure {
        Failure { path: file.path(), step, cause: Arc::new(cause) }
    }

    /// Whether the other calls of the transaction may succeed without this one. Not where the lock or the disk
    /// is what failed, and not where the commit may have happened.
    pub(super) fn spares_others(&self) -> bool {
        match self.step {
            Step::Write => true,
            Step::Commit => self.kind() != Kind::Indeterminate,
            Step::Open | Step::Read | Step::Begin => false,
        }
    }

    fn code(&self) -> Option<ErrorCode> {
        match self.cause.as_ref() {
            Cause::Sqlite(cause) => cause.sqlite_error_code(),
            _ => None,
        }
    }

    fn kind(&self) -> Kind {
        let Cause::Sqlite(cause) = self.cause.as_ref() else {
            return if self.step == Step::Commit { Kind::Indeterminate } else { Kind::Unavailable };
        };
        match (self.step, cause.sqlite_error_code()) {
            // A full disk, and a lock that is not had, leave no commit record behind. Of any other error in a
            // commit that cannot be said.
            (Step::Commit, Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy)) => Kind::Unavailable,
            (Step::Commit, _) => Kind::Indeterminate,
            (_, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) => Kind::Corrupt,
            (_, Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch)) => {
                Kind::Refused
            }
            (_, Some(_)) => Kind::Unavailable,
            // Not SQLite's error but a value that is no record's: another program wrote it, or the disk.
            (_, None) => Kind::Corrupt,
        }
    }

    /// What to do about it.
    fn advice(&self) -> &'static str {
        match self.code() {
            Some(ErrorCode::DiskFull) => "the disk is full: free some space",
            Some(ErrorCode::ReadOnly) => READ_ONLY,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                "another process holds the write lock: end it, or wait"
            }
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                "it cannot be opened: its directory must exist, and both must be writable by this program"
            }
            Some(ErrorCode::SystemIoFailure) => "the disk reports an error: look at the system's log",
            Some(ErrorCode::NotADatabase) => "this is no SQLite database: give another file",
            Some(ErrorCode::DatabaseCorrupt) | None => {
                "it is damaged: stop, keep a copy, then restore a backup or use `sqlite3 FILE .recover`"
            }
            Some(_) => "SQLite refused",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match self.cause.as_ref() {
            Cause::Sqlite(cause) => write!(f, "{} ({cause})", self.advice()),
            Cause::ReadOnly => f.write_str(READ_ONLY),
            Cause::Moved => f.write_str(
                "the file was moved, deleted or replaced while it was open: put it back, or restart this program",
            ),
            Cause::Waited => f.write_str("the call waited too long for its turn to write"),
            Cause::Ended => f.write_str("the writer ended before it answered"),
            Cause::Other(cause) => write!(f, "{cause}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        let kind = failure.kind();
        let source = Box::new(failure);
        match kind {
            Kind::Unavailable => StoreError::Unavailable(source),
            Kind::Indeterminate => StoreError::Indeterminate(source),
            Kind::Refused => StoreError::Refused(source),
            Kind::Corrupt => StoreError::Corrupt(source),
        }
    }
}

impl From<Failure> for ConnectError {
    fn from(failure: Failure) -> ConnectError {
        match failure.kind() {
            Kind::Corrupt => ConnectError::Corrupt(Box::new(failure)),
            _ => ConnectError::Unavailable(Box::new(failure)),
        }
    }
}
