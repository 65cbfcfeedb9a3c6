//! The gateway's settings: flags first, then `SEMEL_…` variables, then the TOML file, then the defaults.
//!
//! One struct is all three: a setting's flag, variable and TOML key cannot drift apart, and a new setting is one
//! field here and one line in [`Settings::or`]. A `[[route]]` of the file is the same struct once more: what it does
//! not set is what holds for everything else. What is one for the whole process cannot stand in a route; [`Config`]
//! has those settings, [`Contract`] the others.

use std::path::{Path, PathBuf};

use semel_http::{Field, Pointer};
use serde::Deserialize;

use crate::origin::Origin;
use crate::values::{Address, HttpVersion, Size, Span, Upstream, nearest};

mod contract;
mod effective;
#[cfg(test)]
mod example;
#[cfg(test)]
mod fuzzing;
mod principals;
mod probe;
mod resolve;
mod retention;
#[cfg(test)]
mod tests;
mod tls;
mod words;

pub use contract::{Contract, statuses};
pub use effective::{Effective, without_password};
pub use principals::{Callers, KeySource, Location, PrincipalEntry, Proxy, Tokens};
pub use probe::{Piece, ProbeConfig, Template, bearer};
pub use resolve::{Config, RouteConfig, admin, instance, key_secret};
#[cfg(feature = "tls")]
pub use tls::ClientAuthority;
pub use tls::{ClientCertificatePolicy, TlsFiles};
pub use words::{
    Guardable, Header, KeyPolicy, KeySyntax, List, LogLevel, One, Preset, Sameness, Status, StoreDown,
    UnknownChoice,
};

