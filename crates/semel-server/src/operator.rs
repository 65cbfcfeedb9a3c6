//! What an operator does to a store: look, resolve, sweep, migrate. They work beside a running gateway; a key is
//! resolved by the same fenced claim and settlement as a run's.

use std::future::Future;
use std::io::Write;

use semel::{Cause, Engine, Entropy, Entry, Filter, Key, Scope, StoreError, View};
use semel_store::{Connected, Options};

use crate::Failure;
use crate::cli::{Keys, Migrate, Show, Sweep, Where};
use crate::config::{STORE, Settings, key_secret, layered, without_password};

mod resolve;
mod select;
mod show;
mod table;

pub use resolve::{agreed, resolve, whoever};
pub use select::RoutePattern;

use select::{Counts, Pages, Selection};

/// How many records are freed at a time.
const SWEPT: u32 = 500;

/// Runs a command to its end.
pub fn run(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::Failed(format!("no runtime: {error}")))?.block_on(command)
}

/// `semel keys`.
pub async fn keys(args: Keys) -> Result<(), Failure> {
    let store = open(&args.place).await?;
    let scope = args.scope.as_deref().map(scope).transpose()?;
    let selection = Selection {
        filter: Filter { state: args.state, scope, prefix: args.prefix },
        cause: args.cause,
        older_than: args.older_than.map(|span| span.0),
        route: args.route,
    };
    let mut out = table::Keys::new(args.json);
    let mut pages = Pages::new(&store, &selection);
    if args.count {
        let mut counts = Counts::default();
        while let Some(entry) = pages.next().await.map_err(failed)? {
            counts.count(&entry);
        }
        return out.counts(&counts).map_err(unwritten);
    }
    let mut left = args.limit;
    while left > 0
        && let Some(entry) = pages.next().await.map_err(failed)?
    {
        out.row(&entry).map_err(unwritten)?;
        left -= 1;
    }
    let meant = selection.meant().map(|meant| format!("; did you mean --cause {meant}?"));
    let store = without_password(&url(&args.place)?) + &meant.unwrap_or_default();
    out.end(left == 0, &store).map_err(unwritten)
}

/// `semel show`.
pub async fn show(args: Show) -> Result<(), Failure> {
    let store = open(&args.place).await?;
    let entry = find(&store, &args.place, &args.which.key, args.which.scope.as_deref()).await?;
    let history = store.history.history(&entry.scope, &entry.key).await.map_err(failed)?;
    show::show(&entry, &history, &args).map_err(unwritten)
}

/// `semel sweep`.
pub async fn sweep(args: Sweep) -> Result<(), Failure> {
    let store = open(&args.place).await?;
    let engine = Engine::new(store.store, Entropy::system());
    let (mut outcomes, mut records) = (0_u64, 0_u64);
    loop {
        let swept = engine.sweep(SWEPT).await.map_err(failed)?;
        outcomes += u64::from(swept.outcomes);
        records += u64::from(swept.records);
        if swept.total() == 0 {
            return say(format_args!("freed {outcomes} outcomes and {records} records"));
        }
    }
}

/// `semel migrate`.
pub async fn migrate(args: Migrate) -> Result<(), Failure> {
    let url = match args.print {
        Some(Some(database)) => database.url().to_owned(),
        _ => url(&args.place)?,
    };
    let schema = semel_store::migrations(&url).map_err(Failure::from)?;
    if args.print.is_some() {
        return say(format_args!("{}", schema.print().trim_end()));
    }
    let applied = schema.migrate().await.map_err(Failure::from)?;
    if applied.is_empty() {
        return say(format_args!("the schema is up to date"));
    }
    applied.iter().try_for_each(|migration| say(format_args!("applied {migration}")))
}

fn url(place: &Where) -> Result<String, Failure> {
    Ok(settings(place)?.store.unwrap_or_else(|| STORE.to_owned()))
}

/// The gateway's own file, as far as a command needs it.
fn settings(place: &Where) -> Result<Settings, Failure> {
    let given = Settings {
        store: place.store.clone(),
        key_secret_file: place.key_secret_file.clone(),
        ..Settings::default()
    };
    layered(given, place.config.as_ref()).map_err(Failure::Usage)
}

/// An operator's command changes no schema: a gateway of another version may be running on it.
async fn open(place: &Where) -> Result<Connected, Failure> {
    semel_store::connect(&url(place)?, &Options::default()).await.map_err(Failure::from)
}

/// The one record that is meant. Several: the caller has to say which. With the gateway's file the key can be given in
/// clear where the store has an HMAC of it; as the store has it, it can always be given.
async fn find(store: &Connected, place: &Where, key: &str, scope: Option<&str>) -> Result<Entry, Failure> {
    let given = key;
    let key = Key::new(given).map_err(|error| Failure::Usage(format!("KEY: {error}")))?;
    let key = match settings(place)?.key_secret_file {
        Some(file) if !given.starts_with("hmac-") => key_secret(&file).map_err(Failure::Usage)?.stored(&key),
        _ => key,
    };
    let mut found = match scope {
        Some(text) => {
            store.store.find(&self::scope(text)?, &key).await.map_err(failed)?.into_iter().collect()
        }
        None => store.inspect.find_key(&key, select::PAGE).await.map_err(failed)?,
    };
    match found.len() {
        0 if given.starts_with('"') => Err(Failure::Failed(format!(
            "no record of key {}: a key is given without the quotes of its header",
            given
        ))),
        0 => Err(Failure::Failed(format!("no record of key {}", given))),
        1 => Ok(found.remove(0)),
        several => {
            let scopes: String = found.iter().map(|entry| format!("\n  --scope '{}'", entry.scope)).collect();
            Err(Failure::Usage(format!("{several} scopes have key {}; say which:{scopes}", given)))
        }
    }
}

fn scope(text: &str) -> Result<Scope, Failure> {
    Scope::new(text).map_err(|error| Failure::Usage(format!("--scope: {error}")))
}

/// Says something on standard output.
fn say(text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{text}").map_err(unwritten)
}

fn failed(error: StoreError) -> Failure {
    Failure::Failed(error.to_string())
}

fn unwritten(error: std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Failure::Unread;
    }
    Failure::Failed(format!("standard output: {error}"))
}

/// Why a record waits for somebody.
pub(crate) fn cause(entry: &Entry) -> Option<&Cause> {
    match &entry.view {
        View::Unknown { cause } | View::Dead { cause } => Some(cause),
        _ => None,
    }
}
