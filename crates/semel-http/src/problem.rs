//! Every refusal, in one table: H9 and H10.
//!
//! 1. A refusal is `application/problem+json` (RFC 9457) with `type` `urn:semel:problem:CODE`, `title`, `status`,
//!    `detail`, and three members for programs: `code`, `retryable` and `effect`.
//! 2. `retryable`: the same request with the same key may succeed later. A refusal never asks for a new key.
//! 3. `effect`: what the operation of this key has done, as far as it is known here. A new key is safe only with
//!    `none`. `unknown` is also the effect where nothing ran just now but an earlier attempt may have: with the
//!    store down, nobody can tell.
//! 4. `Link` with `rel="describedby"` leads to the published policy, which the draft demands
//!    (draft-ietf-httpapi-idempotency-key-header-07, section 2.5).
//! 5. Two refusals are not the contract's but HTTP's own: a body that was not whole in time (408) and one that
//!    broke off (400). They have `type` `about:blank` (RFC 9457, section 4.2.1) and no `code`.
//! 6. `error` says it once more, for clients that look for that member alone. Stripe's SDK for Node takes every JSON
//!    object without it for the charge that was asked for, whatever the status is (`_jsonResponseHandler`).

use std::borrow::Cow;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use crate::body::Body;
use crate::headers::SEMEL_ORIGINAL_STATUS;

/// What a refusal is. The words are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The route asks for a key, and there is none.
    KeyMissing,
    /// There is a key header, and no key can be read from it.
    KeyMalformed,
    /// The key belongs to another request.
    KeyReused,
    /// Another attempt runs.
    InFlight,
    /// An attempt may or may not have taken effect.
    OutcomeUnknown,
    /// It was done so long ago that the answer is gone.
    KeyExpired,
    /// It was done, and its answer was not kept.
    ResponseNotKept,
    /// The request's body is over the limit.
    BodyTooLarge,
    /// The store does not answer.
    StoreUnavailable,
    /// The request certainly did not reach the upstream.
    UpstreamUnreachable,
    /// The upstream's answer takes longer than the caller may wait.
    UpstreamTimeout,
    /// Tried as often as is allowed.
    AttemptsExhausted,
    /// Too many open claims or new keys in this scope.
    TooManyClaims,
}

/// What an operation has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Nothing.
    None,
    /// It took effect.
    Done,
    /// Nobody can tell from here.
    Unknown,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// What it is about.
    pub code: Code,
    /// The code as a word.
    pub word: &'static str,
    /// The status, unless the settings choose another.
    pub status: StatusCode,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// What the operation has done.
    pub effect: Effect,
    /// When to come back, unless the refusal knows it better; `None`: it does not say.
    pub retry_after: Option<Duration>,
    /// The status for the caller whose own attempt it was, where that is told apart (H9).
    pub own_status: Option<StatusCode>,
    /// For people.
    pub title: &'static str,
}

/// When to come back to a store, a gateway or a run that is busy: soon, it answers fast when it can.
const SOON: Duration = Duration::from_secs(1);

/// The table, in the order of [`Code`].
#[rustfmt::skip]
pub const TABLE: [Row; 13] = {
    use Code::*;
    use Effect::*;
    [
        row(KeyMissing,          "key-missing",          400, false, None,    "An Idempotency-Key is required"),
        row(KeyMalformed,        "key-malformed",        400, false, None,    "The Idempotency-Key cannot be read"),
        row(KeyReused,           "key-reused",           422, false, None,    "The key belongs to another request"),
        row(InFlight,            "in-flight",            409, true,  Unknown, "The first request is still running").soon(),
        row(OutcomeUnknown,      "outcome-unknown",      409, true,  Unknown, "Whether the operation took effect is not known").own_status(502),
        row(KeyExpired,          "key-expired",          410, false, Done,    "The operation was done, and its answer is gone"),
        row(ResponseNotKept,     "response-not-kept",    410, false, Done,    "The operation was done, and its answer was not kept"),
        row(BodyTooLarge,        "body-too-large",       413, false, None,    "The body is too large"),
        row(StoreUnavailable,    "store-unavailable",    503, true,  Unknown, "The key cannot be checked now").soon(),
        row(UpstreamUnreachable, "upstream-unreachable", 502, true,  None,    "The request did not reach the service"),
        row(UpstreamTimeout,     "upstream-timeout",     504, true,  Unknown, "The service has not answered yet"),
        row(AttemptsExhausted,   "attempts-exhausted",   409, false, Unknown, "The operation was given up"),
        row(TooManyClaims,       "too-many-claims",      429, true,  Unknown, "Too many operations are open").soon(),
    ]
};