/// What a user may set. Everything is optional here; [`Settings::resolve`] knows the defaults.
#[derive(Debug, Default, Clone, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The service behind the gateway
    #[arg(long, env = "SEMEL_UPSTREAM", value_name = "URL")]
    pub upstream: Option<Upstream>,
    /// Which paths a route is for
    #[arg(skip)]
    #[serde(rename = "match")]
    pub pattern: Option<String>,
    /// Which host a route is for; without it, every host
    #[arg(skip)]
    pub host: Option<String>,
    /// The routes of a file, in the order in which they are asked
    #[arg(skip)]
    pub route: Option<Vec<Settings>>,
    /// Where callers connect [default: 127.0.0.1:8080]
    #[arg(long, env = "SEMEL_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<Address>,
    /// The certificate that callers are shown, and those that lead to its root, in PEM: TLS ends here
    #[arg(long, env = "SEMEL_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key, in PEM
    #[arg(long, env = "SEMEL_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Ask callers for a certificate that one of these has signed, in PEM
    #[arg(long, env = "SEMEL_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Whether a caller must have one [default: required]
    #[arg(long, env = "SEMEL_TLS_CLIENT_CERT", value_name = "POLICY")]
    pub tls_client_cert: Option<ClientCertificatePolicy>,
    /// Where the records are kept [default: sqlite://semel.db]
    #[arg(long, env = "SEMEL_STORE", value_name = "URL")]
    pub store: Option<String>,
    /// Where health, readiness and metrics are served [default: 127.0.0.1:9901]
    #[arg(long, env = "SEMEL_ADMIN", value_name = "ADDRESS")]
    pub admin: Option<Address>,
    /// A file with the Bearer token of readiness and metrics; needed where the admin address is not of this machine
    #[arg(long, env = "SEMEL_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// The service's name, part of every key's scope [default: default]
    #[arg(long, env = "SEMEL_SERVICE", value_name = "NAME")]
    pub service: Option<String>,
    /// This gateway's name: records, the log and /readyz tell by it which gateway was there [default: host and process id]
    #[arg(long, env = "SEMEL_INSTANCE", value_name = "NAME")]
    pub instance: Option<String>,
    /// Who a caller is: the first of these that a request has. jwt:CLAIM, header:NAME, certificate, authorization; and at
    /// the end 'required', to refuse whoever is none of them; repeatable [default: authorization]
    #[arg(long, env = "SEMEL_PRINCIPAL", value_name = "PRINCIPAL", value_delimiter = ',')]
    #[serde(default, deserialize_with = "principals::several")]
    pub principal: Option<Vec<PrincipalEntry>>,
    /// The proxies whose header:NAME is believed, from others it is taken off; repeatable [default: none]
    #[arg(long, env = "SEMEL_TRUSTED_PROXIES", value_name = "NETWORK", value_delimiter = ',')]
    #[serde(default, deserialize_with = "principals::several")]
    pub trusted_proxies: Option<Vec<Proxy>>,
    /// The issuer's public keys, a JSON Web Key Set, for jwt:CLAIM
    #[arg(long, env = "SEMEL_JWKS", value_name = "FILE|URL")]
    pub jwks: Option<KeySource>,
    /// The only issuer whose tokens are taken
    #[arg(long, env = "SEMEL_JWT_ISSUER", value_name = "NAME")]
    pub jwt_issuer: Option<String>,
    /// For whom a token must be made; repeatable, one of them is enough
    #[arg(long, env = "SEMEL_JWT_AUDIENCE", value_name = "NAME")]
    #[serde(default, deserialize_with = "principals::several")]
    pub jwt_audience: Option<Vec<String>>,
    /// Asked by GET with the caller's headers before a key is looked up: 2xx go on, 401 and 403 are passed on
    #[arg(long, env = "SEMEL_AUTH_CHECK", value_name = "URL")]
    pub auth_check: Option<Location>,
    /// The guarded methods [default: POST,PATCH]
    #[arg(long, env = "SEMEL_METHODS", value_name = "LIST")]
    pub methods: Option<List<Guardable>>,
    /// What happens to a guarded request without a key [default: optional]
    #[arg(long, env = "SEMEL_KEY", value_name = "POLICY")]
    pub key: Option<KeyPolicy>,
    /// Whether a key without quotes is taken [default: lenient]
    #[arg(long, env = "SEMEL_KEY_SYNTAX", value_name = "SYNTAX")]
    pub key_syntax: Option<KeySyntax>,
    /// Headers that carry the key too, beside Idempotency-Key
    #[arg(long, env = "SEMEL_KEY_ALIASES", value_name = "LIST")]
    pub key_aliases: Option<List<Header>>,
    /// The fields that a missing key is made of, where the key is 'derive': json:/order_id, header:x-order, ...
    #[arg(long, env = "SEMEL_DERIVE", value_name = "LIST")]
    pub derive: Option<List<Field>>,
    /// Where the key stands in the body: json:/request_id, form:request_id or xml:RequestId
    #[arg(long, env = "SEMEL_KEY_FIELD", value_name = "FIELD")]
    pub key_field: Option<One<Field>>,
    /// Take keys of the shape of a ULID for ULIDs, and refuse those that are too old
    #[arg(long, env = "SEMEL_ULID", value_parser = clap::builder::FalseyValueParser::new(), num_args = 0, default_missing_value = "true")]
    pub ulid: Option<bool>,
    /// A file with a secret: the store then holds HMACs of the keys, and no key
    #[arg(long, env = "SEMEL_KEY_SECRET_FILE", value_name = "FILE")]
    pub key_secret_file: Option<PathBuf>,
    /// How two requests are compared [default: exact]
    #[arg(long, env = "SEMEL_FINGERPRINT", value_name = "LIST")]
    pub fingerprint: Option<List<Sameness>>,
    /// JSON pointers to what does not count when JSON is compared
    #[arg(long, env = "SEMEL_IGNORE", value_name = "LIST")]
    pub ignore: Option<List<Pointer>>,
    /// JSON pointers to what is not kept of an answer
    #[arg(long, env = "SEMEL_REDACT", value_name = "LIST")]
    pub redact: Option<List<Pointer>>,
    /// Keep nothing of an answer's body; a retry is told that it was done
    #[arg(long, env = "SEMEL_KEEP_NO_BODY", value_parser = clap::builder::FalseyValueParser::new(), num_args = 0, default_missing_value = "true")]
    pub keep_no_body: Option<bool>,
    /// The longest wait for the first attempt that a retry may ask for by Prefer: wait [default: 0s]
    #[arg(long, env = "SEMEL_WAIT_MAX", value_name = "DURATION")]
    pub wait_max: Option<Span>,
    /// What happens to guarded requests while the store is away [default: refuse]
    #[arg(long, env = "SEMEL_STORE_DOWN", value_name = "CHOICE")]
    pub store_down: Option<StoreDown>,
    /// Guard nothing; count what would have been
    #[arg(long, env = "SEMEL_OBSERVE", value_parser = clap::builder::FalseyValueParser::new(), num_args = 0, default_missing_value = "true")]
    pub observe: Option<bool>,
    /// Refuse what would weaken the guarantee: needs auth_check, forbids rerun and bypass
    #[arg(long, env = "SEMEL_CRITICAL", value_parser = clap::builder::FalseyValueParser::new(), num_args = 0, default_missing_value = "true")]
    pub critical: Option<bool>,
    /// A choice of statuses [default: default]
    #[arg(long, env = "SEMEL_PRESET", value_name = "PRESET")]
    pub preset: Option<Preset>,
    /// Statuses of the service's answers that are kept and replayed, beside the preset's
    #[arg(long, env = "SEMEL_KEPT", value_name = "LIST")]
    pub kept: Option<List<Status>>,
    /// Statuses that mean that nothing took effect: the key may be tried again
    #[arg(long, env = "SEMEL_RELEASED", value_name = "LIST")]
    pub released: Option<List<Status>>,
    /// Statuses that prove nothing
    #[arg(long, env = "SEMEL_UNKNOWN", value_name = "LIST")]
    pub unknown: Option<List<Status>>,
    /// The status of a retry while the first request runs: 409 or 425 [default: 409]
    #[arg(long, env = "SEMEL_IN_FLIGHT_STATUS", value_name = "STATUS")]
    pub in_flight_status: Option<Status>,
    /// The status of a key that belongs to another request: 422, 400 or 409 [default: 422]
    #[arg(long, env = "SEMEL_MISMATCH_STATUS", value_name = "STATUS")]
    pub mismatch_status: Option<Status>,
    /// With so many attempts behind it an operation is given up [default: 100]
    #[arg(long, env = "SEMEL_ATTEMPTS_MAX", value_name = "NUMBER")]
    pub attempts_max: Option<u32>,
    /// What happens to an operation that may or may not have taken effect [default: park]
    #[arg(long, env = "SEMEL_ON_UNKNOWN", value_name = "CHOICE")]
    pub on_unknown: Option<UnknownChoice>,
    /// Where to ask whether an operation took effect: /charges?key={key}, or http://HOST:PORT/charges/{key}
    #[arg(long, env = "SEMEL_PROBE", value_name = "TEMPLATE")]
    pub probe: Option<One<Template>>,
    /// Statuses of its answer that mean that it took effect
    #[arg(long, env = "SEMEL_PROBE_KEEP", value_name = "LIST")]
    pub probe_keep: Option<List<Status>>,
    /// Statuses of its answer that mean that it took none
    #[arg(long, env = "SEMEL_PROBE_RELEASE", value_name = "LIST")]
    pub probe_release: Option<List<Status>>,
    /// How long an operation is unknown before it is asked about: longer than one may be under way [default: 30s]
    #[arg(long, env = "SEMEL_PROBE_AFTER", value_name = "DURATION")]
    pub probe_after: Option<Span>,
    /// How long one question may take [default: 5s]
    #[arg(long, env = "SEMEL_PROBE_WITHIN", value_name = "DURATION")]
    pub probe_within: Option<Span>,
    /// A file with the Bearer token of the questions
    #[arg(long, env = "SEMEL_PROBE_TOKEN_FILE", value_name = "FILE")]
    pub probe_token_file: Option<PathBuf>,
    /// How long a caller waits for the service [default: 30s]
    #[arg(long, env = "SEMEL_UPSTREAM_TIMEOUT", value_name = "DURATION")]
    pub upstream_timeout: Option<Span>,
    /// How long an answer is still listened for after that [default: 5m]
    #[arg(long, env = "SEMEL_LATE_ANSWER_FOR", value_name = "DURATION")]
    pub late_answer_for: Option<Span>,
    /// How old an idle connection to the service may be and still carry a request [default: 1s]
    #[arg(long, env = "SEMEL_UPSTREAM_IDLE", value_name = "DURATION")]
    pub upstream_idle: Option<Span>,
    /// Which HTTP is spoken to the service: auto is 1 on clear text, and what the service chooses over TLS
    /// [default: auto]
    #[arg(long, env = "SEMEL_UPSTREAM_HTTP", value_name = "VERSION")]
    pub upstream_http: Option<HttpVersion>,
    /// The only authorities that an https service is trusted by, in PEM [default: those of this system]
    #[arg(long, env = "SEMEL_UPSTREAM_CA", value_name = "FILE")]
    pub upstream_ca: Option<PathBuf>,
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
    /// Claims of one scope that are open at once [default: 10000]
    #[arg(long, env = "SEMEL_OPEN_CLAIMS_MAX", value_name = "NUMBER")]
    pub open_claims_max: Option<u32>,
    /// New keys of one scope in a second [default: 100000]
    #[arg(long, env = "SEMEL_NEW_KEYS_PER_SECOND_MAX", value_name = "NUMBER")]
    pub new_keys_per_second_max: Option<u32>,
    /// How long a stopping gateway waits for what runs [default: 25s]
    #[arg(long, env = "SEMEL_DRAIN_FOR", value_name = "DURATION")]
    pub drain_for: Option<Span>,
    /// Threads that serve requests [default: as many as there are cores]
    #[arg(long, env = "SEMEL_WORKERS", value_name = "NUMBER")]
    pub workers: Option<u16>,
    /// What is logged; info is a line for each decision [default: info]
    #[arg(long, env = "SEMEL_LOG", value_name = "LEVEL")]
    pub log: Option<LogLevel>,
    /// Where spans are sent, by OTLP over HTTP: http://HOST:4318. Without a path it is /v1/traces [default: none]
    #[arg(long, env = "SEMEL_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<Location>,
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

