//! The key and its scope: H1, H2, H4, H5.

use crate::assert::{metric, plain, refused, replayed, states};
use crate::support::{Call, Gateway, Launch, Plan, Service};

fn with_key(value: &str) -> Call {
    Call::new("POST", "/charges").header("Idempotency-Key", value).body("amount=1")
}

#[test]
fn h1_the_bare_form_is_the_same_key_as_the_quoted_one() {
    let (service, gateway) = plain(&[]);
    let first = gateway.call(&with_key("\"order-77\""));
    for form in ["order-77", "\"order-77\";v=1;w", "  order-77  "] {
        let again = gateway.call(&with_key(form));
        assert!(again.is_replay(), "{form}: {}", again.text());
        assert_eq!(again.body, first.body);
    }
    assert_eq!(service.ledger().effects_count(), 1);
}

#[test]
fn h1_the_service_gets_the_key_as_it_came() {
    let (service, gateway) = plain(&[]);
    gateway.call(&with_key("\"order-78\";v=1"));
    assert_eq!(service.ledger().last().header_lines("idempotency-key"), ["\"order-78\";v=1"]);
}

#[test]
fn h1_strict_syntax_refuses_the_bare_form() {
    let (service, gateway) = plain(&["--key-syntax", "strict"]);
    refused(&gateway.call(&with_key("order-79")), 400, "key-malformed", false, "none");
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(gateway.call(&with_key("\"order-79\"")).status, 201);
}

#[test]
fn h2_what_is_no_key_is_refused_and_never_guessed_at() {
    let (service, gateway) = plain(&[]);
    let long = format!("\"{}\"", "k".repeat(256));
    for value in [
        "",
        "\"\"",
        "\"abc",
        "abc\"",
        "\"a\", \"b\"",
        "a, b",
        "a,b",
        "a b",
        "a;b",
        r"a\b",
        r#""a\b""#,
        "\"a\"b",
        "caf\u{e9}",
        "\"caf\u{e9}\"",
        "a\tb",
        &long,
    ] {
        let answer = gateway.call(&with_key(value));
        refused(&answer, 400, "key-malformed", false, "none");
        let repeats = value.len() > 3 && answer.text().contains(value);
        assert!(!repeats, "the key is not repeated: {}", answer.text());
    }
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(states(&gateway), []);
}

#[test]
fn c18_two_key_lines_are_never_another_key() {
    let (service, gateway) = plain(&[]);
    for lines in [
        "Idempotency-Key: K\r\nIdempotency-Key: K",
        "Idempotency-Key: K\r\nIdempotency-Key: L",
        "Idempotency-Key: \"K\"\r\nidempotency-KEY: \"K\"",
        "IDEMPOTENCY-KEY: K\r\nX-Other: 1\r\nidempotency-key: K",
        "Idempotency-Key: K, K",
        "Idempotency-Key: \"K\", \"K\"",
        "Idempotency-Key: K\r\nIdempotency-Key: ",
    ] {
        let mut client = gateway.connect();
        let request = format!("POST /pay HTTP/1.1\r\nHost: h\r\n{lines}\r\nContent-Length: 2\r\n\r\nhi");
        client.send(request.as_bytes()).unwrap();
        refused(&client.receive().unwrap(), 400, "key-malformed", false, "none");
    }
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(gateway.call(&Call::post("/pay", "K").body("hi")).status, 201);
}

#[test]
fn c89_a_key_has_255_bytes_at_most_whatever_it_is_made_of() {
    let (service, gateway) = plain(&[]);
    let common = "k".repeat(254);
    for end in ["a", "b"] {
        replayed(&gateway, &Call::post("/pay", &(common.clone() + end)));
    }
    assert_eq!(service.ledger().effects_count(), 2, "keys that differ in their last byte are two");
    let noise: String =
        (0..8192_u32).map(|n| char::from(b'0' + (n.wrapping_mul(2_654_435_761) >> 28) as u8)).collect();
    let answers =
        [common.clone() + "aa", "a".repeat(8192), noise].map(|key| gateway.call(&Call::post("/pay", &key)));
    for answer in &answers {
        refused(answer, 400, "key-malformed", false, "none");
        assert_eq!(answer.body, answers[0].body, "the same answer for each");
    }
    assert_eq!(service.ledger().received_count(), 2);
}

#[test]
fn c89_a_head_of_64_kib_is_refused_with_431() {
    let (service, gateway) = plain(&[]);
    let line = Call::post("/pay", "big").header("X-Filler", &"y".repeat(64 * 1024));
    let lines =
        (0..64).fold(Call::post("/pay", "big"), |call, n| call.header(&format!("X-{n}"), &"y".repeat(1024)));
    for call in [line, lines] {
        let mut client = gateway.connect();
        // The gateway may answer and close before all of it is written.
        let _ = client.send(&call.bytes());
        assert_eq!(client.receive().expect("an answer").status, 431);
        assert!(client.is_closed());
    }
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(gateway.call(&Call::post("/pay", "big")).status, 201, "and it serves on");
}

