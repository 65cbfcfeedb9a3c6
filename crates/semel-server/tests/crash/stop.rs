//! Signals: stopped in order, killed, and put to sleep for longer than a lease.

use rustix::process::Signal;

use crate::support::{Call, Client, Gate, Gateway, Launch, Plan, Service, until};

fn behind(gate: &Gate) -> Service {
    Service::doing(Plan::behind(gate))
}

#[test]
fn killed_at_rest_it_replays_after_a_restart() {
    let service = Service::plain();
    let gateway = Launch::new(service.address()).start();
    let call = Call::post("/charges", "rest").body("amount=1200");
    let first = gateway.call(&call);
    assert_eq!((first.status, first.is_replay()), (201, false));

    let gateway = gateway.restart();
    let again = gateway.call(&call);
    assert!(again.is_replay());
    assert_eq!((again.status, again.body), (201, first.body));
    assert_eq!(service.ledger().effects("rest"), 1);
}

/// G6: what runs is answered, what is new is refused, and the exit is clean.
#[test]
fn told_to_stop_it_answers_what_runs_and_takes_nothing_new() {
    let gate = Gate::new();
    let service = behind(&gate);
    let mut gateway = Gateway::start(service.address(), &[]);
    let mut idle = gateway.connect();
    let caller = gateway.call_aside(&Call::post("/charges", "slow"));
    service.ledger().wait_received(1);

    gateway.send(Signal::TERM);
    until("new connections are refused", || Client::connect(gateway.listen).err());
    assert!(idle.is_closed(), "an idle connection is no reason to stay");
    assert_eq!(gateway.admin("/readyz").status, 503);
    assert_eq!(gateway.admin("/healthz").status, 200);
    assert!(gateway.ended().is_none(), "it waits for what runs");

    gate.open();
    let answer = caller.join().expect("an answer");
    assert_eq!((answer.status, answer.header("semel-recorded")), (201, None));
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(gateway.operator().show("slow").expect("a record").state, "completed");
    assert_eq!(service.ledger().effects("slow"), 1);
}

/// G6: what does not end in time is parked, and its caller is told that nobody knows.
#[test]
fn told_to_stop_it_parks_what_does_not_end_in_time() {
    let gate = Gate::new();
    let service = behind(&gate);
    let mut gateway = Gateway::start(service.address(), &["--drain-for", "100ms"]);
    let call = Call::post("/charges", "endless");
    let caller = gateway.call_aside(&call);
    service.ledger().wait_received(1);

    gateway.send(Signal::TERM);
    let answer = caller.join().expect("an answer");
    assert_eq!((answer.status, answer.code().as_str()), (502, "outcome-unknown"));
    assert_eq!(answer.json()["effect"], "unknown");
    assert_eq!(gateway.wait().code(), Some(0));
    let record = gateway.operator().show("endless").expect("a record");
    assert_eq!((record.state.as_str(), record.cause.as_str()), ("unknown", "shutdown"));

    let gateway = gateway.restart();
    let again = gateway.call(&call);
    assert_eq!((again.status, again.code().as_str()), (409, "outcome-unknown"));
    assert_eq!(service.ledger().received_count(), 1, "nothing runs again by itself");
}

/// K7: until the fence has moved, the owner's late settlement is the truth.
#[test]
fn asleep_past_its_lease_its_late_settlement_counts() {
    let gate = Gate::new();
    let service = behind(&gate);
    let gateway = Gateway::start(service.address(), &["--lease", "300ms"]);
    let call = Call::post("/charges", "sleeper");
    let caller = gateway.call_aside(&call);
    service.ledger().wait_received(1);

    gateway.freeze();
    let asleep = until("the lease has lapsed", || {
        gateway.operator().show("sleeper").filter(|record| record.state != "running")
    });
    assert_eq!((asleep.state.as_str(), asleep.cause.as_str()), ("unknown", "lapsed"));
    gate.open();
    service.ledger().wait_effects(1);
    gateway.thaw();

    let answer = caller.join().expect("an answer");
    assert_eq!((answer.status, answer.header("semel-recorded")), (201, None));
    assert!(!answer.is_replay());
    let again = gateway.call(&call);
    assert!(again.is_replay());
    assert_eq!(again.body, answer.body);
    let record = gateway.operator().show("sleeper").expect("a record");
    assert_eq!((record.state.as_str(), record.fence), ("completed", asleep.fence));
    assert_eq!(service.ledger().effects("sleeper"), 1);
}