/// One of the fields of [`Settings`].
#[derive(Debug, Clone, Copy)]
struct Setting {
    name: &'static str,
    whose: Whose,
    is_set: bool,
}

/// Where a setting can stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Above the routes only: it is one for the whole gateway.
    Process,
    /// In a route too.
    Route,
}

/// The store's URL where none is given.
pub const STORE: &str = "sqlite://semel.db";

impl Settings {
    /// Fills what is not set here from `other`.
    #[must_use]
    pub fn or(self, other: Settings) -> Settings {
        self.merged(other).0
    }

    /// The names of all settings, as TOML has them, and whether each is set here.
    pub fn names(&self) -> Vec<(&'static str, bool)> {
        let named = |setting: Setting| {
            (if setting.name == "pattern" { "match" } else { setting.name }, setting.is_set)
        };
        self.settings().into_iter().map(named).collect()
    }

    /// The first that is set here and that no route can have.
    fn of_the_process(&self) -> Option<&'static str> {
        let mut settings = self.settings().into_iter();
        settings.find(|setting| setting.is_set && setting.whose == Whose::Process).map(|setting| setting.name)
    }

    fn settings(&self) -> Vec<Setting> {
        self.clone().merged(Settings::default()).1
    }

    fn merged(self, other: Settings) -> (Settings, Vec<Setting>) {
        // Taken apart field by field, so that a setting left out here does not compile.
        macro_rules! first_set {
            ($($field:ident: $whose:ident),* $(,)?) => {{
                let Settings { $($field),* } = self;
                let settings =
                    vec![$(Setting { name: stringify!($field), whose: Whose::$whose, is_set: $field.is_some() }),*];
                (Settings { $($field: $field.or(other.$field)),* }, settings)
            }};
        }
        first_set!(
            upstream: Route,
            pattern: Route,
            host: Route,
            route: Process,
            listen: Process,
            tls_cert: Process,
            tls_key: Process,
            tls_client_ca: Process,
            tls_client_cert: Process,
            store: Process,
            admin: Process,
            admin_token_file: Process,
            service: Process,
            instance: Process,
            principal: Route,
            trusted_proxies: Process,
            jwks: Process,
            jwt_issuer: Process,
            jwt_audience: Process,
            auth_check: Route,
            methods: Route,
            key: Route,
            key_syntax: Route,
            key_aliases: Route,
            derive: Route,
            key_field: Route,
            ulid: Route,
            key_secret_file: Process,
            fingerprint: Route,
            ignore: Route,
            redact: Route,
            keep_no_body: Route,
            wait_max: Route,
            store_down: Route,
            observe: Route,
            critical: Route,
            preset: Route,
            kept: Route,
            released: Route,
            unknown: Route,
            in_flight_status: Route,
            mismatch_status: Route,
            attempts_max: Route,
            on_unknown: Route,
            probe: Route,
            probe_keep: Route,
            probe_release: Route,
            probe_after: Route,
            probe_within: Route,
            probe_token_file: Route,
            upstream_timeout: Route,
            late_answer_for: Route,
            upstream_idle: Process,
            upstream_http: Route,
            upstream_ca: Route,
            lease: Route,
            replay_for: Route,
            remember_for: Route,
            body_bytes_max: Route,
            kept_bytes_max: Route,
            open_claims_max: Process,
            new_keys_per_second_max: Process,
            drain_for: Process,
            workers: Process,
            log: Process,
            otlp_endpoint: Process,
            cors_origins: Process,
            cors_credentials: Process,
            no_migrate: Process,
        )
    }

    /// Settings from a TOML file.
    ///
    /// # Errors
    ///
    /// One line that names the file, the place and, for an unknown key, the nearest known one.
    pub fn read(path: &Path) -> Result<Settings, String> {
        read(path)
    }

    /// Settings from the text of a TOML file.
    ///
    /// # Errors
    ///
    /// As [`Settings::read`], without the file's name.
    #[cfg(test)]
    pub fn parse(text: &str) -> Result<Settings, String> {
        parse(text)
    }
}

