//! What an operator does to a store: look, resolve, sweep, migrate. They work beside a running gateway; a key is
//! resolved by the same fenced claim and settlement as a run's.

use std::future::Future;
use std::io::Write;

use http::{HeaderValue, StatusCode, header};
use semel::{
    Cause, Engine, Entropy, Entry, Filter, Key, Outcome, Resolved, Scope, Settlement, StoreError, View,
};
use semel_http::Kept;
use semel_store::{Connected, Options};

use crate::Failure;
use crate::cli::{Keys, Migrate, Resolve, Show, Sweep, Where, Which};
use crate::config::{STORE, Settings, key_secret, layered, without_password};

mod table;

/// How many records are listed at a time. Each comes with its outcome, which may be large.
const PAGE: u32 = 50;

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
    let filter = Filter { state: args.state, scope, prefix: args.prefix };
    let mut left = args.limit;
    let mut after = None;
    let mut out = table::Keys::new(args.json);
    while left > 0 {
        let page = store.inspect.list(&filter, after.as_ref(), left.min(PAGE)).await.map_err(failed)?;
        let Some(last) = page.last() else { break };
        after = Some(last.cursor.clone());
        left -= u32::try_from(page.len()).unwrap_or(left);
        page.iter().try_for_each(|entry| out.row(entry)).map_err(unwritten)?;
    }
    out.end(left == 0, &without_password(&url(&args.place)?)).map_err(unwritten)
}

/// `semel show`.
pub async fn show(args: Show) -> Result<(), Failure> {
    let store = open(&args.place).await?;
    let entry = find(&store, &args.place, &args.which).await?;
    table::show(&entry, args.json).map_err(unwritten)
}

/// `semel resolve`.
pub async fn resolve(args: Resolve) -> Result<(), Failure> {
    let store = open(&args.place).await?;
    let entry = find(&store, &args.place, &args.which).await?;
    let settlement = settlement(&args, entry.label.as_str())?;
    resolvable(&entry, args.force)?;
    let engine = Engine::new(store.store.clone(), Entropy::system());
    let unsaid = |error| {
        let key = &args.which.key;
        Failure::Failed(format!(
            "{error}. See `semel show {key}`; if it is running, wait until its lease is over, and resolve it again"
        ))
    };
    match engine.resolve(&entry, &settlement, args.force).await.map_err(unsaid)? {
        Resolved::Done if args.rerun => {
            say(format_args!("released: the next retry of {} runs", args.which.key))
        }
        Resolved::Done => {
            say(format_args!("completed: retries of {} get the given response", args.which.key))
        }
        Resolved::Moved => Err(Failure::Failed(format!(
            "{} has changed since it was looked up; nothing was done. See `semel show {}`",
            args.which.key, args.which.key
        ))),
    }
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
    let schema = semel_store::migrations(&url(&args.place)?).map_err(Failure::from)?;
    if args.print {
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
async fn find(store: &Connected, place: &Where, which: &Which) -> Result<Entry, Failure> {
    let key = Key::new(&which.key).map_err(|error| Failure::Usage(format!("KEY: {error}")))?;
    let key = match settings(place)?.key_secret_file {
        Some(file) if !which.key.starts_with("hmac-") => {
            key_secret(&file).map_err(Failure::Usage)?.stored(&key)
        }
        _ => key,
    };
    let mut found = match &which.scope {
        Some(text) => store.store.find(&scope(text)?, &key).await.map_err(failed)?.into_iter().collect(),
        None => store.inspect.find_key(&key, PAGE).await.map_err(failed)?,
    };
    match found.len() {
        0 if which.key.starts_with('"') => Err(Failure::Failed(format!(
            "no record of key {}: a key is given without the quotes of its header",
            which.key
        ))),
        0 => Err(Failure::Failed(format!("no record of key {}", which.key))),
        1 => Ok(found.remove(0)),
        several => {
            let scopes: String = found.iter().map(|entry| format!("\n  --scope '{}'", entry.scope)).collect();
            Err(Failure::Usage(format!("{several} scopes have key {}; say which:{scopes}", which.key)))
        }
    }
}

fn scope(text: &str) -> Result<Scope, Failure> {
    Scope::new(text).map_err(|error| Failure::Usage(format!("--scope: {error}")))
}

/// What can be resolved at all; whether it still is when it is claimed, the claim says.
fn resolvable(entry: &Entry, force: bool) -> Result<(), Failure> {
    let key = entry.key.as_str();
    match &entry.view {
        View::Unknown { .. } | View::Dead { .. } => Ok(()),
        View::Running { .. } if force => Ok(()),
        View::Running { lease_left } => Err(Failure::Failed(format!(
            "{key} is running (its lease has {} s left); it will end by itself. --force takes it all the same",
            lease_left.as_secs() + 1
        ))),
        View::Completed { .. } | View::Forgotten => {
            Err(Failure::Failed(format!("{key} is {}: there is nothing to resolve", entry.view.name())))
        }
        View::Released { .. } => {
            Err(Failure::Failed(format!("{key} is released: its next retry runs anyway")))
        }
    }
}

/// Retention is the flag's, else that of the record's route, else what holds for the gateway, else the default (K4).
fn settlement(args: &Resolve, label: &str) -> Result<Settlement, Failure> {
    let gateway = Settings {
        replay_for: args.gateways_replay_for,
        remember_for: args.gateways_remember_for,
        ..Settings::default()
    };
    let configured = layered(gateway, args.place.config.as_ref()).map_err(Failure::Usage)?;
    let (replay_for, remember_for) = configured.retention(label);
    let remember_for = args.remember_for.map_or(remember_for, |span| span.0);
    let Some(status) = args.status.filter(|_| args.completed) else {
        return Ok(Settlement::Release { not_before: None, unbind: false, ran: true, remember_for });
    };
    let replay_for = args.replay_for.map_or(replay_for, |span| span.0);
    if remember_for < replay_for {
        return Err(Failure::Usage("--remember-for must not be shorter than --replay-for".into()));
    }
    Ok(Settlement::Complete { outcome: outcome(args, status)?, replay_for, remember_for })
}

fn outcome(args: &Resolve, status: u16) -> Result<Outcome, Failure> {
    let body = match &args.body_file {
        Some(file) => {
            std::fs::read(file).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?
        }
        None => Vec::new(),
    };
    let kind = args.content_type.clone().or_else(|| {
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        (!body.is_empty()).then(|| if is_json { "application/json" } else { "text/plain" }.to_owned())
    });
    let status =
        StatusCode::from_u16(status).map_err(|error| Failure::Usage(format!("--status: {error}")))?;
    let kept = Kept::new(status, body).map_err(|error| Failure::Usage(format!("--status: {error}")))?;
    let Some(kind) = kind else { return Ok(kept.encode()) };
    let kind =
        HeaderValue::from_str(&kind).map_err(|error| Failure::Usage(format!("--content-type: {error}")))?;
    Ok(kept.header(header::CONTENT_TYPE, kind).encode())
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
