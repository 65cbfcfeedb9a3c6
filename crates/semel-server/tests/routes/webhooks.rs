//! A provider's webhooks: case C114.

use crate::assert::in_flight;
use crate::launch;
use crate::support::{Call, Gate, Plan, Reply, Service};

/// The event's own id is the key: the provider sends no header of ours.
const TOML: &str = "[[route]]\nmatch = \"/webhooks/{provider}\"\nkey = \"required\"\nkey_field = \"json:/id\"\n\
                    principal = \"authorization\"\n";

fn event(id: &str) -> Call {
    Call::new("POST", "/webhooks/payments").body(format!("{{\"id\":\"{id}\",\"type\":\"charge.succeeded\"}}"))
}

/// Not in the memory of one process, and not marked after the work: two nodes at once, a restart, a delivery that
/// failed, one that is still being worked on, and one that nobody has signed.
#[test]
fn c114_an_event_takes_effect_once_over_nodes_and_restarts() {
    let service = Service::plain();
    let one = launch(service.address(), TOML).start();
    let other = one.launch().beside().start();

    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let first = one.call_aside(&event("evt_1"));
    service.ledger().wait_received(1);
    // A delivery to another node while it is worked on: told so, and not run.
    in_flight(&other.call(&event("evt_1")));
    gate.open();
    let first = first.join().unwrap();
    let (one, other) = (one.restart(), other.restart());
    for node in [&one, &other] {
        let again = node.call(&event("evt_1"));
        assert_eq!((again.status, again.is_replay(), &again.body), (201, true, &first.body));
    }
    assert_eq!(service.ledger().effects_count(), 1);

    // What failed runs when it is delivered again, at whichever node.
    service.next(Plan { effect: false, reply: Reply::new(500, "down"), ..Plan::default() });
    assert_eq!(one.call(&event("evt_2")).status, 500);
    assert_eq!(other.call(&event("evt_2")).status, 201);

    // Who is not let in binds nothing: the true event of that id still runs.
    service.next(Plan { effect: false, reply: Reply::new(401, "bad signature"), ..Plan::default() });
    let forged = Call::new("POST", "/webhooks/payments").body("{\"id\":\"evt_3\",\"amount\":1000000}");
    assert_eq!(one.call(&forged).status, 401);
    assert_eq!(other.call(&event("evt_3")).status, 201);
    assert_eq!(service.ledger().effects_count(), 3);
}
