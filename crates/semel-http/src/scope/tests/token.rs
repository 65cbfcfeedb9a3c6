//! Scopes that are made of verified tokens.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::*;

use crate::jwt::tests::issuer::Issuer;

const ISSUER: &str = "https://issuer.example";

fn in_seconds(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap() + seconds
}

fn verified(principals: &[&str], issuer: &str, jwks: &str) -> Scopes {
    let verifier = Verifier::new(issuer, ["shop"]).unwrap();
    verifier.use_keys(jwks.parse().unwrap());
    scopes(|options| {
        options.principals = principals.iter().map(|text| text.parse().unwrap()).collect();
        options.jwt = Some(verifier);
    })
}

fn bearing(token: &str) -> Parts {
    from("10.0.0.1", &[("authorization", &format!("Bearer {token}"))])
}

/// What is not said otherwise.
fn token(issuer: &Issuer, claims: Value) -> String {
    let mut all = json!({ "iss": ISSUER, "aud": "shop", "sub": "acme", "exp": in_seconds(300) });
    for (name, value) in claims.as_object().unwrap() {
        all[name] = value.clone();
    }
    issuer.token(&all)
}

#[test]
fn h5_a_refreshed_token_is_the_same_principal() {
    let issuer = Issuer::ed25519("k");
    let scopes = verified(&["jwt:sub"], ISSUER, &issuer.jwks());
    let of = |claims: Value| scopes.of(&bearing(&token(&issuer, claims))).unwrap();
    let first = of(json!({ "jti": "1" }));
    assert_eq!(of(json!({ "jti": "2", "exp": in_seconds(900), "scope": "more" })), first);
    assert_ne!(of(json!({ "sub": "other" })), first);
    assert_eq!(
        first.as_str(),
        "http:shop:jwt-sub-61722edacc28da629bfb1805a1cd401e92aa212928ca8fb62a8fef271079068f",
        "a scope is made for ever as it was made first"
    );
    // The same digits as text and as a number are two names.
    assert_ne!(of(json!({ "sub": "7" })), of(json!({ "sub": 7 })));
}

#[test]
fn h5_two_issuers_with_the_same_subject_are_two_principals() {
    let issuer = Issuer::ed25519("k");
    let of = |name: &str| {
        let scopes = verified(&["jwt:sub"], name, &issuer.jwks());
        scopes.of(&bearing(&token(&issuer, json!({ "iss": name })))).unwrap()
    };
    assert_ne!(of("https://one.example"), of("https://two.example"));
}

#[test]
fn h5_two_claims_with_the_same_value_are_two_principals() {
    let issuer = Issuer::ed25519("k");
    let parts = bearing(&token(&issuer, json!({ "tenant": "acme", "https://a/b": "x", "https://a.b": "x" })));
    let of = |claim: &str| verified(&[claim], ISSUER, &issuer.jwks()).of(&parts).unwrap();
    assert_ne!(of("jwt:sub"), of("jwt:tenant"));
    // They are shown alike, and are not.
    let (one, other) = (of("jwt:https://a/b"), of("jwt:https://a.b"));
    assert!(one.as_str().starts_with("http:shop:jwt-https___a_b-"));
    assert_ne!(one, other);
}

#[test]
fn h5_a_token_that_is_not_valid_falls_through_to_nothing() {
    let issuer = Issuer::ed25519("k");
    let scopes = verified(&["jwt:sub", "header:x-account-id", "authorization"], ISSUER, &issuer.jwks());
    let forged = Issuer::ed25519("k");
    for refused in [
        token(&forged, json!({})),
        token(&issuer, json!({ "exp": in_seconds(-120) })),
        token(&issuer, json!({ "aud": "bank" })),
        "..".to_owned(),
    ] {
        let mut parts = bearing(&refused);
        parts.headers.insert("x-account-id", HeaderValue::from_static("acme"));
        let result = scopes.of(&parts);
        assert!(matches!(result, Err(NoScope::Unverified(Unverified::Invalid(_)))), "{result:?}");
    }
}

