//! What happened to a key, as `semel show` tells it: attempts that did not simply complete, and who resolved them, why.

use serde_json::Value;

use crate::operator::done;
use crate::support::{Call, Gate, Gateway, Plan, Service, until};

fn call(key: &str) -> Call {
    Call::post("/charges", key).body("a")
}

fn history(gateway: &Gateway, key: &str) -> Vec<Value> {
    let shown: Value = serde_json::from_str(&done(gateway, &["show", key, "--json"])).unwrap();
    shown["history"].as_array().unwrap().clone()
}

/// The events, once there are so many: they are written after the caller has its answer.
fn told(gateway: &Gateway, key: &str, count: usize) -> Vec<(String, String)> {
    let events =
        until("it is written", || Some(history(gateway, key)).filter(|events| events.len() == count));
    let word = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
    events.iter().map(|event| (word(event, "what"), word(event, "through"))).collect()
}

fn is(told: &[(String, String)]) -> Vec<(&str, &str)> {
    told.iter().map(|(what, through)| (what.as_str(), through.as_str())).collect()
}

#[test]
fn v2_a_timeline_says_who_ended_what_and_why() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &["--instance", "pay-1"]);
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    gateway.call(&call("k"));
    told(&gateway, "k", 1);
    let why = ["--by", "ann", "--reason", "the ledger\nhas nothing"];
    done(&gateway, &[&["resolve", "k", "--rerun"], &why[..]].concat());
    assert_eq!(gateway.call(&call("k")).status, 201);
    let told = told(&gateway, "k", 3);
    assert_eq!(is(&told), [("parked", "run"), ("released", "operator"), ("completed", "run")]);
    let events = history(&gateway, "k");
    assert_eq!((&events[0]["cause"], &events[0]["fence"]), (&"cut".into(), &1.into()));
    assert!(events[0]["ran_ms"].is_u64() && events[1]["ran_ms"].is_null(), "{events:?}");
    assert_eq!((&events[1]["by"], &events[1]["reason"]), (&"ann".into(), &"the ledger has nothing".into()));
    assert_eq!((&events[2]["attempts"], &events[2]["fence"]), (&2.into(), &3.into()));
    let tag = gateway.admin("/readyz").json()["gateway"]["instance_tag"].clone();
    assert_eq!([&events[0]["instance"], &events[2]["instance"]], [&tag, &tag]);
    let shown = done(&gateway, &["show", "k"]);
    for part in ["What happened", ": unknown (cut), ran for ", "operator, by ann: the ledger has nothing\n"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
}

/// Its record says it all, and its cost is unchanged.
#[test]
fn v2_a_key_that_runs_once_has_no_timeline_and_neither_has_its_replay() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    assert_eq!(gateway.call(&call("plain")).status, 201);
    assert!(gateway.call(&call("plain")).is_replay());
    service.next(Plan::without_effect(503));
    gateway.call(&call("other"));
    // Written behind the first one's, if that had any.
    assert_eq!(is(&told(&gateway, "other", 1)), [("released", "run")]);
    assert_eq!(history(&gateway, "other")[0]["cause"], "status-503", "what the service answered");
    assert!(done(&gateway, &["show", "other"]).contains(": took no effect (status-503), ran for "));
    assert!(history(&gateway, "plain").is_empty());
    assert!(!done(&gateway, &["show", "plain"]).contains("What happened"));
}

#[test]
fn v2_without_a_name_it_is_the_systems_user() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    gateway.call(&call("k"));
    told(&gateway, "k", 1);
    done(&gateway, &["resolve", "--cause", "cut", "--completed", "--status", "201", "--yes"]);
    let events = history(&gateway, "k");
    let by = events[1]["by"].as_str().unwrap();
    let (user, host) = by.split_once('@').expect("a user and a host");
    assert!(!user.is_empty() && !host.is_empty() && events[1]["reason"].is_null(), "{events:?}");
}

#[test]
fn k7_an_answer_that_came_late_is_told_as_late() {
    let service = Service::plain();
    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let gateway = Gateway::start(service.address(), &["--upstream-timeout", "200ms"]);
    assert_eq!(gateway.call(&call("late")).status, 504);
    gate.open();
    assert_eq!(is(&told(&gateway, "late", 1)), [("completed", "late")]);
}

#[test]
fn k7_who_took_over_after_a_lapse_is_told() {
    let service = Service::plain();
    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let args = ["--lease", "1s", "--on-unknown", "rerun"];
    let gateway = Gateway::start(service.address(), &args);
    let mut client = gateway.connect();
    client.send(&call("k").bytes()).unwrap();
    service.ledger().wait_received(1);
    let gateway = gateway.restart();
    until("the lease is over", || {
        let answer = gateway.call(&call("k"));
        (answer.status == 201).then_some(())
    });
    assert_eq!(is(&told(&gateway, "k", 2)), [("lapsed", "run"), ("completed", "run")]);
}

/// A zombie's end is refused, and told.
#[test]
fn k3_an_end_that_was_refused_is_told_as_lost() {
    let service = Service::plain();
    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let gateway = Gateway::start(service.address(), &[]);
    let first = gateway.call_aside(&call("k"));
    service.ledger().wait_received(1);
    done(&gateway, &["resolve", "k", "--completed", "--status", "200", "--force", "--reason", "it hangs"]);
    gate.open();
    first.join().unwrap();
    assert_eq!(is(&told(&gateway, "k", 2)), [("completed", "operator"), ("lost", "run")]);
}
