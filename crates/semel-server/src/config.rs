//! The gateway's settings: flags first, then `SEMEL_…` variables, then the TOML file, then the defaults.
//!
//! One struct is all three: a setting's flag, variable and TOML key cannot drift apart, and a new setting is one
//! field here and one line in [`Settings::or`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use semel::{OnUnknown, Policy};
use serde::Deserialize;

use crate::origin::Origin;
use crate::values::{Address, Size, Span, Upstream, nearest};

/// What a user may set. Everything is optional here; [`Settings::resolve`] knows the defaults.
#[derive(Debug, Default, Clone, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The service behind the gateway
    #[arg(long, env = "SEMEL_UPSTREAM", value_name = "URL")]
    pub upstream: Option<Upstream>,
    /// Where callers connect [default: 127.0.0.1:8080]
    #[arg(long, env = "SEMEL_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<Address>,
    /// Where the records are kept [default: sqlite://semel.db]
    #[arg(long, env = "SEMEL_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// Where health, readiness and metrics are served [default: 127.0.0.1:9901]
    #[arg(long, env = "SEMEL_ADMIN", value_name = "ADDRESS")]
    pub admin: Option<Address>,
    /// The service's name, part of every key's scope [default: default]
    #[arg(long, env = "SEMEL_SERVICE", value_name = "NAME")]
    pub service: Option<String>,
    /// Whether a guarded request must carry a key [default: optional]
    #[arg(long, env = "SEMEL_KEY", value_name = "POLICY")]
    pub key: Option<KeyPolicy>,
    /// Whether a key without quotes is taken [default: lenient]
    #[arg(long, env = "SEMEL_KEY_SYNTAX", value_name = "SYNTAX")]
    pub key_syntax: Option<KeySyntax>,
    /// What happens to an operation that may or may not have taken effect [default: park]
    #[arg(long, env = "SEMEL_ON_UNKNOWN", value_name = "CHOICE")]
    pub on_unknown: Option<UnknownChoice>,
    /// How long a caller waits for the service [default: 30s]
    #[arg(long, env = "SEMEL_UPSTREAM_TIMEOUT", value_name = "DURATION")]
    pub upstream_timeout: Option<Span>,
    /// How long an answer is still listened for after that [default: 5m]
    #[arg(long, env = "SEMEL_LATE_ANSWER_FOR", value_name = "DURATION")]
    pub late_answer_for: Option<Span>,
    /// How old an idle connection to the service may be and still carry a request [default: 1s]
    #[arg(long, env = "SEMEL_UPSTREAM_IDLE", value_name = "DURATION")]
    pub upstream_idle: Option<Span>,
    /// How long a lease lasts; it is renewed at a third of that [default: 30s]
    #[arg(long, env = "SEMEL_LEASE", value_name = "DURATION")]
    pub lease: Option<Span>,
    /// How long an outcome is replayed [default: 24h]
    #[arg(long, env = "SEMEL_REPLAY_FOR", value_name = "DURATION")]
    pub replay_for: Option<Span>,
    /// How long a key is remembered [default: 30d]
    #[arg(long, env = "SEMEL_REMEMBER_FOR", value_name = "DURATION")]
    pub remember_for: Option<Span>,
    /// The largest body of a guarded request [default: 1MiB]
    #[arg(long, env = "SEMEL_BODY_BYTES_MAX", value_name = "SIZE")]
    pub body_bytes_max: Option<Size>,
    /// The largest response body that is kept for replay [default: 1MiB]
    #[arg(long, env = "SEMEL_KEPT_BYTES_MAX", value_name = "SIZE")]
    pub kept_bytes_max: Option<Size>,
    /// How long a stopping gateway waits for what runs [default: 25s]
    #[arg(long, env = "SEMEL_DRAIN_FOR", value_name = "DURATION")]
    pub drain_for: Option<Span>,
    /// Threads that serve requests [default: half of the cores]
    #[arg(long, env = "SEMEL_WORKERS", value_name = "NUMBER")]
    pub workers: Option<u16>,
    /// What is logged; info is a line for each decision [default: info]
    #[arg(long, env = "SEMEL_LOG", value_name = "LEVEL")]
    pub log: Option<LogLevel>,
    /// An origin whose pages may call, and read the answers; repeatable, '*' is every one [default: none]
    #[arg(long = "cors-origin", env = "SEMEL_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    pub cors_origins: Option<Vec<Origin>>,
    /// Let those pages send cookies, and read the answers to them
    #[arg(long, env = "SEMEL_CORS_CREDENTIALS", value_parser = clap::builder::FalseyValueParser::new(), num_args = 0, default_missing_value = "true")]
    pub cors_credentials: Option<bool>,
    /// Refuse to start on a store whose schema is not up to date, instead of migrating it
    #[arg(long, env = "SEMEL_NO_MIGRATE", value_parser = clap::builder::FalseyValueParser::new(), num_args = 0, default_missing_value = "true")]
    pub no_migrate: Option<bool>,
}

