//! `Prefer: wait`: H8.

use crate::assert::in_flight;
use crate::configured;
use crate::support::{Call, Gate, Plan, Service};

const TOML: &str = "[[route]]\nmatch = \"/a\"\nwait_max = \"20s\"\n";

fn waiting(path: &str) -> Call {
    Call::post(path, "k").header("Prefer", "wait=15").body("x")
}

#[test]
fn h8_a_retry_that_prefers_to_wait_gets_the_first_ones_answer() {
    let service = Service::plain();
    let gateway = configured(&service, TOML);
    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let first = gateway.call_aside(&Call::post("/a", "k").body("x"));
    service.ledger().wait_received(1);
    let retry = gateway.call_aside(&waiting("/a"));
    // One that does not ask is told at once, while the other waits.
    in_flight(&gateway.call(&Call::post("/a", "k").body("x")));
    assert!(!retry.is_finished());
    gate.open();
    let (first, retry) = (first.join().unwrap(), retry.join().unwrap());
    assert!(retry.is_replay());
    assert_eq!((retry.body, retry.status), (first.body, 201));
    assert_eq!(service.ledger().effects_count(), 1);
}

#[test]
fn h8_the_wait_is_bounded_and_only_where_the_route_allows_it() {
    let service = Service::plain();
    let gateway = configured(&service, "[[route]]\nmatch = \"/a\"\nwait_max = \"200ms\"\n");
    let gate = Gate::new();
    for (number, path) in ["/a", "/b"].into_iter().enumerate() {
        service.next(Plan::behind(&gate));
        let call = Call::post(path, path).body("x");
        let first = gateway.call_aside(&call);
        service.ledger().wait_received(number + 1);
        let answer = gateway.call(&call.header("Prefer", "wait=60"));
        in_flight(&answer);
        assert_eq!(answer.header("preference-applied").is_some(), path == "/a");
        if path == "/b" {
            gate.open();
        }
        drop(first);
    }
}
