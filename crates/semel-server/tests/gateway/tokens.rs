//! Tokens that the gateway verifies itself: H5.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::assert::{metric, retry_after};
use crate::principals::refused_by_http;
use crate::support::{Answer, Call, Gateway, Launch, Plan, Reply, Service, until};

#[path = "../../../semel-http/src/jwt/tests/issuer.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod issuer;

use issuer::{Issuer, base64url};

const ISSUER: &str = "https://issuer.example";
const SETTINGS: [&str; 4] = ["--jwt-issuer", ISSUER, "--jwt-audience", "shop"];

/// A gateway that knows the issuer's key from a file.
struct Verifying {
    service: Service,
    gateway: Gateway,
    issuer: Issuer,
}

fn in_seconds(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap() + seconds
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": "shop", "sub": "acme", "exp": in_seconds(300) })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn charge(key: &str, token: &str) -> Call {
    Call::post("/charges", key).header("Authorization", &format!("Bearer {token}")).body("a=1")
}

fn written(launch: &Launch, jwks: &str) -> PathBuf {
    let file = launch.directory().join("jwks.json");
    std::fs::write(&file, jwks).unwrap();
    file
}

fn verifying(principals: &str) -> Verifying {
    let (service, issuer) = (Service::plain(), Issuer::p256("key-1"));
    let launch = Launch::new(service.address());
    let file = written(&launch, &issuer.jwks());
    let launch = launch.args(["--principal", principals, "--jwks", file.to_str().unwrap()]).args(SETTINGS);
    Verifying { service, gateway: launch.start(), issuer }
}

/// The refusal of a token: told as RFC 6750 has it, and nothing happened.
#[track_caller]
fn refused(answer: &Answer) {
    refused_by_http(answer, 401);
    let challenge = answer.header("www-authenticate").unwrap_or_default();
    assert!(challenge.starts_with("Bearer error=\"invalid_token\""), "{challenge}");
}

#[test]
fn h5_a_retry_under_a_fresh_token_is_the_same_operation() {
    let Verifying { service, gateway, issuer } = verifying("jwt:sub");
    let first = gateway.call(&charge("k", &issuer.token(&with("jti", json!("1")))));
    assert_eq!(first.status, 201);
    // Expired meanwhile: the client is told, refreshes, and retries with the same key.
    refused(&gateway.call(&charge("k", &issuer.token(&with("exp", json!(in_seconds(-120)))))));
    let retry = gateway.call(&charge("k", &issuer.token(&with("jti", json!("2")))));
    assert!(retry.is_replay() && retry.body == first.body);
    assert_eq!(service.ledger().effects("k"), 1);
    let scope = gateway.operator().show("k").expect("a record").scope;
    assert!(scope.starts_with("http:default:jwt-sub-") && !scope.contains("acme"), "{scope}");
    assert!(!gateway.log().contains("whose token changes"), "here it may");
}

#[test]
fn c58_another_subject_has_keys_of_its_own() {
    let Verifying { service, gateway, issuer } = verifying("jwt:sub");
    let first = gateway.call(&charge("k", &issuer.token(&claims())));
    let other = gateway.call(&charge("k", &issuer.token(&with("sub", json!("bolt")))));
    assert!(!other.is_replay() && other.body != first.body);
    assert_eq!(service.ledger().effects("k"), 2);
}

