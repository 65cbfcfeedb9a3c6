//! Which attempt it is, and who made it.
//!
//! 1. **An attempt's id is random**: two attempts never share one, whoever makes them. Stores compare ids and read
//!    nothing in them.
//! 2. **The first four bytes may name who made it**: an engine that has an [`Instance`] begins each of its ids with
//!    that tag, so that a record tells a person which process claimed it last. The 96 bits behind it stay random:
//!    ids are only compared within one record, which has at most some hundreds of them.
//! 3. **A tag is for people, never for a decision.** Four bytes of a hash are no proof: two names may share a tag,
//!    and the id of an engine without an instance begins with any four bytes.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::environment::Entropy;

/// One attempt, whatever number of claim calls it takes. Random: two attempts never share one.
///
/// Of an engine with an [`Instance`] the first four bytes are its tag, and the other twelve are random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub [u8; 16]);

impl AttemptId {
    /// A new attempt.
    #[must_use]
    pub fn random(entropy: &Entropy) -> AttemptId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&entropy.next().to_be_bytes());
        id[8..].copy_from_slice(&entropy.next().to_be_bytes());
        AttemptId(id)
    }

    /// A new attempt of this instance.
    #[must_use]
    pub fn random_of(instance: Instance, entropy: &Entropy) -> AttemptId {
        let mut id = AttemptId::random(entropy);
        id.0[..4].copy_from_slice(&instance.0);
        id
    }

    /// Who made it, if whoever did has an instance.
    #[must_use]
    pub fn instance(self) -> Instance {
        let [a, b, c, d, ..] = self.0;
        Instance([a, b, c, d])
    }
}

/// The id in hexadecimal digits.
impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The tag of a process that makes attempts: the first four bytes of the SHA-256 of its name. Shown as eight
/// hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instance(pub [u8; 4]);

impl Instance {
    /// The tag of a name.
    #[must_use]
    pub fn named(name: &str) -> Instance {
        let digest: [u8; 32] = Sha256::digest(name.as_bytes()).into();
        let [a, b, c, d, ..] = digest;
        Instance([a, b, c, d])
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_names_its_instance_and_is_random_behind_it() {
        let entropy = Entropy::system();
        let instance = Instance::named("web-1");
        assert_eq!(instance.to_string(), "c4719afa", "the head of the SHA-256");
        let (one, other) =
            (AttemptId::random_of(instance, &entropy), AttemptId::random_of(instance, &entropy));
        assert_eq!((one.instance(), other.instance()), (instance, instance));
        assert_ne!(one.0[4..], other.0[4..]);
        assert!(one.to_string().starts_with(&instance.to_string()));
        assert_ne!(Instance::named("web-2"), instance);
    }
}
