//! Whoever is asked before a key is looked up: H7.

use std::time::{Duration, Instant};

use crate::assert::{metric, retry_after};
use crate::principals::refused_by_http;
use crate::support::{Call, Gateway, Plan, Reply, Service};

/// Those who may are `Bearer good…`.
fn authority() -> Service {
    Service::start(|received| match received.header("authorization") {
        Some(token) if token.starts_with("Bearer good") => answering(Reply::new(204, "")),
        Some(_) => {
            answering(Reply::new(403, "{\"error\":\"revoked\"}").header("Content-Type", "application/json"))
        }
        None => answering(
            Reply::new(401, "who?")
                .header("WWW-Authenticate", "Bearer realm=\"shop\"")
                .header("Set-Cookie", "s=1"),
        ),
    })
}

fn answering(reply: Reply) -> Plan {
    Plan { effect: false, reply, ..Plan::default() }
}

fn asking(authority: &Service) -> (Service, Gateway) {
    let service = Service::plain();
    let url = format!("http://{}/allowed?of=shop", authority.address());
    let gateway = Gateway::start(service.address(), &["--auth-check", &url]);
    (service, gateway)
}

fn charge(key: &str, token: &str) -> Call {
    Call::post("/charges?x=1", key).header("Authorization", token).body("a=1")
}

fn claims(gateway: &Gateway) -> f64 {
    metric(gateway, "semel_claims_total", "")
}

#[test]
fn h7_who_may_goes_on_and_the_question_holds_the_callers_head() {
    let authority = authority();
    let (service, gateway) = asking(&authority);
    let call = charge("k", "Bearer good").header("Cookie", "a=1").header("Expect", "100-continue");
    let mut client = gateway.connect();
    assert_eq!(client.call(&call).unwrap().status, 100);
    assert_eq!(client.receive().unwrap().status, 201);
    let asked = authority.ledger().last();
    assert_eq!(
        (asked.method.as_str(), asked.target.as_str(), asked.body.len()),
        ("GET", "/allowed?of=shop", 0)
    );
    assert_eq!(asked.header("x-original-method"), Some("POST"));
    assert_eq!(asked.header("x-original-uri"), Some("/charges?x=1"));
    assert_eq!(asked.header("authorization"), Some("Bearer good"));
    assert_eq!(asked.header("cookie"), Some("a=1"));
    assert_eq!(asked.header("host"), Some(&*authority.address().to_string()));
    assert_eq!(asked.header("x-forwarded-for"), Some("127.0.0.1"));
    for taken_off in ["idempotency-key", "content-length", "content-type", "expect", "transfer-encoding"] {
        assert_eq!(asked.header(taken_off), None, "{taken_off}");
    }
    // The service gets the request as it came.
    assert_eq!(service.ledger().last().header("x-original-uri"), None);
    assert_eq!(service.ledger().last().key(), "k");
}

#[test]
fn c32_a_revoked_caller_gets_no_replay_and_its_key_is_not_looked_up() {
    let authority = authority();
    let (service, gateway) = asking(&authority);
    assert_eq!(gateway.call(&charge("k", "Bearer good")).status, 201);
    assert!(gateway.call(&charge("k", "Bearer good")).is_replay());
    let before = claims(&gateway);
    authority.set(|_| {
        answering(Reply::new(401, "gone").header("WWW-Authenticate", "Bearer error=\"invalid_token\""))
    });
    for _ in 0..2 {
        let refused = gateway.call(&charge("k", "Bearer good"));
        assert_eq!((refused.status, refused.text().as_str()), (401, "gone"));
        assert_eq!(refused.header("www-authenticate"), Some("Bearer error=\"invalid_token\""));
        assert!(!refused.is_replay());
    }
    assert_eq!(claims(&gateway), before, "the store was not asked");
    assert_eq!(service.ledger().effects("k"), 1);
    // The answer was nothing that is kept: whoever may again gets the first one.
    authority.set(|_| answering(Reply::new(200, "")));
    assert!(gateway.call(&charge("k", "Bearer good")).is_replay());
}

