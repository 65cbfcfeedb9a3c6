//! Within what a key is unique: H5.
//!
//! 1. The scope is `http:SERVICE:anonymous`, or `http:SERVICE:authorization-` and 64 hexadecimal digits: the
//!    SHA-256 of the request's `Authorization`. What is secret in it never reaches the store in clear.
//! 2. Every `Authorization` line is hashed, each with its length before it, so that no two lists look alike.
//! 3. Never an address: addresses are shared, and they change between an attempt and its retry.
//! 4. A token that rotates makes a retry another operation. That is the price of not verifying it here; a claim
//!    of a verified token comes with the principal list.
//!
//! Two tenants with the same key are two operations (case C58), and neither sees the other's answers.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use semel::{KeyError, Scope};
use sha2::{Digest, Sha256};

/// Room beside the service's name: `http:`, `:authorization-` and 64 digits.
const BESIDE_SERVICE: usize = 5 + 15 + 64;

/// The scopes of one service.
#[derive(Debug, Clone)]
pub(crate) struct Scopes {
    /// `http:SERVICE:`
    prefix: String,
    anonymous: Scope,
}

impl Scopes {
    /// The longest service name, in bytes.
    pub(crate) const SERVICE_BYTES_MAX: usize = Scope::BYTES_MAX - BESIDE_SERVICE;

    pub(crate) fn new(service: &str) -> Result<Scopes, KeyError> {
        if service.is_empty() {
            return Err(KeyError::Empty);
        }
        if service.len() > Scopes::SERVICE_BYTES_MAX {
            return Err(KeyError::TooLong { bytes: service.len(), max: Scopes::SERVICE_BYTES_MAX });
        }
        let prefix = format!("http:{service}:");
        let anonymous = Scope::new(format!("{prefix}anonymous"))?;
        Ok(Scopes { prefix, anonymous })
    }

    /// The scope of a request with these headers.
    pub(crate) fn of(&self, headers: &HeaderMap) -> Result<Scope, KeyError> {
        match digest(headers) {
            None => Ok(self.anonymous.clone()),
            Some(digest) => Scope::new(self.authorized(&digest)),
        }
    }

    fn authorized(&self, digest: &[u8]) -> String {
        let mut scope = String::with_capacity(self.prefix.len() + BESIDE_SERVICE);
        scope.push_str(&self.prefix);
        scope.push_str("authorization-");
        for byte in digest {
            scope.push(hexadecimal(byte >> 4));
            scope.push(hexadecimal(byte & 15));
        }
        scope
    }
}

fn hexadecimal(digit: u8) -> char {
    char::from(b"0123456789abcdef"[usize::from(digit)])
}

fn digest(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter().peekable();
    lines.peek()?;
    let hasher = lines.fold(Sha256::new(), |hasher, line| {
        hasher.chain_update((line.len() as u64).to_be_bytes()).chain_update(line.as_bytes())
    });
    Some(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of(lines: &[&'static str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, HeaderValue::from_static(line));
        }
        Scopes::new("shop").unwrap().of(&headers).unwrap().as_str().to_owned()
    }

    #[test]
    fn nobody_is_anonymous_and_somebody_is_a_digest() {
        assert_eq!(of(&[]), "http:shop:anonymous");
        let scope = of(&["Bearer sk_test_1"]);
        let digest = scope.strip_prefix("http:shop:authorization-").unwrap();
        assert_eq!(digest.len(), 64);
        assert!(digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(!scope.contains("sk_test"));
    }

    #[test]
    fn c58_two_principals_are_two_scopes() {
        assert_ne!(of(&["Bearer a"]), of(&["Bearer b"]));
        assert_eq!(of(&["Bearer a"]), of(&["Bearer a"]));
        assert_ne!(of(&[""]), of(&[]));
    }

    #[test]
    fn several_lines_all_count_with_their_borders() {
        assert_ne!(of(&["a", "b"]), of(&["ab"]));
        assert_ne!(of(&["a", "b"]), of(&["a"]));
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
    }

    #[test]
    fn the_longest_service_still_makes_a_scope() {
        let service = "s".repeat(Scopes::SERVICE_BYTES_MAX);
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_static("x"));
        assert!(Scopes::new(&service).unwrap().of(&headers).is_ok());
        assert!(Scopes::new(&(service + "s")).is_err());
        assert!(Scopes::new("").is_err());
        assert!(Scopes::new("a\nb").is_err());
    }
}