/// K3: after a takeover the zombie's settlement is refused, and the record is the answer, for its caller too.
#[test]
fn asleep_while_an_operator_resolves_it_gives_what_the_record_says() {
    let gate = Gate::new();
    let service = behind(&gate);
    let gateway = Gateway::start(service.address(), &["--lease", "300ms"]);
    let call = Call::post("/charges", "zombie");
    let caller = gateway.call_aside(&call);
    service.ledger().wait_received(1);

    gateway.freeze();
    let asleep = until("the lease has lapsed", || {
        gateway.operator().show("zombie").filter(|record| record.state == "unknown")
    });
    let file = gateway.launch().directory().join("found.json");
    std::fs::write(&file, "{\"found\":true}").expect("a file");
    gateway.operator().resolve_completed("zombie", 200, &file);
    gate.open();
    service.ledger().wait_effects(1);
    gateway.thaw();

    let answer = caller.join().expect("an answer");
    assert_eq!((answer.status, answer.text().as_str()), (200, "{\"found\":true}"));
    assert!(answer.is_replay(), "it is not the answer of its own run");
    let again = gateway.call(&call);
    assert_eq!((again.status, again.body), (answer.status, answer.body));
    let record = gateway.operator().show("zombie").expect("a record");
    assert_eq!((record.state.as_str(), record.attempts), ("completed", 1));
    assert_eq!(record.fence, asleep.fence + 1, "the operator's claim was the last");
    assert_eq!(service.ledger().effects("zombie"), 1);
}

/// K3: while another attempt runs, the zombie's settlement ends nothing, and its caller is told that one runs.
#[test]
fn asleep_while_another_gateway_runs_it_it_changes_nothing() {
    let (first, second) = (Gate::new(), Gate::new());
    let service = Service::plain();
    service.next(Plan { gate: Some(first.clone()), ..Plan::without_effect(422) });
    service.next(Plan::behind(&second));
    let zombie = Gateway::start(service.address(), &["--lease", "1s"]);
    let call = Call::post("/charges", "taken");
    let caller = zombie.call_aside(&call);
    service.ledger().wait_received(1);

    zombie.freeze();
    until("the lease has lapsed", || {
        zombie.operator().show("taken").filter(|record| record.state == "unknown")
    });
    let other = zombie.launch().beside().args(["--on-unknown", "rerun"]).start();
    let other_caller = other.call_aside(&call);
    service.ledger().wait_received(2);
    first.open();
    zombie.thaw();
    let answer = caller.join().expect("an answer");
    assert_eq!((answer.status, answer.code().as_str()), (409, "in-flight"));
    assert_eq!(zombie.operator().show("taken").expect("a record").state, "running");

    second.open();
    let answer = other_caller.join().expect("an answer");
    assert_eq!((answer.status, answer.is_replay()), (201, false));
    let again = zombie.call(&call);
    assert_eq!((again.status, again.is_replay(), again.body), (201, true, answer.body));
    assert_eq!(service.ledger().effects("taken"), 1);
}

/// G6: an answer that is still on its way is waited for too, whether a key guards it or not.
#[test]
fn told_to_stop_it_finishes_a_request_without_a_key() {
    let gate = Gate::new();
    let service = behind(&gate);
    let mut gateway = Gateway::start(service.address(), &[]);
    let caller = gateway.call_aside(&Call::new("GET", "/report"));
    service.ledger().wait_received(1);

    gateway.send(Signal::TERM);
    until("new connections are refused", || Client::connect(gateway.listen).err());
    // Longer than the answers of settled runs are given to be written.
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    assert!(gateway.ended().is_none(), "it waits for what is under way");
    gate.open();
    assert_eq!(caller.join().expect("an answer").status, 201);
    assert_eq!(gateway.wait().code(), Some(0));
}