const fn row(
    code: Code,
    word: &'static str,
    status: u16,
    retryable: bool,
    effect: Effect,
    title: &'static str,
) -> Row {
    Row {
        code,
        word,
        status: status_of(status),
        retryable,
        effect,
        retry_after: None,
        own_status: None,
        title,
    }
}

impl Row {
    const fn soon(self) -> Row {
        Row { retry_after: Some(SOON), ..self }
    }

    const fn own_status(self, status: u16) -> Row {
        Row { own_status: Some(status_of(status)), ..self }
    }
}

const fn status_of(number: u16) -> StatusCode {
    let Ok(status) = StatusCode::from_u16(number) else { panic!("the table holds statuses") };
    status
}

impl Code {
    /// Its line of the table.
    #[must_use]
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

/// A refusal on its way to the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Problem {
    code: Option<Code>,
    title: &'static str,
    status: StatusCode,
    detail: Cow<'static, str>,
    retryable: bool,
    effect: Effect,
    retry_after: Option<Duration>,
    original: Option<(StatusCode, Option<HeaderValue>)>,
    upstream: Option<StatusCode>,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: Cow<'static, str>,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    retryable: bool,
    effect: Effect,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_status: Option<u16>,
    error: ErrorMember<'a>,
}

/// As Stripe writes its errors.
#[derive(Serialize)]
struct ErrorMember<'a> {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    message: &'a str,
}

impl Problem {
    /// A refusal as the table has it.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Problem {
        let row = code.row();
        Problem {
            code: Some(code),
            title: row.title,
            status: row.status,
            detail: detail.into(),
            retryable: row.retryable,
            effect: row.effect,
            retry_after: row.retry_after,
            original: None,
            upstream: None,
        }
    }

    /// A refusal of HTTP's own. Nothing ran just now; an earlier attempt may have.
    pub fn of_http(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem {
            code: None,
            title: status.canonical_reason().unwrap_or_default(),
            status,
            detail: detail.into(),
            retryable: true,
            effect: Effect::Unknown,
            retry_after: None,
            original: None,
            upstream: None,
        }
    }

    /// For what is refused however often it comes.
    pub fn final_as_it_is(self) -> Problem {
        Problem { retryable: false, ..self }
    }

    /// For a request without a key: whether to repeat it is not this contract's to say, so it says no.
    pub fn without_key(self) -> Problem {
        Problem { retryable: false, ..self }
    }

    /// For the caller whose own attempt it was: with the table's status for that.
    pub fn own(self) -> Problem {
        let status = self.code.and_then(|code| code.row().own_status).unwrap_or(self.status);
        Problem { status, ..self }
    }

    /// With another status.
    pub fn status(self, status: StatusCode) -> Problem {
        Problem { status, ..self }
    }

    /// With other words for people.
    pub(crate) fn title(self, title: &'static str) -> Problem {
        Problem { title, ..self }
    }

    /// With another effect.
    pub fn effect(self, effect: Effect) -> Problem {
        Problem { effect, ..self }
    }

    /// With `Retry-After`, in whole seconds, rounded up and at least one: zero would be read as "at once".
    pub fn retry_after(self, after: Duration) -> Problem {
        Problem { retry_after: Some(after), ..self }
    }

    /// With the status and the `Location` of the answer that was not kept.
    pub fn original(self, status: StatusCode, location: Option<HeaderValue>) -> Problem {
        Problem { original: Some((status, location)), ..self }
    }

    /// With the status that the upstream answered.
    pub fn upstream(self, upstream: Option<StatusCode>) -> Problem {
        Problem { upstream, ..self }
    }

    /// The answer. `describedby` is the whole `Link` value.
    #[must_use]
    pub fn into_response(self, describedby: &HeaderValue) -> Response<Body> {
        let mut response = Response::new(Body::from(self.document()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::LINK, describedby.clone());
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds(after).into());
        }
        self.head_of_original(headers);
        response
    }

    fn head_of_original(self, headers: &mut HeaderMap) {
        let Some((status, location)) = self.original else { return };
        headers.insert(SEMEL_ORIGINAL_STATUS, status.as_u16().into());
        if let Some(location) = location {
            headers.insert(header::LOCATION, location);
        }
    }

    fn document(&self) -> Vec<u8> {
        let word = self.code.map(|code| code.row().word);
        let location = self.original.as_ref().and_then(|(_, location)| location.as_ref()?.to_str().ok());
        // The detail says why; a title is for all of its code.
        let message = if self.detail.is_empty() { self.title } else { &self.detail };
        let document = Document {
            r#type: match word {
                Some(word) => ["urn:semel:problem:", word].concat().into(),
                None => "about:blank".into(),
            },
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            code: word,
            retryable: self.retryable,
            effect: self.effect,
            original_status: self.original.as_ref().map(|(status, _)| status.as_u16()),
            location,
            upstream_status: self.upstream.map(|status| status.as_u16()),
            error: ErrorMember { r#type: "idempotency_error", code: word, message },
        };
        // Strings, numbers and booleans: there is nothing in it that could fail to be written.
        serde_json::to_vec(&document).unwrap_or_default()
    }
}

