//! `semel resolve`: an operator says how what is open ended, for one key or for many.
//!
//! 1. **Fenced by what was seen.** Each key is claimed with the fence that it was seen with, and settled by the same rules
//!    as a run's end ([`Engine::resolve`]). One that has moved since is left alone and counted: somebody else was there.
//! 2. **What was counted is what is done.** Of many, all are seen before the question is asked; what becomes unknown while
//!    the operator thinks is not among them. There is a bound on how many that are (`--limit`).
//! 3. **Nobody is asked about one KEY**: whoever writes its name has said which. Many are asked about, on a terminal;
//!    elsewhere `--yes` has to be given.
//! 4. **A rerun is enough once.** A record with as many attempts behind it as are allowed would be found exhausted by its
//!    next retry. So it is buried as exhausted first, and released from there: a dead record that is released counts its
//!    attempts anew (`record`, rule 7). Between the two writes it reads as dead, which it would have been in any case.
//!    How many are allowed is what `--config` says, else the gateway's default.
//! 5. **Who and why** stand in the key's history, as far as the store can write it: `--by`, else the system's user and
//!    host; `--reason`.
//! 6. **Broken off**, by a signal or by a store that goes away, each key is either settled, or as it was; one that was
//!    claimed and not settled reads as unknown again when its lease, half a minute, is over.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use http::{HeaderValue, StatusCode, header};
use semel::{
    Cause, Engine, Entropy, Entry, Fence, Instance, OnUnknown, Outcome, Policy, Resolved, Settlement,
};
use semel::{StateName, StoreError, View, Word};
use semel_http::Kept;
use semel_store::Connected;

use super::select::{Pages, Selection, open_states};
use super::{failed, find, open, say, scope, table, unwritten};
use crate::Failure;
use crate::cli::Resolve;
use crate::config::{Settings, layered};
use crate::terminal::{self, Terminal};

/// A store that fails so often in a row is away; the keys that are left would each wait for it.
const FAILURES_MAX: u32 = 3;

/// The name that an operator's attempts carry.
pub const OPERATOR: &str = "semel resolve";

/// `semel resolve`.
pub async fn resolve(args: Resolve) -> Result<(), Failure> {
    let ending = Ending::new(&args)?;
    let store = open(&args.place).await?;
    let engine = Engine::new(store.store.clone(), Entropy::system())
        .with_instance(Instance::named(OPERATOR))
        .with_history(store.history.clone());
    match &args.key {
        Some(key) => one(&args, key, &store, &engine, &ending).await,
        None => many(&args, &store, &engine, &ending).await,
    }
}

