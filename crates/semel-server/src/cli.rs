//! The command line, and its errors in one line each.

use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};

use crate::bridge;
use crate::config::{Settings, escaped};
use crate::dlq::Matching;
use crate::operator::RoutePattern;
use crate::values::{Span, nearest};

/// Operations that take effect once, however often they arrive.
#[derive(Debug, Parser)]
#[command(
    name = "semel",
    version,
    about = "Operations that take effect once, however often they arrive",
    max_term_width = 100
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "the commands' own help says what they are")]
pub enum Command {
    /// Put the Idempotency-Key contract in front of an HTTP service
    Gateway(Box<Gateway>),
    /// Send each message of a queue to an HTTP service, once
    Bridge(Box<Bridge>),
    /// Check a configuration file; with a method and a path, show what holds for that request
    CheckConfig(Box<CheckConfig>),
    /// Add the contract to an OpenAPI document: the key, the refusals, a link to the policy
    Openapi(Box<Openapi>),
    /// List keys
    Keys(Keys),
    /// Show one key
    Show(Show),
    /// End a key that is unknown or dead: say what happened, or let it run again
    Resolve(Resolve),
    /// Look at dead letters, send them back, or throw them away
    Dlq(Dlq),
    /// Free the space of what is past its retention
    Sweep(Sweep),
    /// Bring a store's schema up to date
    Migrate(Migrate),
    /// See what retries do to a payment service, and what a gateway in front of it changes: some 15 seconds
    Demo(Demo),
    /// What `semel demo` starts
    #[command(hide = true)]
    DemoChild(DemoChild),
}

/// `semel gateway`.
#[derive(Debug, Args)]
pub struct Gateway {
    /// The settings.
    #[command(flatten)]
    pub settings: Settings,
    /// A TOML file with the same settings, written with underscores
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `semel bridge`.
#[derive(Debug, Args)]
pub struct Bridge {
    /// The settings.
    #[command(flatten)]
    pub settings: bridge::Settings,
    /// A TOML file with the same settings, written with underscores
    #[arg(long, env = "SEMEL_BRIDGE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say what is wrong with the settings, or what they come to, and do nothing
    #[arg(long)]
    pub check: bool,
}

/// `semel dlq`.
#[derive(Debug, Args)]
pub struct Dlq {
    /// What to do with them.
    #[command(subcommand)]
    pub what: DlqCommand,
}

/// `semel dlq list`, `show`, `redrive` and `discard`.
#[derive(Debug, Subcommand)]
pub enum DlqCommand {
    /// List dead letters, the oldest first
    List(DlqList),
    /// Show dead letters with all that is written on them, and what the store knows
    Show(DlqShow),
    /// Send dead letters back to their queue; what took effect already is left
    Redrive(DlqMove),
    /// Throw dead letters away
    Discard(DlqMove),
}

/// Which dead letters are there.
#[derive(Debug, Args)]
pub struct Graveyard {
    /// The bridge's TOML file, for its broker, queue, store and retention
    #[arg(long, env = "SEMEL_BRIDGE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The broker: amqp://USER:PASSWORD@HOST:5672/%2f
    #[arg(long, env = "SEMEL_BROKER", value_name = "URL")]
    pub broker: Option<String>,
    /// The queue whose dead letters are meant
    #[arg(long, env = "SEMEL_QUEUE", value_name = "NAME")]
    pub queue: Option<String>,
    /// Where they are [default: NAME.dead of the queue]
    #[arg(long, env = "SEMEL_DEAD_LETTERS", value_name = "NAME")]
    pub dead_letters: Option<String>,
    /// Where the consumer keeps its records [default: sqlite://semel.db]
    #[arg(long, env = "SEMEL_STORE", value_name = "URL")]
    pub store: Option<String>,
}

/// Which of them are meant.
#[derive(Debug, Args)]
pub struct Chosen {
    /// Their message ids, or their keys
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Only those whose FIELD fits: reason=rejected, said=*account*, id=order-*, subject=..., header:NAME=...,
    /// json:/POINTER=...; '*' stands for anything; several must all fit
    #[arg(long = "match", value_name = "FIELD=PATTERN")]
    pub matching: Vec<Matching>,
}

/// `semel dlq list`.
#[derive(Debug, Args)]
pub struct DlqList {
    /// Where they are.
    #[command(flatten)]
    pub place: Graveyard,
    /// Which.
    #[command(flatten)]
    pub chosen: Chosen,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub limit: usize,
    /// As JSON, a line each
    #[arg(long)]
    pub json: bool,
}

/// `semel dlq show`.
#[derive(Debug, Args)]
pub struct DlqShow {
    /// Where they are.
    #[command(flatten)]
    pub place: Graveyard,
    /// Which.
    #[command(flatten)]
    pub chosen: Chosen,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub limit: usize,
    /// The bodies too
    #[arg(long)]
    pub body: bool,
    /// As JSON, a line each
    #[arg(long)]
    pub json: bool,
}

/// `semel dlq redrive` and `semel dlq discard`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("some").required(true).multiple(true).args(["ids", "matching", "all"]))]
pub struct DlqMove {
    /// Where they are.
    #[command(flatten)]
    pub place: Graveyard,
    /// Which.
    #[command(flatten)]
    pub chosen: Chosen,
    /// All of them
    #[arg(long, conflicts_with_all = ["ids", "matching"])]
    pub all: bool,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    pub limit: usize,
    /// Why, for the keys' history
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Who, for the keys' history [default: the system's user and host]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask about many
    #[arg(long)]
    pub yes: bool,
    /// How long a released key is remembered [default: as --config has it, else 30d]
    #[arg(long, value_name = "DURATION")]
    pub remember_for: Option<Span>,
    /// What became of each as JSON, a line each
    #[arg(long)]
    pub json: bool,
}

