//! The program as a user starts it, through a real socket.

#[path = "../../../testbed/example.rs"]
mod example;

use example::{Call, Example};

fn charge(key: &str, body: &str) -> Call {
    Call::post("/charges", key).header("Content-Type", "application/json").body(body)
}

fn moved(example: &Example) -> String {
    example.call(&Call::new("GET", "/moved")).text()
}

#[test]
fn the_money_moves_once_and_a_retry_gets_the_first_answer_also_from_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("payments.db");
    let start =
        || Example::start(env!("CARGO_BIN_EXE_axum-payments"), &["127.0.0.1:0", store.to_str().unwrap()]);

    let example = start();
    let first = example.call(&charge("order-77", r#"{"amount": 1200}"#));
    assert_eq!((first.status, first.is_replay()), (201, false), "{}", first.text());
    let said = first.json();
    assert_eq!((&said["key"], &said["fence"], &said["attempt"]), (&"order-77".into(), &1.into(), &1.into()));
    let retry = example.call(&charge("order-77", r#"{"amount": 1200}"#));
    assert_eq!((retry.status, retry.is_replay(), &retry.body), (201, true, &first.body));
    assert_eq!(example.call(&charge("order-77", r#"{"amount": 9}"#)).code(), "key-reused");
    assert_eq!(moved(&example), "1200");
    let without = Call::new("POST", "/charges").header("Content-Type", "application/json").body("{}");
    assert_eq!(example.call(&without).code(), "key-missing");

    let said = example.stop();
    assert!(said.contains("stopped, 0 operations unknown"), "{said}");

    let next = start();
    let retry = next.call(&charge("order-77", r#"{"amount": 1200}"#));
    assert_eq!((retry.status, retry.is_replay(), &retry.body), (201, true, &first.body));
    assert_eq!(moved(&next), "0", "the next process moved nothing");
}

/// An outcome too: the same order is refused again, and nothing is asked twice.
#[test]
fn a_refusal_of_the_service_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("payments.db");
    let example =
        Example::start(env!("CARGO_BIN_EXE_axum-payments"), &["127.0.0.1:0", store.to_str().unwrap()]);
    for is_replay in [false, true] {
        let refused = example.call(&charge("k", "{}"));
        assert_eq!((refused.status, refused.is_replay()), (422, is_replay), "{}", refused.text());
    }
}