/// Whether a guarded request must carry a key (H4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyPolicy {
    /// Without a key it goes through, unguarded and counted
    Optional,
    /// Without a key it is refused
    Required,
}

/// How a key may be written (H1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeySyntax {
    /// With quotes or without
    Lenient,
    /// In quotes, as a structured field
    Strict,
}

/// What happens to what is unknown (K7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownChoice {
    /// Wait for an operator: never silently twice
    Park,
    /// Run it again: only where that is safe
    Rerun,
    /// Ask the service; not in this version yet
    Probe,
}

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the levels of every logger")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// Settings that fit together.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each is described at its field in `Settings`")]
pub struct Config {
    pub upstream: Upstream,
    pub listen: Address,
    pub store: String,
    pub admin: Address,
    pub service: String,
    pub key: KeyPolicy,
    pub key_syntax: KeySyntax,
    pub policy: Arc<Policy>,
    pub upstream_timeout: Duration,
    pub upstream_idle: Duration,
    pub body_bytes_max: usize,
    pub kept_bytes_max: usize,
    pub drain_for: Duration,
    pub workers: usize,
    pub cors_origins: Vec<Origin>,
    pub cors_credentials: bool,
    pub no_migrate: bool,
}

/// The store's URL where none is given.
pub const STORE: &str = "sqlite://semel.db";

impl Settings {
    /// Fills what is not set here from `other`.
    #[must_use]
    pub fn or(self, other: Settings) -> Settings {
        // Taken apart field by field, so that a setting left out here does not compile.
        macro_rules! first_set {
            ($($field:ident),* $(,)?) => {{
                let Settings { $($field),* } = self;
                Settings { $($field: $field.or(other.$field)),* }
            }};
        }
        first_set!(
            upstream,
            listen,
            store,
            admin,
            service,
            key,
            key_syntax,
            on_unknown,
            upstream_timeout,
            late_answer_for,
            upstream_idle,
            lease,
            replay_for,
            remember_for,
            body_bytes_max,
            kept_bytes_max,
            drain_for,
            workers,
            log,
            cors_origins,
            cors_credentials,
            no_migrate,
        )
    }

    /// Settings from a TOML file.
    ///
    /// # Errors
    ///
    /// One line that names the file, the place and, for an unknown key, the nearest known one.
    pub fn read(path: &Path) -> Result<Settings, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Settings::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Result<Settings, String> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            format!("{place}{}", explained(error.message()))
        })
    }

    /// The settings with the defaults, checked.
    ///
    /// # Errors
    ///
    /// One line that says what does not fit.
    pub fn resolve(self) -> Result<Config, String> {
        let span = |set: Option<Span>, default: Duration| set.map_or(default, |span| span.0);
        let on_unknown = match self.on_unknown.unwrap_or(UnknownChoice::Park) {
            UnknownChoice::Park => OnUnknown::Park,
            UnknownChoice::Rerun => OnUnknown::Rerun,
            UnknownChoice::Probe => {
                return Err("--on-unknown probe is not in this version yet; use park or rerun".into());
            }
        };
        let upstream_timeout = span(self.upstream_timeout, Duration::from_secs(30));
        let defaults = Policy::new(on_unknown);
        let policy = Policy {
            lease_for: span(self.lease, defaults.lease_for),
            answer_within: Some(upstream_timeout),
            late_answer_for: span(self.late_answer_for, defaults.late_answer_for),
            replay_for: span(self.replay_for, defaults.replay_for),
            remember_for: span(self.remember_for, defaults.remember_for),
            ..defaults
        };
        policy.check().map_err(|error| error.to_string())?;
        if self.workers == Some(0) {
            return Err("--workers must be at least 1".into());
        }
        let (cors_origins, cors_credentials) = cors(self.cors_origins, self.cors_credentials)?;
        Ok(Config {
            upstream: self
                .upstream
                .ok_or("--upstream is missing: the service behind the gateway, http://HOST:PORT")?,
            listen: self.listen.unwrap_or(Address(([127, 0, 0, 1], 8080).into())),
            store: self.store.unwrap_or_else(|| STORE.to_owned()),
            admin: self.admin.unwrap_or(Address(([127, 0, 0, 1], 9901).into())),
            service: service(self.service)?,
            key: self.key.unwrap_or(KeyPolicy::Optional),
            key_syntax: self.key_syntax.unwrap_or(KeySyntax::Lenient),
            policy: Arc::new(policy),
            upstream_timeout,
            upstream_idle: span(self.upstream_idle, Duration::from_secs(1)),
            body_bytes_max: self.body_bytes_max.map_or(1 << 20, |size| size.0),
            kept_bytes_max: self.kept_bytes_max.map_or(1 << 20, |size| size.0),
            drain_for: span(self.drain_for, Duration::from_secs(25)),
            workers: self.workers.map_or_else(half_the_cores, usize::from),
            cors_origins,
            cors_credentials,
            no_migrate: self.no_migrate.unwrap_or(false),
        })
    }
}

