//! The gateway's settings: flags first, then `SEMEL_…` variables, then the TOML file, then the defaults.
//!
//! One struct is all three: a setting's flag, variable and TOML key cannot drift apart, and a new setting is one
//! field here and one line in [`Settings::or`]. A `[[route]]` of the file is the same struct once more: what it does
//! not set is what holds for everything else. What is one for the whole process cannot stand in a route; [`Config`]
//! has those settings, [`Contract`] the others.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use semel_http::{Field, KeySecret, Pattern, Pointer, TrustedProxies};
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
mod retention;
mod tls;
mod words;

pub use contract::Contract;
pub use effective::{Effective, without_password};
pub use principals::{Callers, KeySource, Location, PrincipalEntry, Proxy, Tokens};
pub use probe::{Piece, ProbeConfig, Template};
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
    /// Threads that serve requests [default: half of the cores]
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

/// Settings that fit together.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each is described at its field in `Settings`")]
pub struct Config {
    pub listen: Address,
    pub tls: Option<TlsFiles>,
    pub store: String,
    pub admin: Address,
    pub admin_token_file: Option<PathBuf>,
    pub service: String,
    pub instance: Option<String>,
    pub key_secret: Option<KeySecret>,
    /// Where it stands.
    pub key_secret_file: Option<PathBuf>,
    pub trusted_proxies: TrustedProxies,
    pub tokens: Option<Tokens>,
    pub upstream_idle: Duration,
    pub bounds: semel::Bounds,
    pub drain_for: Duration,
    pub workers: usize,
    pub log: LogLevel,
    pub otlp_endpoint: Option<Location>,
    pub cors_origins: Vec<Origin>,
    pub cors_credentials: bool,
    pub no_migrate: bool,
    /// What holds for what matches no route.
    pub otherwise: Contract,
    pub routes: Vec<RouteConfig>,
}

