//! When nobody knows: the connection broke, the process died; what happens then, and how it ends (K7, H9).

use crate::assert::{in_flight, metric, refused, retry_after, unknown};
use crate::support::{Answer, Call, Gate, Gateway, Plan, Service, until};

fn call(key: &str) -> Call {
    Call::post("/charges", key).body("amount=1")
}

fn cut_after(count: usize) -> Plan {
    Plan { cut_after: Some(count), ..Plan::default() }
}

#[test]
fn h11_a_connection_that_breaks_after_the_request_was_sent_leaves_it_unknown() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    // Before the head of the answer, within it, and within the body.
    for (number, count) in [0, 12, 80].into_iter().enumerate() {
        let call = call(&format!("cut-{number}"));
        service.next(cut_after(count));
        let own = gateway.call(&call);
        refused(&own, 502, "outcome-unknown", true, "unknown");
        unknown(&gateway.call(&call));
        let record = gateway.operator().show(&format!("cut-{number}")).expect("a record");
        assert_eq!((record.state.as_str(), record.cause.as_str()), ("unknown", "cut"), "after {count} bytes");
    }
    assert_eq!(service.ledger().received_count(), 3, "nothing is sent again");
}

#[test]
fn h9_a_service_that_cannot_be_reached_had_no_effect_and_the_key_is_free() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    service.refuse();
    let call = call("unreached");
    for _ in 0..2 {
        refused(&gateway.call(&call), 502, "upstream-unreachable", true, "none");
    }
    assert_eq!(gateway.operator().show("unreached").unwrap().state, "released");
    refused(&gateway.call(&Call::new("POST", "/charges")), 502, "upstream-unreachable", true, "none");
    service.accept_again();
    assert_eq!(gateway.call(&call).status, 201);
    assert_eq!(service.ledger().effects("unreached"), 1);
}

/// An outage of the service wears out no key, however often its caller comes back.
#[test]
fn k8_what_never_reached_the_service_is_no_attempt() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    service.refuse();
    for _ in 0..120 {
        refused(&gateway.call(&call("patient")), 502, "upstream-unreachable", true, "none");
    }
    service.accept_again();
    let answer = gateway.call(&call("patient"));
    assert_eq!(answer.status, 201);
    let record = gateway.operator().show("patient").unwrap();
    assert_eq!((record.state.as_str(), record.attempts), ("completed", 1));
}

#[test]
fn h10_unreachable_after_an_unknown_says_that_nobody_knows() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &["--on-unknown", "rerun"]);
    service.next(cut_after(0));
    refused(&gateway.call(&call("doubt")), 502, "outcome-unknown", true, "unknown");
    service.refuse();
    refused(&gateway.call(&call("doubt")), 502, "upstream-unreachable", true, "unknown");
}

#[test]
fn k7_resolved_as_completed_its_retries_get_the_given_response() {
    let (service, gateway) = cut("charged");
    let body = gateway.launch().directory().join("charge.json");
    std::fs::write(&body, "{\"id\":\"ch_1\"}").unwrap();
    gateway.operator().resolve_completed("charged", 201, &body);
    let answer = gateway.call(&call("charged"));
    assert_eq!((answer.status, answer.is_replay()), (201, true));
    assert_eq!(
        (answer.text().as_str(), answer.header("content-type")),
        ("{\"id\":\"ch_1\"}", Some("application/json"))
    );
    assert_eq!(service.ledger().received_count(), 1);
}

#[test]
fn k7_resolved_as_rerun_the_next_retry_runs_under_a_higher_fence() {
    let (service, gateway) = cut("again");
    let fence =
        |service: &Service| service.ledger().last().header("semel-fence").unwrap().parse::<u64>().unwrap();
    let first = fence(&service);
    gateway.operator().resolve_rerun("again");
    let answer = gateway.call(&call("again"));
    assert_eq!((answer.status, answer.is_replay()), (201, false));
    assert!(fence(&service) > first);
    assert_eq!(service.ledger().last().header("semel-attempt"), Some("2"));
    assert!(gateway.call(&call("again")).is_replay());
}