#[test]
fn h5_without_the_claim_the_next_principal_is_asked_and_nobody_is_not_anonymous() {
    let issuer = Issuer::ed25519("k");
    let good = token(&issuer, json!({}));
    let listed = |principals: &[&str]| verified(principals, ISSUER, &issuer.jwks());
    let kind = |principals: &[&str], parts: &Parts| {
        let scope = listed(principals).of(parts)?;
        Ok(scope.as_str().strip_prefix("http:shop:").unwrap().split('-').next().unwrap().to_owned())
    };
    let nobody = Err(NoScope::Nobody { bearer: true });
    assert_eq!(kind(&["jwt:tenant", "jwt:sub"], &bearing(&good)), Ok("jwt".to_owned()));
    assert_eq!(kind(&["jwt:tenant", "authorization"], &bearing(&good)), Ok("authorization".to_owned()));
    assert_eq!(kind(&["jwt:tenant"], &bearing(&good)), nobody);
    // No token at all: the next one, and never in one scope with those who sent nothing.
    let basic = request(&[("authorization", "Basic YTpi")]);
    assert_eq!(kind(&["jwt:sub", "authorization"], &basic), Ok("authorization".to_owned()));
    assert_eq!(kind(&["jwt:sub"], &basic), nobody);
    assert_eq!(kind(&["jwt:sub"], &bearing("sk_test_1")), nobody);
    assert_eq!(kind(&["jwt:sub"], &request(&[])), Ok("anonymous".to_owned()));
}

#[test]
fn h5_what_comes_before_a_token_in_the_list_makes_it_unimportant() {
    let issuer = Issuer::ed25519("k");
    let scopes = verified(&["header:x-account-id", "jwt:sub"], ISSUER, &issuer.jwks());
    let mut parts = bearing("..");
    parts.headers.insert("x-account-id", HeaderValue::from_static("acme"));
    assert!(scopes.of(&parts).unwrap().as_str().starts_with("http:shop:header-x-account-id-"));
}

#[test]
fn h5_without_keys_a_token_is_neither_good_nor_bad() {
    let issuer = Issuer::ed25519("k");
    let scopes = scopes(|options| {
        options.principals = ["jwt:sub", "authorization"].map(|text| text.parse().unwrap()).to_vec();
        options.jwt = Some(Verifier::new(ISSUER, ["shop"]).unwrap());
    });
    let unknown = Err(NoScope::Unverified(Unverified::NoKeys));
    assert_eq!(scopes.of(&bearing(&token(&issuer, json!({})))), unknown);
    assert!(scopes.of(&bearing("sk_test_1")).is_ok());
}

#[test]
fn h5_a_refusal_says_what_a_client_can_do() {
    let link = HeaderValue::from_static("<p>; rel=\"describedby\"");
    let answer = |reason: NoScope| {
        let response = reason.respond(&link);
        let header =
            |name| response.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap().to_owned());
        (response.status().as_u16(), header("www-authenticate"), header("retry-after"))
    };
    let name: HeaderName = "x-account-id".parse().unwrap();
    assert_eq!(answer(NoScope::Nobody { bearer: false }), (401, None, None));
    assert_eq!(answer(NoScope::Nobody { bearer: true }), (401, Some("Bearer".to_owned()), None));
    let challenge = "Bearer error=\"invalid_token\", error_description=\"The token has expired.\"";
    let expired = Unverified::Invalid("The token has expired.");
    assert_eq!(answer(expired.into()), (401, Some(challenge.to_owned()), None));
    assert_eq!(answer(Unverified::Twice.into()), (400, None, None));
    assert_eq!(answer(Unverified::NoKeys.into()), (503, None, Some("5".to_owned())));
    assert_eq!(answer(NoScope::Twice(name.clone())), (400, None, None));
    assert_eq!(answer(NoScope::NoPeer(name)), (500, None, None));
}
