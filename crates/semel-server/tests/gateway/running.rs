//! While the first request still runs: H8, H9, K9.

use std::time::Duration;

use crate::assert::{in_flight, metric, plain, refused, retry_after};
use crate::support::{Answer, Call, Gate, Gateway, Plan, Service, until};

fn gated(args: &[&str]) -> (Gate, Service, Gateway) {
    let gate = Gate::new();
    let service = Service::doing(Plan::behind(&gate));
    let gateway = Gateway::start(service.address(), args);
    (gate, service, gateway)
}

#[test]
fn c01_a_caller_that_hangs_up_changes_nothing() {
    let (gate, service, gateway) = gated(&[]);
    let call = Call::post("/pay", "k-hang-1").body("amount=1");
    let mut client = gateway.connect();
    client.send(&call.bytes()).unwrap();
    service.ledger().wait_received(1);
    drop(client);
    in_flight(&gateway.call(&call));
    gate.open();
    let answer =
        until("the run is settled", || Some(gateway.call(&call)).filter(|answer| answer.status != 409));
    assert_eq!((answer.status, answer.is_replay()), (201, true));
    assert_eq!(service.ledger().effects("k-hang-1"), 1);
}

#[test]
fn k9_hanging_up_at_once_leaves_each_key_with_one_effect() {
    let (service, gateway) = plain(&[]);
    for number in 0..20 {
        let call = Call::post("/pay", &format!("hang-{number}")).body("amount=1");
        let mut client = gateway.connect();
        client.send(&call.bytes()).unwrap();
        drop(client);
    }
    // Whether one of them was gone before its claim or after it: each takes effect once, now or by its retry.
    for number in 0..20 {
        let key = format!("hang-{number}");
        let call = Call::post("/pay", &key).body("amount=1");
        until("an answer", || Some(gateway.call(&call)).filter(|answer| answer.status == 201));
        assert!(gateway.call(&call).is_replay());
        assert_eq!(service.ledger().effects(&key), 1);
    }
}

#[test]
fn c109_a_retry_in_flight_is_told_at_once_when_to_come_back() {
    let (gate, service, gateway) = gated(&["--lease", "30s"]);
    let call = Call::post("/pay", "in-flight").body("card=4242");
    let first = gateway.call_aside(&call);
    service.ledger().wait_received(1);
    let retry = gateway.call(&call);
    in_flight(&retry);
    assert!((1..=30).contains(&retry_after(&retry)), "not longer than the lease");
    assert!(!retry.text().contains("4242"), "the request is not repeated to whoever asks");
    // Not held, even if it says that it would wait: this route allows none.
    in_flight(&gateway.call(&call.clone().header("Prefer", "wait=20")));
    assert_eq!(service.ledger().received_count(), 1);
    gate.open();
    assert_eq!(first.join().unwrap().status, 201);
    assert_eq!(metric(&gateway, "semel_claims_total", "result=\"in_flight\""), 2.0);
}

#[test]
fn c112_the_claim_comes_before_the_work() {
    let (service, gateway) = plain(&[]);
    service.set(|_| Plan { delay: Duration::from_millis(100), ..Plan::default() });
    let call = Call::post("/posts", "twins").body("title=x");
    let twins = [gateway.call_aside(&call), gateway.call_aside(&call)].map(|twin| twin.join().unwrap());
    assert_eq!(twins.iter().filter(|answer| answer.status == 201 && !answer.is_replay()).count(), 1);
    for other in twins.iter().filter(|answer| answer.status != 201) {
        in_flight(other);
    }
    assert_eq!(service.ledger().effects("twins"), 1);
}

#[test]
fn c83_losing_the_race_is_no_error() {
    let (gate, service, gateway) = gated(&[]);
    let call = Call::post("/pay", "raced").body("amount=1");
    let mut clients: Vec<_> = (0..50).map(|_| gateway.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(&call.bytes()).unwrap());
    service.ledger().wait_received(1);
    // The others are answered while the winner still runs.
    until("49 are told that it runs", || {
        (metric(&gateway, "semel_claims_total", "result=\"in_flight\"") >= 49.0).then_some(())
    });
    gate.open();
    let answers: Vec<Answer> = clients.iter_mut().map(|client| client.receive().unwrap()).collect();
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    answers.iter().filter(|answer| answer.status != 201).for_each(in_flight);
    assert_eq!(service.ledger().effects("raced"), 1);
    assert_eq!(metric(&gateway, "semel_store_errors_total", ""), 0.0);
    assert!(gateway.call(&call).is_replay());
}

