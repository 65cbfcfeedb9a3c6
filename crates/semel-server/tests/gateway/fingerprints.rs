//! What makes two requests the same request: H6, and the order of the checks (K6).

use crate::assert::{plain, refused, replayed};
use crate::support::{Call, Gate, Gateway, Plan, Service};

fn base() -> Call {
    Call::post("/charges?dry=1", "K").header("Content-Type", "application/json").body("{\"amount\":5}")
}

#[track_caller]
fn mismatch(gateway: &Gateway, call: &Call) {
    refused(&gateway.call(call), 422, "key-reused", false, "none");
}

#[test]
fn h6_each_part_of_the_request_counts() {
    let (service, gateway) = plain(&[]);
    replayed(&gateway, &base());
    let json = |call: Call| call.header("Content-Type", "application/json").body("{\"amount\":5}");
    let key = |method, target| Call::new(method, target).header("Idempotency-Key", "K");
    for other in [
        json(key("PATCH", "/charges?dry=1")),
        json(key("POST", "/charge?dry=1")),
        json(key("POST", "/charges?dry=2")),
        json(key("POST", "/charges?")),
        json(key("POST", "/charges")),
        json(key("POST", "/%63harges?dry=1")),
        json(key("POST", "//charges?dry=1")),
        json(key("POST", "/charges?dry=1").header("Host", "other.example")),
        key("POST", "/charges?dry=1").body("{\"amount\":5}"),
        key("POST", "/charges?dry=1").header("Content-Type", "text/plain").body("{\"amount\":5}"),
        base().body("{\"amount\":6}"),
        base().body("{\"amount\":5} "),
        base().body(""),
    ] {
        mismatch(&gateway, &other);
    }
    assert_eq!(service.ledger().received_count(), 1);
    assert!(gateway.call(&base()).is_replay(), "a mismatch changes nothing");
}

#[test]
fn h6_other_headers_do_not_count() {
    let (service, gateway) = plain(&[]);
    gateway.call(&base());
    let again = base().header("User-Agent", "x").header("Traceparent", "00-1-2-01").header("Accept", "*/*");
    assert!(gateway.call(&again).is_replay());
    assert_eq!(service.ledger().received_count(), 1);
}

#[test]
fn h6_the_framing_of_the_body_does_not_count() {
    let (service, gateway) = plain(&[]);
    gateway.call(&base());
    let chunked =
        base().header("Transfer-Encoding", "chunked").body("6\r\n{\"amou\r\n6\r\nnt\":5}\r\n0\r\n\r\n");
    assert!(gateway.call(&chunked).is_replay());
    let waiting = base().header("Expect", "100-continue");
    let mut client = gateway.connect();
    client.send(&waiting.bytes()).unwrap();
    let mut answer = client.receive().unwrap();
    if answer.status == 100 {
        answer = client.receive().unwrap();
    }
    assert!(answer.is_replay());
    assert_eq!(service.ledger().received_count(), 1);
}

#[test]
fn c74_a_body_of_no_bytes_and_no_body_are_the_same_request() {
    let (service, gateway) = plain(&[]);
    let with = |framing: &str, rest: &str| {
        let mut client = gateway.connect();
        let head = format!("POST /empty HTTP/1.1\r\nHost: h\r\nIdempotency-Key: E\r\n{framing}\r\n{rest}");
        client.send(head.as_bytes()).unwrap();
        client.receive().unwrap()
    };
    assert_eq!(with("", "").status, 201);
    assert!(with("Content-Length: 0\r\n", "").is_replay());
    assert!(with("Transfer-Encoding: chunked\r\n", "0\r\n\r\n").is_replay());
    assert_eq!(service.ledger().received_count(), 1);
}

#[test]
fn c24_numbers_are_compared_as_written() {
    pairs_are_mismatches(&[
        ("9007199254740992", "9007199254740993"),
        ("0.1", "0.10000000000000001"),
        ("1e400", "1e401"),
        ("1.0", "1"),
        ("1e2", "100"),
        ("{\"a\":1,\"a\":2}", "{\"a\":2}"),
    ]);
    // Not read, so nothing can overflow.
    let (_service, gateway) = plain(&[]);
    replayed(&gateway, &Call::post("/deep", "deep").body("[".repeat(10_000)));
}

#[test]
fn c96_order_case_and_space_are_significant() {
    pairs_are_mismatches(&[
        ("[1,2]", "[2,1]"),
        ("{\"a\":null}", "{}"),
        ("\"1\"", "1"),
        ("\"A\"", "\"a\""),
        ("\"x \"", "\"x\""),
        ("\"e\u{301}\"", "\"\u{e9}\""),
        ("true", "1"),
    ]);
}

/// Exact bytes are the default. That members may change places is a route's choice (C97), and so is that another
/// boundary is the same upload (C16): see `comparisons.rs`.
#[test]
fn c97_c16_what_is_not_the_same_bytes_is_refused_and_never_run() {
    pairs_are_mismatches(&[
        ("{\"amount\":5,\"to\":{\"iban\":\"X\"}}", "{\"to\":{\"iban\":\"X\"},\"amount\":5}"),
        ("--aaa\r\n\r\nx\r\n--aaa--", "--zzz\r\n\r\nx\r\n--zzz--"),
    ]);
}

#[track_caller]
fn pairs_are_mismatches(pairs: &[(&str, &str)]) {
    let (service, gateway) = plain(&[]);
    for (number, (one, other)) in pairs.iter().enumerate() {
        let call = |body: &str| {
            Call::post("/pairs", &format!("pair-{number}"))
                .header("Content-Type", "application/json")
                .body(body)
        };
        assert_eq!(gateway.call(&call(one)).status, 201);
        mismatch(&gateway, &call(other));
        assert!(gateway.call(&call(one)).is_replay());
    }
    assert_eq!(service.ledger().received_count(), pairs.len());
}

#[test]
fn k6_a_mismatch_is_told_before_in_flight() {
    let gate = Gate::new();
    let service = Service::doing(Plan::behind(&gate));
    let gateway = Gateway::start(service.address(), &[]);
    let first = gateway.call_aside(&base());
    service.ledger().wait_received(1);
    mismatch(&gateway, &base().body("other"));
    gate.open();
    assert_eq!(first.join().unwrap().status, 201);
}

#[test]
fn k6_the_fingerprint_outlives_release_and_restart() {
    let (service, gateway) = plain(&[]);
    service.next(Plan::without_effect(503));
    assert_eq!(gateway.call(&base()).status, 503);
    mismatch(&gateway, &base().body("other"));
    let gateway = gateway.restart();
    mismatch(&gateway, &base().body("other"));
    assert_eq!(gateway.call(&base()).status, 201);
    let gateway = gateway.restart();
    mismatch(&gateway, &base().body("other"));
    assert!(gateway.call(&base()).is_replay());
    assert_eq!(service.ledger().received_count(), 2);
}
