//! Why a request has no scope, and what its caller is told.
//!
//! These refusals are HTTP's own: they are about who calls, not about the key. Nothing ran just now; an earlier attempt
//! may have, and the same key is to be sent again, with a fresh token say.

use std::time::Duration;

use http::header::{HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use semel::KeyError;

use crate::body::Body;
use crate::jwt::Unverified;
use crate::problem::{Code, Problem};

/// When to come back while the keys of tokens are being fetched.
const KEYS_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a request has no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoScope {
    #[error("nothing in the request says who calls")]
    Nobody {
        /// Whether a Bearer token would say it.
        bearer: bool,
    },
    #[error("there is more than one {0}")]
    Twice(HeaderName),
    #[error(transparent)]
    Unverified(#[from] Unverified),
    #[error("the request has no Peer in its extensions, so it is not known who sent {0}")]
    NoPeer(HeaderName),
    /// The settings have checked what a scope is made of, so this does not happen. Guessing a scope would be
    /// worse than refusing.
    #[error("no scope can be made: {0}")]
    Text(#[from] KeyError),
}

impl NoScope {
    /// The answer. `describedby` is the whole `Link` value.
    pub(crate) fn respond(&self, describedby: &HeaderValue) -> Response<Body> {
        let mut response = self.problem().into_response(describedby);
        if let Some(challenge) = self.challenge() {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    fn problem(&self) -> Problem {
        let (status, detail) = match self {
            NoScope::Nobody { .. } => (StatusCode::UNAUTHORIZED, "The request does not say who calls."),
            NoScope::Twice(_) => (StatusCode::BAD_REQUEST, "The request says more than once who calls."),
            NoScope::Unverified(Unverified::Twice) => {
                (StatusCode::BAD_REQUEST, "The request has more than one Authorization.")
            }
            NoScope::Unverified(Unverified::Invalid(reason)) => (StatusCode::UNAUTHORIZED, *reason),
            NoScope::Unverified(Unverified::NoKeys) => {
                let later = "The token cannot be verified now.";
                return Problem::of_http(StatusCode::SERVICE_UNAVAILABLE, later)
                    .retry_after(KEYS_RETRY_AFTER);
            }
            NoScope::NoPeer(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "It is not known here where the request came from.")
            }
            NoScope::Text(_) => {
                return Problem::new(Code::StoreUnavailable, "The key cannot be looked up.");
            }
        };
        Problem::of_http(status, detail)
    }

    /// `WWW-Authenticate`, where a Bearer token would help (RFC 6750, section 3). Other principals have no scheme.
    fn challenge(&self) -> Option<HeaderValue> {
        match self {
            NoScope::Nobody { bearer: true } => Some(HeaderValue::from_static("Bearer")),
            NoScope::Unverified(Unverified::Invalid(reason)) => {
                let said = format!("Bearer error=\"invalid_token\", error_description=\"{reason}\"");
                HeaderValue::from_str(&said).ok()
            }
            _ => None,
        }
    }
}
