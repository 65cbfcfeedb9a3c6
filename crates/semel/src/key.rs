//! Which operation, and within what its key is unique.
//!
//! 1. A [`Key`] is 1 to 255 bytes of text without control characters. It is compared byte for byte, and it is
//!    checked before any store is asked: a longer one is refused, never cut (case C89).
//! 2. A [`Scope`] says within what the key is unique. The same key in two scopes is two operations (C58, C69).
//! 3. A key may carry the time at which it was made ([`Key::time`]): a UUID of version 7, or a ULID.
//! 4. A key may be guessable or secret, so it is never printed by accident: `Debug` shows a digest. Code that
//!    needs the text asks for [`Key::as_str`].

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::environment::Timestamp;

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

    /// A key that is made of parts: the same parts in the same order always give the same key, in every version of
    /// this library. `derived-1-` and the SHA-256 of the parts, each with its length before it as eight bytes, big
    /// endian.
    #[must_use]
    pub fn derived<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Key {
        let hasher = parts.into_iter().fold(Sha256::new(), |hasher, part| {
            let part = part.as_ref();
            hasher.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
        });
        let digits: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Key(["derived-1-", &digits].concat().into())
    }

    /// The key in clear. Not for logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// When it says that it was made, to the millisecond, if it is a UUID of version 7 as RFC 9562 writes it (§4:
    /// hexadecimal digits of either case, in groups of 8, 4, 4, 4 and 12; §5.7: 48 bits of Unix time in
    /// milliseconds, then version 7, and variant `10`).
    ///
    /// With `ulid` also if it is a ULID (the ULID specification, "Encoding" and "Overflow Errors"): 26 characters of
    /// Crockford's base32, of either case, the first at most `7`, and the first ten the Unix time in milliseconds.
    /// That shape is not rare among other keys, so whoever calls must know that theirs are ULIDs.
    ///
    /// Nothing else is guessed at: no braces, no `urn:uuid:`, no digits without dashes, and no `I`, `L`, `O` or `U`
    /// that could be read as another character.
    #[must_use]
    pub fn time(&self, ulid: bool) -> Option<Timestamp> {
        let millis = uuid_millis(&self.0).or_else(|| ulid_millis(&self.0).filter(|_| ulid))?;
        i64::try_from(millis).ok().map(Timestamp)
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
    if has_control(text) {
        return Err(KeyError::Control);
    }
    Ok(text.into())
}

/// In text that is ASCII, as nearly all is, all bytes are looked at together.
fn has_control(text: &str) -> bool {
    match text.is_ascii() {
        true => text.bytes().fold(false, |has, byte| has | byte.is_ascii_control()),
        false => text.chars().any(char::is_control),
    }
}

/// The 48 bits of time of a UUID of version 7.
fn uuid_millis(text: &str) -> Option<u64> {
    let bytes: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        14 => *byte == b'7',
        19 => matches!(byte.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b'),
        _ => byte.is_ascii_hexdigit(),
    };
    if !bytes.iter().enumerate().all(fits) {
        return None;
    }
    u64::from_str_radix(&[&text[..8], &text[9..13]].concat(), 16).ok()
}

