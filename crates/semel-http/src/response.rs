//! What an answer leaves behind and how it goes out: H8, H11, H12, H13.
//!
//! 1. An answer that is final is read up to the kept size inside the run, and becomes the outcome. The engine
//!    settles before it hands the answer over, so a key is completed before the first byte goes out.
//! 2. One that is longer, or an event stream, completes its key without a body, and still reaches the first
//!    caller, streamed: what was read, then the rest. A client that stops reading changes nothing.
//! 3. One that breaks off while it is read is unknown: it may have been going to say anything.
//! 4. A released one is not kept, so it is not read either, and streams through unchanged.
//! 5. Of an unknown one nothing goes out: its caller is told that the outcome is unknown, and what the status was.
//! 6. Fresh and replayed answers leave by the same door, [`whole`], which makes the framing anew: `Content-Length`
//!    from the bytes, none with 204 and 304, no body with those, with 205 and for HEAD (RFC 9110, sections 8.6
//!    and 15.3.6; case C98). What was announced by somebody else is never repeated.
//! 7. `Date` is the server's: it adds one where there is none, and a replay has none.

use std::pin::Pin;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::response::Parts;
use http::{Method, Response, StatusCode, Version};
use http_body::Body as HttpBody;
use semel::{BoxError, Cause, Outcome, Verdict};

use crate::body::{self, Body, Read};
use crate::coding::{self, Accepts};
use crate::headers::{self, IDEMPOTENT_REPLAYED};
use crate::outcome::{self, Kept};
use crate::problem::{Code, Problem};
use crate::redact::{self, Keeping};
use crate::trace::TraceContext;
use crate::verdict::{self, Meaning, Statuses};

/// What a run gives its caller.
pub(crate) enum Ran {
    /// The application's answer.
    Answer(Response<Body>),
    /// Nobody can tell what happened; the status, if there was one.
    Unsure(Option<StatusCode>),
    /// The request certainly did not get there.
    NotSent,
}

/// What it takes to judge an answer.
pub(crate) struct Judge<'a> {
    pub(crate) statuses: &'a Statuses,
    pub(crate) kept_bytes_max: usize,
    pub(crate) keeping: &'a Keeping,
    pub(crate) method: &'a Method,
    /// Whether the request named the codings that it accepts.
    pub(crate) negotiated: bool,
    /// What the request belongs to.
    pub(crate) trace: Option<&'a TraceContext>,
}

impl Judge<'_> {
    /// What the answer means for its key, and what goes out.
    pub(crate) async fn judge<RB>(&self, response: Response<RB>) -> (Verdict, Ran)
    where
        RB: HttpBody<Data = Bytes> + Send + 'static,
        RB::Error: Into<BoxError>,
    {
        let (mut parts, body) = response.into_parts();
        let meaning = self.statuses.judge(parts.status, &parts.headers);
        headers::remove_hop_by_hop(&mut parts.headers);
        headers::remove_ours(&mut parts.headers);
        parts.version = Version::default();
        match meaning {
            Meaning::Keep => self.keep(parts, Box::pin(body)).await,
            Meaning::Release => {
                let (unbind, cause) = (verdict::unbinds(parts.status), Some(verdict::cause(parts.status)));
                let answer = streamed(parts, Body::resumed(Bytes::new(), Box::pin(body)));
                (Verdict::Release { not_before: None, unbind, cause }, Ran::Answer(answer))
            }
            Meaning::Unknown(cause) => (Verdict::Unknown(cause), Ran::Unsure(Some(parts.status))),
        }
    }

    async fn keep<RB>(&self, parts: Parts, mut body: Pin<Box<RB>>) -> (Verdict, Ran)
    where
        RB: HttpBody<Data = Bytes> + Send + 'static,
        RB::Error: Into<BoxError>,
    {
        let not_kept = *self.keeping == Keeping::Head
            || is_event_stream(&parts.headers)
            || body.size_hint().lower() > self.kept_bytes_max as u64;
        let read = match not_kept {
            true => Ok(Read::Over(Bytes::new())),
            false => body::read(body.as_mut(), self.kept_bytes_max).await,
        };
        match read {
            Ok(Read::Whole(bytes)) => {
                let outcome = whole_outcome(self.keeping, &parts, &bytes, self.negotiated, self.trace);
                (Verdict::Keep(outcome), Ran::Answer(whole(self.method, parts, bytes)))
            }
            Ok(Read::Over(head)) => {
                let outcome = self.outcome(&parts, None);
                (Verdict::Keep(outcome), Ran::Answer(streamed(parts, Body::resumed(head, body))))
            }
            Err(error) => {
                tracing::warn!(%error, "the answer broke off");
                (Verdict::Unknown(Cause::CUT), Ran::Unsure(Some(parts.status)))
            }
        }
    }

    fn outcome(&self, parts: &Parts, body: Option<&[u8]>) -> Outcome {
        outcome::encode(parts.status, headers::kept(&parts.headers), body, self.negotiated, self.trace)
    }
}

