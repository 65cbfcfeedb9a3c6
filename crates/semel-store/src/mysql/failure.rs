//! What went wrong with a server, for people and by what the caller must do next.
//!
//! Classified by the number of the server's error and by how far the call had come, never by the text of a message.

use std::fmt;
use std::sync::Arc;

use semel::StoreError;

use crate::ConnectError;

/// How far a call had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Connecting.
    Connect,
    /// Reading, or within a transaction that was not yet to be committed: nothing is written.
    Read,
    /// A statement that commits: by itself, or `COMMIT`.
    Commit,
}

/// A call that failed. Several calls may share one failure, so it can be cloned.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    store: Arc<str>,
    step: Step,
    cause: Arc<Cause>,
}

#[derive(Debug)]
pub(super) enum Cause {
    Driver(mysql_async::Error),
    /// No answer in time.
    Silent,
    /// A call waited too long for its turn.
    Late,
    /// The task ended that had the call.
    Ended,
    /// A row that is no record's.
    Unreadable(&'static str),
    /// A call that the server does not take.
    TooLarge {
        bytes: usize,
        bytes_max: usize,
    },
}

/// What the caller must do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unavailable,
    Indeterminate,
    Refused,
    Corrupt,
}

impl Failure {
    pub(super) fn new(store: &Arc<str>, step: Step, cause: Cause) -> Failure {
        Failure { store: Arc::clone(store), step, cause: Arc::new(cause) }
    }

    /// The number of the server's error, if it answered with one.
    pub(super) fn code(&self) -> Option<u16> {
        match self.cause.as_ref() {
            Cause::Driver(mysql_async::Error::Server(error)) => Some(error.code),
            _ => None,
        }
    }

    /// Another row has that key. The statement wrote nothing.
    pub(super) fn is_duplicate(&self) -> bool {
        self.code() == Some(1062)
    }

    /// Somebody else holds a lock for long.
    pub(super) fn is_lock_wait(&self) -> bool {
        self.code() == Some(1205)
    }

    /// There is no such table.
    pub(super) fn is_no_table(&self) -> bool {
        self.code() == Some(1146)
    }

    /// Whether the same call may succeed a little later.
    pub(super) fn is_transient(&self) -> bool {
        match (self.cause.as_ref(), self.code()) {
            (_, Some(code)) => class(code) == Class::Transient,
            (Cause::Driver(mysql_async::Error::Io(mysql_async::IoError::Tls(_))), _) => false,
            (Cause::Driver(error), None) => error.is_fatal() && self.step != Step::Connect || self.is_io(),
            (Cause::Silent, _) => true,
            _ => false,
        }
    }

    /// Whether the connection is not to be used again: it broke, it may be in the middle of an answer, or another
    /// connection may lead to a server that writes.
    pub(super) fn ends_connection(&self) -> bool {
        match (self.cause.as_ref(), self.code()) {
            (_, Some(code)) => ENDING.contains(&code),
            (Cause::Driver(_) | Cause::Silent, None) => true,
            _ => false,
        }
    }

    /// Whether the other calls of the batch may succeed without this one.
    pub(super) fn spares_others(&self) -> bool {
        matches!(self.kind(), Kind::Refused | Kind::Corrupt)
    }

    pub(super) fn kind(&self) -> Kind {
        let is_unsure = self.step == Step::Commit;
        match (self.cause.as_ref(), self.code()) {
            (Cause::Unreadable(_), _) => Kind::Corrupt,
            (Cause::TooLarge { .. }, _) => Kind::Refused,
            (Cause::Late, _) => Kind::Unavailable,
            (_, Some(code)) => match class(code) {
                Class::Refused => Kind::Refused,
                Class::Other if is_unsure => Kind::Indeterminate,
                Class::Transient | Class::NotWritten | Class::Other => Kind::Unavailable,
            },
            _ if is_unsure => Kind::Indeterminate,
            _ => Kind::Unavailable,
        }
    }

    fn is_io(&self) -> bool {
        matches!(self.cause.as_ref(), Cause::Driver(mysql_async::Error::Io(_)))
    }

    /// What the caller is told, if a call before this one may have been written.
    pub(super) fn after_doubt(self) -> StoreError {
        match StoreError::from(self) {
            StoreError::Unavailable(source) => StoreError::Indeterminate(source),
            other => other,
        }
    }

    /// What to do about it.
    fn advice(&self) -> Option<&'static str> {
        Some(match self.code()? {
            1044 | 1142 | 1143 => "the user may not do that: grant it the rights on this database",
            1045 | 1698 => "wrong user or password",
            1049 => "there is no such database: CREATE DATABASE makes it",
            1040 | 1203 | 1226 => "too many connections: raise max_connections, or lower pool= in the URL",
            1021 | 1114 => "the server's disk is full: free some space",
            1146 => "a table is missing: run `semel migrate`",
            1205 => "another transaction holds the row for long: end it, or wait",
            1213 => "a deadlock, and again each time",
            1290 | 1792 | 1836 => "the server is read-only: is it a replica?",
            1665 => "the binary log is one of statements: add isolation=repeatable-read to the URL",
            1129 => "the server has blocked this host: FLUSH HOSTS frees it",
            _ => return None,
        })
    }
}