/// A `[[route]]`.
#[derive(Debug, Clone)]
pub struct RouteConfig {
    /// Which paths.
    pub pattern: Pattern,
    /// Which host.
    pub host: Option<String>,
    /// What holds for them.
    pub contract: Contract,
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
        let named = |(field, is_set)| (if field == "pattern" { "match" } else { field }, is_set);
        self.clone().merged(Settings::default()).1.into_iter().map(named).collect()
    }

    fn merged(self, other: Settings) -> (Settings, Vec<(&'static str, bool)>) {
        // Taken apart field by field, so that a setting left out here does not compile.
        macro_rules! first_set {
            ($($field:ident),* $(,)?) => {{
                let Settings { $($field),* } = self;
                let names = vec![$((stringify!($field), $field.is_some())),*];
                (Settings { $($field: $field.or(other.$field)),* }, names)
            }};
        }
        first_set!(
            upstream,
            pattern,
            host,
            route,
            listen,
            tls_cert,
            tls_key,
            tls_client_ca,
            tls_client_cert,
            store,
            admin,
            admin_token_file,
            service,
            instance,
            principal,
            trusted_proxies,
            jwks,
            jwt_issuer,
            jwt_audience,
            auth_check,
            methods,
            key,
            key_syntax,
            key_aliases,
            derive,
            key_field,
            ulid,
            key_secret_file,
            fingerprint,
            ignore,
            redact,
            keep_no_body,
            wait_max,
            store_down,
            observe,
            critical,
            preset,
            kept,
            released,
            unknown,
            in_flight_status,
            mismatch_status,
            attempts_max,
            on_unknown,
            probe,
            probe_keep,
            probe_release,
            probe_after,
            probe_within,
            probe_token_file,
            upstream_timeout,
            late_answer_for,
            upstream_idle,
            upstream_http,
            upstream_ca,
            lease,
            replay_for,
            remember_for,
            body_bytes_max,
            kept_bytes_max,
            open_claims_max,
            new_keys_per_second_max,
            drain_for,
            workers,
            log,
            otlp_endpoint,
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
        let named = |error: String| escaped(&format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        Settings::parse(&text).map_err(named)
    }

    /// Settings from the text of a TOML file.
    ///
    /// # Errors
    ///
    /// As [`Settings::read`], without the file's name.
    pub fn parse(text: &str) -> Result<Settings, String> {
        toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            escaped(&format!("{place}{}", explained(error.message())))
        })
    }

    /// The settings with the defaults, checked.
    ///
    /// # Errors
    ///
    /// One line that says what does not fit, and in which route.
    pub fn resolve(self) -> Result<Config, String> {
        self.checked().map_err(|error| escaped(&error))
    }

    fn checked(self) -> Result<Config, String> {
        let span = |set: Option<Span>, default: Duration| set.map_or(default, |span| span.0);
        if self.pattern.is_some() || self.host.is_some() {
            return Err("'match' and 'host' stand in a [[route]]".into());
        }
        if self.workers == Some(0) {
            return Err("--workers must be at least 1".into());
        }
        let tls = tls::files(&self)?;
        let key_secret = self.key_secret_file.as_deref().map(key_secret).transpose()?;
        let otherwise = Contract::of(&self, None)?;
        let routes = self.route.iter().flatten().map(|route| self.resolve_route(route));
        let routes = routes.collect::<Result<Vec<_>, _>>()?;
        reachable(&routes)?;
        let asks = otherwise.probe.is_some() || routes.iter().any(|route| route.contract.probe.is_some());
        if key_secret.is_some() && asks {
            return Err("--probe needs keys in clear, and with --key-secret-file the store has none".into());
        }
        let by_token = |contract: &Contract| contract.callers.by_token();
        let by_token = by_token(&otherwise) || routes.iter().any(|route| by_token(&route.contract));
        let tokens = principals::tokens(&self, by_token)?;
        let trusted_proxies = principals::trusted_proxies(&self);
        let (cors_origins, cors_credentials) = cors(self.cors_origins, self.cors_credentials)?;
        Ok(Config {
            listen: self.listen.unwrap_or(Address(([127, 0, 0, 1], 8080).into())),
            tls,
            store: self.store.unwrap_or_else(|| STORE.to_owned()),
            admin: admin(self.admin, self.admin_token_file.is_some())?,
            admin_token_file: self.admin_token_file,
            trusted_proxies,
            tokens,
            service: service(self.service)?,
            instance: instance(self.instance)?,
            key_secret,
            key_secret_file: self.key_secret_file,
            upstream_idle: span(self.upstream_idle, Duration::from_secs(1)),
            bounds: bounds(self.open_claims_max, self.new_keys_per_second_max)?,
            drain_for: span(self.drain_for, Duration::from_secs(25)),
            workers: self.workers.map_or_else(half_the_cores, usize::from),
            log: self.log.unwrap_or(LogLevel::Info),
            otlp_endpoint: self.otlp_endpoint,
            cors_origins,
            cors_credentials,
            no_migrate: self.no_migrate.unwrap_or(false),
            otherwise,
            routes,
        })
    }

    fn resolve_route(&self, route: &Settings) -> Result<RouteConfig, String> {
        let text =
            route.pattern.as_deref().ok_or("a [[route]] needs 'match', such as match = \"/charges\"")?;
        let named = |error: String| format!("route {text}: {error}");
        if let Some(setting) = route.of_the_process() {
            return Err(named(format!(
                "'{setting}' is one for the whole gateway and cannot stand in a route"
            )));
        }
        if let Some(near) = written_otherwise(text) {
            return Err(named(format!("a variable is written {{name}}; did you mean '{near}'?")));
        }
        let pattern: Pattern = text.parse().map_err(|error| named(format!("{error}")))?;
        let host = route.host.as_deref().map(host).transpose().map_err(named)?;
        let contract = Contract::of(&route.clone().or(self.above(route)), Some(&pattern)).map_err(named)?;
        Ok(RouteConfig { pattern, host, contract })
    }

    /// What a route has of these where it does not set it itself. One that chooses a preset begins with the preset's
    /// statuses, not with those of everything else.
    fn above(&self, route: &Settings) -> Settings {
        let above = self.clone();
        match route.preset {
            None => above,
            Some(_) => Settings { kept: None, released: None, unknown: None, mismatch_status: None, ..above },
        }
    }

    /// The first setting here that no route can have.
    fn of_the_process(&self) -> Option<&'static str> {
        macro_rules! first {
            ($($field:ident),* $(,)?) => {
                [$((stringify!($field), self.$field.is_some())),*]
            };
        }
        let settings = first!(
            route,
            listen,
            tls_cert,
            tls_key,
            tls_client_ca,
            tls_client_cert,
            store,
            admin,
            admin_token_file,
            service,
            instance,
            key_secret_file,
            trusted_proxies,
            jwks,
            jwt_issuer,
            jwt_audience,
            upstream_idle,
            open_claims_max,
            new_keys_per_second_max,
            drain_for,
            workers,
            log,
            otlp_endpoint,
            cors_origins,
            cors_credentials,
            no_migrate
        );
        settings.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name)
    }
}

impl RouteConfig {
    /// What it is called: its methods, its host and its pattern. No two routes have the same.
    pub fn name(&self) -> Arc<str> {
        let methods: Vec<&str> = self.contract.methods.iter().map(http::Method::as_str).collect();
        let host = self.host.as_deref().unwrap_or_default();
        [&methods.join(","), " ", host, self.pattern.as_str()].concat().into()
    }
}

