//! The parts of a token: a head that says how it is signed, and claims.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::Unverified::{self, Invalid};

/// How a signature is made (RFC 7518, section 3.1; RFC 8037, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Ed25519,
}

impl Algorithm {
    /// By its registered name. `Ed25519` is EdDSA with its curve said (RFC 9864).
    pub(super) fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "EdDSA" | "Ed25519" => Algorithm::Ed25519,
            _ => return None,
        })
    }
}

/// A token whose signature is not looked at yet.
pub(super) struct Token<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
    /// What is signed: head and claims as they came.
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
    claims: &'a str,
}

impl<'a> Token<'a> {
    /// Reads the head. The claims wait until the signature is known to be good.
    pub(super) fn parse(token: &'a str) -> Result<Token<'a>, Unverified> {
        const UNREADABLE: Unverified = Invalid("The token cannot be read.");
        let (signed, signature) = token.rsplit_once('.').ok_or(UNREADABLE)?;
        let (head, claims) = signed.split_once('.').ok_or(UNREADABLE)?;
        let head = Members::decode(head).ok_or(UNREADABLE)?;
        if head.0.contains_key("crit") {
            return Err(Invalid("The token has an extension that is not known here."));
        }
        let algorithm = head.0.get("alg").and_then(Value::as_str).and_then(Algorithm::named);
        let kid = match head.0.get("kid") {
            None => None,
            Some(Value::String(kid)) => Some(kid.clone()),
            Some(_) => return Err(UNREADABLE),
        };
        Ok(Token {
            algorithm: algorithm.ok_or(Invalid("The token is signed in a way that is not taken here."))?,
            kid,
            signed: signed.as_bytes(),
            signature: decode(signature).ok_or(UNREADABLE)?,
            claims,
        })
    }

    pub(super) fn claims(&self) -> Result<Claims, Unverified> {
        Members::decode(self.claims).map(Claims).ok_or(Invalid("The token's claims cannot be read."))
    }
}

/// What a token says. Believed only after its signature was verified.
#[derive(Debug)]
pub(crate) struct Claims(Members);

impl Claims {
    /// Kind and text of a claim that names somebody: `s` for a string, `n` for a whole number.
    pub(crate) fn naming(&self, claim: &str) -> Option<(&'static str, String)> {
        match self.0.0.get(claim)? {
            Value::String(text) if !text.is_empty() => Some(("s", text.clone())),
            // Others have no text that every issuer would write alike, and beyond 64 bits two would look the same.
            Value::Number(number) if number.is_i64() || number.is_u64() => Some(("n", number.to_string())),
            _ => None,
        }
    }

    pub(crate) fn issuer(&self) -> Option<&str> {
        self.0.0.get("iss")?.as_str()
    }

    /// Whether one of the audiences is named: `aud` is a string, or an array of strings (RFC 7519, section 4.1.3).
    pub(super) fn is_for(&self, audiences: &[String]) -> bool {
        let is = |value: &Value| value.as_str().is_some_and(|name| audiences.iter().any(|one| one == name));
        match self.0.0.get("aud") {
            Some(Value::Array(named)) => named.iter().all(Value::is_string) && named.iter().any(is),
            Some(value) => is(value),
            None => false,
        }
    }

    /// A time in seconds since 1970, whole or not. In any other form it is refused, never passed over.
    pub(super) fn time(&self, name: &str) -> Result<Option<f64>, Unverified> {
        match self.0.0.get(name) {
            None => Ok(None),
            Some(Value::Number(time)) => Ok(time.as_f64().filter(|time| time.is_finite())),
            Some(_) => Err(Invalid("A time in the token is no number.")),
        }
    }
}

/// A JSON object, no member of which stands twice.
#[derive(Debug)]
pub(super) struct Members(pub(super) BTreeMap<String, Value>);

impl Members {
    fn decode(part: &str) -> Option<Members> {
        serde_json::from_slice(&decode(part)?).ok()
    }
}

/// base64url without padding, and without bits that mean nothing (RFC 7515, section 2; RFC 4648, section 3.5).
pub(super) fn decode(part: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(part).ok()
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members, M::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    if members.insert(name, value).is_some() {
                        return Err(de::Error::custom("a member stands twice"));
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Once)
    }
}