/// The settings of a command: its own, then those of its `--config` file.
///
/// # Errors
///
/// As [`Settings::read`].
pub fn layered(settings: Settings, file: Option<&PathBuf>) -> Result<Settings, String> {
    match file {
        Some(file) => Ok(settings.or(Settings::read(file)?)),
        None => Ok(settings),
    }
}

/// The name stands between colons in the scope.
fn service(name: Option<String>) -> Result<String, String> {
    let name = name.unwrap_or_else(|| "default".to_owned());
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
        return Err(format!("--service '{name}': a name has 1 to 64 letters, digits, '-', '_' or '.'"));
    }
    Ok(name)
}

fn cors(origins: Option<Vec<Origin>>, credentials: Option<bool>) -> Result<(Vec<Origin>, bool), String> {
    let (origins, credentials) = (origins.unwrap_or_default(), credentials.unwrap_or(false));
    let any = origins.iter().any(|origin| origin.0 == Origin::ANY);
    if any && origins.len() > 1 {
        return Err("--cors-origin '*' is every origin: leave out the others, or it".into());
    }
    if credentials && (any || origins.is_empty()) {
        return Err("--cors-credentials is for origins that --cors-origin lists by name".into());
    }
    Ok((origins, credentials))
}

fn half_the_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// serde's "unknown field `x`, expected one of `a`, `b`": shorter, and with the nearest.
fn explained(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if !message.starts_with("unknown field") && !message.starts_with("unknown variant") {
        return message.replace('\n', " ");
    }
    let unknown = quoted.next().unwrap_or_default();
    let what = if message.starts_with("unknown field") { "key" } else { "value" };
    match nearest(&unknown.replace('-', "_"), quoted) {
        Some(near) => format!("unknown {what} '{unknown}'; did you mean '{near}'?"),
        None => format!("unknown {what} '{unknown}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_toml_key_names_the_nearest_and_its_line() {
        let error =
            Settings::parse("listen = \"127.0.0.1:1\"\nupstrem = \"http://127.0.0.1:9000\"").unwrap_err();
        assert_eq!(error, "line 2: unknown key 'upstrem'; did you mean 'upstream'?");
        let error = Settings::parse("on-unknown = \"park\"").unwrap_err();
        assert_eq!(error, "line 1: unknown key 'on-unknown'; did you mean 'on_unknown'?");
    }

    #[test]
    fn a_bad_toml_value_says_how_it_is_written() {
        let error = Settings::parse("lease = \"30sec\"").unwrap_err();
        assert!(error.contains("line 1") && error.contains("'30s'"), "{error}");
        let error = Settings::parse("lease = 30").unwrap_err();
        assert!(error.contains("line 1") && error.contains("'30s'"), "{error}");
        assert!(Settings::parse("body_bytes_max = -1").unwrap_err().contains("a size is written"));
        assert!(Settings::parse("lease = true").unwrap_err().contains("written in quotes"));
        let error = Settings::parse("on_unknown = \"parc\"").unwrap_err();
        assert!(error.contains("did you mean 'park'?"), "{error}");
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let flags = Settings { lease: Some(Span(Duration::from_secs(5))), ..Settings::default() };
        let file = Settings::parse("lease = \"9s\"\nservice = \"shop\"\nbody_bytes_max = 10").unwrap();
        let both = flags.or(file);
        assert_eq!(both.lease, Some(Span(Duration::from_secs(5))));
        assert_eq!(both.service.as_deref(), Some("shop"));
        assert_eq!(both.body_bytes_max, Some(Size(10)));
    }

    #[test]
    fn probe_is_refused_until_it_exists() {
        let settings = Settings { on_unknown: Some(UnknownChoice::Probe), ..Settings::default() };
        assert!(settings.resolve().unwrap_err().contains("probe"));
    }
}
