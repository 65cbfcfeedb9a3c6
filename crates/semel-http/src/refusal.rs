//! What is refused before the engine is asked: a key that is missing or unreadable, a caller who is nobody or may not, a
//! body that is not taken.

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode, Version};

use crate::body::{Body, Untaken};
use crate::field::{Field, FieldError};
use crate::fingerprint::Incomparable;
use crate::headers;
use crate::key::Malformed;
use crate::problem::{Code, Problem};
use crate::request;
use crate::scope::NoScope;
use crate::settings::Settings;
use crate::trace::TraceContext;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is no key")]
    KeyMissing,
    /// Neither in the head, nor in the field where it may stand instead.
    #[error("there is no key, and none in {0}")]
    KeyFieldMissing(Field),
    #[error("{0}")]
    KeyMalformed(Malformed),
    /// The field that the key is made of, or stands in, cannot be read.
    #[error("{0}: {1}")]
    Field(Field, FieldError),
    /// A field that the key is made of is not there.
    #[error("{0} is missing")]
    FieldMissing(Field),
    #[error("{0}")]
    Incomparable(Incomparable),
    #[error("{0}")]
    Body(Untaken),
    #[error("{0}")]
    NoScope(NoScope),
    /// The answer of whoever was asked.
    #[error("the caller may not: {}", .0.status())]
    NotAllowed(Box<Response<Body>>),
}

impl Refusal {
    /// Whether the rest of the body is to be read. A client that sends too slowly, or no longer, has no rest.
    pub(crate) fn drains(&self) -> bool {
        !matches!(self, Refusal::Body(Untaken::TooSlow | Untaken::Broken(_)))
    }

    /// The answer. `reusable`: nothing of the request is left on the connection.
    pub(crate) fn respond(self, settings: &Settings, parts: &Parts, reusable: bool) -> Response<Body> {
        self.log(settings, parts);
        let mut response = match self {
            Refusal::NoScope(reason) => reason.respond(&settings.describedby),
            Refusal::NotAllowed(response) => passed_on(*response),
            Refusal::KeyMissing => Problem::new(
                Code::KeyMissing,
                "Send a key of your own with each operation, and the same one with each retry.",
            )
            .into_response(&settings.describedby),
            Refusal::KeyFieldMissing(field) => {
                let detail =
                    format!("The key is in neither {field} nor a header. Send the same one with each retry.");
                Problem::new(Code::KeyMissing, detail).into_response(&settings.describedby)
            }
            Refusal::KeyMalformed(reason) => {
                Problem::new(Code::KeyMalformed, reason.to_string()).into_response(&settings.describedby)
            }
            Refusal::Field(field, error) => {
                let detail = format!("The key's field {field} cannot be read. {error}");
                Problem::new(Code::KeyMalformed, detail).into_response(&settings.describedby)
            }
            Refusal::FieldMissing(field) => {
                let detail = format!("The key is made of fields, and {field} is missing.");
                Problem::new(Code::KeyMissing, detail).into_response(&settings.describedby)
            }
            Refusal::Incomparable(reason) => Problem::of_http(StatusCode::BAD_REQUEST, reason.to_string())
                .into_response(&settings.describedby),
            Refusal::Body(untaken) => problem_of(&untaken).into_response(&settings.describedby),
        };
        // HTTP/2 resets the stream instead, and forbids the header (RFC 9113, section 8.2.2).
        if !reusable && parts.version < Version::HTTP_2 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The word for it, in the log and in metrics.
    pub(crate) fn result(&self) -> &'static str {
        match self {
            Refusal::KeyMissing | Refusal::KeyFieldMissing(_) | Refusal::FieldMissing(_) => "key_missing",
            Refusal::KeyMalformed(_) | Refusal::Field(..) => "key_malformed",
            Refusal::Incomparable(_) => "incomparable",
            Refusal::Body(Untaken::TooLarge) => "body_too_large",
            Refusal::Body(Untaken::TooSlow) => "body_too_slow",
            Refusal::Body(Untaken::Broken(_)) => "body_broken",
            Refusal::NoScope(_) => "no_scope",
            Refusal::NotAllowed(_) => "not_allowed",
        }
    }

    fn log(&self, settings: &Settings, parts: &Parts) {
        let result = self.result();
        let (surface, route) = (settings.options.surface, settings.route());
        metrics::counter!("semel_refused_total", "result" => result, "surface" => surface, "route" => route)
            .increment(1);
        let label = request::label(settings, &parts.method, &parts.uri);
        let trace = TraceContext::of(&parts.headers);
        tracing::info!(target: "semel::decision", result, label = label.as_str(), reason = %self, trace = trace.as_ref().map(TraceContext::trace_id));
    }
}

fn problem_of(untaken: &Untaken) -> Problem {
    match untaken {
        Untaken::TooLarge => {
            Problem::new(Code::BodyTooLarge, "The body is longer than a guarded request may be.")
        }
        Untaken::TooSlow => Problem::of_http(StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time."),
        Untaken::Broken(_) => Problem::of_http(StatusCode::BAD_REQUEST, "The body broke off."),
    }
}

/// An answer that was made elsewhere, without what belongs to its connection or is ours to say.
fn passed_on(mut response: Response<Body>) -> Response<Body> {
    headers::remove_hop_by_hop(response.headers_mut());
    headers::remove_ours(response.headers_mut());
    response
}
