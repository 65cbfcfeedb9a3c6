//! Keys as an issuer publishes them: a JSON Web Key Set (RFC 7517).

use std::str::FromStr;

use serde::Deserialize;

use super::signature::PublicKey;
use super::token::{Algorithm, Token, decode};

/// Public keys that tokens are verified with.
///
/// Read from a JSON Web Key Set. A key that is of no use is passed over (RFC 7517, section 5): another type or curve,
/// `use` other than `sig`, `key_ops` without `verify`, an `alg` that is not taken here, a member that is missing, an RSA
/// key of less than 2048 bits, a secret.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
    passed_over: usize,
}

#[derive(Debug)]
struct Key {
    kid: Option<String>,
    public: PublicKey,
}

/// Why a text is no key set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// It is not the JSON of one.
    #[error("it is no JSON Web Key Set: {0}")]
    Json(#[source] serde_json::Error),
    /// There are more keys than an issuer has.
    #[error("it holds {0} keys; {max} are allowed", max = KeySet::KEYS_MAX)]
    TooMany(usize),
    /// This build cannot verify anything.
    #[error("tokens are verified only in a build with the feature `jwt`")]
    NotBuilt,
}

/// Why a token's signature is not good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsigned {
    /// The key that it names is not here, or the one key that it could mean is another one by now.
    NoKey,
    /// It was not made with the key that it names.
    Forged,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

/// What matters of a JSON Web Key.
#[derive(Debug, Deserialize)]
pub(super) struct Jwk {
    kty: String,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// The most keys that a set may hold.
    pub const KEYS_MAX: usize = 100;

    /// How many of its keys can be used.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether none of its keys can be used: every token is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many of its keys are of no use.
    #[must_use]
    pub fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Whether one of the keys has made the signature: those of the token's `kid`, or the only one that fits.
    pub(super) fn verify(&self, token: &Token<'_>) -> Result<(), Unsigned> {
        let fits =
            |key: &&Key| key.public.takes(token.algorithm) && (token.kid.is_none() || key.kid == token.kid);
        let fitting: Vec<&Key> = self.keys.iter().filter(fits).collect();
        match (&*fitting, &token.kid) {
            ([], _) => Err(Unsigned::NoKey),
            ([_, _, ..], None) => Err(Unsigned::Forged),
            (keys, kid) => {
                let Token { algorithm, signed, signature, .. } = token;
                let good = keys.iter().any(|key| key.public.has_signed(*algorithm, signed, signature));
                let otherwise = if kid.is_none() { Unsigned::NoKey } else { Unsigned::Forged };
                good.then_some(()).ok_or(otherwise)
            }
        }
    }
}

impl FromStr for KeySet {
    type Err = KeySetError;

    fn from_str(text: &str) -> Result<KeySet, KeySetError> {
        if !PublicKey::BUILT {
            return Err(KeySetError::NotBuilt);
        }
        let document: Document = serde_json::from_str(text).map_err(KeySetError::Json)?;
        let all = document.keys.len();
        if all > KeySet::KEYS_MAX {
            return Err(KeySetError::TooMany(all));
        }
        let jwks = document.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        let keys: Vec<Key> = jwks.filter_map(Key::of).collect();
        Ok(KeySet { passed_over: all - keys.len(), keys })
    }
}

impl Key {
    fn of(jwk: Jwk) -> Option<Key> {
        if jwk.r#use.as_deref().is_some_and(|used| used != "sig") {
            return None;
        }
        if jwk.key_ops.as_ref().is_some_and(|ops| !ops.iter().any(|op| op == "verify")) {
            return None;
        }
        let only = match &jwk.alg {
            Some(name) => Some(Algorithm::named(name)?),
            None => None,
        };
        let public = match (&*jwk.kty, jwk.crv.as_deref()) {
            ("RSA", _) => PublicKey::rsa(&part(jwk.n)?, &part(jwk.e)?, only)?,
            ("EC", Some(curve)) => PublicKey::ec(curve, &part(jwk.x)?, &part(jwk.y)?, only)?,
            ("OKP", Some("Ed25519")) => PublicKey::ed25519(&part(jwk.x)?, only)?,
            _ => return None,
        };
        Some(Key { kid: jwk.kid, public })
    }
}

fn part(member: Option<String>) -> Option<Vec<u8>> {
    decode(&member?)
}
