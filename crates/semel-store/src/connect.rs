//! From a URL to a store, and to what it offers.
//!
//! 1. A URL that is not understood, or that names a store that is not built in, is an error that says what would
//!    be right. Nothing is guessed.
//! 2. Opening makes and changes nothing: a missing file, or a schema that is behind, is an error, unless
//!    [`Options::migrate`] says otherwise. A newer schema is always an error.
//! 3. An error names the scheme or the file, never a password.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semel::{BoxError, Clock, History, Inspect, MemoryStore, Store, SystemClock};

use crate::migrate::{Migrate, Migration, NoSchema};

/// How to open a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The clock that decides leases and retention, where the store has none of its own.
    pub clock: Arc<dyn Clock>,
    /// Make the database if it is missing, and apply pending migrations.
    pub migrate: bool,
    /// How long a call waits for another process that writes, and for room in the queue, before it is
    /// [`Unavailable`](semel::StoreError::Unavailable). From 10 milliseconds to an hour.
    pub busy_for: Duration,
}

impl Default for Options {
    /// The machine's clock, no migration, 5 seconds.
    fn default() -> Options {
        Options { clock: Arc::new(SystemClock), migrate: false, busy_for: Duration::from_secs(5) }
    }
}

/// An open store, and what it offers.
#[derive(Debug, Clone)]
pub struct Connected {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The same store, for looking at its records.
    pub inspect: Arc<dyn Inspect>,
    /// The same store, for what happened to a key.
    pub history: Arc<dyn History>,
    /// Whether several machines can use it together.
    pub shared: bool,
    /// Whether a write that was acknowledged can be lost though everything works as it is meant to: a fail-over to a
    /// replica that lags, a log that is not synced before the answer.
    pub lossy: bool,
}

impl Connected {
    fn local<S: Inspect + History>(store: S) -> Connected {
        let store = Arc::new(store);
        let history = Arc::clone(&store) as Arc<dyn History>;
        Connected {
            store: Arc::clone(&store) as Arc<dyn Store>,
            inspect: store,
            history,
            shared: false,
            lossy: false,
        }
    }

    /// A store that several machines use together.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "redis"))]
    pub(crate) fn shared<S: Inspect + History>(store: S, lossy: bool) -> Connected {
        Connected { shared: true, lossy, ..Connected::local(store) }
    }
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is no store's URL.
    #[error("{0}")]
    Url(String),
    /// The URL names a store that this program was built without.
    #[error("this build has no store for {scheme}: {remedy}")]
    NotBuilt {
        /// Which one.
        scheme: String,
        /// What to do.
        remedy: String,
    },
    /// There is no such database.
    #[error(
        "{store} does not exist: name the one that the gateway has, or make a new one with `semel migrate`"
    )]
    Absent {
        /// Which one.
        store: String,
    },
    /// The schema is older than this program.
    #[error("{store} has no schema or an older one ({} pending): run `semel migrate`", pending.len())]
    Behind {
        /// Which one.
        store: String,
        /// What would bring it up to date.
        pending: Vec<Migration>,
    },
    /// The schema is newer than this program.
    #[error("{store} has schema {found}, this program knows up to {known}: use a newer program")]
    Newer {
        /// Which one.
        store: String,
        /// The schema's number.
        found: u32,
        /// The highest number that this program knows.
        known: u32,
    },
    /// It is a database, but not Semel's.
    #[error("{store} belongs to another program: give another file")]
    Foreign {
        /// Which one.
        store: String,
    },
    /// It cannot be reached or written now.
    #[error("the store cannot be opened: {0}")]
    Unavailable(#[source] BoxError),
    /// What it holds cannot be read. A person must look.
    #[error("the store is corrupt: {0}")]
    Corrupt(#[source] BoxError),
}

/// Opens the store at a URL.
///
/// # Errors
///
/// [`ConnectError`], whose text says what to do.
pub async fn connect(url: &str, options: &Options) -> Result<Connected, ConnectError> {
    match parse(url)? {
        Place::Memory => Ok(Connected::local(MemoryStore::with_clock(Arc::clone(&options.clock)))),
        #[cfg(feature = "sqlite")]
        Place::Sqlite(path) => {
            let options = options.clone();
            blocking(move || crate::SqliteStore::open(path, &options)).await.map(Connected::local)
        }
        #[cfg(not(feature = "sqlite"))]
        Place::Sqlite(_) => Err(not_built("sqlite")),
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => crate::postgres::open(&url, options).await,
        #[cfg(feature = "mysql")]
        Place::Mysql(url) => crate::mysql::open(&url, options).await,
        #[cfg(feature = "redis")]
        Place::Redis(url) => crate::redis::open(&url, options).await,
        #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "redis")))]
        missing => Err(not_built(missing.feature())),
    }
}

/// The schema of the store at a URL. Opens nothing yet.
///
/// # Errors
///
/// When the URL is no store's that is built in.
pub fn migrations(url: &str) -> Result<Arc<dyn Migrate>, ConnectError> {
    match parse(url)? {
        Place::Memory => Ok(Arc::new(NoSchema)),
        #[cfg(feature = "sqlite")]
        Place::Sqlite(path) => Ok(Arc::new(crate::sqlite::SqliteMigrations::new(path))),
        #[cfg(not(feature = "sqlite"))]
        Place::Sqlite(_) => Err(not_built("sqlite")),
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => crate::postgres::migrations(&url),
        #[cfg(feature = "mysql")]
        Place::Mysql(url) => crate::mysql::migrations(&url),
        #[cfg(feature = "redis")]
        Place::Redis(url) => crate::redis::migrations(&url),
        #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "redis")))]
        missing => Err(not_built(missing.feature())),
    }
}

/// Runs what waits for a disk off the threads that serve.
#[cfg(feature = "sqlite")]
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ConnectError> + Send + 'static,
) -> Result<T, ConnectError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|gone| Err(ConnectError::Unavailable(Box::new(gone))))
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Sqlite(PathBuf),
    /// The whole URL, as of the others: the module of the store reads it.
    Postgres(String),
    Mysql(String),
    Redis(String),
}

