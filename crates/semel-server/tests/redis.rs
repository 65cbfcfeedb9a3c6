//! What the program makes of a Redis store: who may use it, and what is said when it may not be used.

#![cfg(feature = "redis")]

mod support;

#[cfg(feature = "tls")]
#[path = "transport/certificates.rs"]
#[allow(dead_code, reason = "another test uses all of it")]
mod certificates;

use std::process::Output;

use semel_testbed::{Redis, Settings};
use support::semel;

const CRITICAL: &[&str] = &["--critical", "--key", "required", "--auth-check", "http://127.0.0.1:9/allowed"];

/// A gateway that is expected to end by itself.
fn gateway(store: &str, more: &[&str]) -> Output {
    let mut command = semel();
    command.args([
        "gateway",
        "--upstream",
        "http://127.0.0.1:9",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ]);
    command.args(["--store", store]).args(more).output().expect("the program starts")
}

#[track_caller]
fn refusal(store: &str, more: &[&str], code: i32) -> String {
    let output = gateway(store, more);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

fn server(settings: Settings) -> Redis {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(Redis::start_with(settings))
}

#[test]
fn a_critical_route_refuses_a_store_that_may_lose() {
    let server = server(Settings::durable());
    let said = refusal(&server.url(), CRITICAL, 2);
    assert!(said.contains("a critical route needs a store that loses nothing"), "{said}");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("semel.toml");
    let settings = "[[route]]\nmatch = \"/charges\"\ncritical = true\nkey = \"required\"\n\
                    auth_check = \"http://127.0.0.1:9/allowed\"\n";
    std::fs::write(&file, settings).expect("a file");
    let said = refusal(&server.url(), &["--config", file.to_str().expect("a path")], 2);
    assert!(said.contains("route /charges: a critical route needs a store that loses nothing"), "{said}");
}

#[test]
fn c34_a_gateway_does_not_start_on_a_redis_that_evicts() {
    let server = server(Settings::fast().set("maxmemory-policy", "allkeys-lru"));
    let said = refusal(&server.url(), &[], 1);
    assert!(said.contains("allkeys-lru") && said.contains("allow_loss=true"), "{said}");
    let said = refusal(&format!("{}?allow_loss=true", server.url()), CRITICAL, 2);
    assert!(said.contains("a critical route"), "what is allowed to lose is still no store for it: {said}");
}

#[test]
fn c34_a_parameter_that_is_misspelt_does_not_start_and_shows_no_password() {
    let said = refusal("redis://me:secret@127.0.0.1:1/0?alow_loss=true", &[], 2);
    assert!(said.contains("did you mean allow_loss?") && !said.contains("secret"), "{said}");
    let said = refusal("redis://me:secret@127.0.0.1:1/0", &[], 1);
    assert!(said.contains("127.0.0.1:1") && !said.contains("secret"), "{said}");
}

/// TLS is verified: the authority, and the name.
#[cfg(feature = "tls")]
#[test]
fn a_redis_behind_tls_is_asked_for_its_certificate() {
    let directory = tempfile::tempdir().expect("a directory");
    let [ours, others] = ["ours", "others"].map(|name| {
        let of = directory.path().join(name);
        std::fs::create_dir(&of).expect("a directory");
        let authority = certificates::Authority::new(name);
        let file = authority.file(&of).display().to_string();
        (authority, file, of)
    });
    let [_, certificate, _, key] = ours.0.issue(&["localhost"]).args(&ours.2);
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let settings = Settings::fast()
        .set("tls-port", &port.to_string())
        .set("tls-cert-file", &certificate)
        .set("tls-key-file", &key)
        .set("tls-ca-cert-file", &ours.1)
        .set("tls-auth-clients", "no");
    let _server = server(settings);
    let keys = |host: &str, ca: &str| {
        let store = format!("rediss://{host}:{port}/0?ca={ca}");
        let output = semel().args(["keys", "--store", &store]).output().expect("the program starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(keys("localhost", &ours.1).0, Some(0));
    for (host, ca) in [("localhost", &others.1), ("127.0.0.1", &ours.1)] {
        let (code, said) = keys(host, ca);
        assert!(code == Some(1) && said.contains("certificate"), "{said}");
    }
}
