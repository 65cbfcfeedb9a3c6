//! Asking the service whether an operation took effect: G5.
//!
//! 1. The question is a GET of a template that the configuration fixes, `/charges?key={key}` at the route's own
//!    upstream or `http://ledger:9000/charges/{key}` at another one. A variable stands for the key, or for a segment of
//!    the operation's path; never in the host.
//! 2. Whatever a variable holds is percent-encoded, all but letters, digits, `-`, `_`, `~` and `.` (RFC 3986, section
//!    2.3). Where a path's segment would become `.` or `..`, nothing is asked: it would lead elsewhere.
//! 3. `Semel-Outcome: keep` or `release` in the answer settles, else the statuses that the route names. Anything else,
//!    a redirect, an answer that is too long or breaks off, and no answer, mean that nobody can tell yet.
//! 4. What settles as kept is the answer to the question, its status and its body: a retry gets that.
//! 5. It is asked under a fence of its own, which it carries in `Semel-Fence`: a service that compares fences can refuse
//!    the attempt that is asked about, should it still be on its way.
//!
//! A key says nothing about its scope: a service that has the same key of two callers must be asked with something of
//! the path beside.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Limited};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use semel::{BoxError, Engine, Entry, Policy, Probe, Probed, Probing};
use semel_http::{Body, IDEMPOTENCY_KEY, Keeping, Pattern, SEMEL_FENCE, SEMEL_OUTCOME};

use super::forward::Connectors;
use super::upstream::Connections;
use crate::config::{Config, Contract, Piece, ProbeConfig, RouteConfig, Template};

/// What need not be encoded (RFC 3986, section 2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b'.');

/// How often what is open is looked through, also right after the start: as often as something may fall due, within
/// these bounds.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(250);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(5);

/// Records looked at in one go.
const PAGE: u32 = 100;

/// The question of a route.
#[derive(Debug)]
pub struct Question {
    config: ProbeConfig,
    /// Of the operations that it is asked about.
    pattern: Pattern,
    /// Where it is asked.
    host: HeaderValue,
    connections: Connections,
    /// What is kept of the answer.
    keeping: Keeping,
    kept_bytes_max: usize,
}

/// All routes in their order, and what matches none, each with its question if it has one.
#[derive(Debug, Default)]
pub struct Questions(Vec<(RouteConfig, Option<Arc<Question>>)>);

impl Questions {
    /// One for each route that has a probe.
    pub fn new(config: &Config, connectors: &Connectors) -> Questions {
        let everything =
            RouteConfig { pattern: Pattern::any(), host: None, contract: config.otherwise.clone() };
        let routes = config.routes.iter().cloned().chain([everything]);
        let question = |route: &RouteConfig| Question::new(route, config, connectors).map(Arc::new);
        Questions(
            routes
                .map(|route| (question(&route), route))
                .map(|(question, route)| (route, question))
                .collect(),
        )
    }

    /// The question of a route.
    pub fn of(&self, host: Option<&str>, pattern: &Pattern, contract: &Contract) -> Option<Arc<dyn Probe>> {
        let is_it = |route: &RouteConfig| {
            route.pattern == *pattern
                && route.host.as_deref() == host
                && route.contract.methods == contract.methods
        };
        let (_, question) = self.0.iter().find(|(route, _)| is_it(route))?;
        question.clone().map(|question| question as Arc<dyn Probe>)
    }

    /// Asks about what is open, again and again, from the start on: what an earlier process left behind, too.
    pub async fn ask_for_ever(self, engine: Engine, service: String) {
        let asking = self.0.iter().filter(|(_, question)| question.is_some());
        let Some(soonest) = asking.map(|(route, _)| route.contract.policy.probe_after).min() else { return };
        let look_every = soonest.clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
        let scope = format!("http:{service}:");
        let choose = |entry: &Entry| self.choose(entry, &scope);
        loop {
            let mut after = None;
            loop {
                match engine.probe_unsettled(after.as_ref(), PAGE, choose).await {
                    Ok(asked) => after = asked.next,
                    Err(error) => {
                        tracing::warn!(%error, "what is unknown could not be looked up");
                        break;
                    }
                }
                if after.is_none() {
                    break;
                }
            }
            tokio::time::sleep(look_every).await;
        }
    }

    /// By what the operation's label says: the route that it belonged to is the one that is asked by.
    fn choose(&self, entry: &Entry, scope: &str) -> Option<(Arc<dyn Probe>, Arc<Policy>)> {
        let (method, host, path) = said_by(entry)?;
        if !entry.scope.as_str().starts_with(scope) {
            return None;
        }
        let is_it = |route: &RouteConfig| {
            route.host.as_deref().unwrap_or_default() == host
                && route.pattern.matches(path)
                && route.contract.methods.iter().any(|known| known == method)
        };
        let (route, question) = self.0.iter().find(|(route, _)| is_it(route))?;
        let question = question.clone()? as Arc<dyn Probe>;
        Some((question, route.contract.policy.clone()))
    }
}

/// Method, host and path of an operation, as its label has them: `POST /charges`, `POST pay.example/charges`.
fn said_by(entry: &Entry) -> Option<(&str, &str, &str)> {
    let (method, target) = entry.label.as_str().split_once(' ')?;
    let (host, path) = target.split_at(target.find('/')?);
    Some((method, host, path))
}

