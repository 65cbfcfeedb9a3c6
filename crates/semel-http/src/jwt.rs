//! Bearer tokens that are verified here (H5): what makes a JWT a principal.
//!
//! 1. A token is the `Authorization` of scheme `Bearer` (RFC 6750) that has three base64url parts (RFC 7515, section
//!    7.1). Anything else is no token, and names nobody here. A token that is not valid is refused: nothing of it is
//!    believed, and nothing else is tried in its place.
//! 2. Keys come from whoever runs this ([`Verifier::use_keys`]), never from a token: `jku`, `jwk`, `x5u` and `x5c`
//!    are ignored, and `kid` only chooses among the keys that are there.
//! 3. The key says which algorithms it may be used with: `alg`, where it has one, else what fits its type and curve.
//!    All of them are asymmetric (RFC 7518, section 3.1; RFC 8037): RS256, RS384, RS512, PS256, PS384, PS512 with at
//!    least 2048 bits, ES256, ES384, EdDSA with Ed25519. There is no `none`, and no secret that a public key could be
//!    taken for (RFC 8725, sections 2.1 and 3.1).
//! 4. A token without `kid` is verified only where a single key fits.
//! 5. `iss` is the configured issuer, and `aud` names one of the configured audiences. `exp` must be there and not be
//!    past, `nbf` must not lie ahead, each by the clock of this machine with [`Verifier::LEEWAY`]. `crit` is refused:
//!    no extension is understood here (RFC 7515, section 4.1.11). `typ` is free. A member that stands twice is refused
//!    in head and claims, since two readers could read two tokens.
//! 6. The principal is issuer, claim and value. So it stays the same when the token is refreshed, and two issuers with
//!    the same `sub` are two principals. A claim counts if it is a string that is not empty, or a whole number; no
//!    claim, and every other one, names nobody.
//! 7. While there are no keys, every token is answered with 503: it can be told neither from a valid nor from a forged
//!    one. For a key that is not here a refresh is asked for ([`Verifier::keys_wanted`]), and the token is refused.
//!
//! A token that was revoked before its `exp` is valid here. Whoever needs the issuer's word for each request asks it:
//! [`AuthCheck`](crate::AuthCheck).

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::sync::Notify;

#[cfg(all(any(test, feature = "fuzzing"), feature = "jwt"))]
pub(crate) mod fuzzing;
mod keys;
#[cfg(feature = "jwt")]
mod signature;
#[cfg(not(feature = "jwt"))]
#[path = "jwt/no_signature.rs"]
mod signature;
mod token;

pub use keys::{KeySet, KeySetError};
pub(crate) use token::Claims;
use token::Token;

/// The longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Verifies Bearer tokens of one issuer. Clones share the keys.
///
/// Verifying needs the feature `jwt`; without it there is no [`KeySet`].
#[derive(Debug, Clone)]
pub struct Verifier(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    issuer: String,
    audiences: Vec<String>,
    /// `None` until there are any.
    keys: RwLock<Option<Arc<KeySet>>>,
    wanted: Notify,
}

/// Why there can be no verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifierError {
    /// Every issuer could name anybody.
    #[error("no issuer is named whose tokens are taken")]
    Issuer,
    /// A token that was made for another service would be taken.
    #[error("no audience is named that a token must be made for")]
    Audience,
}

/// Why a request's token makes no principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unverified {
    #[error("there is more than one Authorization")]
    Twice,
    #[error("the keys of the tokens are not known yet")]
    NoKeys,
    #[error("{0}")]
    Invalid(&'static str),
}

use Unverified::Invalid;

impl Verifier {
    /// By how much this machine's clock and the issuer's may differ.
    pub const LEEWAY: Duration = Duration::from_secs(60);

    /// A verifier without keys yet.
    ///
    /// # Errors
    ///
    /// [`VerifierError`] without an issuer or an audience, and where one of them is empty.
    pub fn new(
        issuer: impl Into<String>,
        audiences: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Verifier, VerifierError> {
        let issuer = issuer.into();
        let audiences: Vec<String> = audiences.into_iter().map(Into::into).collect();
        if issuer.is_empty() {
            return Err(VerifierError::Issuer);
        }
        if audiences.is_empty() || audiences.iter().any(String::is_empty) {
            return Err(VerifierError::Audience);
        }
        Ok(Verifier(Arc::new(Shared { issuer, audiences, keys: RwLock::new(None), wanted: Notify::new() })))
    }

    /// The only issuer whose tokens are taken.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// For whom a token must be made: one of them is enough.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.0.audiences
    }

    /// From now on these are the keys, and no others.
    pub fn use_keys(&self, keys: KeySet) {
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys));
    }

    /// Whether there have been keys yet.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.keys().is_some()
    }

    /// Waits until a token names a key that is not here: it may be a new one, or made up. So whoever fetches keys does
    /// it once in a while however often this returns; one request for keys is remembered while nobody waits.
    ///
    /// Cancel safe.
    pub async fn keys_wanted(&self) {
        self.0.wanted.notified().await;
    }

    fn keys(&self) -> Option<Arc<KeySet>> {
        self.0.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The claims of the request's token; `None` where it has none.
    pub(crate) fn claims(&self, headers: &HeaderMap) -> Result<Option<Claims>, Unverified> {
        match bearer(headers)? {
            Some(token) => self.verified(token, now()).map(Some),
            None => Ok(None),
        }
    }

    fn verified(&self, token: &str, now: f64) -> Result<Claims, Unverified> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Invalid("The token is too long."));
        }
        let token = Token::parse(token)?;
        let keys = self.keys().ok_or(Unverified::NoKeys)?;
        if keys.verify(&token).inspect_err(|missing| self.want(*missing)).is_err() {
            return Err(Invalid("The token is not signed by a key that is known here."));
        }
        let claims = token.claims()?;
        self.check(&claims, now)?;
        Ok(claims)
    }

    fn want(&self, unsigned: keys::Unsigned) {
        if unsigned == keys::Unsigned::NoKey {
            self.0.wanted.notify_one();
        }
    }

    fn check(&self, claims: &Claims, now: f64) -> Result<(), Unverified> {
        let leeway = Verifier::LEEWAY.as_secs_f64();
        if claims.issuer() != Some(&*self.0.issuer) {
            return Err(Invalid("The token is from another issuer."));
        }
        if !claims.is_for(&self.0.audiences) {
            return Err(Invalid("The token is for another audience."));
        }
        let expires = claims.time("exp")?.ok_or(Invalid("The token never expires."))?;
        if now >= expires + leeway {
            return Err(Invalid("The token has expired."));
        }
        if claims.time("nbf")?.is_some_and(|begins| now + leeway < begins) {
            return Err(Invalid("The token is not valid yet."));
        }
        Ok(())
    }
}

/// The request's Bearer token, if it has the shape of a JWT.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Unverified> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (first, more) = (lines.next(), lines.next().is_some());
    // Which of them the service reads is not for us to guess.
    if more {
        return Err(Unverified::Twice);
    }
    let token = first.and_then(|line| line.to_str().ok()).and_then(|line| {
        let (scheme, token) = line.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
    });
    Ok(token.filter(|token| is_compact(token)))
}

/// Three base64url parts (RFC 7515, section 3.1). The last one may be empty: that is how a token without a signature
/// looks, and it is refused as such.
fn is_compact(token: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    token.bytes().filter(|byte| *byte == b'.').count() == 2 && token.bytes().all(plain)
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(all(test, feature = "jwt"))]
pub(crate) mod tests;
