//! What settings come to: the defaults filled in, and what does not fit together refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use semel_http::{KeySecret, Pattern, TrustedProxies};

use super::Location;
use super::{Contract, LogLevel, STORE, Settings, TlsFiles, Tokens, escaped, principals, tls};
use crate::origin::Origin;
use crate::values::{Address, Span};

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

impl Settings {
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
            workers: self.workers.map_or_else(as_many_as_cores, usize::from),
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

/// What stands there says how a gateway is built and what goes through it.
///
/// # Errors
///
/// Other machines could read it, and no token is asked for.
pub fn admin(address: Option<Address>, has_token: bool) -> Result<Address, String> {
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
///
/// # Errors
///
/// It is not.
pub fn instance(name: Option<String>) -> Result<Option<String>, String> {
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

fn as_many_as_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
