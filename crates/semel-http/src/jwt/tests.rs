use std::sync::LazyLock;

use http::HeaderValue;
use serde_json::{Value, json};

use super::*;

pub(crate) mod issuer;
mod keys;

use issuer::{Issuer, base64url};

const NOW: f64 = 1_800_000_000.0;

/// A key pair of RSA takes a moment to be made.
static RSA: LazyLock<Issuer> = LazyLock::new(|| Issuer::rsa("rsa-1"));
static P256: LazyLock<Issuer> = LazyLock::new(|| Issuer::p256("ec-1"));

fn verifier(jwks: &str) -> Verifier {
    let verifier = Verifier::new("https://issuer.example", ["shop", "shop-api"]).unwrap();
    verifier.use_keys(jwks.parse().unwrap());
    verifier
}

fn claims() -> Value {
    json!({ "iss": "https://issuer.example", "aud": "shop", "sub": "acme", "exp": NOW + 300.0 })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

#[track_caller]
fn taken(verifier: &Verifier, token: &str) -> Claims {
    verifier.verified(token, NOW).unwrap_or_else(|reason| panic!("{reason}: {token}"))
}

#[track_caller]
fn refused(verifier: &Verifier, token: &str) -> &'static str {
    match verifier.verified(token, NOW) {
        Err(Unverified::Invalid(reason)) => reason,
        other => panic!("{other:?}: {token}"),
    }
}

