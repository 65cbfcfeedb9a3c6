//! What the program makes of a Redis store: who may use it, and what is said when it may not be used.

#![cfg(feature = "redis")]

mod support;

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
