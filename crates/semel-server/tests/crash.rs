//! Processes that are killed, stopped, starved of their store, and started again: what was promised holds.

mod support;

use support::{Call, Launch, Service};

#[test]
fn killed_at_rest_it_replays_after_a_restart() {
    let service = Service::plain();
    let gateway = Launch::new(service.address()).start();
    let call = Call::post("/charges", "rest-1").body("amount=1200");
    let first = gateway.call(&call);
    assert_eq!(first.status, 201);

    let gateway = gateway.restart();
    let again = gateway.call(&call);
    assert!(again.is_replay());
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(service.ledger().effects("rest-1"), 1);
}