impl Question {
    fn new(route: &RouteConfig, config: &Config, connectors: &Connectors) -> Option<Question> {
        let contract = route.contract.of_probe()?;
        let host = contract.upstream.to_string();
        let host = host.split_once("://").map_or(host.as_str(), |(_, host)| host);
        Some(Question {
            config: contract.probe.clone()?,
            pattern: route.pattern.clone(),
            host: HeaderValue::from_str(host).ok()?,
            connections: connectors.connections(&contract, config.upstream_idle),
            keeping: contract.keeping(),
            kept_bytes_max: contract.kept_bytes_max,
        })
    }

    fn request(&self, probing: &Probing) -> Option<Request<Body>> {
        let entry = &probing.entry;
        let (_, _, path) = said_by(entry)?;
        let variable = |name: &str| match name {
            "key" => Some(entry.key.as_str().to_owned()),
            // As the path has it, encoded; it is encoded anew.
            _ => {
                let (_, segment) = self.pattern.variables(path).find(|(other, _)| *other == name)?;
                Some(percent_decode_str(segment).decode_utf8().ok()?.into_owned())
            }
        };
        let target = target(&self.config.template, variable)?;
        let mut request = Request::new(Body::empty());
        (*request.method_mut(), *request.version_mut()) = (Method::GET, Version::HTTP_11);
        *request.uri_mut() = target.parse::<Uri>().ok()?;
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("semel/", env!("CARGO_PKG_VERSION"))),
        );
        headers.insert(SEMEL_FENCE, probing.lease.fence.0.into());
        if let Some(key) = quoted(entry.key.as_str()) {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        if let Some(authorization) = &self.config.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        Some(request)
    }

    async fn answered(&self, request: Request<Body>) -> Result<Probed, BoxError> {
        let (head, body) = self.connections.send(request).await?.into_parts();
        match self.config.judge(head.status, &head.headers) {
            None => Ok(Probed::StillUnknown),
            Some(false) => Ok(Probed::NoEffect),
            Some(true) => {
                let body = Limited::new(body, self.kept_bytes_max).collect().await?.to_bytes();
                let (mut kept, ()) = Response::new(()).into_parts();
                (kept.status, kept.headers) = (head.status, head.headers);
                Ok(Probed::Completed(self.keeping.outcome(kept, &body)))
            }
        }
    }
}

impl ProbeConfig {
    /// Whether it took effect. What the answer says itself wins over its status; what is said twice, or otherwise than
    /// as `keep` or `release`, settles nothing.
    pub fn judge(&self, status: StatusCode, headers: &HeaderMap) -> Option<bool> {
        let mut lines = headers.get_all(SEMEL_OUTCOME).iter();
        match (lines.next(), lines.next()) {
            (None, _) if self.keep.contains(&status) => Some(true),
            (None, _) if self.release.contains(&status) => Some(false),
            (Some(line), None) if line.as_bytes().trim_ascii().eq_ignore_ascii_case(b"keep") => Some(true),
            (Some(line), None) if line.as_bytes().trim_ascii().eq_ignore_ascii_case(b"release") => {
                Some(false)
            }
            _ => None,
        }
    }
}

#[async_trait]
impl Probe for Question {
    async fn ask(&self, probing: &Probing) -> Probed {
        let Some(request) = self.request(probing) else {
            tracing::warn!(key = probing.entry.key.digest(), "no question can be made of this operation");
            return Probed::StillUnknown;
        };
        self.answered(request).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "a probe has no answer");
            Probed::StillUnknown
        })
    }
}

/// The path and query of the question; `None` where a variable is missing, or a segment would lead elsewhere.
pub fn target(template: &Template, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut target = String::new();
    for piece in &template.pieces {
        match piece {
            Piece::Text(text) => target.push_str(text),
            Piece::Variable(name) => target.extend(utf8_percent_encode(&variable(name)?, ENCODED)),
        }
    }
    let path = target.split('?').next().unwrap_or_default();
    path.split('/').all(|segment| !matches!(segment, "." | "..")).then_some(target)
}

/// A key as a structured-field string, where it can be one.
pub fn quoted(key: &str) -> Option<HeaderValue> {
    let escaped = key.replace('\\', "\\\\").replace('"', "\\\"");
    key.is_ascii().then(|| HeaderValue::from_str(&["\"", &escaped, "\""].concat()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(template: &str, key: &str) -> Option<String> {
        target(&template.parse().unwrap(), |name| (name == "key").then(|| key.to_owned()))
    }

    #[test]
    fn g5_a_key_cannot_lead_the_question_elsewhere() {
        assert_eq!(target_of("/c/{key}?x=1", "a-B_9.~").unwrap(), "/c/a-B_9.~?x=1");
        assert_eq!(target_of("/c/{key}", "../admin?a=b#c").unwrap(), "/c/..%2Fadmin%3Fa%3Db%23c");
        assert_eq!(target_of("/c?key={key}", "a&admin=1 +%").unwrap(), "/c?key=a%26admin%3D1%20%2B%25");
        assert_eq!(target_of("/c?key={key}", "@evil.example\r\n").unwrap(), "/c?key=%40evil.example%0D%0A");
        assert_eq!(target_of("/c/{key}", "é").unwrap(), "/c/%C3%A9");
        assert_eq!(target_of("/c/{key}/x", ".."), None);
        assert_eq!(target_of("/c/{key}", "."), None);
        assert_eq!(target_of("/c/.{key}", "."), None);
        assert_eq!(target_of("/c?key={key}", "..").unwrap(), "/c?key=..");
        assert_eq!(target_of("/c/{other}", "k"), None);
    }

    #[test]
    fn a_key_stands_in_quotes() {
        assert_eq!(quoted("a\"b\\c").unwrap(), "\"a\\\"b\\\\c\"");
        assert_eq!(quoted("é"), None);
    }
}