/// `semel check-config`.
#[derive(Debug, Args)]
pub struct CheckConfig {
    /// The gateway's TOML file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The method of a request
    #[arg(value_name = "METHOD", requires = "path")]
    pub method: Option<String>,
    /// Its path, as it is sent
    #[arg(value_name = "PATH")]
    pub path: Option<String>,
    /// Its host, where routes have hosts
    #[arg(long, value_name = "HOST", requires = "path")]
    pub host: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// What stands over the file.
    #[command(flatten, next_help_heading = "Over the file, as for `semel gateway`")]
    pub settings: Settings,
}

/// `semel openapi`.
#[derive(Debug, Args)]
pub struct Openapi {
    /// An OpenAPI document, 3.0 or 3.1, as JSON or YAML
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the document goes; it may be the same file [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The gateway's TOML file
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What stands over the file.
    #[command(flatten, next_help_heading = "Over the file, as for `semel gateway`")]
    pub settings: Settings,
}

/// Which store a command works on.
#[derive(Debug, Args)]
pub struct Where {
    /// Where the records are kept [default: sqlite://semel.db]
    #[arg(long, env = "SEMEL_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// The gateway's TOML file, for its store, its retention and its secret
    #[arg(long, env = "SEMEL_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The file with the gateway's secret, where the store has HMACs of the keys
    #[arg(long, env = "SEMEL_KEY_SECRET_FILE", value_name = "FILE")]
    pub key_secret_file: Option<PathBuf>,
}

/// Which key a command works on.
#[derive(Debug, Args)]
pub struct Which {
    /// The key
    pub key: String,
    /// The key's scope, where several have it
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
}

/// `semel keys`.
#[derive(Debug, Args)]
pub struct Keys {
    /// The store.
    #[command(flatten)]
    pub place: Where,
    /// Only this state: running, released, unknown, completed, forgotten or dead
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub state: Option<semel::StateName>,
    /// Only this scope
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// Only keys that begin so
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Only this cause: timeout, cut, lapsed, shutdown, status-502, ...
    #[arg(long, value_name = "CAUSE")]
    pub cause: Option<String>,
    /// Only keys that have been in their state for so long
    #[arg(long, value_name = "DURATION")]
    pub older_than: Option<Span>,
    /// Only this route: "POST /charges/{id}", or /charges/* for every method
    #[arg(long, value_name = "PATTERN")]
    pub route: Option<RoutePattern>,
    /// How many, by state and cause, instead of a list
    #[arg(long)]
    pub count: bool,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub limit: u32,
    /// As JSON, a line each
    #[arg(long)]
    pub json: bool,
}

/// `semel show`.
#[derive(Debug, Args)]
pub struct Show {
    /// The key.
    #[command(flatten)]
    pub which: Which,
    /// The store.
    #[command(flatten)]
    pub place: Where,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `semel resolve`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("how").required(true).args(["completed", "rerun"]))]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true).args(["key", "pattern", "cause", "older_than"]))]
