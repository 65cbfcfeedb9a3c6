//! A message as one request, and what the answer means.
//!
//! 1. **POST, once.** The body is the message's, byte for byte, with its content type. Beside it: `Idempotency-Key`,
//!    `Semel-Fence`, `Semel-Attempt`, `Semel-Subject` (routing key), and those of its headers that the configuration names.
//! 2. **`Idempotency-Key` is the message's id** as a structured-field string. An id that HTTP cannot carry, because it is
//!    not ASCII, and one that is unique only beside a source, travels as a hash of both: the same every time.
//! 3. | The service | the message |
//!    |---|---|
//!    | cannot be reached, or says that it processed nothing (HTTP/2) | waits; no attempt |
//!    | answers 2xx | is done |
//!    | answers what is released (H11): 401, 403, 408, 409, 425, 429, 500, 503 … | is tried again, not before `Retry-After` |
//!    | answers anything else below 500, a redirect too | is a dead letter, `rejected` |
//!    | answers 502, 504 or another 5xx, breaks off, or is silent for `timeout` | is unknown |
//!
//!    `Semel-Outcome` in the answer wins over its status: `keep`, `release` or `unknown`.
//! 4. **The head decides.** What the body of a 2xx says is not looked at; of another answer, its first words go into the
//!    log and onto the dead letter.

use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use semel::{Cause, Key};
use semel_http::{IDEMPOTENCY_KEY, Meaning, SEMEL_ATTEMPT, SEMEL_FENCE, Statuses};
use semel_messaging::{Failure, Field, Handler, Work};
use tokio::time::timeout;

use super::config::{Config, RETRY_AFTER_MAX};
use crate::gateway::place::Place;
use crate::gateway::probe::quoted;
use crate::gateway::telemetry::{Class, Timing};
use crate::gateway::upstream::{Arriving, SendError};
use crate::values::Span;

const SUBJECT: HeaderName = HeaderName::from_static("semel-subject");

/// As for the gateway: an older idle connection carries no request.
const IDLE: Duration = Duration::from_secs(1);

/// So much of an answer is read for what it says.
const SAID_BYTES_MAX: usize = 4 * 1024;

/// An answer of which nothing is needed is read so far, and for so long, to use its connection again.
const DRAINED_BYTES_MAX: usize = 64 * 1024;
const BODY_WITHIN: Duration = Duration::from_secs(1);

/// The service that messages are sent to.
#[derive(Debug)]
pub struct Service {
    place: Place,
    authorization: Option<HeaderValue>,
    forwarded: Vec<HeaderName>,
    source: Option<Field>,
    statuses: Statuses,
    within: Duration,
    timing: Timing,
}

impl Service {
    /// # Errors
    ///
    /// One line: the file of authorities cannot be read.
    pub fn new(config: &Config) -> Result<Service, String> {
        Ok(Service {
            place: Place::new(&config.target, config.target_ca.as_deref(), IDLE)?,
            authorization: config.authorization.clone(),
            forwarded: config.headers.clone(),
            source: config.source.clone(),
            statuses: config.statuses.clone(),
            within: config.timeout,
            timing: Timing::new(config.name.as_str().into()),
        })
    }

