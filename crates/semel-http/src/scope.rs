//! Within what a key is unique: H5.
//!
//! 1. The scope is `http:SERVICE:` and the first principal of a list that the request **has**:
//!    `jwt-CLAIM-DIGEST`, `header-NAME-DIGEST`, `certificate-DIGEST` or `authorization-DIGEST`; else `anonymous`,
//!    or the request is refused where a principal is required. What is secret reaches the store only as SHA-256.
//! 2. What a request has must not be open to doubt. Two lines of a header that is a principal are refused (400), and
//!    so is a JWT that is not valid (401): it never falls through to the next entry, nor to `anonymous`.
//! 3. A header counts only when a trusted proxy sent it. From anybody else it is taken off every request, on whatever
//!    route and guarded or not, since the service behind would believe it. Where the request's [`Peer`] is not known, nobody can say which
//!    of the two it is, and a guarded request with such a header is refused (500): the layer was set up without it.
//! 4. An empty header names nobody: it is as if it were not there.
//! 5. With a `jwt:` entry in the list, an `Authorization` that makes no principal is refused (401) instead of being
//!    `anonymous`: whoever verifies tokens does not expect two holders of other credentials to share a scope.
//! 6. Never an address: addresses are shared, and they change between an attempt and its retry.
//! 7. `Authorization` is hashed as sent, every line with its length before it, so that no two lists look alike. A
//!    token that rotates makes a retry another operation: that is the price of not verifying it here.
//! 8. Two kinds never collide. The word before the first `-` is the kind, the last 64 digits are the digest, and the
//!    digest covers kind and name, each part with its length. What stands between is for people: the first 40 bytes
//!    of the name, other characters than letters, digits, `.`, `_` and `-` written as `_`.
//! 9. What is only observed (H18) has the surface `observe` in the place of `http`: a scope of its own, which no guarded
//!    request ever has.
//!
//! Scopes are stored, so how they are made never changes. Two tenants with the same key are two operations (case
//! C58), and neither sees the other's answers.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::request::Parts;
use semel::{KeyError, Scope};
use sha2::{Digest, Sha256};

use crate::jwt::{Claims, Unverified, Verifier};
use crate::peer::{ClientCertificate, Peer};
use crate::principal::Principal;
use crate::settings::Options;

mod believed;
mod proxies;
mod refused;

pub(crate) use believed::Believed;
pub use proxies::{Network, NetworkError, TrustedProxies};
pub(crate) use refused::NoScope;

/// How much of a claim's or a header's name is shown.
const NAME_SHOWN: usize = 40;

/// Room beside the service's name: `observe:`, `:header-`, the name, `-` and 64 digits.
const BESIDE_SERVICE: usize = 8 + 8 + NAME_SHOWN + 1 + 64;

/// The scopes of one service.
#[derive(Debug, Clone)]
pub(crate) struct Scopes {
    /// `http:SERVICE:`, or `observe:SERVICE:`
    prefix: String,
    anonymous: Scope,
    principals: Vec<Principal>,
    required: bool,
    trusted_proxies: TrustedProxies,
    verifier: Option<Verifier>,
}

impl Scopes {
    /// The longest service name, in bytes.
    pub(crate) const SERVICE_BYTES_MAX: usize = Scope::BYTES_MAX - BESIDE_SERVICE;

