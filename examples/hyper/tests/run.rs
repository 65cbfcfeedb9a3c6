//! The program as a user starts it, through a real socket.

#[path = "../../../testbed/example.rs"]
mod example;

use example::{Call, Example};

#[test]
fn a_ticket_is_given_once_and_a_retry_gets_the_same() {
    let example = Example::start(env!("CARGO_BIN_EXE_hyper-example"), &["127.0.0.1:0"]);
    let call = Call::post("/tickets", "seat-12").body("row=4");
    let first = example.call(&call);
    assert_eq!((first.status, first.text().as_str()), (200, "ticket 1 for seat-12, fence 1"));
    let retry = example.call(&call);
    assert_eq!((retry.status, retry.is_replay(), &retry.body), (200, true, &first.body));
    let unguarded = Call::new("POST", "/tickets").body("row=4");
    assert_eq!(example.call(&unguarded).text(), "ticket 2");
    assert_eq!(example.call(&unguarded).text(), "ticket 3", "without a key it runs as often as it arrives");
    assert_eq!(example.call(&Call::new("GET", "/tickets")).text(), "3");
}

/// H3: its outcome stands in trailers.
#[test]
fn h3_grpc_passes_by() {
    let example = Example::start(env!("CARGO_BIN_EXE_hyper-example"), &["127.0.0.1:0"]);
    let call = Call::post("/tickets", "k").header("Content-Type", "application/grpc+proto").body("row=4");
    assert_eq!(example.call(&call).text(), "ticket 1");
    assert_eq!(example.call(&call).text(), "ticket 2");
}
