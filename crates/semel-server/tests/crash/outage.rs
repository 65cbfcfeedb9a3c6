//! The store is down: another process holds its write lock for longer than the engine waits.

use std::time::{Duration, Instant};

use crate::support::{Call, Gate, Gateway, Plan, Service, WriteLock, until};

/// H9: fail closed, for what would have to be written. What is known is still answered.
#[test]
fn while_the_store_is_down_nothing_new_runs_and_replays_are_served() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &["--lease", "1s"]);
    let known = Call::post("/charges", "known").body("amount=1");
    let first = gateway.call(&known);
    assert_eq!(first.status, 201);

    let lock = WriteLock::take(gateway.launch().store_file());
    let fresh: Vec<_> = (0..3).map(|number| Call::post("/charges", &format!("fresh-{number}"))).collect();
    let callers: Vec<_> = fresh.iter().map(|call| gateway.call_aside(call)).collect();
    let asked = Instant::now();
    let replay = gateway.call(&known);
    assert!(replay.is_replay());
    assert_eq!(replay.body, first.body);
    assert!(asked.elapsed() < Duration::from_secs(1), "a replay does not wait for the writer");
    let reused = gateway.call(&Call::post("/charges", "known").body("amount=2"));
    assert_eq!((reused.status, reused.code().as_str()), (422, "key-reused"));
    for caller in callers {
        let refused = caller.join().expect("an answer");
        assert_eq!((refused.status, refused.code().as_str()), (503, "store-unavailable"));
        assert!(refused.header("retry-after").is_some());
        assert_eq!(refused.json()["retryable"], true);
    }
    assert_eq!(service.ledger().received_count(), 1, "a key that was not claimed does not run");

    drop(lock);
    for (number, call) in fresh.iter().enumerate() {
        // Until the claims of the refused are given back, their keys may read as in flight.
        until("it recovers by itself", || Some(gateway.call(call)).filter(|answer| answer.status == 201));
        assert_eq!(service.ledger().effects(&format!("fresh-{number}")), 1);
    }
}

/// K10: the caller gets the true outcome, marked; the settlement is repeated, past the lease too.
#[test]
fn when_the_store_goes_down_during_a_run_its_caller_gets_the_true_outcome() {
    let gate = Gate::new();
    let service = Service::doing(Plan::behind(&gate));
    let gateway = Gateway::start(service.address(), &["--lease", "500ms"]);
    let call = Call::post("/charges", "unrecorded");
    let caller = gateway.call_aside(&call);
    service.ledger().wait_received(1);

    let lock = WriteLock::take(gateway.launch().store_file());
    gate.open();
    let answer = caller.join().expect("an answer");
    assert_eq!((answer.status, answer.header("semel-recorded")), (201, Some("false")));
    assert!(!answer.is_replay());
    let lapsed = gateway.operator().show("unrecorded").expect("a record");
    assert_eq!((lapsed.state.as_str(), lapsed.cause.as_str()), ("unknown", "lapsed"));
    let meanwhile = gateway.call(&call);
    assert_eq!((meanwhile.status, meanwhile.code().as_str()), (409, "outcome-unknown"));
    assert_eq!(meanwhile.json()["effect"], "unknown", "nothing invites a new key");

    drop(lock);
    let again = until("the settlement is written", || {
        Some(gateway.call(&call)).filter(crate::support::Answer::is_replay)
    });
    assert_eq!((again.status, &again.body), (201, &answer.body));
    assert_eq!(again.header("semel-recorded"), None);
    assert_eq!(service.ledger().effects("unrecorded"), 1);
}