async fn one(
    args: &Resolve,
    key: &str,
    store: &Connected,
    engine: &Engine,
    ending: &Ending<'_>,
) -> Result<(), Failure> {
    let entry = find(store, &args.place, key, args.scope.as_deref()).await?;
    resolvable(&entry, args.force)?;
    let settlement = ending.of(&entry)?;
    if args.dry_run {
        return say(format_args!("{key} would be {ending}"));
    }
    let unsaid = |error: StoreError| {
        Failure::Failed(format!(
            "{error}. See `semel show {key}`; if it is running, wait until its lease is over, and resolve it again"
        ))
    };
    match end(engine, ending, &entry, &settlement, args.force).await.map_err(unsaid)? {
        Resolved::Done if args.rerun => say(format_args!("released: the next retry of {key} runs")),
        Resolved::Done => say(format_args!("completed: retries of {key} get the given response")),
        Resolved::Moved => Err(Failure::Failed(format!(
            "{key} has changed since it was looked up; nothing was done. See `semel show {key}`"
        ))),
    }
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

async fn many(
    args: &Resolve,
    store: &Connected,
    engine: &Engine,
    ending: &Ending<'_>,
) -> Result<(), Failure> {
    let (seen, more) = seen(args, store).await?;
    let running = if args.force { 0 } else { running(args, store).await? };
    let alone = format!("still running, and left alone: {}", keys(running));
    if seen.is_empty() {
        let meant = selection(args)?.meant().map(|meant| format!("; did you mean --cause {meant}?"));
        let alone = if running == 0 { String::new() } else { format!("; {alone}") };
        return say(format_args!("no unknown or dead key fits{}{alone}", meant.unwrap_or_default()));
    }
    let settlements = seen.iter().map(|entry| ending.of(entry)).collect::<Result<Vec<_>, _>>()?;
    let behind = if more { " (more fit: again for the rest, or a larger --limit)" } else { "" };
    if running > 0 {
        say(format_args!("{alone}"))?;
    }
    if args.dry_run {
        let mut rows = table::Keys::new(false);
        seen.iter().try_for_each(|entry| rows.row(entry)).map_err(unwritten)?;
        return say(format_args!("{} would be {ending}{behind}", keys(seen.len())));
    }
    agreed(args.yes, &format!("{}{behind}", keys(seen.len())), ending)?;
    let terminal = Terminal::new(false);
    let mut tally = Tally::default();
    for (entry, settlement) in seen.iter().zip(&settlements) {
        let ended = end(engine, ending, entry, settlement, args.force).await;
        terminal.begins(&format!("{}: {}", entry.key.as_str(), tally.count(&ended, ending)))?;
        terminal.status(&tally.bar(seen.len()))?;
        if tally.failed_in_a_row == FAILURES_MAX {
            break;
        }
    }
    let Tally { done, moved, failed, .. } = tally;
    let left = seen.len() - done - moved - failed;
    let said = format!("{} {ending}", keys(done));
    terminal.line(&format!("{said}, {moved} had changed and were left alone, {failed} failed{behind}"))?;
    match (failed, left) {
        (0, _) => Ok(()),
        (_, 0) => {
            Err(Failure::Failed(format!("{} failed: see `semel show`, and resolve again", keys(failed))))
        }
        _ => Err(Failure::Failed(format!("the store fails, {} left untried: resolve again", keys(left)))),
    }
}

/// How it went so far.
#[derive(Debug, Default)]
struct Tally {
    done: usize,
    /// Changed since they were seen.
    moved: usize,
    failed: usize,
    failed_in_a_row: u32,
}

impl Tally {
    /// Counts one, and says how it went.
    fn count(&mut self, ended: &Result<Resolved, StoreError>, ending: &Ending<'_>) -> String {
        self.failed_in_a_row = if ended.is_err() { self.failed_in_a_row + 1 } else { 0 };
        match ended {
            Ok(Resolved::Done) => {
                self.done += 1;
                ending.to_string()
            }
            Ok(Resolved::Moved) => {
                self.moved += 1;
                "left alone: it has changed since it was seen".to_owned()
            }
            Err(error) => {
                self.failed += 1;
                format!("failed: {error}")
            }
        }
    }

    fn bar(&self, all: usize) -> String {
        let failed = if self.failed == 0 { String::new() } else { format!(", {} failed", self.failed) };
        terminal::bar(self.done + self.moved + self.failed, all) + &failed
    }
}

/// What is open and fits, by key, without what a person does not need; and whether there is more.
async fn seen(args: &Resolve, store: &Connected) -> Result<(Vec<Entry>, bool), Failure> {
    let mut seen = Vec::new();
    for state in open_states(args.force) {
        let mut selection = selection(args)?;
        selection.filter.state = Some(state);
        let mut pages = Pages::new(store, &selection);
        while let Some(entry) = pages.next().await.map_err(failed)? {
            if seen.len() == args.limit as usize {
                return Ok((seen, true));
            }
            seen.push(Entry { input: None, ..entry });
        }
    }
    Ok((seen, false))
}

/// How many that fit are running: nothing is decided about those without `--force`.
async fn running(args: &Resolve, store: &Connected) -> Result<usize, Failure> {
    let mut selection = selection(args)?;
    selection.filter.state = Some(StateName::Running);
    let (mut pages, mut running) = (Pages::new(store, &selection), 0);
    while pages.next().await.map_err(failed)?.is_some() {
        running += 1;
    }
    Ok(running)
}

fn selection(args: &Resolve) -> Result<Selection, Failure> {
    let mut selection = Selection {
        cause: args.cause.clone(),
        older_than: args.older_than.map(|span| span.0),
        route: args.pattern.clone(),
        ..Selection::default()
    };
    selection.filter.scope = args.scope.as_deref().map(scope).transpose()?;
    Ok(selection)
}

/// Asks, with the number. Without a terminal there is nobody to ask.
///
/// # Errors
///
/// The answer was no, or nobody is there.
pub fn agreed(yes: bool, which: &str, ending: &dyn fmt::Display) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Usage(format!(
            "{which} would be {ending}: --yes does it, --dry-run lists them; without a terminal nobody can be asked"
        )));
    }
    let mut said = String::new();
    let asked = write!(io::stderr(), "{which} will be {ending}. Go on? [y/N] ");
    asked.and_then(|()| io::stdin().read_line(&mut said)).map_err(unwritten)?;
    match said.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing was done".into())),
    }
}

