//! Health, readiness, metrics and logs: what an operator sees, and what must never stand there.

mod support;

use std::collections::HashMap;

use rustix::process::Signal;
use serde_json::Value;

use support::{Call, Gate, Gateway, Plan, Reply, Service, WriteLock, until};

#[test]
fn healthz_says_that_the_process_lives() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let answer = gateway.admin("/healthz");
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok\n"));
    assert_eq!(gateway.admin("/nothing").status, 404);
    let mut client = support::Client::connect(gateway.admin).unwrap();
    assert_eq!(client.call(&Call::new("POST", "/healthz")).unwrap().status, 405);
    assert_eq!(client.call(&Call::new("HEAD", "/healthz")).unwrap().status, 200);
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn the_admin_paths_are_not_on_the_callers_address() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(gateway.call(&Call::new("GET", path)).status, 201, "{path} is the service's");
    }
    assert_eq!(service.ledger().received_count(), 3);
}

/// G1: the same statement as at start.
#[test]
fn readyz_says_what_is_guarded_and_where_it_ends() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &["--service", "shop", "--key", "required"]);
    let answer = gateway.admin("/readyz");
    let said = answer.json();
    assert_eq!((answer.status, &said["ready"], &said["reason"]), (200, &Value::Bool(true), &Value::Null));
    let statement = &said["gateway"];
    assert_eq!(statement["service"], "shop");
    assert_eq!(statement["key"], "required");
    assert_eq!(statement["on_unknown"], "park");
    assert_eq!(statement["store"], gateway.launch().store());
    assert_eq!(statement["store_shared"], false, "a local file protects one gateway only");
    assert!(statement["guarded"].as_str().unwrap().contains("POST"));
    assert!(!statement["limits"].as_array().unwrap().is_empty());
    let ready = gateway.wait_for_log(|line| line.contains("\"ready\"")).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let at_start: Value = serde_json::from_str(ready["gateway"].as_str().unwrap()).unwrap();
    assert_eq!(&at_start, statement);
}

#[test]
fn readyz_is_503_with_a_reason_while_the_store_cannot_be_written() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let lock = WriteLock::take(gateway.launch().store_file());
    let answer = gateway.admin("/readyz");
    let said = answer.json();
    assert_eq!((answer.status, &said["ready"]), (503, &Value::Bool(false)));
    assert!(!said["reason"].as_str().unwrap_or_default().is_empty(), "{said}");
    assert_eq!(gateway.admin("/healthz").status, 200, "it lives");
    drop(lock);
    until("it is ready again", || (gateway.admin("/readyz").status == 200).then_some(()));
}

#[test]
fn readyz_is_503_while_it_stops_and_what_runs_is_finished() {
    for signal in [Signal::TERM, Signal::INT] {
        let gate = Gate::new();
        let service = Service::doing(Plan::behind(&gate));
        let mut gateway = Gateway::start(service.address(), &[]);
        let running = gateway.call_aside(&Call::post("/charges", "running"));
        service.ledger().wait_received(1);
        gateway.send(signal);
        let answer =
            until("it is not ready", || Some(gateway.admin("/readyz")).filter(|answer| answer.status == 503));
        assert_eq!(answer.json()["reason"], "stopping");
        assert!(gateway.ended().is_none(), "it waits for what runs");
        gate.open();
        assert_eq!(running.join().unwrap().status, 201);
        assert_eq!(gateway.wait().code(), Some(0));
        assert_eq!(service.ledger().effects("running"), 1);
    }
}

#[test]
fn metrics_count_each_decision_once() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let call = Call::post("/charges", "k").body("a");
    for _ in 0..3 {
        gateway.call(&call);
    }
    gateway.call(&call.body("b"));
    service.next(Plan::without_effect(503));
    gateway.call(&Call::post("/charges", "released"));
    gateway.call(&Call::new("POST", "/charges"));
    let text = gateway.admin("/metrics").text();
    for line in [
        "semel_claims_total{result=\"run\",surface=\"gateway\",route=\"otherwise\"} 2",
        "semel_claims_total{result=\"replay\",surface=\"gateway\",route=\"otherwise\"} 2",
        "semel_claims_total{result=\"mismatch\",surface=\"gateway\",route=\"otherwise\"} 1",
        "semel_settlements_total{how=\"completed\"} 1",
        "semel_settlements_total{how=\"released\"} 1",
        "semel_running{surface=\"gateway\",route=\"otherwise\"} 0",
        "semel_duplicates_total{surface=\"gateway\",route=\"otherwise\"} 2",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line:?} in\n{text}");
    }
    assert!(
        text.lines().any(|line| line.starts_with("semel_unguarded_total") && line.ends_with(" 1")),
        "{text}"
    );
    let kind = gateway.admin("/metrics");
    assert!(kind.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
}

