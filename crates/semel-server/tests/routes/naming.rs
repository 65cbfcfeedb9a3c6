//! Where the key stands, and what happens without one: H1 and H4.

use crate::assert::{refused, replayed, states};
use crate::configured;
use crate::support::{Call, Service};

fn bare(path: &str) -> Call {
    Call::new("POST", path)
}

#[test]
fn h1_an_alias_carries_the_key_and_two_of_them_are_two_keys() {
    let service = Service::plain();
    let gateway = configured(&service, "key_aliases = [\"X-Idempotency-Key\", \"PayPal-Request-Id\"]\n");
    replayed(&gateway, &bare("/a").header("X-Idempotency-Key", "k").body("x"));
    assert!(gateway.call(&bare("/a").header("Idempotency-Key", "k").body("x")).is_replay());
    let both = bare("/a").header("Idempotency-Key", "k").header("PayPal-Request-Id", "k").body("x");
    refused(&gateway.call(&both), 400, "key-malformed", false, "none");
    assert_eq!(service.ledger().effects_count(), 1);
}

#[test]
fn h1_a_key_in_the_body_is_a_key() {
    let service = Service::plain();
    let toml = "[[route]]\nmatch = \"/json\"\nkey_field = \"json:/request/id\"\n\
                [[route]]\nmatch = \"/form\"\nkey_field = \"form:request_id\"\nkey = \"required\"\n\
                [[route]]\nmatch = \"/xml\"\nkey_field = \"xml:RequestId\"\n";
    let gateway = configured(&service, toml);
    let bodies = [
        ("/json", "{\"request\":{\"id\":\"j-1\"},\"amount\":1}"),
        ("/form", "amount=1&request_id=f-1"),
        ("/xml", "<Pay><RequestId>x-1</RequestId></Pay>"),
    ];
    for (path, body) in bodies {
        replayed(&gateway, &bare(path).body(body));
        // The body is part of what is asked for, as ever.
        let other = body.replace("amount", "amounts").replace("Pay>", "Pai>");
        refused(&gateway.call(&bare(path).body(other)), 422, "key-reused", false, "none");
    }
    let known: Vec<_> = states(&gateway).into_iter().map(|(key, _)| key).collect();
    assert_eq!(known, ["f-1", "j-1", "x-1"]);
    // Absent, and optional: it passes by.
    assert_eq!(gateway.call(&bare("/json").body("{}")).status, 201);
    // Absent, and required.
    let missing = gateway.call(&bare("/form").body("amount=1"));
    refused(&missing, 400, "key-missing", false, "none");
    let said = &missing.json()["detail"];
    assert!(said.as_str().unwrap_or_default().contains("form:request_id"), "it names the field: {said}");
    // In a header too: one key, or none that is chosen.
    let header = |key| bare("/json").header("Idempotency-Key", key).body(bodies[0].1);
    assert!(gateway.call(&header("j-1")).is_replay());
    refused(&gateway.call(&header("other")), 400, "key-malformed", false, "none");
}

