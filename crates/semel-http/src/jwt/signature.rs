//! Public keys, each with the algorithms that it may be used with, over aws-lc-rs.

use aws_lc_rs::signature::{self as lc, ParsedPublicKey, RsaParameters, RsaPublicKeyComponents};

use super::token::Algorithm;

/// A key as each of its algorithms takes it.
#[derive(Debug)]
pub(super) struct PublicKey(Vec<(Algorithm, ParsedPublicKey)>);

const RSA: [(Algorithm, &RsaParameters); 6] = [
    (Algorithm::Rs256, &lc::RSA_PKCS1_2048_8192_SHA256),
    (Algorithm::Rs384, &lc::RSA_PKCS1_2048_8192_SHA384),
    (Algorithm::Rs512, &lc::RSA_PKCS1_2048_8192_SHA512),
    (Algorithm::Ps256, &lc::RSA_PSS_2048_8192_SHA256),
    (Algorithm::Ps384, &lc::RSA_PSS_2048_8192_SHA384),
    (Algorithm::Ps512, &lc::RSA_PSS_2048_8192_SHA512),
];

impl PublicKey {
    /// Whether signatures can be verified at all.
    pub(super) const BUILT: bool = true;

    pub(super) fn rsa(modulus: &[u8], exponent: &[u8], only: Option<Algorithm>) -> Option<PublicKey> {
        let key = RsaPublicKeyComponents { n: without_zeros(modulus), e: without_zeros(exponent) };
        if !is_sound(key.n, key.e) {
            return None;
        }
        let algorithms = RSA.into_iter().filter(|(algorithm, _)| only.is_none_or(|only| only == *algorithm));
        let parsed =
            algorithms.map(|(algorithm, how)| Some((algorithm, key.to_parsed_public_key(how).ok()?)));
        PublicKey::of(parsed.collect::<Option<_>>()?)
    }

    pub(super) fn ec(curve: &str, x: &[u8], y: &[u8], only: Option<Algorithm>) -> Option<PublicKey> {
        let (algorithm, how, bytes) = match curve {
            "P-256" => (Algorithm::Es256, &lc::ECDSA_P256_SHA256_FIXED, 32),
            "P-384" => (Algorithm::Es384, &lc::ECDSA_P384_SHA384_FIXED, 48),
            _ => return None,
        };
        if x.len() != bytes || y.len() != bytes || only.is_some_and(|only| only != algorithm) {
            return None;
        }
        // The uncompressed point (SEC 1, section 2.3.3).
        let point = [&[4], x, y].concat();
        PublicKey::of(vec![(algorithm, ParsedPublicKey::new(how, point).ok()?)])
    }

    pub(super) fn ed25519(x: &[u8], only: Option<Algorithm>) -> Option<PublicKey> {
        let algorithm = Algorithm::Ed25519;
        if x.len() != 32 || only.is_some_and(|only| only != algorithm) {
            return None;
        }
        PublicKey::of(vec![(algorithm, ParsedPublicKey::new(&lc::ED25519, x).ok()?)])
    }

    fn of(parsed: Vec<(Algorithm, ParsedPublicKey)>) -> Option<PublicKey> {
        (!parsed.is_empty()).then_some(PublicKey(parsed))
    }

    pub(super) fn takes(&self, algorithm: Algorithm) -> bool {
        self.0.iter().any(|(own, _)| *own == algorithm)
    }

    pub(super) fn has_signed(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let mut fitting = self.0.iter().filter(|(own, _)| *own == algorithm);
        fitting.any(|(_, key)| key.verify_sig(message, signature).is_ok())
    }
}

/// Some issuers write a number with zeros before it.
fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// A modulus of 2048 to 8192 bits, and an odd exponent from 3 on: with 1 every message would be its own signature.
fn is_sound(modulus: &[u8], exponent: &[u8]) -> bool {
    let long = (256..=1024).contains(&modulus.len()) && modulus[0] >= 0x80;
    let odd = exponent.last().is_some_and(|byte| byte % 2 == 1);
    long && odd && exponent.len() <= 4 && exponent != [1]
}
