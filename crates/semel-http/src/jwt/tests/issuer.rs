//! An issuer of tokens, with a key pair that is made for the test and gone with it.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{self as lc, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct Issuer {
    pub(crate) kid: String,
    pair: Pair,
}

#[derive(Debug)]
enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ec(&'static str, EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Issuer {
    pub(crate) fn rsa(kid: &str) -> Issuer {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        Issuer { kid: kid.to_owned(), pair: Pair::Rsa(Box::new(pair)) }
    }

    pub(crate) fn p256(kid: &str) -> Issuer {
        let pair = EcdsaKeyPair::generate(&lc::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Issuer { kid: kid.to_owned(), pair: Pair::Ec("P-256", pair) }
    }

    pub(crate) fn p384(kid: &str) -> Issuer {
        let pair = EcdsaKeyPair::generate(&lc::ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        Issuer { kid: kid.to_owned(), pair: Pair::Ec("P-384", pair) }
    }

    pub(crate) fn ed25519(kid: &str) -> Issuer {
        Issuer { kid: kid.to_owned(), pair: Pair::Ed25519(Ed25519KeyPair::generate().unwrap()) }
    }

    /// The public key, as it is published.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                // PKCS#1: a sequence of the modulus, 257 bytes of it with the zero before it, and of the exponent.
                let der = pair.public_key().as_ref();
                json!({ "kty": "RSA", "n": base64url(&der[8..265]), "e": base64url(&der[267..]) })
            }
            Pair::Ec(curve, pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({ "kty": "EC", "crv": curve, "x": base64url(x), "y": base64url(y) })
            }
            Pair::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(pair.public_key().as_ref()) })
            }
        };
        jwk["kid"] = json!(self.kid);
        jwk
    }

    /// The key set with this one key.
    pub(crate) fn jwks(&self) -> String {
        json!({ "keys": [self.jwk()] }).to_string()
    }

    /// A token with the issuer's usual head.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let algorithm = match &self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec("P-256", _) => "ES256",
            Pair::Ec(..) => "ES384",
            Pair::Ed25519(_) => "EdDSA",
        };
        self.token_with(&json!({ "alg": algorithm, "kid": self.kid, "typ": "JWT" }), claims)
    }

    /// A token with any head. What it says of the algorithm is done where the key can do it.
    pub(crate) fn token_with(&self, head: &Value, claims: &Value) -> String {
        self.token_of(&head.to_string(), &claims.to_string())
    }

    /// A token of any texts.
    pub(crate) fn token_of(&self, head: &str, claims: &str) -> String {
        let signed = [base64url(head.as_bytes()), base64url(claims.as_bytes())].join(".");
        let signature = self.sign(head, signed.as_bytes());
        [signed, base64url(&signature)].join(".")
    }

    fn sign(&self, head: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let encodings: [(&str, &'static dyn lc::RsaEncoding); 6] = [
                    ("RS256", &lc::RSA_PKCS1_SHA256),
                    ("RS384", &lc::RSA_PKCS1_SHA384),
                    ("RS512", &lc::RSA_PKCS1_SHA512),
                    ("PS256", &lc::RSA_PSS_SHA256),
                    ("PS384", &lc::RSA_PSS_SHA384),
                    ("PS512", &lc::RSA_PSS_SHA512),
                ];
                let encoding = encodings.into_iter().find(|(name, _)| head.contains(name));
                let (_, encoding) = encoding.unwrap_or(("RS256", &lc::RSA_PKCS1_SHA256));
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::Ec(_, pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }
}

pub(crate) fn base64url(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