/// What is known of an error by its number, wherever it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Nothing was written, and trying again may help.
    Transient,
    /// Nothing was written.
    NotWritten,
    /// Nothing was written, and this call never will be.
    Refused,
    /// It says nothing of what was written.
    Other,
}

/// After these the next call needs another connection.
const ENDING: [u16; 10] = [1047, 1053, 1243, 1290, 1317, 1792, 1836, 1927, 3159, 4031];

fn class(code: u16) -> Class {
    match code {
        // Deadlock, lock wait, another one's row; too many connections, of all or of one user, too many statements.
        1213 | 1205 | 1062 | 1040 | 1203 | 1226 | 1461 => Class::Transient,
        // Read-only, as a server is after a fail-over, or a node that has not joined.
        1290 | 1792 | 1836 | 1047 => Class::Transient,
        // Refused before it was begun: an unknown statement, tables that changed, an idle connection.
        1243 | 1615 | 4031 => Class::Transient,
        // Access, no database, no table, no column, syntax, blocked host, binary log of statements, full disk, a
        // statement too long for the packet or for its time.
        1044 | 1045 | 1698 | 1049 | 1054 | 1064 | 1129 | 1130 | 1142 | 1143 | 1146 | 1665 | 1021 | 1114
        | 1153 | 1969 | 3024 => Class::NotWritten,
        // Not a value for its column.
        1048 | 1118 | 1264 | 1292 | 1364 | 1366 | 1406 | 1690 | 3819 | 4025 => Class::Refused,
        _ => Class::Other,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.store)?;
        match (self.cause.as_ref(), self.advice()) {
            (Cause::Driver(error), Some(advice)) => write!(f, "{advice} ({error})"),
            (Cause::Driver(error), None) => write!(f, "{error}"),
            (Cause::Silent, _) if self.step == Step::Connect => f.write_str("no connection within the time"),
            (Cause::Silent, _) => f.write_str("the server did not answer in time"),
            (Cause::Late, _) => f.write_str("the call waited too long for its turn"),
            (Cause::Ended, _) => f.write_str("the connection's task ended before it answered"),
            (Cause::Unreadable(what), _) => write!(f, "a row cannot be read: {what}"),
            (Cause::TooLarge { bytes, bytes_max }, _) => write!(
                f,
                "a record of {bytes} bytes is more than the server takes at once ({bytes_max}): raise max_allowed_packet"
            ),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn server(step: Step, code: u16) -> Failure {
        let error = mysql_async::ServerError { code, message: "text".to_owned(), state: "HY000".to_owned() };
        Failure::new(&"mysql://h/db".into(), step, Cause::Driver(error.into()))
    }

    #[test]
    fn an_error_of_the_server_is_told_by_its_number_and_by_the_step() {
        for (step, code, kind, is_transient) in [
            (Step::Commit, 1213, Kind::Unavailable, true),
            (Step::Commit, 1205, Kind::Unavailable, true),
            (Step::Commit, 1290, Kind::Unavailable, true),
            (Step::Connect, 1040, Kind::Unavailable, true),
            (Step::Connect, 1045, Kind::Unavailable, false),
            (Step::Connect, 1049, Kind::Unavailable, false),
            (Step::Commit, 1062, Kind::Unavailable, true),
            (Step::Commit, 1406, Kind::Refused, false),
            (Step::Read, 1406, Kind::Refused, false),
            // A commit that failed for a reason that says nothing of it.
            (Step::Commit, 1180, Kind::Indeterminate, false),
            (Step::Commit, 1927, Kind::Indeterminate, false),
            (Step::Read, 1927, Kind::Unavailable, false),
        ] {
            let failure = server(step, code);
            assert_eq!((failure.kind(), failure.is_transient()), (kind, is_transient), "{step:?} {code}");
        }
    }

    #[test]
    fn a_lost_answer_is_indeterminate_only_where_something_may_be_written() {
        for (step, kind) in [
            (Step::Connect, Kind::Unavailable),
            (Step::Read, Kind::Unavailable),
            (Step::Commit, Kind::Indeterminate),
        ] {
            for cause in [
                Cause::Silent,
                Cause::Ended,
                Cause::Driver(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()),
                Cause::Driver(mysql_async::DriverError::ConnectionClosed.into()),
            ] {
                assert_eq!(Failure::new(&"mysql://h/db".into(), step, cause).kind(), kind, "{step:?}");
            }
        }
    }
}