/// Settings of any kind from a TOML file.
///
/// # Errors
///
/// One line that names the file, the place and, for an unknown key, the nearest known one.
pub fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let named = |error: String| escaped(&format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
    parse(&text).map_err(named)
}

/// Settings of any kind from the text of a TOML file.
///
/// # Errors
///
/// As [`read`], without the file's name.
pub fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let at = line.and_then(|line| text.lines().nth(line - 1)).unwrap_or_default();
        escaped(&format!("{place}{}", explained(error.message(), at)))
    })
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

/// serde's "unknown field `x`, expected one of `a`, `b`": shorter, and with the nearest.
fn explained(message: &str, line: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if !message.starts_with("unknown field") && !message.starts_with("unknown variant") {
        let said = message.replace('\n', " ");
        return match message {
            "wanted string or table" => "a word in quotes is wanted".to_owned(),
            // What begins with a t or an f, and is neither true nor false.
            _ if message.starts_with("invalid boolean") => format!("{said}; a text stands in quotes"),
            _ if message.starts_with("invalid type: map, expected a sequence")
                || (message.starts_with("duplicate key") && is_single_route(line)) =>
            {
                "a route begins with [[route]], in double brackets".to_owned()
            }
            _ => said,
        };
    }
    let unknown = quoted.next().unwrap_or_default();
    let what = if message.starts_with("unknown field") { "key" } else { "value" };
    match nearest(&unknown.replace('-', "_"), quoted) {
        Some(near) => format!("unknown {what} '{unknown}'; did you mean '{near}'?"),
        None => format!("unknown {what} '{unknown}'"),
    }
}

/// A second `[route]`, or one behind a `[[route]]`.
fn is_single_route(line: &str) -> bool {
    let head = line.split('#').next().unwrap_or_default().trim();
    head.strip_prefix('[').and_then(|head| head.strip_suffix(']')).is_some_and(|name| name.trim() == "route")
}

/// What was given may hold a line feed, and more that a terminal would obey: it is shown escaped.
pub fn escaped(error: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    error.chars().map(shown).collect()
}
