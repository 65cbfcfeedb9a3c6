//! Asking, before a key is looked up, whether the caller is still allowed: H7.
//!
//! 1. The question is a GET of the URL that the configuration fixes. It carries the caller's headers, and
//!    `X-Original-Method` and `X-Original-URI`, made here. What is about another message is taken off: the key,
//!    `Semel-*`, `Content-*`, `Expect`, conditions, ranges and preferences, and what belongs to one connection.
//! 2. 2xx: go on. 401 and 403 are passed on: status, `WWW-Authenticate`, and the body up to 64 KiB with its type; a longer
//!    one is left out. Anything else, and no answer within five seconds: 503, never let by.
//! 3. Every guarded request with a key is asked about, retries too: what was allowed a moment ago need not be now.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use semel_http::{AuthCheck, Body, Problem, remove_hop_by_hop};
use tokio::time::timeout;

use super::page::POLICY_LINK;
use super::place::Place;
use super::upstream::Arriving;

const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// How long an answer may take, its body included.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The largest body that is passed on.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// When a caller may come back about whom nothing could be learned.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What is passed on of a 401 or 403, beside its body.
const PASSED_ON: [HeaderName; 4] =
    [header::WWW_AUTHENTICATE, header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE];

/// Whom a route asks.
#[derive(Debug)]
pub struct Asked {
    place: Place,
    /// The headers that carry the key.
    key_names: Vec<HeaderName>,
}

impl Asked {
    pub fn new(place: Place, key_names: Vec<HeaderName>) -> Asked {
        Asked { place, key_names }
    }

    fn question(&self, parts: &Parts) -> Request<Body> {
        let mut question = self.place.question();
        let host = std::mem::replace(question.headers_mut(), parts.headers.clone()).remove(header::HOST);
        let headers = question.headers_mut();
        remove_hop_by_hop(headers);
        for name in about_another_message(headers) {
            headers.remove(name);
        }
        for name in &self.key_names {
            headers.remove(name);
        }
        let original = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let ours = [
            (header::HOST, host),
            (ORIGINAL_METHOD, HeaderValue::from_str(parts.method.as_str()).ok()),
            (ORIGINAL_URI, HeaderValue::from_str(original).ok()),
        ];
        // Instead of the caller's own, wherever it sent some.
        for (name, value) in ours {
            match value {
                Some(value) => headers.insert(name, value),
                None => headers.remove(name),
            };
        }
        question
    }

    async fn answered(&self, parts: &Parts) -> Result<(), Response<Body>> {
        let answer = self.place.ask(|| self.question(parts)).await.map_err(|error| unanswered(&error))?;
        match answer.status() {
            status if status.is_success() => {
                // Read to its end, so that the connection can be used again; what it says does not matter.
                let _ = whole(answer.into_body()).await;
                Ok(())
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(passed_on(answer).await),
            status => Err(unanswered(&format_args!("it answered {status}"))),
        }
    }
}

#[async_trait]
impl AuthCheck for Asked {
    async fn check(&self, parts: &Parts) -> Result<(), Response<Body>> {
        match timeout(ANSWER_MAX, self.answered(parts)).await {
            Ok(answered) => answered,
            Err(_) => Err(unanswered(&format_args!("no answer within {ANSWER_MAX:?}"))),
        }
    }
}

fn about_another_message(headers: &HeaderMap) -> Vec<HeaderName> {
    const OTHERS: [&str; 3] = ["expect", "range", "prefer"];
    const PREFIXES: [&str; 3] = ["content-", "if-", "semel-"];
    let is = |name: &&HeaderName| {
        OTHERS.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
    };
    headers.keys().filter(is).cloned().collect()
}

async fn passed_on(answer: Response<Arriving>) -> Response<Body> {
    let (head, body) = answer.into_parts();
    let body = whole(body).await;
    let mut passed = Response::new(Body::empty());
    *passed.status_mut() = head.status;
    let names = PASSED_ON.iter().filter(|name| body.is_some() || **name == header::WWW_AUTHENTICATE);
    for name in names {
        for value in head.headers.get_all(name) {
            passed.headers_mut().append(name, value.clone());
        }
    }
    *passed.body_mut() = body.map(Body::from).unwrap_or_default();
    passed
}

/// The body, unless it is too long or breaks off.
async fn whole(body: Arriving) -> Option<Bytes> {
    Limited::new(body, BODY_BYTES_MAX).collect().await.ok().map(http_body_util::Collected::to_bytes)
}

fn unanswered(reason: &dyn std::fmt::Display) -> Response<Body> {
    tracing::warn!(%reason, "whether a caller is allowed cannot be learned");
    Problem::of_http(StatusCode::SERVICE_UNAVAILABLE, "Whether you are allowed cannot be learned now.")
        .retry_after(RETRY_AFTER)
        .into_response(&HeaderValue::from_static(POLICY_LINK))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(request: http::request::Builder) -> Request<Body> {
        let location = "http://auth.internal:9000/check?of=shop".parse().unwrap();
        let place = Place::new(&location, None, Duration::from_secs(1)).unwrap();
        let asked = Asked::new(place, vec![semel_http::IDEMPOTENCY_KEY, HeaderName::from_static("x-key")]);
        asked.question(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn h7_the_question_is_the_callers_head_without_what_is_about_its_message() {
        let question = question(
            Request::post("/charges/7?x=1")
                .header("host", "shop.example")
                .header("authorization", "Bearer t")
                .header("cookie", "a=1")
                .header("cookie", "b=2")
                .header("accept", "text/html")
                .header("x-forwarded-for", "192.0.2.1")
                .header("idempotency-key", "k")
                .header("x-key", "k")
                .header("semel-fence", "9")
                .header("content-type", "text/plain")
                .header("content-length", "7")
                .header("expect", "100-continue")
                .header("if-none-match", "\"1\"")
                .header("range", "bytes=0-0")
                .header("prefer", "wait=10")
                .header("connection", "x-one")
                .header("x-one", "1")
                .header("transfer-encoding", "chunked"),
        );
        assert_eq!(
            (question.method().as_str(), question.uri().to_string().as_str()),
            ("GET", "/check?of=shop")
        );
        let mut lines: Vec<_> = question
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "accept: text/html",
                "authorization: Bearer t",
                "cookie: a=1",
                "cookie: b=2",
                "host: auth.internal:9000",
                "x-forwarded-for: 192.0.2.1",
                "x-original-method: POST",
                "x-original-uri: /charges/7?x=1",
            ]
        );
    }

    #[test]
    fn h7_no_request_leads_the_question_elsewhere() {
        for target in ["http://evil.example/x", "//evil.example/x", "/..%2f..%2fx", "/@evil.example"] {
            let question = question(
                Request::post(target)
                    .header("host", "evil.example")
                    .header("x-original-uri", "/other")
                    .header("x-original-method", "GET")
                    .header("idempotency-key", "http://evil.example/"),
            );
            assert_eq!(question.uri().to_string(), "/check?of=shop");
            assert_eq!(question.headers()["host"], "auth.internal:9000");
            assert_eq!(question.headers().get_all("x-original-uri").iter().count(), 1);
            assert_eq!(question.headers()["x-original-method"], "POST");
            assert_ne!(question.headers()["x-original-uri"], "/other");
        }
    }
}
