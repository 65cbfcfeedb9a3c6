//! What a browser asks and reads, from outside: H16 and C100. The real browser is in `tests/clients`.

use crate::assert::{in_flight, plain, refused, replayed};
use crate::support::{Answer, Call, Gate, Gateway, Launch, Plan, Reply, Service};

const SHOP: &str = "https://shop.example";
const DESK: &str = "https://desk.example";
const EVIL: &str = "https://evil.example";

fn shop(args: &[&str]) -> (Service, Gateway) {
    plain(&[&["--cors-origin", SHOP], args].concat())
}

fn preflight(origin: &str) -> Call {
    // As Chromium writes it.
    Call::new("OPTIONS", "/charges")
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "content-type,idempotency-key")
}

fn charge(origin: &str, key: &str) -> Call {
    Call::post("/charges", key).header("Origin", origin).body("amount=1")
}

/// That a page of the origin may read the answer, its marker, and when to ask again.
#[track_caller]
fn readable(answer: &Answer, origin: &str) {
    assert_eq!(answer.header_lines("access-control-allow-origin"), [origin], "{:?}", answer.headers);
    assert!(answer.header_lines("vary").contains(&"origin"), "{:?}", answer.headers);
    let exposed = answer.header_lines("access-control-expose-headers").join(", ");
    for name in ["idempotent-replayed", "retry-after", "link", "semel-recorded"] {
        assert!(exposed.contains(name), "{name} in {exposed}");
    }
}