#[test]
fn k7_rerun_runs_what_is_unknown_by_itself() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &["--on-unknown", "rerun"]);
    service.next(cut_after(0));
    assert_eq!(gateway.call(&call("rerun")).code(), "outcome-unknown");
    assert_eq!(gateway.call(&call("rerun")).status, 201);
    assert_eq!(service.ledger().last().header("semel-attempt"), Some("2"));
    assert!(gateway.call(&call("rerun")).is_replay());
    assert_eq!(service.ledger().effects("rerun"), 2, "at least once is what was asked for");
}

#[test]
fn g2_fence_and_attempt_are_the_gateways_and_a_callers_own_are_removed() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let forged = |call: Call| call.header("Semel-Fence", "999").header("semel-attempt", "7");
    gateway.call(&forged(call("forged")));
    let seen = service.ledger().last();
    assert_eq!(
        (seen.header_lines("semel-fence"), seen.header_lines("semel-attempt")),
        (vec!["1"], vec!["1"])
    );
    for method in ["GET", "POST"] {
        gateway.call(&forged(Call::new(method, "/charges")));
        let seen = service.ledger().last();
        assert_eq!((seen.header("semel-fence"), seen.header("semel-attempt")), (None, None), "{method}");
    }
}

#[test]
fn c05_killed_between_the_effect_and_its_record_it_is_unknown_and_not_new() {
    let (service, gateway) = killed_during("c05", &[]);
    unknown(&once_lapsed(&gateway, "c05"));
    assert_eq!(gateway.operator().show("c05").unwrap().cause, "lapsed");
    assert_eq!(service.ledger().effects("c05"), 1);
}

#[test]
fn c05_with_rerun_it_runs_again_and_says_so() {
    let (service, gateway) = killed_during("c05", &["--on-unknown", "rerun"]);
    assert_eq!(once_lapsed(&gateway, "c05").status, 201);
    assert_eq!(service.ledger().last().header("semel-attempt"), Some("2"));
    assert_eq!(service.ledger().effects("c05"), 2);
}

#[test]
fn c41_a_claim_left_behind_by_a_crash_blocks_its_key_for_the_lease_at_most() {
    let (_service, gateway) = killed_during("c41", &[]);
    let first = gateway.call(&call("c41"));
    if first.code() == "in-flight" {
        assert!(retry_after(&first) <= 1, "the lease is one second");
    }
    let started = std::time::Instant::now();
    unknown(&once_lapsed(&gateway, "c41"));
    assert!(started.elapsed() < std::time::Duration::from_secs(3), "blocked for {:?}", started.elapsed());
    gateway.operator().resolve_rerun("c41");
    assert_eq!(gateway.call(&call("c41")).status, 201);
}

#[test]
fn unknowns_are_counted() {
    let (_service, gateway) = cut("counted");
    gateway.call(&call("counted"));
    assert_eq!(metric(&gateway, "semel_settlements_total", "how=\"unknown\""), 1.0);
    assert_eq!(metric(&gateway, "semel_claims_total", "result=\"unknown\""), 1.0);
}

/// A key whose connection broke after the effect.
fn cut(key: &str) -> (Service, Gateway) {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    service.next(cut_after(0));
    assert_eq!(gateway.call(&call(key)).code(), "outcome-unknown");
    (service, gateway)
}

/// A gateway that was killed after the effect and before the answer, and was started again.
fn killed_during(key: &str, args: &[&str]) -> (Service, Gateway) {
    let gate = Gate::new();
    let service = Service::plain();
    service.next(Plan { delay_answer: std::time::Duration::from_millis(400), ..Plan::behind(&gate) });
    let gateway = Gateway::start(service.address(), &[&["--lease", "1s"], args].concat());
    let mut client = gateway.connect();
    client.send(&call(key).bytes()).unwrap();
    service.ledger().wait_received(1);
    gate.open();
    service.ledger().wait_effects(1);
    (service, gateway.restart())
}

fn once_lapsed(gateway: &Gateway, key: &str) -> Answer {
    until("the lease is over", || {
        let answer = gateway.call(&call(key));
        if answer.code() == "in-flight" {
            in_flight(&answer);
            return None;
        }
        Some(answer)
    })
}
