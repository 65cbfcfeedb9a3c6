//! Without the feature `jwt` there are no keys, so no token is ever found to be good.

use super::token::Algorithm;

/// No key.
#[derive(Debug)]
pub(super) enum PublicKey {}

impl PublicKey {
    /// Whether signatures can be verified at all.
    pub(super) const BUILT: bool = false;

    pub(super) fn rsa(_: &[u8], _: &[u8], _: Option<Algorithm>) -> Option<PublicKey> {
        None
    }

    pub(super) fn ec(_: &str, _: &[u8], _: &[u8], _: Option<Algorithm>) -> Option<PublicKey> {
        None
    }

    pub(super) fn ed25519(_: &[u8], _: Option<Algorithm>) -> Option<PublicKey> {
        None
    }

    pub(super) fn takes(&self, _: Algorithm) -> bool {
        match *self {}
    }

    pub(super) fn has_signed(&self, _: Algorithm, _: &[u8], _: &[u8]) -> bool {
        match *self {}
    }
}