/// Each of them would be another caller, or anybody, if something of it were believed.
#[test]
fn h5_forged_tokens_are_refused_before_anything_else_happens() {
    let Verifying { service, gateway, issuer } = verifying("jwt:sub,authorization");
    assert_eq!(gateway.call(&charge("k", &issuer.token(&claims()))).status, 201);
    let claimed = metric(&gateway, "semel_claims_total", "");
    let forger = Issuer::p256("key-1");
    let payload = base64url(claims().to_string().as_bytes());
    let unsigned = |head: Value| format!("{}.{payload}.", base64url(head.to_string().as_bytes()));
    let token = issuer.token(&claims());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (head, _) = signed.split_once('.').unwrap();
    let other_claims = base64url(with("sub", json!("root")).to_string().as_bytes());
    let point = issuer.jwk()["x"].as_str().unwrap().to_owned();
    let by_secret = |secret: &[u8]| {
        let head = base64url(json!({ "alg": "HS256", "kid": "key-1" }).to_string().as_bytes());
        let signed = format!("{head}.{payload}");
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
        format!("{signed}.{}", base64url(aws_lc_rs::hmac::sign(&key, signed.as_bytes()).as_ref()))
    };
    let es256 = |head: Value| forger.token_with(&head, &claims());
    let attacks = [
        ("another key", forger.token(&claims())),
        ("claims exchanged", format!("{head}.{other_claims}.{signature}")),
        ("signature cut off", format!("{signed}.")),
        ("signature of zeros", format!("{signed}.{}", base64url(&[0; 64]))),
        ("alg none", unsigned(json!({ "alg": "none" }))),
        ("alg None", unsigned(json!({ "alg": "None", "kid": "key-1" }))),
        ("no alg", unsigned(json!({ "kid": "key-1" }))),
        ("the public key as a secret", by_secret(issuer.jwks().as_bytes())),
        ("the public point as a secret", by_secret(point.as_bytes())),
        ("a key of its own", es256(json!({ "alg": "ES256", "jwk": forger.jwk() }))),
        ("kid as a path", es256(json!({ "alg": "ES256", "kid": "../../../../dev/null" }))),
        ("kid as a query", es256(json!({ "alg": "ES256", "kid": "' OR 1=1 --" }))),
        (
            "an extension",
            issuer.token_with(&json!({ "alg": "ES256", "kid": "key-1", "crit": ["x"] }), &claims()),
        ),
        ("another issuer", issuer.token(&with("iss", json!("https://evil.example")))),
        ("another audience", issuer.token(&with("aud", json!("bank")))),
        ("expired", issuer.token(&with("exp", json!(in_seconds(-61))))),
        ("for ever", issuer.token(&with("exp", json!(null)))),
        ("of the future", issuer.token(&with("nbf", json!(in_seconds(90))))),
        ("nothing at all", "..".to_owned()),
    ];
    for (attack, token) in attacks {
        let answer = gateway.call(&charge("k", &token));
        assert_eq!(answer.status, 401, "{attack}: {}", answer.text());
        refused(&answer);
        assert!(
            !answer.text().contains(&token) && !gateway.log().contains(&token),
            "{attack}: it is repeated"
        );
    }
    assert_eq!(service.ledger().received_count(), 1);
    assert_eq!(metric(&gateway, "semel_claims_total", ""), claimed, "the store was not asked");
}

#[test]
fn h5_a_url_that_a_token_names_is_never_asked() {
    let Verifying { service: _service, gateway, .. } = verifying("jwt:sub");
    let (forger, elsewhere) = (Issuer::p256("key-9"), Service::plain());
    elsewhere.set({
        let jwks = forger.jwks();
        move |_| Plan { effect: false, reply: Reply::new(200, &jwks), ..Plan::default() }
    });
    let url = format!("http://{}/jwks.json", elsewhere.address());
    for name in ["jku", "x5u", "kid", "iss"] {
        let mut head = json!({ "alg": "ES256", "kid": "key-9" });
        head[name] = json!(url);
        refused(&gateway.call(&charge("k", &forger.token_with(&head, &with("iss", json!(url))))));
    }
    assert_eq!(elsewhere.ledger().connections(), 0);
}

