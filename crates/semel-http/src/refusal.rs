//! What is refused before the engine is asked: a key that is missing or unreadable, a body that is not taken.

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode, Version};

use crate::body::{Body, Untaken};
use crate::key::Malformed;
use crate::problem::{Code, Problem};
use crate::request;
use crate::scope::NoScope;
use crate::settings::Settings;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is no key")]
    KeyMissing,
    #[error("{0}")]
    KeyMalformed(Malformed),
    #[error("{0}")]
    Body(Untaken),
    #[error("{0}")]
    NoScope(NoScope),
}

impl Refusal {
    /// Whether the rest of the body is to be read. A client that sends too slowly, or no longer, has no rest.
    pub(crate) fn drains(&self) -> bool {
        !matches!(self, Refusal::Body(Untaken::TooSlow | Untaken::Broken(_)))
    }

    /// The answer. `reusable`: nothing of the request is left on the connection.
    pub(crate) fn respond(self, settings: &Settings, parts: &Parts, reusable: bool) -> Response<Body> {
        self.log(parts);
        let mut response = self.problem().into_response(&settings.describedby);
        if let Refusal::NoScope(NoScope::Nobody { bearer: true }) = self {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // HTTP/2 resets the stream instead, and forbids the header (RFC 9113, section 8.2.2).
        if !reusable && parts.version < Version::HTTP_2 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn problem(&self) -> Problem {
        match self {
            Refusal::KeyMissing => Problem::new(
                Code::KeyMissing,
                "Send a key of your own with each operation, and the same one with each retry.",
            ),
            Refusal::KeyMalformed(reason) => Problem::new(Code::KeyMalformed, reason.to_string()),
            Refusal::Body(Untaken::TooLarge) => {
                Problem::new(Code::BodyTooLarge, "The body is longer than a guarded request may be.")
            }
            Refusal::Body(Untaken::TooSlow) => {
                Problem::of_http(StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time.")
            }
            Refusal::Body(Untaken::Broken(_)) => {
                Problem::of_http(StatusCode::BAD_REQUEST, "The body broke off.")
            }
            Refusal::NoScope(reason) => no_scope(reason),
        }
    }

    fn log(&self, parts: &Parts) {
        let result = match self {
            Refusal::KeyMissing => "key_missing",
            Refusal::KeyMalformed(_) => "key_malformed",
            Refusal::Body(Untaken::TooLarge) => "body_too_large",
            Refusal::Body(Untaken::TooSlow) => "body_too_slow",
            Refusal::Body(Untaken::Broken(_)) => "body_broken",
            Refusal::NoScope(_) => "no_scope",
        };
        let label = request::label(&parts.method, &parts.uri);
        tracing::info!(target: "semel::decision", result, label = label.as_str(), reason = %self);
    }
}

fn no_scope(reason: &NoScope) -> Problem {
    match reason {
        NoScope::Nobody { .. } => {
            Problem::of_http(StatusCode::UNAUTHORIZED, "The request does not say who calls.")
        }
        NoScope::Twice(_) => {
            Problem::of_http(StatusCode::BAD_REQUEST, "The request says more than once who calls.")
        }
        NoScope::NoPeer(_) => Problem::of_http(
            StatusCode::INTERNAL_SERVER_ERROR,
            "It is not known here where the request came from.",
        ),
        NoScope::Text(_) => Problem::new(Code::StoreUnavailable, "The key cannot be looked up."),
    }
}