#[test]
fn h4_without_a_key_it_passes_by_unguarded_and_is_counted() {
    let (service, gateway) = plain(&[]);
    let call = Call::new("POST", "/charges").body("amount=1");
    for _ in 0..2 {
        let answer = gateway.call(&call);
        assert_eq!((answer.status, answer.is_replay()), (201, false));
    }
    assert_eq!(service.ledger().effects_count(), 2);
    let last = service.ledger().last();
    assert_eq!((last.header("semel-fence"), last.header("semel-attempt")), (None, None));
    assert_eq!(metric(&gateway, "semel_unguarded_total", ""), 2.0);
    assert_eq!(states(&gateway), []);
}

#[test]
fn h4_required_refuses_a_guarded_request_without_a_key() {
    let (service, gateway) = plain(&["--key", "required"]);
    for method in ["POST", "PATCH"] {
        refused(&gateway.call(&Call::new(method, "/charges").body("a=1")), 400, "key-missing", false, "none");
    }
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(gateway.call(&Call::new("PUT", "/charges/1").body("a=1")).status, 201, "PUT is not guarded");
    assert_eq!(gateway.call(&Call::post("/charges", "k")).status, 201);
}

#[test]
fn h5_the_scope_is_surface_service_and_hashed_authorization() {
    let (_service, gateway) = plain(&["--service", "shop"]);
    gateway.call(&Call::post("/charges", "mine").header("Authorization", "Bearer sk_test_1"));
    gateway.call(&Call::post("/charges", "anybodys"));
    let scope = |key| gateway.operator().show(key).expect("a record").scope;
    assert_eq!(scope("anybodys"), "http:shop:anonymous");
    let digest = scope("mine");
    let digest = digest.strip_prefix("http:shop:authorization-").expect("the service and a digest");
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
}

#[test]
fn h5_two_services_on_one_store_do_not_share_keys() {
    let service = Service::plain();
    let shop = Launch::new(service.address()).args(["--service", "shop"]);
    let bank = Launch::new(service.address()).args(["--service", "bank"]).on_store_of(&shop);
    let scopes = [&shop, &bank].map(|launch| {
        let gateway = launch.start();
        assert!(!gateway.call(&Call::post("/charges", "k")).is_replay());
        gateway.operator().keys().len()
    });
    assert_eq!(scopes, [1, 2]);
    assert_eq!(service.ledger().effects("k"), 2);
}

#[test]
fn c58_another_tenants_key_is_its_own_and_another_route_is_a_mismatch() {
    let (service, gateway) = plain(&[]);
    let order = |who: &str| Call::post("/orders", "K").header("Authorization", who).body("{}");
    let first = gateway.call(&order("Bearer a"));
    let other = gateway.call(&order("Bearer b"));
    assert!(!other.is_replay());
    assert_ne!(first.body, other.body, "another tenant's run is its own");
    let refund = Call::post("/refunds", "K").header("Authorization", "Bearer a").body("{}");
    // Another route is never answered from this one's record. That it is refused, and not run, is H6.
    refused(&gateway.call(&refund), 422, "key-reused", false, "none");
    assert_eq!(service.ledger().effects("K"), 2);
    assert_eq!(gateway.call(&order("Bearer a")).body, first.body);
    assert_eq!(gateway.call(&order("Bearer b")).body, other.body);
}

#[test]
fn c32_an_answer_of_401_is_not_stored_and_binds_nothing() {
    let service = Service::start(|received| match received.header("authorization") {
        Some("Bearer good") => Plan::default(),
        Some(_) => Plan::without_effect(403),
        None => Plan::without_effect(401),
    });
    let gateway = Gateway::start(service.address(), &[]);
    let call = |body: &str| Call::post("/orders", "K").body(body);
    assert_eq!(gateway.call(&call("one")).status, 401);
    assert_eq!(gateway.call(&call("two")).status, 401, "it bound no fingerprint either");
    let revoked = call("one").header("Authorization", "Bearer old");
    assert_eq!([gateway.call(&revoked).status, gateway.call(&revoked).status], [403, 403]);
    let good = call("one").header("Authorization", "Bearer good");
    let first = gateway.call(&good);
    assert_eq!((first.status, first.is_replay()), (201, false));
    let again = gateway.call(&revoked);
    assert!(!again.is_replay(), "a replay never crosses from one Authorization to another");
    assert_eq!(service.ledger().effects("K"), 1);
}

#[test]
fn h4_weak_keys_are_counted_and_warned_about_and_work() {
    let (service, gateway) = plain(&[]);
    for key in ["1", "2"] {
        replayed(&gateway, &Call::new("POST", "/x").header("Idempotency-Key", key).body("x"));
    }
    assert_eq!(metric(&gateway, "semel_weak_keys_total", ""), 4.0);
    assert_eq!(service.ledger().received_count(), 2);
    gateway.wait_for_log(|line| line.contains("semel_weak_keys_total")).expect("a warning");
    let warned = gateway.log().lines().filter(|line| line.contains("semel_weak_keys_total")).count();
    assert_eq!(warned, 1, "once is enough");
}
