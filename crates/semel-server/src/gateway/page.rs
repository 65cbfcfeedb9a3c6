//! The policy page, to which every refusal links (H10), over HTTP.
//!
//! 1. As JSON, as HTML or as text, as `Accept` asks (RFC 9110, section 12.5.1); text where it does not say, and where
//!    nothing fits: a page that explains a refusal is never refused itself.
//! 2. Made once for each host that has routes of its own, and once for all others. A request has the page of its host.
//! 3. It may be kept for a minute, and asked for again with its `ETag`.

use std::collections::HashMap;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use semel::{Algorithm, Fingerprint};
use semel_http::Body;

use super::policy::Policy;
use crate::config::Config;

/// Where the policy page is, on the address that callers use.
pub const POLICY_PATH: &str = "/.well-known/semel-policy";

/// The `Link` to it.
pub const POLICY_LINK: &str = "</.well-known/semel-policy>; rel=\"describedby\"";

/// The page of each host.
#[derive(Debug)]
pub struct Page {
    /// By host, in lower case.
    hosts: HashMap<String, Forms>,
    otherwise: Forms,
}

/// In the order of preference where `Accept` has none.
type Forms = [Form; 3];

#[derive(Debug)]
struct Form {
    /// What it is, as a range of `Accept` names it.
    kind: &'static str,
    content_type: HeaderValue,
    etag: HeaderValue,
    bytes: Bytes,
}

impl Page {
    pub fn new(config: &Config) -> Page {
        let hosts = config.routes.iter().filter_map(|route| route.host.as_deref());
        let page = |host: &str| (host.to_ascii_lowercase(), forms(&Policy::new(config, Some(host))));
        Page { hosts: hosts.map(page).collect(), otherwise: forms(&Policy::new(config, None)) }
    }

    /// The page, if that is what is asked for.
    pub fn answer(&self, parts: &Parts) -> Option<Response<Body>> {
        if parts.uri.path() != POLICY_PATH || !matches!(parts.method, Method::GET | Method::HEAD) {
            return None;
        }
        let form = accepted(self.of(&parts.headers), &parts.headers);
        let same = parts.headers.get_all(header::IF_NONE_MATCH).iter().any(|line| names(line, &form.etag));
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        headers.insert(header::ETAG, form.etag.clone());
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        if same {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Some(response);
        }
        headers.insert(header::CONTENT_TYPE, form.content_type.clone());
        headers.insert(header::CONTENT_LENGTH, form.bytes.len().into());
        // It stands on the service's own origin: nothing in it may ever run or be taken for something else.
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CONTENT_SECURITY_POLICY, POLICY_OF_THE_PAGE);
        if parts.method == Method::GET {
            *response.body_mut() = Body::from(form.bytes.clone());
        }
        Some(response)
    }

    /// By the host without its port, as routes are matched.
    fn of(&self, headers: &HeaderMap) -> &Forms {
        let line = headers.get(header::HOST).and_then(|line| line.to_str().ok()).unwrap_or_default();
        let host = match line.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => line,
        };
        self.hosts.get(&host.to_ascii_lowercase()).unwrap_or(&self.otherwise)
    }
}

const POLICY_OF_THE_PAGE: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");

fn forms(policy: &Policy) -> Forms {
    let json = serde_json::to_string_pretty(policy).unwrap_or_default();
    [
        Form::new("text/plain", "text/plain; charset=utf-8", policy.text()),
        Form::new("application/json", "application/json", json + "\n"),
        Form::new("text/html", "text/html; charset=utf-8", policy.html()),
    ]
}

impl Form {
    fn new(kind: &'static str, content_type: &'static str, text: String) -> Form {
        let digest = Fingerprint::builder(Algorithm::EXACT).part(text.as_bytes()).finish();
        let tag: String = digest.digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let etag = HeaderValue::from_str(&format!("\"{tag}\"")).unwrap_or(HeaderValue::from_static("\"\""));
        Form { kind, content_type: HeaderValue::from_static(content_type), etag, bytes: text.into() }
    }
}

/// Whether a line of `If-None-Match` names that tag (RFC 9110, section 13.1.2: weakly compared).
fn names(line: &HeaderValue, etag: &HeaderValue) -> bool {
    let mut tags = line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    tags.any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes())
}

/// The form that the caller likes best. Of those that it likes alike the one that it names most closely, then the
/// first.
fn accepted<'a>(forms: &'a Forms, headers: &HeaderMap) -> &'a Form {
    const NAME: HeaderName = header::ACCEPT;
    let lines: Vec<&str> = headers.get_all(NAME).iter().filter_map(|line| line.to_str().ok()).collect();
    let ranges: Vec<(&str, u16)> = lines.iter().flat_map(|line| line.split(',')).map(range).collect();
    let mut best = (&forms[0], (0, 0));
    for form in forms {
        let (family, _) = form.kind.split_once('/').unwrap_or_default();
        let closeness = |range: &str| match range.strip_suffix("/*") {
            _ if range.eq_ignore_ascii_case(form.kind) => 3,
            Some(of) if of.eq_ignore_ascii_case(family) => 2,
            Some("*") => 1,
            _ => 0,
        };
        // The closest range says how much the form is liked, also where that is not at all.
        let closest = ranges.iter().map(|(range, liked)| (closeness(range), *liked)).max();
        let liked = closest.filter(|(close, _)| *close > 0).map_or((0, 0), |(close, liked)| (liked, close));
        if liked.0 > 0 && liked > best.1 {
            best = (form, liked);
        }
    }
    best.0
}

/// `text/html;level=1;q=0.8`, with its weight in thousandths.
fn range(text: &str) -> (&str, u16) {
    let mut parts = text.split(';').map(str::trim);
    let range = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let weight = weight.map_or(Some(1.0), |weight| weight.parse::<f32>().ok());
    let weight = weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(0.0);
    (range, (weight * 1000.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(accept: &[&'static str]) -> &'static str {
        let forms =
            ["text/plain", "application/json", "text/html"].map(|kind| Form::new(kind, kind, String::new()));
        let mut headers = HeaderMap::new();
        for line in accept {
            headers.append(header::ACCEPT, HeaderValue::from_static(line));
        }
        accepted(&forms, &headers).kind
    }

    #[test]
    fn the_form_is_the_one_that_is_liked_best() {
        for (accept, expected) in [
            (&[][..], "text/plain"),
            (&["*/*"], "text/plain"),
            (&["application/json"], "application/json"),
            (&["application/problem+json, application/json"], "application/json"),
            (&["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], "text/html"),
            (&["text/html, */*"], "text/html"),
            (&["text/*"], "text/plain"),
            (&["text/*;q=0.5, application/json;q=0.4"], "text/plain"),
            (&["text/plain;q=0, */*"], "application/json"),
            (&["text/html;q=0.2", "Application/JSON;q=0.3"], "application/json"),
            (&["application/*"], "application/json"),
            (&["image/png"], "text/plain"),
            (&["text/html;q=nonsense, application/json;q=0.1"], "application/json"),
            (&["text/html;q=7"], "text/plain"),
        ] {
            assert_eq!(kind(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn a_tag_is_found_in_a_list() {
        let etag = HeaderValue::from_static("\"ab\"");
        for (line, found) in
            [("\"ab\"", true), ("\"x\", W/\"ab\"", true), ("*", true), ("\"abc\"", false), ("ab", false)]
        {
            assert_eq!(names(&HeaderValue::from_static(line), &etag), found, "{line}");
        }
    }
}
