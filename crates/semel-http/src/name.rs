//! Which key a request has: H1 and H4.
//!
//! 1. A key in a header comes first. Where the route says that the key stands in a field of the body too, it is read
//!    there as well, and two keys that differ are refused, never chosen between.
//! 2. Without one, the route decides: the request passes by (`optional`), is refused (`required`), gets a key that is
//!    made of its own fields (`derive`), or a random one (`generate`).
//! 3. A derived key is made of all the declared fields. One that is missing is refused: two operations that lack it
//!    would share a key. It says nothing about the rest of the request, which the fingerprint does.
//! 4. A generated key puts the request on record and guards against nothing: a retry gets another one. Caller and
//!    service are told which, in `Idempotency-Key`.
//! 5. What the store is given can be an HMAC of the key instead of the key itself: then nobody who reads the store
//!    learns a key. The service still gets the key as it came.

use std::fmt;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use semel::{AttemptId, Entropy, Key};
use sha2::Sha256;

use crate::field::Field;
use crate::key::{self, Malformed};
use crate::refusal::Refusal;
use crate::settings::{KeyPolicy, Settings};

/// How a request is named.
#[derive(Debug)]
pub(crate) enum Named {
    /// The caller named it, or its fields do.
    Key(Key),
    /// Nobody did, and the route wants it on record.
    Generated(Key),
    /// It has no key and needs none.
    Unguarded,
}

/// A secret under which keys are stored as HMAC-SHA-256 (RFC 2104).
#[derive(Clone)]
pub struct KeySecret(Hmac<Sha256>);

impl KeySecret {
    /// The shortest secret, in bytes.
    pub const BYTES_MIN: usize = 16;

    /// A secret; `None` if it is shorter than [`KeySecret::BYTES_MIN`].
    #[must_use]
    pub fn new(secret: &[u8]) -> Option<KeySecret> {
        let long_enough = secret.len() >= KeySecret::BYTES_MIN;
        Hmac::new_from_slice(secret).ok().filter(|_| long_enough).map(KeySecret)
    }

    /// What stands in the store for a key: `hmac-` and 64 hexadecimal digits. The same key in two scopes has the same
    /// one.
    #[must_use]
    pub fn stored(&self, key: &Key) -> Key {
        let code = self.0.clone().chain_update(key.as_str()).finalize().into_bytes();
        let digits: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        Key::new(["hmac-", &digits].concat()).unwrap_or_else(|_| unreachable!("it is short and plain"))
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret")
    }
}

/// The key in the head, if there is one.
pub(crate) fn in_head(settings: &Settings, parts: &Parts) -> Result<Option<Key>, Refusal> {
    let options = &settings.options;
    key::read(&parts.headers, &options.key_names, options.key_syntax).map_err(Refusal::KeyMalformed)
}

/// Whether a request without a key in its head is known to have none, before its body is read.
pub(crate) fn passes_by(settings: &Settings) -> bool {
    settings.options.key_field.is_none() && matches!(settings.options.key, KeyPolicy::Optional)
}

/// As [`passes_by`], for a request that is refused without one.
pub(crate) fn is_refused(settings: &Settings) -> bool {
    settings.options.key_field.is_none() && matches!(settings.options.key, KeyPolicy::Required)
}

/// The name of a request that is here whole.
pub(crate) fn of(
    settings: &Settings,
    parts: &Parts,
    body: &Bytes,
    in_head: Option<Key>,
) -> Result<Named, Refusal> {
    let find = |field: &Field| {
        let found = field.find(parts, body, settings.options.pattern.variables(parts.uri.path()));
        found.map_err(|error| Refusal::Field(field.clone(), error))
    };
    let in_body = match &settings.options.key_field {
        Some(field) => {
            find(field)?.map(|text| key::checked(&text)).transpose().map_err(Refusal::KeyMalformed)?
        }
        None => None,
    };
    match (in_head, in_body) {
        (Some(one), Some(other)) if one != other => Err(Refusal::KeyMalformed(Malformed::Differs)),
        (Some(key), _) | (None, Some(key)) => Ok(Named::Key(key)),
        (None, None) => match &settings.options.key {
            KeyPolicy::Optional | KeyPolicy::Natural => Ok(Named::Unguarded),
            KeyPolicy::Required => Err(match &settings.options.key_field {
                Some(field) => Refusal::KeyFieldMissing(field.clone()),
                None => Refusal::KeyMissing,
            }),
            KeyPolicy::Derive(fields) => derived(fields, find).map(Named::Key),
            KeyPolicy::Generate => Ok(Named::Generated(random(&settings.entropy))),
        },
    }
}

fn derived(
    fields: &[Field],
    find: impl Fn(&Field) -> Result<Option<String>, Refusal>,
) -> Result<Key, Refusal> {
    let part = |field: &Field| find(field)?.ok_or_else(|| Refusal::FieldMissing(field.clone()));
    let parts = fields.iter().map(part).collect::<Result<Vec<_>, _>>()?;
    Ok(Key::derived(parts))
}

/// 128 random bits.
fn random(entropy: &Entropy) -> Key {
    let digits: String = AttemptId::random(entropy).0.iter().map(|byte| format!("{byte:02x}")).collect();
    Key::new(["generated-", &digits].concat()).unwrap_or_else(|_| unreachable!("it is short and plain"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_stored_as_its_hmac_for_ever_alike() {
        let secret = KeySecret::new(b"a secret of 20 bytes").unwrap();
        let stored = secret.stored(&Key::new("order-77").unwrap());
        assert_eq!(stored.as_str().len(), 5 + 64);
        assert_eq!(stored, secret.stored(&Key::new("order-77").unwrap()));
        assert_ne!(stored, secret.stored(&Key::new("order-78").unwrap()));
        let other = KeySecret::new(b"another one of 20 by").unwrap();
        assert_ne!(stored, other.stored(&Key::new("order-77").unwrap()));
        assert!(KeySecret::new(b"too short").is_none());
        assert!(!format!("{secret:?}").contains("secret of"));
    }
}
