//! The properties of tokens, for any bytes. See `crate::fuzzing`.

use std::sync::LazyLock;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use serde_json::{Value, json};

use super::{Claims, Unverified, Verifier, bearer};

const NOW: f64 = 1_800_000_000.0;

/// The public keys of RFC 7517, appendix A.1, which sign nothing here: no token is good by them.
const OTHERS: &str = r#"[
    {"kty":"EC","crv":"P-256","kid":"1",
     "x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"},
    {"kty":"RSA","e":"AQAB","kid":"2011-04-29"}
]"#;

/// The modulus of the second one.
const MODULUS: &str = concat!(
    "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjB",
    "ZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8",
    "KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_",
    "xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
);

/// An `Authorization` as it is sent; or, where it begins with a brace, the head of a token, a line feed, and its claims,
/// which are then signed.
pub fn token(bytes: &[u8]) {
    let issuer = &*ISSUER;
    if bytes.first() != Some(&b'{') {
        let Ok(line) = HeaderValue::from_bytes(bytes) else { return };
        if let Ok(Some(claims)) = issuer.read(&line) {
            issuer.has_signed(line.to_str().expect("a token is visible ASCII"), &claims);
        }
        return;
    }
    let split = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (head, claims) = (&bytes[..split], bytes.get(split + 1..).unwrap_or_default());
    let says = serde_json::from_slice::<Value>(head).ok().zip(serde_json::from_slice::<Value>(claims).ok());
    let is_good = says.as_ref().is_some_and(|(head, claims)| is_taken(head) && is_valid(claims));
    let line = issuer.line(head, claims);
    if let Ok(Some(claims)) = issuer.read(&line) {
        assert!(is_good, "{says:?} is no valid token");
        issuer.has_signed(line.to_str().expect("it is base64"), &claims);
        the_signature_counts(issuer, head, claims.issuer());
    }
    // Written by one who repeats no member, it is taken if it is good, and never else.
    let Some((head, claims)) = says.filter(|(head, claims)| head.is_object() && claims.is_object()) else {
        return;
    };
    let line = issuer.line(head.to_string().as_bytes(), claims.to_string().as_bytes());
    if line.len() < super::TOKEN_BYTES_MAX {
        assert_eq!(issuer.read(&line).is_ok(), is_good, "{head} {claims}");
    }
}

/// The same one every time: an input stays what it was.
static ISSUER: LazyLock<Issuer> = LazyLock::new(|| Issuer::of(&[7; 32]));

/// Who signs here, and who verifies.
struct Issuer {
    pair: Ed25519KeyPair,
    verifier: Verifier,
}

impl Issuer {
    fn of(seed: &[u8]) -> Issuer {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("32 bytes are a seed");
        let public = BASE64_URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let mut keys: Value = serde_json::from_str(OTHERS).expect("it is JSON");
        keys[1]["n"] = json!(MODULUS);
        let own = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "own", "x": public });
        keys.as_array_mut().expect("it is a list").push(own);
        let keys: super::KeySet = json!({ "keys": keys }).to_string().parse().expect("it is a key set");
        assert_eq!((keys.len(), keys.passed_over()), (3, 0));
        let verifier = Verifier::new("https://issuer.example", ["shop", "shop-api"]).expect("a verifier");
        verifier.use_keys(keys);
        Issuer { pair, verifier }
    }

    fn read(&self, line: &HeaderValue) -> Result<Option<Claims>, Unverified> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, line.clone())]);
        bearer(&headers)?.map(|token| self.verifier.verified(token, NOW)).transpose()
    }

    fn line(&self, head: &[u8], claims: &[u8]) -> HeaderValue {
        let signed = [head, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part)).join(".");
        let signature = self.pair.sign(signed.as_bytes());
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature.as_ref());
        format!("Bearer {signed}.{signature}").parse().expect("it is base64")
    }

    /// What was taken is signed by the key, for whoever looks again, and says what it was taken for.
    fn has_signed(&self, line: &str, claims: &Claims) {
        let token = line.split_once(' ').expect("a scheme before it").1.trim_matches(' ');
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).expect("base64");
        let public = UnparsedPublicKey::new(&ED25519, self.pair.public_key().as_ref());
        public.verify(signed.as_bytes(), &signature).expect("only what the issuer has signed is taken");
        let said = signed.split_once('.').and_then(|(_, claims)| BASE64_URL_SAFE_NO_PAD.decode(claims).ok());
        let said: Value = serde_json::from_slice(&said.expect("base64")).expect("claims are JSON");
        assert!(is_valid(&said), "{said}");
        let subject = match &said["sub"] {
            Value::String(text) if !text.is_empty() => Some(("s", text.clone())),
            Value::Number(number) if !number.is_f64() => Some(("n", number.to_string())),
            _ => None,
        };
        assert_eq!(claims.naming("sub"), subject);
    }
}

/// Another bit in the signature, another's claims under it, or none of it.
fn the_signature_counts(issuer: &Issuer, head: &[u8], name: Option<&str>) {
    let other = json!({ "iss": name, "aud": "shop", "exp": NOW + 1.0, "sub": "somebody else" });
    let own = issuer.line(head, b"{}");
    let forged = issuer.line(head, other.to_string().as_bytes());
    let [own, forged] = [&own, &forged].map(|line| line.to_str().expect("it is base64").rsplit_once('.'));
    let (Some((_, signature)), Some((signed, good))) = (own, forged) else { panic!("three parts") };
    for at in [0, good.len() / 2, good.len() - 2] {
        let other = if good.as_bytes()[at] == b'A' { "B" } else { "A" };
        refused(issuer, &[signed, ".", &good[..at], other, &good[at + 1..]].concat());
    }
    refused(issuer, &[signed, ".", signature].concat());
    refused(issuer, &[signed, "."].concat());
}

fn refused(issuer: &Issuer, line: &str) {
    let read = issuer.read(&HeaderValue::from_str(line).expect("it is base64"));
    assert!(read.is_err(), "{line} is forged");
}

/// Whether a head is one that the issuer's key may have signed.
fn is_taken(head: &Value) -> bool {
    let is_named = head.get("kid").is_none_or(|kid| kid == "own");
    matches!(head["alg"].as_str(), Some("EdDSA" | "Ed25519")) && is_named && head.get("crit").is_none()
}

/// Whether claims are for this place and this time.
fn is_valid(claims: &Value) -> bool {
    let is_ours = |name: &Value| matches!(name.as_str(), Some("shop" | "shop-api"));
    let audience = match &claims["aud"] {
        Value::Array(names) => names.iter().any(is_ours) && names.iter().all(Value::is_string),
        name => is_ours(name),
    };
    let expires = claims["exp"].as_f64().is_some_and(|expires| NOW < expires + 60.0);
    let begins =
        claims.get("nbf").is_none_or(|begins| begins.as_f64().is_some_and(|begins| begins <= NOW + 60.0));
    claims["iss"] == "https://issuer.example" && audience && expires && begins
}