/// What is kept of an answer that is here whole.
fn whole_outcome(
    keeping: &Keeping,
    parts: &Parts,
    bytes: &Bytes,
    negotiated: bool,
    trace: Option<&TraceContext>,
) -> Outcome {
    match keeping {
        Keeping::Whole => {
            outcome::encode(parts.status, headers::kept(&parts.headers), Some(bytes), negotiated, trace)
        }
        Keeping::Head => {
            outcome::encode(parts.status, headers::kept(&parts.headers), None, negotiated, trace)
        }
        Keeping::Without(pointers) => {
            let mut headers = parts.headers.clone();
            let kept = redact::without(pointers, &mut headers, bytes);
            outcome::encode(parts.status, headers::kept(&headers), kept.as_deref(), negotiated, trace)
        }
    }
}

impl Keeping {
    /// What is kept of an answer that was asked for in another way, by a probe, say: as of one that a run had.
    #[must_use]
    pub fn outcome(&self, mut head: Parts, body: &Bytes) -> Outcome {
        headers::remove_hop_by_hop(&mut head.headers);
        headers::remove_ours(&mut head.headers);
        whole_outcome(self, &head, body, true, None)
    }
}

/// The kept answer again, for a retry; or why there is none.
pub(crate) fn replayed(kept: Kept, method: &Method, accepts: Accepts) -> Result<Response<Body>, Problem> {
    let Kept { status, mut headers, body, negotiated, .. } = kept;
    let Some(body) = body else {
        let detail =
            "The operation was done. Its answer was too long to be kept, or is not kept on this route.";
        let location = headers.remove(header::LOCATION);
        return Err(Problem::new(Code::ResponseNotKept, detail).original(status, location));
    };
    let body = coding::fit(&mut headers, body, accepts, negotiated);
    headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    let (mut parts, ()) = Response::new(()).into_parts();
    (parts.status, parts.headers) = (status, headers);
    Ok(whole(method, parts, body))
}

/// What an outcome holds; or what a retry is told.
pub(crate) fn kept(outcome: &Outcome) -> Result<Kept, Problem> {
    Kept::decode(outcome).map_err(|error| {
        tracing::error!(%error, "a kept outcome cannot be read");
        Problem::new(
            Code::ResponseNotKept,
            "The operation was done. What was kept of its answer cannot be read.",
        )
    })
}

/// The door for an answer that is here whole.
pub(crate) fn whole(method: &Method, mut parts: Parts, bytes: Bytes) -> Response<Body> {
    let length = match parts.status {
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => None,
        StatusCode::RESET_CONTENT => Some(0),
        _ => Some(bytes.len()),
    };
    let bodiless = length.is_none_or(|length| length == 0) || method == Method::HEAD;
    match length {
        // What HEAD announces is the length that GET would have, which only the application knows.
        _ if method == Method::HEAD => {}
        Some(length) => drop(parts.headers.insert(header::CONTENT_LENGTH, length.into())),
        None => drop(parts.headers.remove(header::CONTENT_LENGTH)),
    }
    Response::from_parts(parts, if bodiless { Body::empty() } else { bytes.into() })
}

/// The door for an answer that streams: its own `Content-Length`, if it has one, holds for what passes.
fn streamed(parts: Parts, body: Body) -> Response<Body> {
    Response::from_parts(parts, body)
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENT_STREAM: &[u8] = b"text/event-stream";
    let head = headers.get(header::CONTENT_TYPE).and_then(|value| value.as_bytes().get(..EVENT_STREAM.len()));
    head.is_some_and(|head| head.eq_ignore_ascii_case(EVENT_STREAM))
}