#[test]
fn h7_a_refusal_is_passed_on_and_nothing_else_of_it() {
    let authority = authority();
    let (service, gateway) = asking(&authority);
    let nobody = gateway.call(&Call::post("/charges", "k"));
    assert_eq!((nobody.status, nobody.text().as_str()), (401, "who?"));
    assert_eq!(nobody.header("www-authenticate"), Some("Bearer realm=\"shop\""));
    assert_eq!(nobody.header("set-cookie"), None);
    let forbidden = gateway.call(&charge("k", "Bearer bad"));
    assert_eq!((forbidden.status, forbidden.header("content-type")), (403, Some("application/json")));
    assert_eq!(forbidden.json()["error"], "revoked");
    authority
        .set(|_| answering(Reply::new(403, vec![b'x'; 64 * 1024 + 1]).header("WWW-Authenticate", "Basic")));
    let long = gateway.call(&charge("k", "Bearer bad"));
    assert_eq!((long.status, long.body.len(), long.header("www-authenticate")), (403, 0, Some("Basic")));
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(gateway.operator().keys().len(), 0);
}

#[test]
fn h7_whoever_may_not_is_not_asked_for_its_body() {
    let authority = authority();
    let (service, gateway) = asking(&authority);
    let head = "POST /charges HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nAuthorization: Bearer bad\r\n\
                Content-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    let mut client = gateway.connect();
    client.send(head.as_bytes()).unwrap();
    assert_eq!(client.receive().unwrap().status, 403, "and no 100 before it");
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn h7_whatever_else_is_answered_lets_nobody_by() {
    let authority = authority();
    let (service, gateway) = asking(&authority);
    let elsewhere = Service::plain();
    let location = format!("http://{}/", elsewhere.address());
    for status in [300, 302, 304, 307, 400, 404, 429, 500, 503] {
        let reply = Reply::new(status, "").header("Location", &location);
        authority.set(move |_| answering(reply.clone()));
        let refused = gateway.call(&charge("k", "Bearer good"));
        refused_by_http(&refused, 503);
        retry_after(&refused);
    }
    authority.refuse();
    refused_by_http(&gateway.call(&charge("k", "Bearer good")), 503);
    assert_eq!(elsewhere.ledger().received_count(), 0, "no redirect is followed");
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(gateway.operator().keys().len(), 0);
}

#[test]
fn h7_an_answer_that_does_not_come_is_not_waited_for_long() {
    let authority = Service::doing(Plan { effect: false, hang: true, ..Plan::default() });
    let (service, gateway) = asking(&authority);
    let begun = Instant::now();
    refused_by_http(&gateway.call(&charge("k", "Bearer good")), 503);
    assert!(begun.elapsed() >= Duration::from_secs(5), "it was given its time");
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn h7_an_idle_connection_that_has_ended_refuses_nobody() {
    let authority = authority();
    // Answers, and closes without having said so.
    authority.set(|_| Plan { cut_after: Some(4096), ..answering(Reply::new(204, "")) });
    let (_service, gateway) = asking(&authority);
    for number in 0..20 {
        assert_eq!(gateway.call(&charge(&format!("k{number}"), "Bearer good")).status, 201);
    }
}

#[test]
fn h7_no_part_of_a_request_leads_the_question_elsewhere() {
    let authority = authority();
    let (_service, gateway) = asking(&authority);
    let elsewhere = Service::plain();
    let url = format!("http://{}/x", elsewhere.address());
    for target in [url.as_str(), "//evil.example/x", "/%2e%2e/x", "/@evil.example"] {
        let call = Call::new("POST", target)
            .header("Idempotency-Key", &format!("\"{url}\""))
            .header("Authorization", "Bearer good")
            .header("X-Original-URI", &url)
            .header("X-Original-Method", "GET")
            .header("X-Forwarded-Host", &elsewhere.address().to_string());
        gateway.call(&call);
        let asked = authority.ledger().last();
        assert_eq!(asked.target, "/allowed?of=shop");
        assert_eq!(asked.header_lines("x-original-method"), ["POST"]);
        assert_eq!(asked.header_lines("host"), [authority.address().to_string()]);
        assert!(asked.header_lines("x-original-uri").iter().all(|said| said.starts_with('/')));
    }
    assert_eq!(elsewhere.ledger().received_count(), 0);
}

#[test]
fn h7_what_is_not_guarded_is_not_asked_about() {
    let authority = authority();
    let (service, gateway) = asking(&authority);
    gateway.call(&Call::new("GET", "/charges"));
    gateway.call(&Call::new("POST", "/charges").body("a=1"));
    assert_eq!((authority.ledger().received_count(), service.ledger().received_count()), (0, 2));
}