const SECRETS: [&str; 6] =
    ["secret-key-4711", "secret-token", "secret-body", "secret-answer", "secret-query", "secret-cookie"];

/// Everything that can happen to a request, with secrets wherever a caller or a service may put them.
fn everything_with_secrets(level: &str) -> Gateway {
    let reply = Reply::new(201, "secret-answer").header("Set-Cookie", "secret-cookie");
    let service = Service::doing(Plan { reply, ..Plan::default() });
    let gateway = Gateway::start(
        service.address(),
        &["--log", level, "--on-unknown", "rerun", "--body-bytes-max", "1KiB"],
    );
    let call = |key: &str| {
        Call::post("/charges?token=secret-query", key)
            .header("Authorization", "Bearer secret-token")
            .header("Cookie", "secret-cookie")
            .body("secret-body")
    };
    gateway.call(&call("secret-key-4711"));
    gateway.call(&call("secret-key-4711"));
    gateway.call(&call("secret-key-4711").body("another secret-body"));
    gateway.call(&call("secret-key-4711 \"broken"));
    gateway.call(&call("secret-key-4711-large").body("secret-body".repeat(200)));
    gateway.call(&call("x").header("Idempotency-Key", "secret-key-4711"));
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    gateway.call(&call("secret-key-4711-cut"));
    service.next(Plan::without_effect(503));
    gateway.call(&call("secret-key-4711-released"));
    gateway.call(
        &Call::new("POST", "/x?secret-query")
            .header("Authorization", "Bearer secret-token")
            .body("secret-body"),
    );
    service.refuse();
    gateway.call(&call("secret-key-4711-unreachable"));
    let metrics = gateway.admin("/metrics").text();
    for secret in SECRETS {
        assert!(!metrics.contains(secret), "{secret} in the metrics");
        assert!(!gateway.admin("/readyz").text().contains(secret));
    }
    until("all of it is logged", || (gateway.log().matches("\"result\":\"run\"").count() == 4).then_some(()));
    for line in gateway.log().lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "no JSON: {line}");
    }
    gateway
}

#[test]
fn nothing_secret_is_logged_at_info() {
    let gateway = everything_with_secrets("info");
    let log = gateway.log();
    for secret in SECRETS {
        assert!(!log.contains(secret), "{secret} in\n{log}");
    }
}

#[test]
fn neither_credentials_nor_bodies_are_logged_at_debug() {
    let gateway = everything_with_secrets("debug");
    let log = gateway.log();
    assert!(log.contains("\"DEBUG\""), "debug says more than info");
    for secret in ["secret-token", "secret-body", "secret-answer", "secret-cookie"] {
        assert!(!log.contains(secret), "{secret} in\n{log}");
    }
}

#[test]
fn each_guarded_request_is_one_line_with_its_decision() {
    let gateway = everything_with_secrets("info");
    let mut results = HashMap::new();
    for line in gateway.log().lines().filter(|line| line.contains("semel::decision")) {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["label"], "POST /charges", "without the query");
        *results.entry(line["result"].as_str().unwrap().to_owned()).or_insert(0) += 1;
        if line["result"] == "run" {
            assert!(line["fence"].is_u64() && line["attempts"].is_u64() && line["status"].is_u64(), "{line}");
            let scope = line["scope"].as_str().unwrap();
            assert!(scope.starts_with("http:default:authorization-"), "{scope}");
            assert_eq!(line["key"].as_str().map(str::len), Some(16), "a digest of the key");
        }
    }
    let expected = [("run", 4), ("replay", 1), ("mismatch", 1), ("key_malformed", 2), ("body_too_large", 1)];
    assert_eq!(results, expected.map(|(result, count)| (result.to_owned(), count)).into());
}