    fn headers(&self, work: &Work) -> HeaderMap {
        let (message, mut headers) = (&work.message, HeaderMap::new());
        for name in &self.forwarded {
            let value = message.headers.bytes(name.as_str()).map(|value| HeaderValue::from_bytes(value));
            if let Some(Ok(value)) = value {
                headers.insert(name, value);
            }
        }
        let kind = message.content_type.as_deref().and_then(|kind| HeaderValue::from_str(kind).ok());
        headers.insert(
            header::CONTENT_TYPE,
            kind.unwrap_or(HeaderValue::from_static("application/octet-stream")),
        );
        if let Some(subject) =
            HeaderValue::from_str(&message.subject).ok().filter(|_| !message.subject.is_empty())
        {
            headers.insert(SUBJECT, subject);
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        let source = self.source.as_ref().and_then(|field| field.of(message));
        headers.extend(named(source.as_deref(), &work.key));
        headers.insert(SEMEL_FENCE, work.fence.0.into());
        headers.insert(SEMEL_ATTEMPT, work.attempt.into());
        headers
    }

    async fn heard(&self, response: Response<Arriving>) -> Result<(), Failure> {
        let (head, body) = response.into_parts();
        match self.statuses.judge(head.status, &head.headers) {
            Meaning::Keep if head.status.is_success() => {
                let _ = timeout(BODY_WITHIN, Limited::new(body, DRAINED_BYTES_MAX).collect()).await;
                Ok(())
            }
            Meaning::Keep => Err(Failure::permanent(words(head.status, body).await)),
            Meaning::Release => Err(match retry_after(&head.headers, SystemTime::now()) {
                Some(after) => Failure::transient_for(after, words(head.status, body).await),
                None => Failure::transient(words(head.status, body).await),
            }),
            Meaning::Unknown(cause) => Err(Failure::unknown_by(cause, words(head.status, body).await)),
        }
    }
}

#[async_trait]
impl Handler for Service {
    async fn handle(&self, work: Work) -> Result<(), Failure> {
        let begun = Instant::now();
        let asked =
            timeout(self.within, self.place.tell(self.headers(&work), work.message.body.clone())).await;
        let class = match &asked {
            Ok(Ok(response)) => Class::Status(response.status()),
            Ok(Err(SendError::NotSent { .. } | SendError::Refused { .. })) => Class::NotSent,
            Ok(Err(SendError::Cut(_))) => Class::Cut,
            Err(_) => Class::Late,
        };
        self.timing.ended(class, begun.elapsed());
        match asked {
            Ok(Ok(response)) => self.heard(response).await,
            Ok(Err(error @ SendError::Cut(_))) => Err(Failure::unknown_by(Cause::CUT, error)),
            Ok(Err(error)) => Err(Failure::not_run(error)),
            Err(_) => {
                let said = format!("no answer within {}", Span(self.within));
                Err(Failure::unknown_by(Cause::TIMEOUT, said))
            }
        }
    }
}

/// How a message is called towards the service.
pub fn named(source: Option<&str>, key: &Key) -> Option<(HeaderName, HeaderValue)> {
    let plain = source.is_none().then(|| quoted(key.as_str())).flatten();
    let value = plain.or_else(|| {
        let parts = source.into_iter().chain([key.as_str()]).map(str::as_bytes);
        quoted(Key::derived(parts).as_str())
    });
    Some((IDEMPOTENCY_KEY, value?))
}

/// How long the service asks to be left alone (RFC 9110 §10.2.3): seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let after = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(after.min(RETRY_AFTER_MAX))
}

/// The status, and the first words of the answer where they are text.
async fn words(status: StatusCode, body: Arriving) -> String {
    let read = timeout(BODY_WITHIN, Limited::new(body, SAID_BYTES_MAX).collect()).await;
    let body = match read {
        Ok(Ok(body)) => body.to_bytes(),
        // Too long, or broken off: the status says enough.
        _ => return status.to_string(),
    };
    match said_in(&body) {
        Some(text) if !text.is_empty() => format!("{status}: {text}"),
        _ => status.to_string(),
    }
}

/// A problem's own words (RFC 9457), a member that usually has them, or all of the text.
fn said_in(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let Ok(serde_json::Value::Object(members)) = serde_json::from_str(text) else {
        return Some(text.to_owned());
    };
    let member = ["detail", "message", "error", "title"].iter().find_map(|name| members.get(*name)?.as_str());
    Some(member.unwrap_or(text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(source: Option<&str>, id: &str) -> String {
        named(source, &Key::new(id).unwrap()).unwrap().1.to_str().unwrap().to_owned()
    }

    #[test]
    fn m11_the_id_travels_as_it_is_where_http_can_carry_it() {
        assert_eq!(key(None, "order-7"), "\"order-7\"");
        assert_eq!(key(None, "a\"b"), "\"a\\\"b\"");
        let (one, other) = (key(None, "Bestellung-ä"), key(None, "Bestellung-ö"));
        assert!(one != other && one.is_ascii() && one == key(None, "Bestellung-ä"));
        assert_ne!(key(Some("shop"), "7"), key(Some("depot"), "7"), "ids of two producers are two keys");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
        let after = |text: &'static str| {
            let headers = [(header::RETRY_AFTER, HeaderValue::from_static(text))].into_iter().collect();
            retry_after(&headers, now)
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:40 GMT"), Some(Duration::from_secs(3)));
        assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(after("99999999"), Some(RETRY_AFTER_MAX));
        assert_eq!((after("soon"), after("-1"), after("")), (None, None, None));
    }

    #[test]
    fn an_answer_says_its_own_words() {
        assert_eq!(said_in(br#"{"title":"Bad","detail":"no such account"}"#).unwrap(), "no such account");
        assert_eq!(said_in(b" no such account\n").unwrap(), "no such account");
        assert_eq!(said_in(b"[1]").unwrap(), "[1]");
        assert_eq!(said_in(b"\xff"), None);
    }
}
