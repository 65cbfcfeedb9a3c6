//! The published policy (H10): what a caller must know, made from the running configuration. The draft asks for one
//! (draft-ietf-httpapi-idempotency-key-header-07, section 2.5).
//!
//! 1. It holds what callers can see anyway by calling, and what they need to retry rightly: what is guarded, where the
//!    key stands, how requests are compared, how long answers are kept, what each refusal means.
//! 2. It never says how the gateway is built: no address of a service, no store, no file, no name of the service, no
//!    lease. [`PUBLIC`] and [`PRIVATE`] say of each setting which it is; a new one is private until somebody decides.
//! 3. A host's page holds the routes of that host and those of every host. Which other hosts there are is not said.

use http::Method;
use semel_http::{Principal, TABLE};
use serde::Serialize;
use serde_json::Value;

use crate::config::{Config, Contract, Effective, KeyPolicy};

mod html;
#[cfg(test)]
mod tests;

/// The settings that callers see, with their names for people.
pub const PUBLIC: [(&str, &str); 23] = [
    ("match", "Paths"),
    (CALLER, "Whose key it is"),
    ("methods", "Guarded methods"),
    ("key", "Key"),
    ("key_aliases", "Other headers for the key"),
    ("key_field", "The key in the body"),
    ("derive", "A missing key is made of"),
    ("key_syntax", "How the key is written"),
    ("ulid", "ULIDs have an age"),
    ("fingerprint", "Requests are compared"),
    ("ignore", "Left out when they are compared"),
    ("body_bytes_max", "Largest request body"),
    ("kept_bytes_max", "Largest answer kept"),
    ("keep_no_body", "Only the head of an answer is kept"),
    ("redact", "Left out of the kept answer"),
    ("kept", "Statuses kept, beside 2xx, 3xx and other 4xx"),
    ("released", "Statuses after which the key may be tried again"),
    ("unknown", "Statuses that prove nothing, beside other 5xx"),
    ("in_flight_status", "Status of in-flight"),
    ("mismatch_status", "Status of key-reused"),
    ("wait_max", "Longest Prefer: wait"),
    ("replay_for", "An answer is replayed for"),
    ("remember_for", "A key is remembered for"),
];

/// By what a caller is known. No setting of its own: `principal` names headers that only proxies write.
const CALLER: &str = "caller";

/// The settings that only operators see.
#[cfg(test)]
pub const PRIVATE: &[&str] = &[
    "principal",
    "auth_check",
    "host",
    "upstream",
    "upstream_http",
    "upstream_ca",
    "preset",
    "critical",
    "on_unknown",
    "observe",
    "store_down",
    "attempts_max",
    "lease",
    "upstream_timeout",
    "late_answer_for",
    "probe",
    "probe_keep",
    "probe_release",
    "probe_token_file",
    "probe_after",
    "probe_within",
];

/// Above the routes.
const ORDER: &str = "The first route holds whose path matches as it is written and that guards the method. What a route \
    does not say is as for everything else.";

/// The policy of one host.
#[derive(Debug, Clone, Serialize)]
pub struct Policy {
    /// The draft that it keeps.
    pub draft: &'static str,
    pub key: KeyText,
    /// In the order in which they are asked.
    pub routes: Vec<PublicRoute>,
    /// For what matches no route as written.
    pub otherwise: PublicRoute,
    pub refusals: Vec<Refusal>,
    pub replays: Vec<String>,
    pub retrying: Vec<String>,
    pub limits: Vec<String>,
}

/// What holds for the requests of a route.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct PublicRoute(pub Effective);

/// What a key is, everywhere.
#[derive(Debug, Clone, Serialize)]
pub struct KeyText {
    pub header: &'static str,
    pub bytes_max: usize,
    pub text: String,
}

/// A row of the table of refusals.
#[derive(Debug, Clone, Serialize)]
pub struct Refusal {
    pub code: &'static str,
    pub status: u16,
    pub retryable: bool,
    pub effect: semel_http::Effect,
    pub title: &'static str,
}