pub struct Resolve {
    /// The key; without it, all that fit --match, --cause and --older-than
    #[arg(conflicts_with_all = ["pattern", "cause", "older_than"])]
    pub key: Option<String>,
    /// The key's scope, where several have it; of many, only this scope
    #[arg(long, value_name = "SCOPE")]
    pub scope: Option<String>,
    /// All that is open of this route: "POST /charges/{id}", or /charges/* for every method
    #[arg(long = "match", value_name = "PATTERN")]
    pub pattern: Option<RoutePattern>,
    /// All that is open for this cause: timeout, cut, lapsed, status-502, ...
    #[arg(long, value_name = "CAUSE")]
    pub cause: Option<String>,
    /// All that has been open for so long
    #[arg(long, value_name = "DURATION")]
    pub older_than: Option<Span>,
    /// Of many, at most so many at once
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Why, for the key's history
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Who, for the key's history [default: the system's user and host]
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask about many
    #[arg(long)]
    pub yes: bool,
    /// The store.
    #[command(flatten)]
    pub place: Where,
    /// It took effect: keep this response for its retries
    #[arg(long, requires = "status")]
    pub completed: bool,
    /// It took no effect: let the next retry run
    #[arg(long)]
    pub rerun: bool,
    /// The response's status
    #[arg(long, value_name = "STATUS", conflicts_with = "rerun", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub status: Option<u16>,
    /// The response's body
    #[arg(long, value_name = "FILE", conflicts_with = "rerun")]
    pub body_file: Option<PathBuf>,
    /// The response's content type [default: application/json where the body is JSON, else text/plain]
    #[arg(long, value_name = "TYPE", conflicts_with = "rerun")]
    pub content_type: Option<String>,
    /// How long the response is replayed [default: as the key's route in --config has it, else 24h]
    #[arg(long, value_name = "DURATION")]
    pub replay_for: Option<Span>,
    /// How long the key is remembered [default: as the key's route in --config has it, else 30d]
    #[arg(long, value_name = "DURATION")]
    pub remember_for: Option<Span>,
    // The gateway's variables stand under what a route says, the operator's flags above it.
    #[arg(long = "gateways-replay-for", env = "SEMEL_REPLAY_FOR", hide = true)]
    pub gateways_replay_for: Option<Span>,
    #[arg(long = "gateways-remember-for", env = "SEMEL_REMEMBER_FOR", hide = true)]
    pub gateways_remember_for: Option<Span>,
    /// Also take a key that is running: its owner's answer will be refused
    #[arg(long)]
    pub force: bool,
}

/// `semel sweep`.
#[derive(Debug, Args)]
pub struct Sweep {
    /// The store.
    #[command(flatten)]
    pub place: Where,
}

/// `semel migrate`.
#[derive(Debug, Args)]
pub struct Migrate {
    /// The store.
    #[command(flatten)]
    pub place: Where,
    /// Print the SQL and change nothing: the store's, or, without a URL, that of postgres, mysql or sqlite
    #[arg(long, value_name = "DATABASE", num_args = 0..=1, hide_possible_values = true)]
    pub print: Option<Option<Database>>,
}

/// A database that has a schema to print.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Database {
    /// PostgreSQL, with the functions that any language calls.
    Postgres,
    /// MySQL and MariaDB.
    #[value(alias = "mariadb")]
    Mysql,
    /// SQLite.
    Sqlite,
}

impl Database {
    /// The URL of such a store: its schema is the same wherever it lies.
    #[must_use]
    pub fn url(self) -> &'static str {
        match self {
            Database::Postgres => "postgres://localhost",
            Database::Mysql => "mysql://localhost/semel",
            Database::Sqlite => "sqlite://semel.db",
        }
    }
}

/// `semel demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// How many orders
    #[arg(long, value_name = "NUMBER", default_value_t = 240, value_parser = clap::value_parser!(u32).range(10..=2000))]
    pub orders: u32,
    /// Brings the orders of an earlier demo back [default: another one each time]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Leave the gateway's file, its store, its log and the ledgers in this directory, which must be empty
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// The figures as JSON, on standard output; the progress goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// `semel demo-child`.
#[derive(Debug, Args)]
pub struct DemoChild {
    /// Which one.
    #[command(subcommand)]
    pub part: DemoPart,
}