/// The 48 bits of time of a ULID.
fn ulid_millis(text: &str) -> Option<u64> {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let bytes: &[u8; 26] = text.as_bytes().try_into().ok()?;
    let digit = |byte: &u8| DIGITS.iter().position(|digit| *digit == byte.to_ascii_uppercase());
    // 26 digits of 5 bits are 130; the value has 128.
    if bytes[0] > b'7' || !bytes.iter().all(|byte| digit(byte).is_some()) {
        return None;
    }
    bytes[..10].iter().try_fold(0, |millis, byte| Some(millis * 32 + u64::try_from(digit(byte)?).ok()?))
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
        for control in ["a\nb", "\0", "a\x7f", "\u{e9}\n", "\u{85}"] {
            assert_eq!(Key::new(control), Err(KeyError::Control), "{control:?}");
        }
        assert!(Key::new(" a~\u{e9}").is_ok());
    }

    fn time(text: &str) -> Option<i64> {
        Key::new(text).unwrap().time(true).map(|time| time.0)
    }

    #[test]
    fn h15_the_time_of_a_uuid_of_version_7_is_read() {
        // The example of RFC 9562, appendix A.6: 2022-02-22 19:22:22 UTC.
        let uuid = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F";
        assert_eq!(time(uuid), Some(1_645_557_742_000));
        assert_eq!(time(&uuid.to_lowercase()), Some(1_645_557_742_000));
        assert_eq!(Key::new(uuid).unwrap().time(false), Some(Timestamp(1_645_557_742_000)));
        assert_eq!(time("ffffffff-ffff-7fff-bfff-ffffffffffff"), Some((1 << 48) - 1));
        for variant in ['8', '9', 'a', 'B'] {
            assert!(time(&format!("017f22e2-79b0-7cc3-{variant}8c4-dc0c0c07398f")).is_some(), "{variant}");
        }
    }

    #[test]
    fn h15_what_is_no_uuid_of_version_7_has_no_time() {
        for other in [
            "017f22e2-79b0-4cc3-98c4-dc0c0c07398f",          // version 4
            "017f22e2-79b0-8cc3-98c4-dc0c0c07398f",          // version 8
            "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f",          // Microsoft's variant
            "017f22e2-79b0-7cc3-78c4-dc0c0c07398f",          // NCS's variant
            "00000000-0000-0000-0000-000000000000",          // nil
            "ffffffff-ffff-ffff-ffff-ffffffffffff",          // max
            "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}",        // braces
            "urn:uuid:017f22e2-79b0-7cc3-98c4-dc0c0c07398f", // a name
            "017f22e279b07cc398c4dc0c0c07398f",              // no dashes
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398g",          // no digit
            "017f22e27-9b0-7cc3-98c4-dc0c0c07398f",          // a dash elsewhere
            "+17f22e2-79b0-7cc3-98c4-dc0c0c07398f",          // a sign
            "017f22e2-79b0-7cc3-98c4-dc0c0c07398f-1",        // more behind it
            "é17f22e-79b0-7cc3-98c4-dc0c0c07398f",           // as many bytes
        ] {
            assert_eq!(time(other), None, "{other}");
        }
    }

    #[test]
    fn h15_the_time_of_a_ulid_is_read_where_it_is_declared() {
        // The example of the specification, and the largest.
        let ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        assert_eq!(time(ulid), Some(1_469_922_850_259));
        assert_eq!(time(&ulid.to_lowercase()), Some(1_469_922_850_259));
        assert_eq!(time("7ZZZZZZZZZZZZZZZZZZZZZZZZZ"), Some((1 << 48) - 1));
        assert_eq!(Key::new(ulid).unwrap().time(false), None);
    }

    #[test]
    fn h15_what_is_no_ulid_has_no_time() {
        for other in [
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
            "01ARZ3NDEKTSV4RRFFQ69G5FAVV",
            "01ARZ3NDEKTSV4RRFFQ69G5FAI",
            "01ARZ3NDEKTSV4RRFFQ69G5FAL",
            "O1ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "01ARZ3NDEK-TSV4RRFFQ69G5FA",
            "01ARZ3NDEKTSV4RRFFQ69G5Fé",
        ] {
            assert_eq!(time(other), None, "{other}");
        }
    }

    #[test]
    fn a_derived_key_is_the_same_for_ever() {
        let key = Key::derived(["order-77", "1000"]);
        let expected = "derived-1-0f88af6ba5428ed734e38a4120f123ec94843d9f1dcaa8d2d8632aebfca0b356";
        assert_eq!(key.as_str(), expected);
        assert_ne!(key, Key::derived(["order-7", "71000"]));
        assert_ne!(Key::derived([""; 0]), Key::derived([""]));
    }

    #[test]
    fn a_key_does_not_print_itself() {
        let key = Key::new("order-77").unwrap();
        assert!(!format!("{key:?}").contains("order"));
    }
}