impl Policy {
    /// The policy of a host, `None` for those that no route names.
    pub fn new(config: &Config, host: Option<&str>) -> Policy {
        let same = |own: &str| host.is_some_and(|host| host.eq_ignore_ascii_case(own));
        let routes = config.routes.iter().filter(|route| route.host.as_deref().is_none_or(same));
        let routes: Vec<_> = routes.collect();
        let contracts: Vec<_> =
            routes.iter().map(|route| &route.contract).chain([&config.otherwise]).collect();
        Policy {
            draft: "draft-ietf-httpapi-idempotency-key-header-07",
            key: KeyText { header: "Idempotency-Key", bytes_max: semel::Key::BYTES_MAX, text: key_text() },
            routes: routes.iter().map(|route| public(&route.contract, route.effective())).collect(),
            otherwise: public(&config.otherwise, config.otherwise.effective()),
            refusals: refusals(),
            replays: replays(),
            retrying: retrying(),
            limits: limits(&contracts),
        }
    }

    /// For whoever reads it in a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("Idempotency policy\n\n{}\n", self.key.text);
        text += &format!("\n{ORDER}\n");
        for (name, rows) in self.tables() {
            text += &format!("\n{name}\n");
            for (name, value) in rows {
                text += &format!("  {name}: {value}\n");
            }
        }
        for (title, lines) in self.sections() {
            text += &format!("\n{title}\n");
            text.extend(lines.iter().map(|line| format!("- {line}\n")));
        }
        text += "\nRefusals\n";
        for refusal in &self.refusals {
            let retry = if refusal.retryable { "retry with the same key" } else { "final" };
            let Refusal { code, status, title, .. } = refusal;
            text += &format!("  {status} {code:<20} {retry:<24} effect {:<8} {title}\n", refusal.effect());
        }
        text
    }

    /// For browsers.
    pub fn html(&self) -> String {
        html::page(self)
    }

    /// Each route with its settings, for people. Of a route those that differ from everything else's, and the two that
    /// are asked for first.
    fn tables(&self) -> impl Iterator<Item = (&str, Vec<(&'static str, String)>)> {
        let differs = |route: &PublicRoute, name: &str| {
            ["methods", "key"].contains(&name) || route.0.get(name) != self.otherwise.0.get(name)
        };
        let routes =
            self.routes.iter().map(move |route| (route.name(), route.rows(|name| differs(route, name))));
        routes.chain([(self.otherwise.name(), self.otherwise.rows(|_| true))])
    }

    fn sections(&self) -> [(&'static str, &[String]); 3] {
        [
            ("What is replayed", &self.replays),
            ("How to retry", &self.retrying),
            ("Where the guarantees end", &self.limits),
        ]
    }
}

impl PublicRoute {
    /// Its paths, for people.
    pub fn name(&self) -> &str {
        self.0.get("match").and_then(Value::as_str).unwrap_or("Everything else")
    }

    fn rows(&self, shown: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let shown = PUBLIC.iter().filter(|(name, _)| *name != "match" && shown(name));
        shown.filter_map(|(name, title)| Some((*title, words(name, self.0.get(*name)?)))).collect()
    }
}

impl Refusal {
    pub fn effect(&self) -> &'static str {
        match self.effect {
            semel_http::Effect::None => "none",
            semel_http::Effect::Done => "done",
            semel_http::Effect::Unknown => "unknown",
        }
    }
}

/// A value for people.
fn words(name: &str, value: &Value) -> String {
    match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) => {
            values.iter().map(|value| explained(name, plain(value))).collect::<Vec<_>>().join(", ")
        }
        value => explained(name, plain(value)),
    }
}