#[test]
fn h5_every_algorithm_that_is_taken_is_verified() {
    for (issuer, algorithms) in [
        (&*RSA, &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"][..]),
        (&*P256, &["ES256"]),
        (&Issuer::p384("ec-2"), &["ES384"]),
        (&Issuer::ed25519("ed-1"), &["EdDSA", "Ed25519"]),
    ] {
        let verifier = verifier(&issuer.jwks());
        for algorithm in algorithms {
            let token = issuer.token_with(&json!({ "alg": algorithm, "kid": issuer.kid }), &claims());
            assert_eq!(taken(&verifier, &token).naming("sub"), Some(("s", "acme".to_owned())));
            // One other bit, in each of the parts.
            for at in [12, token.len() / 2, token.len() - 20] {
                let mut forged = token.clone().into_bytes();
                forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
                refused(&verifier, std::str::from_utf8(&forged).unwrap());
            }
        }
    }
}

#[test]
fn h5_a_token_without_a_signature_is_refused() {
    let verifier = verifier(&P256.jwks());
    let payload = base64url(claims().to_string().as_bytes());
    for algorithm in ["none", "None", "NONE", "nOnE", ""] {
        let head = base64url(json!({ "alg": algorithm, "kid": "ec-1" }).to_string().as_bytes());
        assert!(refused(&verifier, &format!("{head}.{payload}.")).contains("not taken"));
        assert!(refused(&verifier, &format!("{head}.{payload}.AAAA")).contains("not taken"));
    }
    let head = base64url(br#"{"kid":"ec-1"}"#);
    assert!(refused(&verifier, &format!("{head}.{payload}.")).contains("not taken"));
    // A good token with its signature cut off, and one of zeros, which a careless ECDSA takes for everything.
    let token = P256.token(&claims());
    let (signed, _) = token.rsplit_once('.').unwrap();
    refused(&verifier, &format!("{signed}."));
    refused(&verifier, &format!("{signed}.{}", base64url(&[0; 64])));
}

#[test]
fn h5_the_public_key_is_never_taken_for_a_secret() {
    use aws_lc_rs::hmac;
    let verifier = verifier(&RSA.jwks());
    let jwk = RSA.jwk();
    let modulus = token::decode(jwk["n"].as_str().unwrap()).unwrap();
    let secrets = [RSA.jwks().into_bytes(), jwk.to_string().into_bytes(), modulus];
    for (name, algorithm) in
        [("HS256", hmac::HMAC_SHA256), ("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)]
    {
        for secret in &secrets {
            let head = json!({ "alg": name, "kid": "rsa-1" }).to_string();
            let signed = [base64url(head.as_bytes()), base64url(claims().to_string().as_bytes())].join(".");
            let tag = hmac::sign(&hmac::Key::new(algorithm, secret), signed.as_bytes());
            let token = [signed, base64url(tag.as_ref())].join(".");
            assert!(refused(&verifier, &token).contains("not taken"));
        }
    }
}

#[test]
fn h5_the_key_says_the_algorithm_and_the_token_only_agrees() {
    let mut jwk = RSA.jwk();
    jwk["alg"] = json!("PS256");
    let verifier = verifier(&json!({ "keys": [jwk, P256.jwk()] }).to_string());
    let token = |issuer: &Issuer, algorithm: &str, kid: &str| {
        issuer.token_with(&json!({ "alg": algorithm, "kid": kid }), &claims())
    };
    taken(&verifier, &token(&RSA, "PS256", "rsa-1"));
    refused(&verifier, &token(&RSA, "RS256", "rsa-1"));
    refused(&verifier, &token(&RSA, "PS384", "rsa-1"));
    refused(&verifier, &token(&P256, "ES256", "rsa-1"));
    refused(&verifier, &token(&RSA, "PS256", "ec-1"));
}

#[test]
fn h5_keys_come_from_the_configuration_and_never_from_the_token() {
    let verifier = verifier(&P256.jwks());
    let forger = Issuer::p256("ec-1");
    let brought = [
        json!({ "alg": "ES256", "kid": "ec-1", "jwk": forger.jwk() }),
        json!({ "alg": "ES256", "jwk": forger.jwk() }),
        json!({ "alg": "ES256", "kid": "ec-1", "jku": "http://127.0.0.1:9/jwks.json" }),
        json!({ "alg": "ES256", "kid": "ec-1", "x5u": "http://127.0.0.1:9/cert.pem", "x5c": ["AAAA"] }),
        json!({ "alg": "ES256", "kid": "../../../../dev/null" }),
        json!({ "alg": "ES256", "kid": "http://127.0.0.1:9/jwks.json" }),
        json!({ "alg": "ES256", "kid": "' UNION SELECT 'k" }),
        json!({ "alg": "ES256", "kid": "" }),
        json!({ "alg": "ES256", "kid": ["ec-1"] }),
        json!({ "alg": "ES256", "kid": null }),
    ];
    for head in brought {
        refused(&verifier, &forger.token_with(&head, &claims()));
    }
    // The issuer's own token may hold them: they are passed over.
    taken(
        &verifier,
        &P256.token_with(&json!({ "alg": "ES256", "jku": "x", "x5t": 1, "typ": "at+jwt" }), &claims()),
    );
}

#[test]
fn h5_without_kid_only_a_single_key_is_meant() {
    let token = P256.token_with(&json!({ "alg": "ES256" }), &claims());
    let set = |keys: &[Value]| verifier(&json!({ "keys": keys }).to_string());
    taken(&set(&[P256.jwk()]), &token);
    taken(&set(&[P256.jwk(), RSA.jwk()]), &token);
    refused(&set(&[P256.jwk(), Issuer::p256("ec-2").jwk()]), &token);
    // Two keys of one name, as while one replaces the other.
    taken(&set(&[Issuer::p256("ec-1").jwk(), P256.jwk()]), &P256.token(&claims()));
}

#[test]
fn h5_issuer_and_audience_are_those_of_the_configuration() {
    let verifier = verifier(&P256.jwks());
    let issuers =
        [json!("https://evil.example"), json!("https://issuer.example/"), json!(["https://issuer.example"])];
    for iss in issuers.into_iter().chain([json!(""), json!(null)]) {
        assert!(refused(&verifier, &P256.token(&with("iss", iss))).contains("issuer"));
    }
    assert!(refused(&verifier, &P256.token(&without("iss"))).contains("issuer"));
    for aud in
        [json!("bank"), json!(["bank"]), json!([]), json!(["shop", 1]), json!({ "shop": 1 }), json!("Shop")]
    {
        assert!(refused(&verifier, &P256.token(&with("aud", aud))).contains("audience"));
    }
    assert!(refused(&verifier, &P256.token(&without("aud"))).contains("audience"));
    taken(&verifier, &P256.token(&with("aud", json!(["bank", "shop-api"]))));
}

#[test]
fn h5_a_token_is_valid_in_its_time_and_a_minute_around_it() {
    let verifier = verifier(&P256.jwks());
    let token = |name: &str, value: Value| P256.token(&with(name, value));
    taken(&verifier, &token("exp", json!(NOW - 59.0)));
    assert!(refused(&verifier, &token("exp", json!(NOW - 60.0))).contains("expired"));
    assert!(refused(&verifier, &token("exp", json!(-1))).contains("expired"));
    assert!(refused(&verifier, &P256.token(&without("exp"))).contains("never expires"));
    for exp in [json!("4102444800"), json!(null), json!(true), json!([NOW + 300.0])] {
        assert!(refused(&verifier, &token("exp", exp)).contains("no number"));
    }
    taken(&verifier, &token("nbf", json!(NOW + 60.0)));
    assert!(refused(&verifier, &token("nbf", json!(NOW + 60.5))).contains("not valid yet"));
    assert!(refused(&verifier, &token("nbf", json!("0"))).contains("no number"));
    taken(&verifier, &token("exp", json!(u64::MAX)));
}

#[test]
fn h5_what_is_not_understood_is_refused() {
    let verifier = verifier(&P256.jwks());
    let head = |extra: &str| format!(r#"{{"alg":"ES256","kid":"ec-1"{extra}}}"#);
    let good = claims().to_string();
    taken(&verifier, &P256.token_of(&head(""), &good));
    let refused_of = |head: &str, claims: &str| refused(&verifier, &P256.token_of(head, claims));
    assert!(refused_of(&head(r#","crit":["b64"],"b64":false"#), &good).contains("extension"));
    assert!(refused_of(&head(r#","crit":[]"#), &good).contains("extension"));
    // Two readers could read two of them.
    assert!(refused_of(&head(r#","alg":"ES256""#), &good).contains("cannot be read"));
    let twice = good.replacen('{', r#"{"sub":"other","#, 1);
    assert!(refused_of(&head(""), &twice).contains("cannot be read"));
    for claims in ["", "[]", "\"acme\"", "{", "{}x", "null"] {
        assert!(refused_of(&head(""), claims).contains("cannot be read"), "{claims}");
    }
    assert!(refused_of("{", &good).contains("cannot be read"));
    let padding = json!({ "alg": "ES256", "kid": "ec-1", "x": "x".repeat(TOKEN_BYTES_MAX) });
    assert!(refused(&verifier, &P256.token_with(&padding, &claims())).contains("too long"));
    // A last digit with bits that mean nothing: the same bytes, another text.
    let token = P256.token(&claims());
    let last = token.chars().last().unwrap();
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let other = digits.chars().nth(digits.find(last).unwrap() ^ 1).unwrap();
    refused(&verifier, &format!("{}{other}", &token[..token.len() - 1]));
}

#[test]
fn h5_only_text_and_whole_numbers_name_somebody() {
    let verifier = verifier(&P256.jwks());
    let named = |value: Value| taken(&verifier, &P256.token(&with("sub", value))).naming("sub");
    assert_eq!(named(json!("acme")), Some(("s", "acme".to_owned())));
    assert_eq!(named(json!("7")), Some(("s", "7".to_owned())));
    assert_eq!(named(json!(7)), Some(("n", "7".to_owned())));
    assert_eq!(named(json!(u64::MAX)), Some(("n", u64::MAX.to_string())));
    for nobody in
        [json!(""), json!(null), json!(true), json!(7.5), json!(1e300), json!(["acme"]), json!({ "a": 1 })]
    {
        assert_eq!(named(nobody.clone()), None, "{nobody}");
    }
    assert_eq!(taken(&verifier, &P256.token(&without("sub"))).naming("sub"), None);
}

#[test]
fn h5_a_token_is_what_has_three_parts_behind_the_word_bearer() {
    let found = |lines: &[&str]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, HeaderValue::from_str(line).unwrap());
        }
        bearer(&headers).map(|token| token.map(str::to_owned))
    };
    for line in ["Bearer a.b.c", "bearer a.b.c", "BEARER  a.b.c ", "Bearer ..", "Bearer a.b."] {
        assert!(matches!(found(&[line]), Ok(Some(_))), "{line}");
    }
    for line in [
        "Bearer sk_test_1",
        "Basic YWxhZGRpbjpvcGVuc2VzYW1l",
        "Bearer",
        "a.b.c",
        "DPoP a.b.c",
        "Bearer a.b.c.d.e",
        "Bearer a.b.c, Bearer d.e.f",
        "Bearer a.b.c=",
        "Bearer\ta.b.c",
        "",
    ] {
        assert_eq!(found(&[line]), Ok(None), "{line}");
    }
    assert_eq!(found(&[]), Ok(None));
    assert_eq!(found(&["Bearer a.b.c", "Basic x"]), Err(Unverified::Twice));
    assert_eq!(found(&["Bearer a.b.c", "Bearer a.b.c"]), Err(Unverified::Twice));
}

#[test]
fn h5_without_keys_nothing_is_let_by() {
    let verifier = Verifier::new("https://issuer.example", ["shop"]).unwrap();
    assert!(!verifier.has_keys());
    assert_eq!(verifier.verified(&P256.token(&claims()), NOW).unwrap_err(), Unverified::NoKeys);
    verifier.use_keys(r#"{"keys":[]}"#.parse().unwrap());
    assert!(verifier.has_keys());
    refused(&verifier, &P256.token(&claims()));
    verifier.clone().use_keys(P256.jwks().parse().unwrap());
    taken(&verifier, &P256.token(&claims()));
}

#[tokio::test]
async fn h5_a_key_that_is_not_here_is_asked_for_and_a_forged_token_asks_for_nothing() {
    let verifier = verifier(&P256.jwks());
    let wanted = async |verifier: &Verifier| {
        tokio::time::timeout(Duration::from_millis(20), verifier.keys_wanted()).await.is_ok()
    };
    taken(&verifier, &P256.token(&claims()));
    refused(&verifier, &Issuer::p256("ec-1").token(&claims()));
    refused(&verifier, &P256.token(&with("aud", json!("bank"))));
    assert!(!wanted(&verifier).await);
    let new = Issuer::p256("ec-2");
    refused(&verifier, &new.token(&claims()));
    refused(&verifier, &new.token(&claims()));
    assert!(wanted(&verifier).await);
    assert!(!wanted(&verifier).await);
    // A new key in the place of the only one, by an issuer that gives its keys no names.
    refused(&verifier, &new.token_with(&json!({ "alg": "ES256" }), &claims()));
    assert!(wanted(&verifier).await);
}

#[test]
fn a_verifier_has_an_issuer_and_an_audience() {
    assert_eq!(Verifier::new("", ["shop"]).unwrap_err(), VerifierError::Issuer);
    assert_eq!(Verifier::new("i", [""; 0]).unwrap_err(), VerifierError::Audience);
    assert_eq!(Verifier::new("i", ["shop", ""]).unwrap_err(), VerifierError::Audience);
}
