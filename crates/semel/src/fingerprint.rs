//! What makes two requests the same request.
//!
//! 1. A fingerprint is a SHA-256 over the parts of what is asked for, each part with its length before it, so
//!    that no two lists of parts look alike: `("ab", "c")` is not `("a", "bc")`.
//! 2. A part that is absent is not a part that is empty.
//! 3. The [`Algorithm`] is kept beside the digest. A record made with an older one is compared with the older
//!    one, so that a deploy makes no false mismatch (H6): the engine asks for the request's fingerprint by the
//!    algorithm that the record has.

use std::fmt;

use sha2::{Digest, Sha256};

/// How a fingerprint was computed. The number is kept in the store, so it never gets another meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Algorithm(pub u8);

impl Algorithm {
    /// Every part exactly as it was sent.
    pub const EXACT: Algorithm = Algorithm(1);
    /// A JSON body by what it says; the rest as it was sent.
    pub const JSON: Algorithm = Algorithm(2);
    /// A multipart body by its parts; the rest as it was sent.
    pub const MULTIPART: Algorithm = Algorithm(3);
}

/// SHA-256 over what a request asks for, and how it was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// How the digest was computed.
    pub algorithm: Algorithm,
    /// The digest.
    pub digest: [u8; 32],
}

impl Fingerprint {
    /// Starts a fingerprint; add the parts in a fixed order.
    #[must_use]
    pub fn builder(algorithm: Algorithm) -> FingerprintBuilder {
        FingerprintBuilder { algorithm, hasher: Sha256::new() }
    }
}

/// Takes the parts of a request, one after the other.
#[derive(Clone)]
pub struct FingerprintBuilder {
    algorithm: Algorithm,
    hasher: Sha256,
}

impl FingerprintBuilder {
    /// Adds a part.
    #[must_use]
    pub fn part(mut self, bytes: &[u8]) -> FingerprintBuilder {
        self.hasher.update((bytes.len() as u64).to_be_bytes());
        self.hasher.update(bytes);
        self
    }

    /// Adds a part that may be absent. Absent has a length that no part can have.
    #[must_use]
    pub fn optional(mut self, bytes: Option<&[u8]>) -> FingerprintBuilder {
        match bytes {
            Some(bytes) => self.part(bytes),
            None => {
                self.hasher.update(u64::MAX.to_be_bytes());
                self
            }
        }
    }

    /// The fingerprint of the parts added so far.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        Fingerprint { algorithm: self.algorithm, digest: self.hasher.finalize().into() }
    }
}

impl fmt::Debug for FingerprintBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FingerprintBuilder").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}:", self.algorithm.0)?;
        self.digest[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&[u8]]) -> Fingerprint {
        let start = Fingerprint::builder(Algorithm::EXACT);
        parts.iter().fold(start, |builder, part| builder.part(part)).finish()
    }

    #[test]
    fn the_border_between_parts_counts() {
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"ab"]), of(&[b"ab", b""]));
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
    }

    #[test]
    fn absent_is_not_empty() {
        let absent = Fingerprint::builder(Algorithm::EXACT).optional(None).finish();
        let empty = Fingerprint::builder(Algorithm::EXACT).optional(Some(b"")).finish();
        assert_ne!(absent, empty);
    }
}
