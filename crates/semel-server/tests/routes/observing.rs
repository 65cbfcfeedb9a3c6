//! `observe` mode: H18.

use crate::assert::{metric, replayed, states};
use crate::configured;
use crate::support::{Call, Gate, Plan, Service, until};

fn observed(gateway: &crate::support::Gateway, result: &str, count: f64) {
    until(&format!("{count} of {result}"), || {
        (metric(gateway, "semel_observed_total", &format!("\"{result}\"")) == count).then_some(())
    });
}

const TOML: &str = "[[route]]\nmatch = \"/watched\"\nobserve = true\n";

#[test]
fn h18_nothing_changes_and_what_would_have_been_is_counted() {
    let service = Service::plain();
    let gateway = configured(&service, TOML);
    let call = |key: &str, body: &str| Call::post("/watched", key).body(body);
    let first = gateway.call(&call("k", "x"));
    observed(&gateway, "run", 1.0);
    let again = gateway.call(&call("k", "x"));
    assert!(!again.is_replay() && again.body != first.body, "it ran again");
    observed(&gateway, "replay", 1.0);
    assert_eq!(gateway.call(&call("k", "y")).status, 201);
    observed(&gateway, "mismatch", 1.0);
    assert_eq!(gateway.call(&Call::new("POST", "/watched").body("x")).status, 201);
    observed(&gateway, "key_missing", 1.0);
    assert_eq!(gateway.call(&Call::post("/watched", "\"broken").body("x")).status, 201);
    observed(&gateway, "key_malformed", 1.0);
    let received = service.ledger().received();
    assert_eq!(received.len(), 5);
    assert!(received.iter().all(|request| request.header("semel-fence").is_none()));
}

#[test]
fn h18_a_duplicate_in_flight_is_counted_as_one() {
    let service = Service::plain();
    let gateway = configured(&service, TOML);
    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let call = Call::post("/watched", "k").body("x");
    let first = gateway.call_aside(&call);
    until("the first one is claimed", || (!states(&gateway).is_empty()).then_some(()));
    assert_eq!(gateway.call(&call).status, 201);
    observed(&gateway, "in_flight", 1.0);
    gate.open();
    assert_eq!(first.join().unwrap().status, 201);
    observed(&gateway, "run", 1.0);
}

/// What was observed is never replayed when the mode ends, and a body that is too long passes all the same.
#[test]
fn h18_observed_keys_are_in_a_scope_of_their_own() {
    let service = Service::plain();
    let launch = crate::launch(service.address(), TOML);
    let gateway = launch.start();
    gateway.call(&Call::post("/watched", "k").body("x"));
    observed(&gateway, "run", 1.0);
    assert_eq!(gateway.call(&Call::post("/watched", "l").body(vec![b'x'; (1 << 20) + 1])).status, 201);
    observed(&gateway, "body_too_large", 1.0);
    let record = gateway.operator().show("k").unwrap();
    assert_eq!((record.scope.as_str(), record.state.as_str()), ("observe:default:anonymous", "completed"));
    std::fs::write(launch.directory().join("semel.toml"), "").unwrap();
    let gateway = gateway.restart();
    replayed(&gateway, &Call::post("/watched", "k").body("x"));
    assert_eq!(service.ledger().effects_count(), 3);
}

#[test]
fn h18_the_store_delays_nothing() {
    let service = Service::plain();
    let launch = crate::launch(service.address(), TOML);
    let gateway = launch.start();
    let lock = crate::support::WriteLock::take(launch.store_file());
    assert_eq!(gateway.call(&Call::post("/watched", "k").body("x")).status, 201);
    drop(lock);
    observed(&gateway, "run", 1.0);
}