/// The children of a demo.
#[derive(Debug, Subcommand)]
pub enum DemoPart {
    /// The payment service
    Service {
        /// Where it listens
        #[arg(long)]
        listen: std::net::SocketAddr,
        /// Of the demo
        #[arg(long)]
        seed: u64,
        /// Of the demo
        #[arg(long)]
        orders: u32,
    },
    /// The gateway
    Gateway {
        /// Its file
        #[arg(long)]
        config: PathBuf,
    },
}

fn state(text: &str) -> Result<semel::StateName, String> {
    semel::StateName::parse(text).ok_or_else(|| {
        let names = semel::StateName::ALL.map(semel::StateName::as_str);
        match nearest(text, names) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("a state is one of {}", names.join(", ")),
        }
    })
}

/// The command line, or what to print and the exit code: 0 for help and version, 2 for a mistake.
///
/// # Errors
///
/// As said; a mistake is one line with the nearest valid spelling.
pub fn parse(args: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Cli, (String, u8)> {
    Cli::try_parse_from(args).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => (error.render().to_string(), 0),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => (error.render().to_string(), 2),
        _ => (format!("semel: {}", escaped(&one_line(&error))), 2),
    })
}

fn one_line(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    // `--lease <DURATION>` is for the usage line; the mistake is in `--lease`.
    let argument =
        text(ContextKind::InvalidArg).map(|arg| arg.split(' ').next().unwrap_or_default().to_owned());
    let value = text(ContextKind::InvalidValue);
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
        .into_iter()
        .find_map(text)
        .map(|meant| format!("; did you mean '{meant}'?"))
        .unwrap_or_default();
    match (error.kind(), argument, value) {
        (ErrorKind::UnknownArgument, Some(argument), _) => format!("unknown option '{argument}'{meant}"),
        (ErrorKind::InvalidSubcommand, _, _) => {
            format!("unknown command '{}'{meant}", text(ContextKind::InvalidSubcommand).unwrap_or_default())
        }
        (ErrorKind::ValueValidation, Some(argument), Some(value)) => {
            let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            format!("{argument} '{value}': {source}")
        }
        (ErrorKind::InvalidValue, Some(argument), Some(value)) if value.is_empty() => {
            format!("{argument} needs a value")
        }
        (ErrorKind::InvalidValue, Some(argument), Some(value)) => {
            let valid = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(valid)) if meant.is_empty() => {
                    format!("; it is one of {}", valid.join(", "))
                }
                _ => meant,
            };
            format!("{argument} '{value}' is not valid{valid}")
        }
        _ => plain(error),
    }
}

/// What clap says, without its tips and its usage.
fn plain(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let lines = rendered.lines().map(str::trim).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(line: &str) -> String {
        let (text, code) = parse(line.split(' ').map(Into::into)).unwrap_err();
        assert_eq!(code, 2, "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    }

    #[test]
    fn a_mistake_is_one_line_with_the_nearest_valid_spelling() {
        for (line, expected) in [
            (
                "semel gateway --upstrem http://h",
                "semel: unknown option '--upstrem'; did you mean '--upstream'?",
            ),
            ("semel gatway", "semel: unknown command 'gatway'; did you mean 'gateway'?"),
            (
                "semel gateway --on-unknown parc",
                "semel: --on-unknown 'parc' is not valid; did you mean 'park'?",
            ),
            ("semel keys --state unkown", "semel: --state 'unkown': did you mean 'unknown'?"),
        ] {
            assert_eq!(mistake(line), expected);
        }
        assert!(mistake("semel gateway --lease 1\n2").contains("--lease '1\\n2'"));
        assert!(mistake("semel gateway --up\u{1b}[2J").contains("'--up\\u{1b}[2J'"));
        assert!(mistake("semel gateway --lease 30sec").contains("did you mean '30s'?"));
        assert!(
            mistake("semel gateway --upstream 127.0.0.1:9000")
                .contains("did you mean 'http://127.0.0.1:9000'?")
        );
        assert!(mistake("semel gateway --lease").contains("--lease"));
    }

    #[test]
    fn resolve_asks_what_happened() {
        assert!(mistake("semel resolve k").contains("--completed"));
        assert!(mistake("semel resolve k --completed").contains("--status"));
        assert!(mistake("semel resolve k --rerun --status 200").contains("--status"));
        assert!(parse("semel resolve k --completed --status 201".split(' ').map(Into::into)).is_ok());
    }
}
