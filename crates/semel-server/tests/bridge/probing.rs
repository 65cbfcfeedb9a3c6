//! `on_unknown = "probe"`: the service is asked before anybody gives up.

use crate::bench::Bench;
use crate::support::{Plan, Reply, Service};

const MORE: &str = "on_unknown = \"probe\"\nprobe = \"/orders/{key}\"\nprobe_keep = [200]\nprobe_release = [404]\n\
                    probe_after = \"100ms\"\n";

/// The first request breaks off; a question gets this.
fn service(status: u16, took_effect: bool) -> Service {
    let service = Service::plain();
    service.set(move |received| match received.method.as_str() {
        "GET" => Plan { effect: false, reply: Reply::new(status, ""), ..Plan::default() },
        _ if received.header("semel-attempt") == Some("1") => {
            Plan { effect: took_effect, cut_after: Some(0), ..Plan::default() }
        }
        _ => Plan::default(),
    });
    service
}

#[test]
fn g5_a_message_that_took_effect_is_acknowledged_when_the_service_says_so() {
    let (bench, service) = (Bench::new(), service(200, true));
    let mut bridge = bench.start(service.address(), MORE);
    bench.send([bench.order("a/b")]);
    bridge.wait_for_log("duplicate acknowledged");
    let question = service.ledger().last();
    assert_eq!((question.method.as_str(), question.target.as_str()), ("GET", "/orders/a%2Fb"));
    assert_eq!(question.header("idempotency-key"), Some("\"a/b\""));
    assert_eq!((service.ledger().effects("a/b"), bench.count(&bench.dead_letters())), (1, 0));
}

#[test]
fn g5_a_message_that_took_none_is_sent_again() {
    let (bench, service) = (Bench::new(), service(404, false));
    let _bridge = bench.start(service.address(), MORE);
    bench.send([bench.order("a")]);
    service.ledger().wait_effects(1);
    assert_eq!((service.ledger().effects("a"), bench.count(&bench.dead_letters())), (1, 0));
}

#[test]
fn g5_what_the_service_does_not_know_is_a_dead_letter_in_the_end() {
    let (bench, service) = (Bench::new(), service(500, true));
    let _bridge = bench.start(service.address(), &format!("{MORE}probe_for = \"1s\""));
    bench.send([bench.order("a")]);
    bench.wait_dead(1);
    assert_eq!(service.ledger().effects("a"), 1);
    assert!(service.ledger().received().iter().filter(|one| one.method == "GET").count() >= 1);
    assert_eq!(bench.operator().show("a").expect("a record").cause, "cut");
}