impl Place {
    /// The feature that builds its store.
    #[cfg(not(all(feature = "postgres", feature = "mysql", feature = "redis")))]
    fn feature(&self) -> &'static str {
        match self {
            Place::Memory | Place::Sqlite(_) => "sqlite",
            Place::Postgres(_) => "postgres",
            Place::Mysql(_) => "mysql",
            Place::Redis(_) => "redis",
        }
    }
}

const FORMS: [&str; 6] = ["sqlite://", "memory:", "postgres://", "mysql://", "redis://", "redis+cluster://"];

fn parse(url: &str) -> Result<Place, ConnectError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        let text = format!("{url:?} is no store's URL: a file is written sqlite://semel.db");
        return Err(ConnectError::Url(text));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Place::Memory),
        "memory" => Err(ConnectError::Url("nothing may follow memory: in a store's URL".to_owned())),
        "sqlite" => file(rest).map(Place::Sqlite),
        "postgres" | "postgresql" => Ok(Place::Postgres(url.to_owned())),
        "mysql" | "mariadb" => Ok(Place::Mysql(url.to_owned())),
        "redis" | "rediss" | "redis+cluster" | "rediss+cluster" => Ok(Place::Redis(url.to_owned())),
        _ => Err(unknown(scheme)),
    }
}

/// The path is taken as it is written: nothing in it is decoded, and nothing may follow it.
fn file(rest: &str) -> Result<PathBuf, ConnectError> {
    let refuse = |text: String| Err(ConnectError::Url(text));
    let Some(path) = rest.strip_prefix("//") else {
        return refuse(format!("a SQLite store is written sqlite://FILE: did you mean sqlite://{rest}?"));
    };
    match path {
        "" => refuse("sqlite:// names no file: write sqlite://semel.db, say".to_owned()),
        ":memory:" => refuse("a store in memory is written memory:".to_owned()),
        _ if path.contains(['?', '#']) => refuse(format!(
            "sqlite://{path}: parameters are not taken, and a file's name may not hold ? or #"
        )),
        _ if path.ends_with('/') => refuse(format!("sqlite://{path} names a directory, not a file")),
        _ => Ok(PathBuf::from(path)),
    }
}

#[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis")))]
fn not_built(feature: &str) -> ConnectError {
    ConnectError::NotBuilt {
        scheme: format!("{feature}://"),
        remedy: format!("rebuild it with the feature `{feature}`"),
    }
}

/// Shows at most the scheme: what follows may hold a password.
fn unknown(scheme: &str) -> ConnectError {
    let nearest = FORMS
        .into_iter()
        .max_by(|one, other| likeness(scheme, one).total_cmp(&likeness(scheme, other)))
        .filter(|form| likeness(scheme, form) > 0.7);
    let hint = match nearest {
        Some(form) => format!("did you mean {form}?"),
        None => format!("one of {} is", FORMS.join(" ")),
    };
    ConnectError::Url(format!("{scheme:?} is no store's scheme: {hint}"))
}

fn likeness(scheme: &str, form: &str) -> f64 {
    strsim::jaro_winkler(&scheme.to_ascii_lowercase(), form.trim_end_matches([':', '/']))
}

#[cfg(test)]
mod tests;
