//! Which operation, and within what its key is unique.
//!
//! 1. A [`Key`] is 1 to 255 bytes of text without control characters. It is compared byte for byte, and it is
//!    checked before any store is asked: a longer one is refused, never cut (case C89).
//! 2. A [`Scope`] says within what the key is unique. The same key in two scopes is two operations (C58, C69).
//! 3. A key may be guessable or secret, so it is never printed by accident: `Debug` shows a digest. Code that
//!    needs the text asks for [`Key::as_str`].

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The client's name for one operation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// Within what a key is unique: the surface, the service and the principal, or a consumer's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(Arc<str>);

/// Why a text is no key or no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is longer than [`Key::BYTES_MAX`] or [`Scope::BYTES_MAX`].
    #[error("it has {bytes} bytes; {max} are allowed")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// It holds a control character.
    #[error("it holds a control character")]
    Control,
}

impl Key {
    /// The longest key, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// Checks a key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] when it is empty, too long, or holds a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Key, KeyError> {
        checked(text.as_ref(), Key::BYTES_MAX).map(Key)
    }

    /// The key in clear. Not for logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Sixteen hexadecimal digits that stand for the key in logs: the head of its SHA-256.
    #[must_use]
    pub fn digest(&self) -> String {
        let digest = Sha256::digest(self.0.as_bytes());
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Scope {
    /// The longest scope, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// Checks a scope. It is text for people too: a surface, a service and a principal, say
    /// `http:default:anonymous`. A principal that is secret belongs in it hashed.
    ///
    /// # Errors
    ///
    /// [`KeyError`] when it is empty, too long, or holds a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Scope, KeyError> {
        checked(text.as_ref(), Scope::BYTES_MAX).map(Scope)
    }

    /// The scope as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn checked(text: &str, max: usize) -> Result<Arc<str>, KeyError> {
    if text.is_empty() {
        return Err(KeyError::Empty);
    }
    if text.len() > max {
        return Err(KeyError::TooLong { bytes: text.len(), max });
    }
    if text.chars().any(char::is_control) {
        return Err(KeyError::Control);
    }
    Ok(text.into())
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.digest())
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({})", self.0)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c89_a_key_of_255_bytes_is_taken_and_one_of_256_is_refused_not_cut() {
        assert!(Key::new("k".repeat(255)).is_ok());
        assert_eq!(Key::new("k".repeat(256)), Err(KeyError::TooLong { bytes: 256, max: 255 }));
        assert_eq!(Key::new("k".repeat(8192)), Err(KeyError::TooLong { bytes: 8192, max: 255 }));
        let (one, other) = ("k".repeat(254) + "a", "k".repeat(254) + "b");
        assert_ne!(Key::new(one), Key::new(other));
    }

    #[test]
    fn an_empty_key_and_a_control_character_are_refused() {
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        assert_eq!(Key::new("a\nb"), Err(KeyError::Control));
    }

    #[test]
    fn a_key_does_not_print_itself() {
        let key = Key::new("order-77").unwrap();
        assert!(!format!("{key:?}").contains("order"));
    }
}