/// Whole seconds, rounded up, at least one.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn link() -> HeaderValue {
        HeaderValue::from_static("</policy>; rel=\"describedby\"")
    }

    async fn document(problem: Problem) -> serde_json::Value {
        let body = problem.into_response(&link()).into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn every_code_has_its_own_line() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.code as usize, at);
            assert_eq!(row.code.row(), row);
        }
    }

    #[test]
    fn h10_only_these_are_final_and_only_these_invite_a_new_key() {
        let words = |fits: fn(&Row) -> bool| TABLE.iter().filter(move |row| fits(row)).map(|row| row.word);
        assert!(words(|row| !row.retryable).eq([
            "key-missing",
            "key-malformed",
            "key-reused",
            "key-expired",
            "response-not-kept",
            "body-too-large",
            "attempts-exhausted",
        ]));
        assert!(words(|row| row.effect == Effect::None).eq([
            "key-missing",
            "key-malformed",
            "key-reused",
            "body-too-large",
            "upstream-unreachable",
        ]));
        assert!(words(|row| row.effect == Effect::Done).eq(["key-expired", "response-not-kept"]));
    }

    #[test]
    fn whoever_comes_back_is_told_when_and_whose_own_run_it_was_is_told_by_a_502() {
        let words = |fits: fn(&Row) -> bool| TABLE.iter().filter(move |row| fits(row)).map(|row| row.word);
        assert!(words(|row| row.retry_after.is_some()).eq([
            "in-flight",
            "store-unavailable",
            "too-many-claims"
        ]));
        assert!(words(|row| row.own_status.is_some()).eq(["outcome-unknown"]));
        for row in &TABLE {
            assert!(row.retryable || row.retry_after.is_none(), "{}", row.word);
            let response = Problem::new(row.code, "").own().into_response(&link());
            assert_eq!(response.status(), row.own_status.unwrap_or(row.status));
            assert_eq!(response.headers().contains_key("retry-after"), row.retry_after.is_some());
        }
    }

    #[tokio::test]
    async fn a_problem_reads_as_rfc_9457_has_it() {
        let problem = Problem::new(Code::InFlight, "Ask again.").retry_after(Duration::from_millis(1001));
        let response = problem.clone().into_response(&link());
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["link"], link());
        assert_eq!(response.headers()["retry-after"], "2");
        assert_eq!(
            document(problem).await,
            serde_json::json!({
                "type": "urn:semel:problem:in-flight",
                "title": "The first request is still running",
                "status": 409,
                "detail": "Ask again.",
                "code": "in-flight",
                "retryable": true,
                "effect": "unknown",
                "error": {
                    "type": "idempotency_error",
                    "code": "in-flight",
                    "message": "Ask again.",
                },
            })
        );
    }

    #[tokio::test]
    async fn the_original_stands_in_head_and_body() {
        let location = HeaderValue::from_static("/exports/7");
        let problem = Problem::new(Code::ResponseNotKept, "").original(StatusCode::CREATED, Some(location));
        let response = problem.clone().into_response(&link());
        assert_eq!(response.headers()["semel-original-status"], "201");
        assert_eq!(response.headers()["location"], "/exports/7");
        let document = document(problem).await;
        assert_eq!(document["original_status"], 201);
        assert_eq!(document["location"], "/exports/7");
    }

    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        for (millis, whole) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (29_999, 30)] {
            assert_eq!(seconds(Duration::from_millis(millis)), whole);
        }
    }
}
