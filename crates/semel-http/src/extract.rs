//! What a handler may ask of its request: the operation's key, and which attempt at it this is.
//!
//! 1. Both stand in the extensions of a request that runs under a lease, and of no other: not where the method is not
//!    guarded, not where an optional key is missing, not in observe mode, and not while a route bypasses a store that
//!    is away. Whoever finds them knows that this run is the only one.
//! 2. Nobody outside can put them there: extensions do not travel.
//! 3. [`IdempotencyKey`] is the key in clear, also where the store is given an HMAC of it.
//! 4. [`Attempt::fence`] rises with every claim of the key, so a system that compares it can refuse a late attempt
//!    that somebody has overtaken. [`Attempt::number`] counts the runs, from 1.
//! 5. A handler that cannot do without them, on a request that has none, is a mistake in how the routes are set up:
//!    [`NotGuarded`] is answered with 500 and says so. `Option` is for a handler that can.
//!
//! With the feature `axum` the two are extractors of axum 0.8. Everybody else calls [`IdempotencyKey::of`] and
//! [`Attempt::of`] with the extensions of a request or of its parts. The whole [`Lease`] stands there too.

use std::fmt;

use http::Extensions;
use semel::{Fence, Key, Lease};

/// The key of the operation that a request is: the client's, or the one that the route made for it.
///
/// `Debug` shows a digest, since a key may be a secret.
///
/// ```
/// use semel_http::{Body, IdempotencyKey};
///
/// /// Hands the key on to a bank that understands it.
/// fn for_the_bank(request: &http::Request<Body>) -> Option<String> {
///     IdempotencyKey::of(request.extensions()).map(|key| key.as_str().to_owned())
/// }
/// # assert_eq!(for_the_bank(&http::Request::new(Body::empty())), None);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct IdempotencyKey(pub(crate) Key);

/// Which attempt at its operation a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Rises with every claim of the key, and is never given twice.
    pub fence: Fence,
    /// Attempts so far, this one included, from 1.
    pub number: u32,
}

/// The handler needs a request that runs under a lease, and this one does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "This handler needs a request that Semel guards, and this one is not guarded. Put SemelLayer around its route, \
     guard its method, and require a key; or let the handler take an Option."
)]
#[non_exhaustive]
pub struct NotGuarded;

impl IdempotencyKey {
    /// The key of a request that runs under a lease.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<&IdempotencyKey> {
        extensions.get()
    }

    /// The key in clear. Not for logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The same, checked as it is.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({})", self.0.digest())
    }
}

impl Attempt {
    /// The attempt that a request is, if it runs under a lease.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Attempt> {
        extensions.get::<Lease>().map(|lease| Attempt { fence: lease.fence, number: lease.attempts })
    }
}

#[cfg(feature = "axum")]
mod axum {
    use std::convert::Infallible;

    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use axum_core::response::{IntoResponse, Response};
    use http::StatusCode;
    use http::request::Parts;

    use super::{Attempt, IdempotencyKey, NotGuarded};

    impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
        type Rejection = NotGuarded;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IdempotencyKey, NotGuarded> {
            IdempotencyKey::of(&parts.extensions).cloned().ok_or(NotGuarded)
        }
    }

    impl<S: Send + Sync> OptionalFromRequestParts<S> for IdempotencyKey {
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<IdempotencyKey>, Infallible> {
            Ok(IdempotencyKey::of(&parts.extensions).cloned())
        }
    }

    impl<S: Send + Sync> FromRequestParts<S> for Attempt {
        type Rejection = NotGuarded;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Attempt, NotGuarded> {
            Attempt::of(&parts.extensions).ok_or(NotGuarded)
        }
    }

    impl<S: Send + Sync> OptionalFromRequestParts<S> for Attempt {
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Attempt>, Infallible> {
            Ok(Attempt::of(&parts.extensions))
        }
    }

    impl IntoResponse for NotGuarded {
        /// 500: the caller cannot help it.
        fn into_response(self) -> Response {
            tracing::error!("{self}");
            (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
        }
    }
}
