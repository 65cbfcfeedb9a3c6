//! K11: how much one scope may have going on, through a socket.

use crate::support::{Call, Gate, Gateway, Plan, Service, until};

fn by(principal: &str, key: &str) -> Call {
    Call::post("/charges", key).header("Authorization", principal).body("a")
}

#[test]
fn k11_more_open_claims_than_a_scope_may_have_are_refused_before_anything_runs() {
    let gate = Gate::new();
    let service = Service::doing(Plan::behind(&gate));
    let gateway = Gateway::start(service.address(), &["--open-claims-max", "2"]);
    let running = [by("one", "a"), by("one", "b")].map(|call| gateway.call_aside(&call));
    service.ledger().wait_received(2);
    let refused = gateway.call(&by("one", "c"));
    assert_eq!((refused.status, refused.code().as_str()), (429, "too-many-claims"));
    let after: u64 = refused.header("retry-after").expect("when to come back").parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert_eq!((&refused.json()["retryable"], &refused.json()["effect"]), (&true.into(), &"unknown".into()));
    let other = gateway.call_aside(&by("two", "c"));
    service.ledger().wait_received(3);
    gate.open();
    for answer in running.into_iter().chain([other]) {
        assert_eq!(answer.join().unwrap().status, 201);
    }
    let retry = until("the scope has a place again", || {
        Some(gateway.call(&by("one", "c"))).filter(|answer| answer.status != 429)
    });
    assert_eq!((retry.status, retry.is_replay()), (201, false));
    assert_eq!(service.ledger().effects("c"), 2, "once for each of two callers");
}

#[test]
fn k11_more_new_keys_in_a_second_than_a_scope_may_make_are_refused_until_it_is_over() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &["--new-keys-per-second-max", "1"]);
    // However slow the machine is, two of so many fall into one second.
    let mut number = 0;
    let refused = until("a second key in one second", || {
        number += 1;
        Some(gateway.call(&by("one", &number.to_string()))).filter(|answer| answer.status == 429)
    });
    assert_eq!(refused.code(), "too-many-claims");
    assert!(refused.header("retry-after").is_some());
    let ran = service.ledger().received_count();
    assert_eq!(ran, number - 1, "what was refused did not run");
    until("the second is over", || {
        (gateway.call(&by("one", &number.to_string())).status == 201).then_some(())
    });
    assert_eq!(service.ledger().received_count(), ran + 1);
}

#[test]
fn k11_a_bound_of_nothing_is_refused() {
    for flag in ["--open-claims-max", "--new-keys-per-second-max"] {
        let mut command = crate::support::semel();
        let output =
            command.args(["gateway", "--upstream", "http://127.0.0.1:9", flag, "0"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(flag), "{said}");
    }
}
