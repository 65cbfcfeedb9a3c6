//! What a running gateway says of itself to its operators: at start and on `/readyz`. What callers may know of it is
//! the [policy](super::policy).

use semel::Instance;
use semel_http::Principal;
use semel_store::Connected;
use serde::Serialize;

use crate::config::{Callers, Config, Effective, KeyPolicy, RouteConfig, without_password};
use crate::values::{Size, Span};

/// The running configuration, as its operators need to know it.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "each is a setting, described in `config`")]
pub struct Statement {
    pub upstream: String,
    pub guarded: String,
    pub key: String,
    pub key_syntax: String,
    pub service: String,
    pub instance: String,
    pub instance_tag: String,
    pub scope: String,
    pub store: String,
    pub store_shared: bool,
    pub on_unknown: &'static str,
    pub replay_for: String,
    pub remember_for: String,
    pub body_bytes_max: String,
    pub kept_bytes_max: String,
    pub routes: Vec<Effective>,
    pub limits: Vec<String>,
}

impl Statement {
    pub fn new(config: &Config, instance: &str, store: &Connected) -> Statement {
        Statement {
            upstream: config.otherwise.upstream.to_string(),
            guarded: guarded(&config.otherwise.methods),
            key: config.otherwise.key.to_string(),
            key_syntax: config.otherwise.key_syntax.to_string(),
            service: config.service.clone(),
            instance: instance.to_owned(),
            instance_tag: Instance::named(instance).to_string(),
            scope: scope(&config.otherwise.callers),
            store: without_password(&config.store),
            store_shared: store.shared,
            on_unknown: config.otherwise.policy.on_unknown.as_str(),
            replay_for: Span(config.otherwise.policy.replay_for).to_string(),
            remember_for: Span(config.otherwise.policy.remember_for).to_string(),
            body_bytes_max: Size(config.otherwise.body_bytes_max).to_string(),
            kept_bytes_max: Size(config.otherwise.kept_bytes_max).to_string(),
            routes: config.routes.iter().map(RouteConfig::effective).collect(),
            limits: limits(config, store),
        }
    }

    /// For whoever starts it in a terminal.
    pub fn text(&self) -> String {
        let shared = if self.store_shared { "shared" } else { "for this gateway alone" };
        let lines = [
            ("guarded", format!("{}; a key is {}", self.guarded, self.key)),
            ("routes", self.routes.len().to_string()),
            ("scope", self.scope.clone()),
            ("store", format!("{}, {shared}", self.store)),
            ("instance", format!("{}, in records {}", self.instance, self.instance_tag)),
            ("unknown", self.on_unknown.to_owned()),
            ("kept", format!("replayed for {}, remembered for {}", self.replay_for, self.remember_for)),
        ];
        let lines = lines.map(|(name, value)| format!("  {name:<8} {value}\n")).concat();
        let limits = self.limits.iter().map(|limit| format!("  - {limit}\n"));
        format!("{lines}\nWhere the guarantees end:\n{}", limits.collect::<String>())
    }
}

/// `POST and PATCH`.
fn guarded(methods: &[http::Method]) -> String {
    let names: Vec<&str> = methods.iter().map(http::Method::as_str).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Within what a key is unique.
fn scope(callers: &Callers) -> String {
    let names: Vec<_> = callers.principals.iter().map(named).collect();
    let nobody = if callers.required { "others are refused" } else { "without one, 'anonymous'" };
    format!("the service and {}, hashed; {nobody}", names.join(", else "))
}

/// A principal, for people.
fn named(principal: &Principal) -> String {
    match principal {
        Principal::Jwt { claim } => format!("the claim '{claim}' of a verified token"),
        Principal::Header(name) => format!("the header {name} of a trusted proxy"),
        Principal::ClientCertificate => "the client certificate".to_owned(),
        Principal::Authorization => "the Authorization header".to_owned(),
        other => other.to_string(),
    }
}

/// Where callers may not be told apart, and where one may look like two.
pub fn of_callers(config: &Config) -> Vec<String> {
    let routes = config.routes.iter().map(|route| &route.contract);
    let callers: Vec<&Callers> =
        routes.chain([&config.otherwise]).map(|contract| &contract.callers).collect();
    let mut limits = Vec::new();
    if callers.iter().any(|callers| !callers.required) {
        limits.push(
            "requests that do not say who calls share the scope 'anonymous' ('required' at the end of --principal \
             refuses them)"
                .to_owned(),
        );
    }
    if callers.iter().any(|callers| callers.principals.contains(&Principal::Authorization)) {
        limits.push(
            "a client that is known by its Authorization, and whose token changes between its attempts, makes a new \
             operation of each"
                .to_owned(),
        );
    }
    limits
}

fn limits(config: &Config, store: &Connected) -> Vec<String> {
    let mut limits = Vec::new();
    if store.lossy {
        limits.push(
            "the store may lose what it has acknowledged, when another server takes over or its machine dies: an \
             operation that it forgot runs again"
                .to_owned(),
        );
    }
    if !store.shared {
        limits.push(
            "the store is a local one: it protects what goes through this gateway, and no other".to_owned(),
        );
    }
    if config.otherwise.key == KeyPolicy::Optional {
        limits.push("a request without a key is not guarded (--key required refuses it)".to_owned());
    }
    limits.extend(of_callers(config));
    limits.push(
        "a 500 or 503 of the service is taken to mean that nothing took effect, and its key may be tried again"
            .to_owned(),
    );
    if config.otherwise.policy.on_unknown == semel::OnUnknown::Rerun {
        limits.push("what is unknown is run again: at least once, not at most once".to_owned());
    }
    limits.push(format!(
        "a key is remembered for {} from completion; after that it is new again",
        Span(config.otherwise.policy.remember_for)
    ));
    limits
}