#[test]
fn g7_the_caller_waits_less_than_the_gateway_listens() {
    let (gate, service, gateway) = gated(&["--upstream-timeout", "300ms", "--lease", "200ms"]);
    let call = Call::post("/pay", "slow").body("amount=1");
    refused(&gateway.call(&call), 504, "upstream-timeout", true, "unknown");
    in_flight(&gateway.call(&call));
    // Longer than the lease: it is renewed while the run lasts (C12, C41).
    std::thread::sleep(Duration::from_millis(500));
    in_flight(&gateway.call(&call));
    gate.open();
    let late = until("the late answer", || Some(gateway.call(&call)).filter(|answer| answer.status != 409));
    assert_eq!((late.status, late.is_replay()), (201, true));
    assert_eq!(service.ledger().effects("slow"), 1);
}

#[test]
fn g7_an_answer_that_never_comes_leaves_it_unknown() {
    let service = Service::doing(Plan { hang: true, ..Plan::default() });
    let gateway =
        Gateway::start(service.address(), &["--upstream-timeout", "100ms", "--late-answer-for", "300ms"]);
    let call = Call::post("/pay", "never").body("amount=1");
    refused(&gateway.call(&call), 504, "upstream-timeout", true, "unknown");
    let after =
        until("it is given up", || Some(gateway.call(&call)).filter(|answer| answer.code() != "in-flight"));
    crate::assert::unknown(&after);
    assert_eq!(gateway.operator().show("never").unwrap().cause, "timeout");
    assert_eq!(service.ledger().effects("never"), 1);
}

/// `forever` is a duration, and no instant is so far away.
#[test]
fn g7_every_time_may_be_forever() {
    let service = Service::plain();
    let times = ["--upstream-timeout", "--late-answer-for", "--lease", "--drain-for", "--upstream-idle"];
    let kept = ["--replay-for", "--remember-for"];
    let args: Vec<_> = times.iter().chain(&kept).flat_map(|flag| [*flag, "forever"]).collect();
    let gateway = Gateway::start(service.address(), &args);
    assert_eq!(gateway.call(&Call::new("GET", "/a")).status, 201);
    crate::assert::replayed(&gateway, &Call::post("/a", "forever"));
    // A settlement that is repeated for as long as it takes.
    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let running = gateway.call_aside(&Call::post("/a", "unrecorded"));
    service.ledger().wait_received(3);
    let lock = crate::support::WriteLock::take(gateway.launch().store_file());
    gate.open();
    assert_eq!(running.join().unwrap().header("semel-recorded"), Some("false"));
    drop(lock);
    until("it is settled", || gateway.call(&Call::post("/a", "unrecorded")).is_replay().then_some(()));
}

#[test]
fn g7_without_a_key_a_slow_service_is_504_too() {
    let service = Service::doing(Plan { hang: true, ..Plan::default() });
    let gateway = Gateway::start(service.address(), &["--upstream-timeout", "100ms"]);
    for method in ["POST", "GET"] {
        let answer = gateway.call(&Call::new(method, "/slow"));
        assert_eq!((answer.status, answer.code().as_str()), (504, "upstream-timeout"));
    }
}

#[test]
fn c12_a_slow_withdrawal_is_not_taken_over() {
    let (gate, service, gateway) = gated(&["--upstream-timeout", "200ms", "--lease", "300ms"]);
    let call = Call::post("/withdraw", "K").body("amount=1");
    assert_eq!(gateway.call(&call).status, 504);
    std::thread::sleep(Duration::from_secs(1));
    let second = gateway.call(&call);
    in_flight(&second);
    gate.open();
    until("the late answer", || gateway.call(&call).is_replay().then_some(()));
    assert_eq!((service.ledger().received_count(), service.ledger().effects("K")), (1, 1));
}

#[test]
fn c81_without_a_store_nothing_runs_and_it_recovers_by_itself() {
    let (service, gateway) = plain(&[]);
    let call = Call::post("/salaries", "K").body("amount=1");
    let lock = crate::support::WriteLock::take(gateway.launch().store_file());
    let asked = std::time::Instant::now();
    let both = [gateway.call_aside(&call), gateway.call_aside(&call)];
    for answer in both.map(|answer| answer.join().unwrap()) {
        refused(&answer, 503, "store-unavailable", true, "unknown");
        retry_after(&answer);
    }
    assert!(asked.elapsed() < Duration::from_secs(10), "within the store's own bound: {:?}", asked.elapsed());
    assert_eq!(service.ledger().received_count(), 0);
    assert!(metric(&gateway, "semel_store_errors_total", "") > 0.0);
    drop(lock);
    until("it recovers", || Some(gateway.call(&call)).filter(|answer| answer.status == 201));
    assert_eq!(service.ledger().effects("K"), 1);
}
