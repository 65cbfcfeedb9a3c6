//! What a failure means for whoever called.
//!
//! By the kind of an error and the code word of a reply, never by its text.
//!
//! 1. **Nothing was written** ([`StoreError::Unavailable`]): there was no connection and no room to ask; or the server
//!    refused the command or the script's first write, which is the record. The words are in [`REFUSALS`].
//! 2. **It may have been** ([`StoreError::Indeterminate`]): everything else, once a command may have been sent. So is
//!    every failure of a cluster: its client repeats commands by itself, so an earlier try may have been the one.
//! 3. **Corrupt**: a script could not read what is there, or the name holds another kind of thing.

use std::fmt;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use semel::StoreError;

/// Said before anything is written. `NOPERM` is not among them: a script may be stopped by it half-way, which is why a
/// probe at the start does all that scripts do.
const REFUSALS: [&str; 15] = [
    "LOADING",
    "OOM",
    "MISCONF",
    "NOSCRIPT",
    "READONLY",
    "NOREPLICAS",
    "MASTERDOWN",
    "BUSY",
    "NOAUTH",
    "WRONGPASS",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CROSSSLOT",
    "CLUSTERDOWN",
];

/// Why a call was not answered.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// There was no connection, or no room.
    NotSent(String),
    /// The server or the connection said so, after the command may have been sent.
    Sent(RedisError),
    /// The same in a cluster.
    SentToSome(RedisError),
    /// No answer in time.
    Silent(Duration),
    /// It is written, and fewer replicas have it than were asked for.
    NotReplicated { replicas: u64, wanted: u32 },
    /// The task that had sent it is no more.
    Ended,
    /// The reply is none that a script gives.
    Unread,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotSent(why) => f.write_str(why),
            Failure::Sent(error) | Failure::SentToSome(error) => f.write_str(&said(error)),
            Failure::Silent(within) => write!(f, "Redis did not answer within {within:?}"),
            Failure::NotReplicated { replicas, wanted } => {
                write!(f, "{replicas} replicas have the write, {wanted} were asked for")
            }
            Failure::Ended => f.write_str("the task that asked Redis ended before it was answered"),
            Failure::Unread => f.write_str("Redis gave a reply that no script gives"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        match &failure {
            Failure::NotSent(_) => StoreError::Unavailable(Box::new(failure)),
            Failure::Sent(error) if is_refusal(error) => StoreError::Unavailable(Box::new(failure)),
            Failure::Sent(error) | Failure::SentToSome(error) if is_corrupt(error) => {
                StoreError::Corrupt(Box::new(failure))
            }
            Failure::Unread => StoreError::Corrupt(Box::new(failure)),
            _ => StoreError::Indeterminate(Box::new(failure)),
        }
    }
}

/// Whether the server does not know the script: it was started anew, or told to forget.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Whether the connection must not be used again: it is broken, out of step, or leads to a server that does not take
/// writes any more.
pub(super) fn is_spoilt(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => kind == ServerErrorKind::ReadOnly,
        ErrorKind::Extension => matches!(error.code(), Some("NOAUTH" | "WRONGPASS")),
        _ => true,
    }
}

/// For people. A reply's own text tells more than its kind; it holds no password and no key.
pub(super) fn said(error: &RedisError) -> String {
    match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => {
            "Redis refuses the user or the password".to_owned()
        }
        (ErrorKind::Parse, _) => "what answers does not speak Redis's protocol".to_owned(),
        (_, Some(code)) => {
            format!("Redis says {code} {}", error.detail().unwrap_or_default()).trim_end().to_owned()
        }
        _ => error.to_string(),
    }
}

pub(super) fn silent(
    error: RedisError,
    busy_for: Duration,
    otherwise: impl FnOnce(RedisError) -> Failure,
) -> Failure {
    if error.is_timeout() { Failure::Silent(busy_for) } else { otherwise(error) }
}

fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some_and(|code| REFUSALS.contains(&code))
}

fn is_corrupt(error: &RedisError) -> bool {
    matches!(error.code(), Some("SEMELCORRUPT" | "WRONGTYPE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), Some("some text".to_owned()))
    }

    fn meaning(failure: Failure) -> &'static str {
        match StoreError::from(failure) {
            StoreError::Unavailable(_) => "nothing written",
            StoreError::Indeterminate(_) => "perhaps",
            StoreError::Corrupt(_) => "corrupt",
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_refusal_wrote_nothing_and_everything_else_may_have() {
        for code in REFUSALS {
            assert_eq!(meaning(Failure::Sent(reply(code))), "nothing written", "{code}");
            assert_eq!(meaning(Failure::SentToSome(reply(code))), "perhaps", "{code} after another try");
        }
        for code in ["ERR", "NOPERM", "EXECABORT", "ANYTHING"] {
            assert_eq!(meaning(Failure::Sent(reply(code))), "perhaps", "{code}");
        }
        let broken = || RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(meaning(Failure::Sent(broken())), "perhaps");
        assert_eq!(meaning(Failure::Silent(Duration::from_secs(1))), "perhaps");
        assert_eq!(meaning(Failure::NotReplicated { replicas: 0, wanted: 1 }), "perhaps");
        assert_eq!(meaning(Failure::NotSent("refused".to_owned())), "nothing written");
        assert_eq!(meaning(Failure::Sent(reply("SEMELCORRUPT"))), "corrupt");
    }

    #[test]
    fn a_connection_that_broke_or_leads_to_a_replica_is_not_used_again() {
        let io = |kind| RedisError::from(std::io::Error::from(kind));
        assert!(is_spoilt(&io(std::io::ErrorKind::BrokenPipe)));
        assert!(is_spoilt(&io(std::io::ErrorKind::TimedOut)));
        assert!(is_spoilt(&RedisError::from((ErrorKind::Server(ServerErrorKind::ReadOnly), "a replica"))));
        assert!(!is_spoilt(&reply("OOM")));
        assert!(!is_spoilt(&RedisError::from((ErrorKind::Server(ServerErrorKind::BusyLoading), "loads"))));
    }
}
