//! What went wrong at a server, for people and by what the caller must do next.
//!
//! Classified by the code of the server (SQLSTATE) and by how far the call had come, never by the text of a message.

use std::fmt;
use std::sync::Arc;

use semel::StoreError;
use tokio_postgres::error::SqlState;

use crate::ConnectError;

/// A call that failed. Several calls may share one failure, so it can be cloned.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    kind: Kind,
    cause: Arc<Cause>,
}

#[derive(Debug)]
enum Cause {
    /// Connecting failed.
    Connect(tokio_postgres::Error),
    /// There was no connection that one could speak over.
    Socket(std::io::Error),
    /// The server's error, or the connection broke.
    Server(tokio_postgres::Error),
    /// Something else, in words.
    Said(&'static str),
    /// What a row holds is no record.
    Row(tokio_postgres::Error),
}

/// What the caller must do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing was written.
    Unavailable,
    /// Nothing was written, since somebody else wrote at the same time: it may be repeated at once.
    Conflict,
    /// It may have been written.
    Indeterminate,
    /// It will never succeed.
    Refused,
    /// A person must look.
    Corrupt,
}

impl Failure {
    /// Nothing was sent.
    pub(super) fn connect(cause: tokio_postgres::Error) -> Failure {
        Failure::of(Kind::Unavailable, Cause::Connect(cause))
    }

    /// Nobody was reached.
    pub(super) fn socket(cause: std::io::Error) -> Failure {
        Failure::of(Kind::Unavailable, Cause::Socket(cause))
    }

    /// A statement was sent.
    pub(super) fn server(cause: tokio_postgres::Error) -> Failure {
        Failure::of(kind(cause.code()), Cause::Server(cause))
    }

    /// The same, and what was sent cannot have written anything that lasts.
    pub(super) fn before_commit(cause: tokio_postgres::Error) -> Failure {
        Failure::server(cause).of_a_read()
    }

    /// A failure of what writes nothing.
    pub(super) fn of_a_read(self) -> Failure {
        let kind = if self.kind == Kind::Indeterminate { Kind::Unavailable } else { self.kind };
        Failure { kind, ..self }
    }

    /// A row came, and it is none of Semel's.
    pub(super) fn row(cause: tokio_postgres::Error) -> Failure {
        Failure::of(Kind::Corrupt, Cause::Row(cause))
    }

    pub(super) fn said(kind: Kind, why: &'static str) -> Failure {
        Failure::of(kind, Cause::Said(why))
    }

    fn of(kind: Kind, cause: Cause) -> Failure {
        Failure { kind, cause: Arc::new(cause) }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the connection is to be given up: it is gone, or its server may no longer be written.
    pub(super) fn ends_connection(&self) -> bool {
        self.kind == Kind::Indeterminate || self.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
    }

    /// Whether the other calls of a batch may succeed without this one: what failed is of one call, not the server.
    pub(super) fn spares_others(&self) -> bool {
        matches!(self.kind, Kind::Refused | Kind::Corrupt | Kind::Conflict)
            || matches!(self.code(), Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::QUERY_CANCELED)
    }

    /// Whether trying again can help, when connecting failed.
    pub(super) fn is_passing(&self) -> bool {
        let Cause::Connect(cause) = self.cause.as_ref() else { return true };
        // Wrong password or user, no such database: 28xxx, 3D000.
        cause
            .code()
            .is_none_or(|code| !code.code().starts_with("28") && *code != SqlState::INVALID_CATALOG_NAME)
    }

    fn code(&self) -> Option<&SqlState> {
        match self.cause.as_ref() {
            Cause::Connect(cause) | Cause::Server(cause) | Cause::Row(cause) => cause.code(),
            Cause::Said(_) | Cause::Socket(_) => None,
        }
    }
}

/// What a server's error means. An error is the answer to a statement that was rolled back with all that it wrote, but for
/// the classes that tell of the end of the connection: then the commit may have come before it. A pooler sends its own
/// errors with such a class too.
fn kind(code: Option<&SqlState>) -> Kind {
    let Some(code) = code else { return Kind::Indeterminate };
    match code.code() {
        "40001" | "40P01" => Kind::Conflict,
        "40003" | "57P01" | "57P02" | "57P04" | "57P05" => Kind::Indeterminate,
        "XX001" | "XX002" => Kind::Corrupt,
        code => match &code[..2] {
            "08" | "XX" | "58" => Kind::Indeterminate,
            "22" | "23" | "54" => Kind::Refused,
            _ => Kind::Unavailable,
        },
    }
}

/// What to do about it.
fn advice(code: &SqlState) -> Option<&'static str> {
    Some(match code.code() {
        "28P01" | "28000" => {
            "the server refuses the user or the password: look at the URL and at pg_hba.conf"
        }
        "3D000" => "there is no such database: make it with `createdb`, or look at the URL",
        "53300" => "the server has no connection left: raise max_connections, or lower pool= in the URL",
        "53100" => "the server's disk is full: free some space",
        "57P03" => "the server is starting or stopping",
        "42501" => "the user may not do that: grant it, or let another user run `semel migrate`",
        "42883" => {
            "the functions of the schema semel are missing: run `semel migrate`, or add functions=off to the URL"
        }
        "42P01" | "3F000" => "the tables of the schema semel are missing: run `semel migrate`",
        "25006" => "the server is read-only: a standby, or no longer the primary",
        "55P03" => "another transaction holds the key",
        "22P05" => "the database's encoding has no such character: use one in UTF8",
        _ => return None,
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgreSQL: ")?;
        match self.cause.as_ref() {
            Cause::Said(why) => f.write_str(why),
            Cause::Socket(cause) => write!(f, "the server cannot be reached ({cause})"),
            Cause::Row(cause) => write!(f, "a row is no record of Semel's ({})", Plain(cause)),
            Cause::Connect(cause) | Cause::Server(cause) => match cause.code().and_then(advice) {
                Some(advice) => write!(f, "{advice} ({})", Plain(cause)),
                None => write!(f, "{}", Plain(cause)),
            },
        }
    }
}

/// An error with what it stems from, in one line. Of a server's error the message and its code; its detail may hold
/// values of a row.
struct Plain<'a>(&'a tokio_postgres::Error);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(db) = self.0.as_db_error() {
            return write!(f, "{} [{}]", db.message(), db.code().code());
        }
        write!(f, "{}", self.0)?;
        let mut source = std::error::Error::source(self.0);
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        let kind = failure.kind;
        let source = Box::new(failure);
        match kind {
            Kind::Unavailable | Kind::Conflict => StoreError::Unavailable(source),
            Kind::Indeterminate => StoreError::Indeterminate(source),
            Kind::Refused => StoreError::Refused(source),
            Kind::Corrupt => StoreError::Corrupt(source),
        }
    }
}

impl From<Failure> for ConnectError {
    fn from(failure: Failure) -> ConnectError {
        match failure.kind {
            Kind::Corrupt => ConnectError::Corrupt(Box::new(failure)),
            _ => ConnectError::Unavailable(Box::new(failure)),
        }
    }
}