#[test]
fn h2_a_key_in_the_body_that_cannot_be_read_is_never_guessed_at() {
    let service = Service::plain();
    let gateway = configured(&service, "[[route]]\nmatch = \"/json\"\nkey_field = \"json:/id\"\n");
    for body in [
        "{\"id\":\"a\",\"id\":\"b\"}",
        "{\"id\":\"\"}",
        "{\"id\":[\"a\"]}",
        "{\"id\":\"a\u{7f}\"}",
        "{\"id\":",
        &format!("{{\"id\":\"{}\"}}", "k".repeat(256)),
    ] {
        refused(&gateway.call(&bare("/json").body(body)), 400, "key-malformed", false, "none");
    }
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn h4_a_derived_key_is_made_of_all_its_fields() {
    let service = Service::plain();
    let toml = "[[route]]\nmatch = \"/orders/{shop}\"\nkey = \"derive\"\n\
                derive = [\"path:shop\", \"json:/order\", \"header:x-line\"]\n";
    let gateway = configured(&service, toml);
    let order = |shop: &str, order: &str, line: &str| {
        bare(&format!("/orders/{shop}")).header("X-Line", line).body(format!("{{\"order\":{order}}}"))
    };
    replayed(&gateway, &order("a", "77", "1"));
    for other in
        [order("b", "77", "1"), order("a", "78", "1"), order("a", "77", "2"), order("a", "\"7\"", "71")]
    {
        assert!(!gateway.call(&other).is_replay());
    }
    assert_eq!(service.ledger().effects_count(), 5);
    // A field that is missing would give two orders one key.
    let without = bare("/orders/a").body("{\"order\":77}");
    refused(&gateway.call(&without), 400, "key-missing", false, "none");
    refused(&gateway.call(&order("a", "null", "1")), 400, "key-missing", false, "none");
    // The caller's own key wins.
    let named = order("a", "77", "1").header("Idempotency-Key", "mine");
    assert!(!gateway.call(&named).is_replay());
    let keys: Vec<_> = states(&gateway).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys.iter().filter(|key| key.starts_with("derived-1-")).count(), 5, "{keys:?}");
}

#[test]
fn h4_a_generated_key_puts_the_request_on_record_and_says_which() {
    let service = Service::plain();
    let gateway = configured(&service, "[[route]]\nmatch = \"/a\"\nkey = \"generate\"\n");
    let (one, other) = (gateway.call(&bare("/a").body("x")), gateway.call(&bare("/a").body("x")));
    let key = |answer: &crate::support::Answer| {
        answer.header("idempotency-key").unwrap().trim_matches('"').to_owned()
    };
    assert_ne!(key(&one), key(&other));
    assert!(!other.is_replay());
    assert_eq!(service.ledger().last().key().trim_matches('"'), key(&other));
    assert_eq!(gateway.operator().show(&key(&one)).unwrap().state, "completed");
    replayed(&gateway, &Call::post("/a", "named").body("x"));
}

#[test]
fn h4_what_is_idempotent_by_nature_passes_by_even_with_a_key() {
    let service = Service::plain();
    let gateway = configured(&service, "[[route]]\nmatch = \"/status\"\nkey = \"natural\"\n");
    let call = Call::post("/status", "k").body("x");
    assert!(!gateway.call(&call).is_replay() && !gateway.call(&call).is_replay());
    assert_eq!(service.ledger().last().key(), "k");
    assert_eq!(states(&gateway), []);
}

/// Nobody who reads the store learns a key; an operator who has the secret looks it up as ever.
#[test]
fn t6_keys_can_be_stored_as_hmacs() {
    let service = Service::plain();
    let launch = crate::launch(service.address(), "");
    let (secret, key) = (launch.directory().join("secret"), "order-77-of-a-customer");
    std::fs::write(&secret, "a secret of 20 bytes\n").unwrap();
    let toml = format!("key_secret_file = {secret:?}\n");
    std::fs::write(launch.directory().join("semel.toml"), &toml).unwrap();
    let gateway = launch.start();
    replayed(&gateway, &Call::post("/a", key).body("x"));
    assert_eq!(service.ledger().last().key(), key, "the service gets it in clear");
    let keys: Vec<_> = states(&gateway).into_iter().map(|(key, _)| key).collect();
    assert!(keys.len() == 1 && keys[0].starts_with("hmac-"), "{keys:?}");
    let files = std::fs::read_dir(launch.directory()).unwrap().map(|file| file.unwrap().path());
    for file in files.filter(|file| file.to_string_lossy().contains("semel.db")) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(key.len()).any(|window| window == key.as_bytes()), "{file:?}");
    }
    assert!(gateway.operator().show(key).is_none());
    let shown =
        gateway.operator().done(&["show", key, "--json", "--key-secret-file", secret.to_str().unwrap()]);
    assert!(shown.contains("completed"), "{shown}");
}