fn keys(count: usize) -> String {
    if count == 1 { "1 key".to_owned() } else { format!("{count} keys") }
}

/// Settles one (rules 1 and 4).
async fn end(
    engine: &Engine,
    ending: &Ending<'_>,
    seen: &Entry,
    settlement: &Settlement,
    force: bool,
) -> Result<Resolved, StoreError> {
    let is_dead = matches!(seen.view, View::Dead { .. });
    if ending.response.is_some() || is_dead || seen.attempts < ending.attempts_max {
        return engine.resolve_by(seen, settlement, force, &ending.word).await;
    }
    let exhausted = Settlement::Bury { cause: Cause::ATTEMPTS_EXHAUSTED };
    match engine.resolve_by(seen, &exhausted, force, &ending.word).await? {
        Resolved::Done => {
            let buried = Entry { fence: Fence(seen.fence.0 + 1), ..seen.clone() };
            engine.resolve_by(&buried, settlement, false, &ending.word).await
        }
        Resolved::Moved => Ok(Resolved::Moved),
    }
}

/// What the operator says: that it has this response, or that it took no effect.
struct Ending<'a> {
    args: &'a Resolve,
    gateway: Settings,
    response: Option<(u16, Outcome)>,
    /// With so many attempts behind it a record may be found exhausted.
    attempts_max: u32,
    word: Word,
}

impl Ending<'_> {
    fn new(args: &Resolve) -> Result<Ending<'_>, Failure> {
        let given = Settings {
            replay_for: args.gateways_replay_for,
            remember_for: args.gateways_remember_for,
            ..Settings::default()
        };
        let gateway = layered(given, args.place.config.as_ref()).map_err(Failure::Usage)?;
        let otherwise = gateway.attempts_max.unwrap_or(Policy::new(OnUnknown::Park).attempts_max);
        let of_routes = gateway.route.iter().flatten().filter_map(|route| route.attempts_max);
        let attempts_max = of_routes.fold(otherwise, u32::min);
        let response = match args.status.filter(|_| args.completed) {
            Some(status) => Some((status, outcome(args, status)?)),
            None => None,
        };
        let by = args.by.clone().unwrap_or_else(whoever);
        let plain = |text: String| text.replace(char::is_control, " ");
        let word = Word { by: Some(plain(by)), reason: args.reason.clone().map(plain) };
        Ok(Ending { args, gateway, response, attempts_max, word })
    }

    /// Retention is the flag's, else that of the record's route, else what holds for the gateway, else the default (K4).
    fn of(&self, entry: &Entry) -> Result<Settlement, Failure> {
        let (replay_for, remember_for) = self.gateway.retention(entry.label.as_str());
        let remember_for = self.args.remember_for.map_or(remember_for, |span| span.0);
        let Some((_, outcome)) = &self.response else {
            return Ok(Settlement::Release { not_before: None, unbind: false, ran: true, remember_for });
        };
        let replay_for = self.args.replay_for.map_or(replay_for, |span| span.0);
        if remember_for < replay_for {
            return Err(Failure::Usage("--remember-for must not be shorter than --replay-for".into()));
        }
        Ok(Settlement::Complete { outcome: outcome.clone(), replay_for, remember_for })
    }
}

impl fmt::Display for Ending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.response {
            Some((status, _)) => write!(f, "completed with {status}"),
            None => f.write_str("released, to run at the next retry"),
        }
    }
}

/// The system's user, by the environment or by its number, and the host.
pub fn whoever() -> String {
    let named = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let user = named.filter(|name| !name.is_empty());
    let user = user.unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
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