    /// The scopes of checked options.
    pub(crate) fn new(options: &Options) -> Result<Scopes, KeyError> {
        let service = &options.service;
        if service.is_empty() {
            return Err(KeyError::Empty);
        }
        if service.len() > Scopes::SERVICE_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: service.len(), max: Scopes::SERVICE_BYTES_MAX });
        }
        let surface = if options.observe { "observe" } else { "http" };
        let prefix = format!("{surface}:{service}:");
        let anonymous = Scope::new(format!("{prefix}anonymous"))?;
        Ok(Scopes {
            prefix,
            anonymous,
            principals: options.principals.clone(),
            required: options.principal_required,
            trusted_proxies: options.trusted_proxies.clone(),
            verifier: options.jwt.clone(),
        })
    }

    /// The scope of a request.
    pub(crate) fn of(&self, parts: &Parts) -> Result<Scope, NoScope> {
        let mut verified = None;
        for principal in &self.principals {
            let found = match principal {
                Principal::Authorization => authorization(&parts.headers),
                Principal::ClientCertificate => certificate(parts),
                Principal::Header(name) => self.header(name, parts)?,
                Principal::Jwt { claim } => self.jwt(claim, &parts.headers, &mut verified)?,
            };
            if let Some(found) = found {
                return Ok(Scope::new([&*self.prefix, &found].concat())?);
            }
        }
        let bearer = self.principals.iter().any(|principal| matches!(principal, Principal::Jwt { .. }));
        let unnamed = bearer && parts.headers.contains_key(AUTHORIZATION);
        if self.required || unnamed { Err(NoScope::Nobody { bearer }) } else { Ok(self.anonymous.clone()) }
    }

    /// The token is verified once, whatever number of its claims are asked for.
    fn jwt(
        &self,
        claim: &str,
        headers: &HeaderMap,
        verified: &mut Option<Option<Claims>>,
    ) -> Result<Option<String>, Unverified> {
        let claims = match verified {
            Some(claims) => claims,
            None => {
                let verifier = self.verifier.as_ref().ok_or(Unverified::NoKeys)?;
                verified.insert(verifier.claims(headers)?)
            }
        };
        let naming = claims.as_ref().and_then(|claims| Some((claims.issuer()?, claims.naming(claim)?)));
        Ok(naming.map(|(issuer, (kind, value))| {
            let rest = [issuer, kind, &value].map(str::as_bytes);
            suffix("jwt-", claim, &digest(["jwt", claim].map(str::as_bytes), &rest))
        }))
    }

    fn header(&self, name: &HeaderName, parts: &Parts) -> Result<Option<String>, NoScope> {
        let mut lines = parts.headers.get_all(name).iter();
        let Some(value) = lines.next() else { return Ok(None) };
        match parts.extensions.get() {
            None => return Err(NoScope::NoPeer(name.clone())),
            Some(Peer(address)) if !self.trusted_proxies.contains(*address) => return Ok(None),
            Some(_) => {}
        }
        if lines.next().is_some() {
            return Err(NoScope::Twice(name.clone()));
        }
        let named = !value.as_bytes().trim_ascii().is_empty();
        let digest =
            || digest(["header", name.as_str()].map(str::as_bytes), &[value.as_bytes().trim_ascii()]);
        Ok(named.then(|| suffix("header-", name.as_str(), &digest())))
    }
}

fn authorization(headers: &HeaderMap) -> Option<String> {
    let mut lines = headers.get_all(AUTHORIZATION).iter().peekable();
    lines.peek()?;
    let hashed = lines.map(HeaderValue::as_bytes).fold(Sha256::new(), with_length);
    Some(suffix("authorization", "", &hashed.finalize().into()))
}

fn certificate(parts: &Parts) -> Option<String> {
    let ClientCertificate(digest) = parts.extensions.get()?;
    Some(suffix("certificate", "", digest))
}

/// Kind, name and what it says, each with its length before it.
fn digest(head: [&[u8]; 2], rest: &[&[u8]]) -> [u8; 32] {
    head.iter().chain(rest).copied().fold(Sha256::new(), with_length).finalize().into()
}

fn with_length(hasher: Sha256, part: &[u8]) -> Sha256 {
    hasher.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
}

/// `KIND` with the name, a `-` and 64 hexadecimal digits.
fn suffix(kind: &str, name: &str, digest: &[u8; 32]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let mut suffix = String::with_capacity(kind.len() + NAME_SHOWN + 1 + 64);
    suffix.push_str(kind);
    suffix.extend(name.bytes().take(NAME_SHOWN).map(|byte| if plain(byte) { char::from(byte) } else { '_' }));
    suffix.push('-');
    for byte in digest {
        suffix.push(hexadecimal(byte >> 4));
        suffix.push(hexadecimal(byte & 15));
    }
    suffix
}

fn hexadecimal(digit: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(digit)])
}

#[cfg(test)]
mod tests;