fn explained(name: &str, text: String) -> String {
    let explained = match (name, text.as_str()) {
        ("wait_max", "0s") => "none: a retry is told at once",
        ("key", "optional") => "optional; a request without one is not guarded",
        ("key", "required") => "required; a request without one is refused",
        ("key", "derive") => "optional; without one it is made of fields of the request",
        ("key", "generate") => {
            "optional; a request without one is on record, and its retry is another operation"
        }
        ("key", "natural") => "none is needed, and none is looked at: repeating a request changes nothing",
        ("key_syntax", "lenient") => "in quotes, or bare",
        ("key_syntax", "strict") => "in quotes",
        ("fingerprint", "exact") => "byte for byte",
        ("fingerprint", "json") => "JSON by what it says",
        ("fingerprint", "multipart") => "multipart by its parts",
        _ => return text,
    };
    explained.to_owned()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn public(contract: &Contract, effective: Effective) -> PublicRoute {
    let public = effective.into_iter().filter(|(name, _)| PUBLIC.iter().any(|(public, _)| public == name));
    PublicRoute(public.chain([(CALLER, Value::String(caller(contract)))]).collect())
}

/// Within what a key is unique.
fn caller(contract: &Contract) -> String {
    let kinds = contract.callers.principals.iter().map(|principal| match principal {
        Principal::Jwt { claim } => format!("the {claim} of a token"),
        Principal::Header(_) => "the account that a proxy in front knows".to_owned(),
        Principal::ClientCertificate => "the client certificate".to_owned(),
        _ => "the Authorization header".to_owned(),
    });
    let kinds = kinds.collect::<Vec<_>>().join(", or else ");
    let none = if contract.callers.required { "refused" } else { "all the same one" };
    format!("the caller's, known by {kinds}; callers without are {none}")
}

fn refusals() -> Vec<Refusal> {
    let rows = TABLE.iter().map(|row| Refusal {
        code: row.word,
        status: row.status.as_u16(),
        retryable: row.retryable,
        effect: row.effect,
        title: row.title,
    });
    rows.collect()
}

fn key_text() -> String {
    format!(
        "A key is the caller's name for one operation: Idempotency-Key: \"order-77\", 1 to {} bytes. It belongs to one \
         request: method, host, path, query, content type and body.",
        semel::Key::BYTES_MAX
    )
}

fn replays() -> Vec<String> {
    [
        "A retry of a completed request gets the stored status, headers and body, and Idempotent-Replayed: true. \
         Nothing runs.",
        "Not replayed: Set-Cookie, authentication challenges, headers about the connection, tracing and rate limits. \
         Date is fresh.",
        "Not kept are answers that say that nothing took effect, such as 401 or 429: the same key may be tried again.",
        "An answer over the size limit reaches its first caller; a retry gets response-not-kept with the first status, \
         and nothing runs again.",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn retrying() -> Vec<String> {
    [
        "Keep the key, and send the same request, byte for byte. Wait as Retry-After says, and longer each time.",
        "retryable says whether the same request may succeed later, effect what the operation has done as far as is \
         known: none, done or unknown. A new key is safe only where the effect is none.",
        "After a connection that broke or a timeout, retry with the same key. A new one may do it twice.",
        "A key with much randomness in it, a UUID say, is nobody else's.",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn limits(contracts: &[&Contract]) -> Vec<String> {
    let any = |fits: &dyn Fn(&Contract) -> bool| contracts.iter().any(|contract| fits(contract));
    let mut limits = Vec::new();
    let mut say = |holds: bool, limit: &str| limits.extend(holds.then(|| limit.to_owned()));
    say(
        any(&|contract| contract.observe),
        "Some requests are only counted in a trial: nothing is kept of them yet.",
    );
    say(
        any(&|contract| contract.key == KeyPolicy::Optional),
        "Where the key is optional, a request without one may take effect as often as it arrives.",
    );
    say(
        any(&|contract| contract.callers.principals.contains(&Principal::Authorization)),
        "A key is the caller's own by its credentials. Credentials that change between a request and its retry make \
         another operation of it.",
    );
    say(
        any(&|contract| contract.statuses.released.iter().any(http::StatusCode::is_server_error)),
        "An answer 500 or 503 is taken to mean that nothing took effect, and its key may be tried again.",
    );
    say(
        any(&|contract| contract.policy.on_unknown == semel::OnUnknown::Rerun),
        "On some routes what may or may not have taken effect is run again by a retry: at least once there, not at \
         most once.",
    );
    say(
        any(&|contract| contract.policy.on_unknown != semel::OnUnknown::Rerun),
        "What may or may not have taken effect is refused with outcome-unknown until it is known.",
    );
    say(
        any(&|contract| contract.policy.remember_for != semel::FOREVER),
        "After the time that a key is remembered for, it is new again.",
    );
    say(
        any(&|contract| !contract.methods.contains(&Method::PUT)),
        "A method that is not listed for its path passes by, with a key too, and so does gRPC.",
    );
    limits
}