/// A route that comes after one with all of its paths, hosts and methods would never be asked.
fn reachable(routes: &[RouteConfig]) -> Result<(), String> {
    for (at, route) in routes.iter().enumerate() {
        let methods = &route.contract.methods;
        let hides = |earlier: &&RouteConfig| {
            earlier.pattern.covers(&route.pattern)
                && (earlier.host.is_none() || earlier.host == route.host)
                && methods.iter().all(|method| earlier.contract.methods.contains(method))
        };
        match routes[..at].iter().find(hides) {
            Some(earlier) if earlier.pattern == route.pattern => {
                return Err(format!(
                    "route {}: it stands twice, and the first one always holds",
                    route.pattern
                ));
            }
            Some(earlier) => {
                let (pattern, earlier) = (&route.pattern, earlier.name());
                return Err(format!(
                    "route {pattern}: it is never asked, since {earlier} holds first; put it above"
                ));
            }
            None => {}
        }
    }
    Ok(())
}

/// Other frameworks write a variable otherwise, and here that would match nothing but itself: `/charges/:id`.
fn written_otherwise(text: &str) -> Option<String> {
    let variable = |segment: &str| {
        let name = segment.strip_prefix(':').or_else(|| segment.strip_prefix('<')?.strip_suffix('>'))?;
        let name = name.rsplit(':').next().unwrap_or(name);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (!name.is_empty() && name.bytes().all(fits)).then(|| format!("{{{name}}}"))
    };
    let here = |segment: &str| variable(segment).unwrap_or_else(|| segment.to_owned());
    text.split('/')
        .any(|segment| variable(segment).is_some())
        .then(|| text.split('/').map(here).collect::<Vec<_>>().join("/"))
}