#[test]
fn h5_what_is_no_token_is_somebody_else_or_nobody_and_never_anonymous() {
    let Verifying { service: _service, gateway, .. } = verifying("jwt:sub,authorization");
    for (number, credentials) in ["Basic YTpi", "Bearer sk_test_1", "DPoP a.b.c"].into_iter().enumerate() {
        let key = format!("k{number}");
        let call = Call::post("/charges", &key).header("Authorization", credentials);
        assert_eq!(gateway.call(&call).status, 201);
        assert!(gateway.operator().show(&key).unwrap().scope.starts_with("http:default:authorization-"));
    }
    let twice = charge("k", "a.b.c").header("authorization", "Basic YTpi");
    refused_by_http(&gateway.call(&twice), 400);
    let Verifying { service: _service, gateway, issuer } = verifying("jwt:tenant");
    for credentials in ["Basic YTpi".to_owned(), format!("Bearer {}", issuer.token(&claims()))] {
        let answer = gateway.call(&Call::post("/charges", "k").header("Authorization", &credentials));
        refused_by_http(&answer, 401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(gateway.call(&Call::post("/charges", "k")).status, 201, "who sends nothing is anonymous");
}

fn publishing(jwks: &str) -> Plan {
    let reply = Reply::new(200, jwks).header("Content-Type", "application/jwk-set+json");
    Plan { effect: false, reply, ..Plan::default() }
}

fn fetching(service: &Service, keys: &Service) -> Launch {
    let url = format!("http://{}/jwks.json?v=1", keys.address());
    Launch::new(service.address()).args(["--principal", "jwt:sub", "--jwks", &url]).args(SETTINGS)
}

#[test]
fn h5_keys_are_fetched_from_a_url_and_a_new_one_at_once() {
    let (service, issuer) = (Service::plain(), Issuer::ed25519("key-1"));
    let keys = Service::doing(publishing(&issuer.jwks()));
    let gateway = fetching(&service, &keys).start();
    let asked = keys.ledger().last();
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/jwks.json?v=1"));
    assert_eq!(asked.header("authorization"), None);
    assert_eq!(gateway.admin("/readyz").status, 200);
    assert_eq!(gateway.call(&charge("k", &issuer.token(&claims()))).status, 201);

    // The issuer has another key. The first token that names it is refused, and the keys are fetched.
    let new = Issuer::ed25519("key-2");
    let both = json!({ "keys": [issuer.jwk(), new.jwk()] }).to_string();
    keys.set(move |_| publishing(&both));
    let token = new.token(&claims());
    until("the new key is known", || gateway.call(&charge("k", &token)).is_replay().then_some(()));
    assert_eq!(keys.ledger().received_count(), 2);
    // Made up ones have nothing fetched for a while.
    for number in 0..50 {
        refused(&gateway.call(&charge("k", &Issuer::ed25519(&format!("made-up-{number}")).token(&claims()))));
    }
    assert_eq!(keys.ledger().received_count(), 2);
}

#[test]
fn h5_without_keys_the_gateway_is_not_ready_and_lets_nothing_by() {
    let (service, issuer) = (Service::plain(), Issuer::ed25519("key-1"));
    let keys = Service::doing(publishing("<html>"));
    let gateway = fetching(&service, &keys).start();
    let ready = gateway.admin("/readyz");
    assert_eq!((ready.status, ready.json()["ready"].as_bool()), (503, Some(false)), "{}", ready.text());
    assert!(ready.text().contains("--jwks"), "{}", ready.text());
    let token = issuer.token(&claims());
    let refused = gateway.call(&charge("k", &token));
    refused_by_http(&refused, 503);
    retry_after(&refused);
    assert_eq!(service.ledger().received_count(), 0);
    // Who has no token does not need them.
    assert_eq!(gateway.call(&Call::post("/charges", "k")).status, 201);
    keys.set({
        let jwks = issuer.jwks();
        move |_| publishing(&jwks)
    });
    until("the keys are there", || (gateway.admin("/readyz").status == 200).then_some(()));
    assert_eq!(gateway.call(&charge("k", &token)).status, 201);
}

#[test]
fn h5_keys_are_not_fetched_from_where_they_are_not() {
    let (service, issuer) = (Service::plain(), Issuer::ed25519("key-1"));
    let elsewhere = Service::doing(publishing(&issuer.jwks()));
    let location = format!("http://{}/", elsewhere.address());
    let long = format!("{}{}", issuer.jwks(), " ".repeat(1 << 20));
    let redirect =
        Plan { effect: false, reply: Reply::new(302, "").header("Location", &location), ..Plan::default() };
    for answer in [redirect, publishing(&long), Plan::without_effect(404)] {
        let keys = Service::doing(answer);
        let gateway = fetching(&service, &keys).start();
        assert_eq!(gateway.admin("/readyz").status, 503);
        refused_by_http(&gateway.call(&charge("k", &issuer.token(&claims()))), 503);
    }
    assert_eq!(elsewhere.ledger().connections(), 0);
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn h5_a_file_of_keys_that_cannot_be_used_refuses_the_start() {
    let launch = Launch::new(([127, 0, 0, 1], 9).into()).fixed();
    let file = written(&launch, "{}");
    let launch = launch.args(["--principal", "jwt:sub", "--jwks", file.to_str().unwrap()]).args(SETTINGS);
    for (text, reason) in [
        ("{}", "no JSON Web Key Set"),
        ("{\"keys\":[]}", "no public key"),
        ("{\"keys\":[{\"kty\":\"oct\",\"k\":\"c2VjcmV0\"}]}", "no public key"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = launch.command(launch.address()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(last.starts_with("semel: --jwks ") && last.contains(reason), "{said}");
    }
}

#[test]
fn h5_what_tokens_need_is_named_in_one_line() {
    let launch = Launch::new(([127, 0, 0, 1], 9).into()).fixed().args(["--principal", "jwt:sub"]);
    for (args, missing) in [
        (&[][..], "needs --jwks, --jwt-issuer and --jwt-audience"),
        (&["--jwks", "keys.json"], "needs --jwt-issuer and --jwt-audience"),
        (&["--jwks", "keys.json", "--jwt-issuer", "i"], "needs --jwt-audience"),
    ] {
        let output = launch.clone().args(args.iter().copied()).command(launch.address()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(
            said.starts_with("semel: --principal jwt:sub ") && said.trim_end().ends_with(missing),
            "{said}"
        );
    }
}