#[track_caller]
fn says_nothing(answer: &Answer) {
    let said: Vec<_> =
        answer.headers.iter().filter(|(name, _)| name.starts_with("access-control-")).collect();
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn c100_a_preflight_is_allowed_and_touches_neither_key_nor_store() {
    let (service, gateway) = shop(&[]);
    service.set(|_| Plan::without_effect(404));
    let answer = gateway.call(&preflight(SHOP).header("Idempotency-Key", "\"p\""));
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    assert_eq!(answer.header("access-control-allow-origin"), Some(SHOP));
    assert_eq!(answer.header("access-control-allow-methods"), Some("POST"));
    let allowed = answer.header_lines("access-control-allow-headers").join(", ");
    assert!(allowed.contains("content-type") && allowed.contains("idempotency-key"), "{allowed}");
    assert!(gateway.operator().keys().is_empty());
    assert_eq!(service.ledger().last().method, "OPTIONS", "the service is asked first");
}

#[test]
fn h16_a_service_that_answers_preflights_itself_is_only_completed() {
    let (service, gateway) = shop(&["--key-aliases", "X-Idempotency-Key"]);
    let reply = Reply::new(200, "")
        .header("Access-Control-Allow-Origin", SHOP)
        .header("Access-Control-Allow-Methods", "GET, POST")
        .header("Access-Control-Allow-Headers", "Content-Type")
        .header("Access-Control-Allow-Credentials", "true")
        .header("Access-Control-Max-Age", "5");
    service.set(move |_| Plan { reply: reply.clone(), ..Plan::default() });
    let answer = gateway.call(&preflight(SHOP));
    assert_eq!((answer.status, answer.header("access-control-allow-methods")), (200, Some("GET, POST")));
    let allowed = answer.header_lines("access-control-allow-headers");
    assert_eq!(allowed, ["Content-Type", "idempotency-key, x-idempotency-key, prefer"]);
    assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(answer.header("access-control-max-age"), Some("5"));
}

#[test]
fn h16_a_preflight_is_answered_while_the_service_is_away_and_the_refusal_can_be_read() {
    let (service, gateway) = shop(&[]);
    service.refuse();
    assert_eq!(gateway.call(&preflight(SHOP)).status, 204);
    let answer = gateway.call(&charge(SHOP, "away"));
    refused(&answer, 502, "upstream-unreachable", true, "none");
    readable(&answer, SHOP);
}

#[test]
fn h16_answers_replays_and_refusals_can_be_read() {
    let (service, gateway) = shop(&[]);
    let (first, again) = replayed(&gateway, &charge(SHOP, "read"));
    readable(&first, SHOP);
    readable(&again, SHOP);
    let reused = gateway.call(&charge(SHOP, "read").body("amount=2"));
    refused(&reused, 422, "key-reused", false, "none");
    readable(&reused, SHOP);
    readable(&gateway.call(&Call::new("GET", "/.well-known/semel-policy").header("Origin", SHOP)), SHOP);

    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let running = gateway.call_aside(&charge(SHOP, "runs"));
    service.ledger().wait_received(2);
    let told = gateway.call(&charge(SHOP, "runs"));
    in_flight(&told);
    readable(&told, SHOP);
    gate.open();
    readable(&running.join().unwrap(), SHOP);
}

#[test]
fn h16_a_kept_answer_is_not_pinned_to_the_origin_that_asked_first() {
    let (service, gateway) = plain(&["--cors-origin", SHOP, "--cors-origin", DESK]);
    // A service that reflects the origin and allows it cookies.
    service.set(|received| {
        let origin = received.header("origin").unwrap_or("none").to_owned();
        let reply = Reply::numbered().header("Access-Control-Allow-Origin", &origin);
        Plan { reply: reply.header("Access-Control-Allow-Credentials", "true"), ..Plan::default() }
    });
    let first = gateway.call(&charge(SHOP, "pinned"));
    readable(&first, SHOP);
    assert_eq!(first.header("access-control-allow-credentials"), Some("true"));
    let same = gateway.call(&charge(SHOP, "pinned"));
    assert!(same.is_replay());
    assert_eq!(same.header("access-control-allow-credentials"), Some("true"));
    let other = gateway.call(&charge(DESK, "pinned"));
    assert!(other.is_replay());
    readable(&other, DESK);
    // What was said of the first one's cookies says nothing of this one's.
    assert_eq!(other.header("access-control-allow-credentials"), None);
    assert_eq!(service.ledger().effects("pinned"), 1);
}

#[test]
fn h16_nothing_changes_for_other_origins_and_for_none() {
    let (service, gateway) = shop(&[]);
    for call in [Call::post("/charges", "none").body("amount=1"), charge(EVIL, "evil")] {
        let (first, again) = replayed(&gateway, &call);
        says_nothing(&first);
        says_nothing(&again);
        assert_eq!(first.header_lines("vary"), ["origin"], "for the caches on the way");
    }
    service.set(|_| Plan::without_effect(405));
    let refused = gateway.call(&preflight(EVIL));
    assert_eq!(refused.status, 405);
    says_nothing(&refused);
}

#[test]
fn h16_without_the_option_nothing_is_said_at_all() {
    let (_service, gateway) = plain(&[]);
    let answer = gateway.call(&charge(SHOP, "off"));
    says_nothing(&answer);
    assert_eq!(answer.header("vary"), None);
}

#[test]
fn h16_credentials_are_said_on_refusals_too_where_the_option_allows_them() {
    let (_service, gateway) = shop(&["--cors-credentials"]);
    gateway.call(&charge(SHOP, "cookie"));
    let reused = gateway.call(&charge(SHOP, "cookie").body("amount=2"));
    readable(&reused, SHOP);
    assert_eq!(reused.header("access-control-allow-credentials"), Some("true"));
    says_nothing(&gateway.call(&charge(EVIL, "cookie").body("amount=2")));
}

#[test]
fn h16_every_origin_is_named_by_a_star_and_never_with_credentials() {
    let (service, gateway) = plain(&["--cors-origin", "*"]);
    service.set(|_| {
        let reply = Reply::numbered().header("Access-Control-Allow-Origin", SHOP);
        Plan { reply: reply.header("Access-Control-Allow-Credentials", "true"), ..Plan::default() }
    });
    let answer = gateway.call(&charge(EVIL, "star"));
    assert_eq!(answer.header_lines("access-control-allow-origin"), ["*"]);
    assert_eq!(answer.header("access-control-allow-credentials"), None);
}

#[test]
fn h16_the_file_and_the_variable_list_origins_too() {
    let service = Service::plain();
    let launch = Launch::new(service.address());
    let file = launch.directory().join("semel.toml");
    std::fs::write(&file, format!("cors_origins = [\"{SHOP}\", \"{DESK}\"]\n")).unwrap();
    let by_file = launch.clone().args(["--config", file.to_str().unwrap()]);
    let by_variable = launch.beside().env("SEMEL_CORS_ORIGIN", &format!("{SHOP},{DESK}"));
    for (number, launch) in [by_file, by_variable].into_iter().enumerate() {
        let gateway = launch.start();
        for origin in [SHOP, DESK] {
            readable(&gateway.call(&charge(origin, &format!("listed-{number}"))), origin);
        }
        says_nothing(&gateway.call(&charge(EVIL, &format!("listed-{number}"))));
    }
}