/// A route's host, as it is compared.
fn host(text: &str) -> Result<String, String> {
    let authority = text.parse::<http::uri::Authority>();
    match authority {
        Ok(authority) if authority.port().is_none() && authority.host() == text => Ok(text.to_owned()),
        _ => Err(format!("host '{text}': a host is a name or an address, without a port")),
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

/// What stands there says how the gateway is built and what goes through it.
fn admin(address: Option<Address>, has_token: bool) -> Result<Address, String> {
    let address = address.unwrap_or(Address(([127, 0, 0, 1], 9901).into()));
    if !has_token && !address.0.ip().to_canonical().is_loopback() {
        return Err(format!(
            "--admin {address} can be reached from other machines: it needs --admin-token-file FILE"
        ));
    }
    Ok(address)
}

fn bounds(open_claims: Option<u32>, new_keys: Option<u32>) -> Result<semel::Bounds, String> {
    let defaults = semel::Bounds::default();
    let bounds = semel::Bounds {
        open_claims_max: open_claims.unwrap_or(defaults.open_claims_max),
        new_keys_a_second_max: new_keys.unwrap_or(defaults.new_keys_a_second_max),
        ..defaults
    };
    if bounds.open_claims_max == 0 || bounds.new_keys_a_second_max == 0 {
        return Err("--open-claims-max and --new-keys-per-second-max must be at least 1".into());
    }
    Ok(bounds)
}

/// The secret under which keys are stored: the file's bytes, without white space around them.
///
/// # Errors
///
/// One line that says what is wrong with it, and nothing of what it holds.
pub fn key_secret(file: &Path) -> Result<KeySecret, String> {
    let named = |error: String| format!("--key-secret-file {}: {error}", file.display());
    let secret = std::fs::read(file).map_err(|error| named(error.to_string()))?;
    KeySecret::new(secret.trim_ascii())
        .ok_or_else(|| named(format!("a secret has {} bytes or more", KeySecret::BYTES_MIN)))
}

/// For people and logs: short, and in one line.
fn instance(name: Option<String>) -> Result<Option<String>, String> {
    let is_short =
        |name: &String| (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    match name {
        Some(name) if !is_short(&name) => {
            Err("--instance is a name of 1 to 64 visible ASCII characters, without spaces".into())
        }
        name => Ok(name),
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
        let said = message.replace('\n', " ");
        return match message {
            "wanted string or table" => "a word in quotes is wanted".to_owned(),
            // What begins with a t or an f, and is neither true nor false.
            _ if message.starts_with("invalid boolean") => format!("{said}; a text stands in quotes"),
            _ if message.starts_with("invalid type: map, expected a sequence") => {
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

/// What was given may hold a line feed, and more that a terminal would obey: it is shown escaped.
pub fn escaped(error: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    error.chars().map(shown).collect()
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
        assert!(Settings::parse("remember_for = forever").unwrap_err().contains("a text stands in quotes"));
        assert_eq!(
            Settings::parse("key = [\"required\"]").unwrap_err(),
            "line 1: a word in quotes is wanted"
        );
        let error = Settings::parse("[route]\nmatch = \"/a\"").unwrap_err();
        assert_eq!(error, "line 1: a route begins with [[route]], in double brackets");
        let error = Settings::parse("on_unknown = \"parc\"").unwrap_err();
        assert!(error.contains("did you mean 'park'?"), "{error}");
    }

    #[test]
    fn an_error_is_one_line_whatever_was_given() {
        let upstream = "upstream = \"http://127.0.0.1:9000\"\n";
        for (text, shown) in [
            ("service = \"a\\nb\"", "--service 'a\\nb'"),
            ("\"a\\nb\" = 1", "unknown key 'a\\nb'"),
            ("key_secret_file = \"a\\rb\"", "a\\rb"),
            ("principal = \"jwt:\\u001b[2J\"", "control characters"),
            ("[[route]]\nmatch = \"/a\\nb\"", "route /a\\nb: "),
        ] {
            let error = Settings::parse(&[upstream, text].concat()).and_then(Settings::resolve).unwrap_err();
            assert!(error.contains(shown) && !error.contains(char::is_control), "{text}: {error:?}");
        }
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

    fn resolved(text: &str) -> Result<Config, String> {
        Settings::parse(&format!("upstream = \"http://127.0.0.1:9000\"\n{text}")).unwrap().resolve()
    }

    #[test]
    fn a_route_has_what_it_sets_and_else_what_holds_for_everything() {
        let config = resolved(
            "key = \"required\"\nlease = \"9s\"\n[[route]]\nmatch = \"/a\"\nlease = \"5s\"\n\
             [[route]]\nmatch = \"/b/{id}\"\nhost = \"b.example\"\nupstream = \"http://127.0.0.1:9001\"",
        );
        let config = config.unwrap();
        assert_eq!(config.otherwise.policy.lease_for, Duration::from_secs(9));
        let [a, b] = &config.routes[..] else { panic!("two routes") };
        assert_eq!(
            (a.contract.policy.lease_for, a.contract.key),
            (Duration::from_secs(5), KeyPolicy::Required)
        );
        assert_eq!(b.contract.policy.lease_for, Duration::from_secs(9));
        assert_eq!((b.host.as_deref(), b.contract.upstream.port), (Some("b.example"), 9001));
    }

    #[test]
    fn h11_a_route_that_chooses_a_preset_begins_with_its_statuses() {
        let above = "released = [500]\n[[route]]\nmatch = \"/a\"\npreset = \"cautious\"\nunknown = [404]\n\
                     [[route]]\nmatch = \"/b\"";
        let config = resolved(above).unwrap();
        let [a, b] = &config.routes[..] else { panic!("two routes") };
        let releases = |route: &RouteConfig| {
            route.contract.statuses.released.contains(&http::StatusCode::INTERNAL_SERVER_ERROR)
        };
        assert!(!releases(a) && releases(b));
        assert!(a.contract.statuses.unknown.contains(&http::StatusCode::NOT_FOUND));
    }

    #[test]
    fn what_cannot_stand_in_a_route_is_named() {
        for (text, part) in [
            ("[[route]]\nkey = \"required\"", "needs 'match'"),
            ("[[route]]\nmatch = \"charges\"", "route charges: a pattern begins with '/'"),
            (
                "[[route]]\nmatch = \"/a\"\nlisten = \"127.0.0.1:1\"",
                "route /a: 'listen' is one for the whole",
            ),
            ("[[route]]\nmatch = \"/a\"\nhost = \"h:80\"", "without a port"),
            ("[[route]]\nmatch = \"/a\"\n[[route]]\nmatch = \"/a\"", "stands twice"),
            (
                "[[route]]\nmatch = \"/v1/*\"\n[[route]]\nmatch = \"/v1/a\"",
                "route /v1/a: it is never asked, since POST,PATCH /v1/* holds first",
            ),
            ("[[route]]\nmatch = \"/a/:id\"", "did you mean '/a/{id}'?"),
            ("[[route]]\nmatch = \"/<int:id>/b\"", "did you mean '/{id}/b'?"),
            ("match = \"/a\"", "stand in a [[route]]"),
            ("[[route]]\nmatch = \"/a\"\nreplay_for = \"40d\"", "route /a: remember-for"),
        ] {
            let error = resolved(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
