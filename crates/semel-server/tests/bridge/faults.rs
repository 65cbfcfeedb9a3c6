//! Deaths and losses, of each of those who take part.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use semel_testbed::{Fault, Plan as Strike, Rabbitmq};

use crate::bench::{Bench, runtime};
use crate::support::{Gate, Plan, Service, until};

/// AMQP's Basic.Ack: class 60, method 80.
const ACK: [u8; 4] = [0, 60, 0, 80];

#[test]
fn m11_a_bridge_killed_between_the_answer_and_the_acknowledgement_charges_once() {
    let (bench, service) = (Bench::new(), Service::plain());
    let bridge = bench.start(service.address(), "");
    let held = bench.proxy.arm_plan(Strike::of(Fault::Blackhole).on(ACK));
    bench.send([bench.order("a")]);
    bench.runtime().block_on(held.happened());
    bridge.kill();
    bench.proxy.disarm();
    let mut bridge = bench.start(service.address(), "");
    bridge.wait_for_log("duplicate acknowledged");
    until("an empty queue", || (bench.count(&bench.queue) == 0).then_some(()));
    assert_eq!((service.ledger().received_count(), service.ledger().effects("a")), (1, 1));
}

#[test]
fn k7_a_bridge_killed_before_the_answer_leaves_an_unknown_that_is_not_sent_again() {
    let (bench, service, gate) = (Bench::new(), Service::plain(), Gate::new());
    service.set({
        let gate = gate.clone();
        move |_| Plan::behind(&gate)
    });
    let more = "lease = \"500ms\"";
    let bridge = bench.start(service.address(), more);
    bench.send([bench.order("a")]);
    service.ledger().wait_received(1);
    bridge.kill();
    gate.open();
    service.ledger().wait_effects(1);
    let _bridge = bench.start(service.address(), more);
    bench.wait_dead(1);
    assert_eq!(service.ledger().received_count(), 1);
    assert_eq!(bench.operator().show("a").expect("a record").cause, "lapsed");
}

#[test]
fn m11_a_service_that_is_away_is_waited_for_and_that_is_no_attempt() {
    let (bench, service) = (Bench::new(), Service::plain());
    service.refuse();
    let mut bridge = bench.start(service.address(), "attempts_max = 1");
    bench.send([bench.order("a"), bench.order("b")]);
    bridge.wait_for_log("nothing was begun");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(bench.count(&bench.dead_letters()), 0);
    service.accept_again();
    service.ledger().wait_effects(2);
    assert_eq!((service.ledger().effects("a"), service.ledger().effects("b")), (1, 1));
    assert_eq!(service.ledger().last().header("semel-attempt"), Some("1"));
}

#[test]
fn g6_sigterm_lets_what_runs_end_and_leaves_the_rest_to_the_broker() {
    let (bench, service, gate) = (Bench::new(), Service::plain(), Gate::new());
    service.next(Plan::behind(&gate));
    let mut bridge = bench.start(service.address(), "in_flight_max = 1");
    bench.send(["a", "b", "c"].map(|id| bench.order(id)));
    service.ledger().wait_received(1);
    bridge.send(Signal::TERM);
    bridge.wait_for_log("\"stopping\"");
    assert!(bridge.admin("/readyz").text().contains("stopping"));
    gate.open();
    assert!(bridge.wait().success());
    assert_eq!(service.ledger().received_count(), 1);
    until("the others are the broker's", || (bench.count(&bench.queue) == 2).then_some(()));
    let _bridge = bench.start(service.address(), "");
    service.ledger().wait_effects(3);
    assert!(service.ledger().twice().is_empty());
}

#[test]
fn m8_a_broker_that_is_killed_and_comes_back_loses_nothing_and_repeats_nothing() {
    let runtime = runtime();
    let broker = runtime.block_on(Rabbitmq::start());
    let (bench, service) = (Bench::on(runtime, broker.url(), "orders".into()), Service::plain());
    service.set(|_| Plan { delay: Duration::from_millis(20), ..Plan::default() });
    let bridge = bench.start(service.address(), "in_flight_max = 2");
    let orders: Vec<_> = (0..60).map(|number| bench.order(&format!("order-{number}"))).collect();
    bench.send(orders);
    service.ledger().wait_effects(10);
    bench.runtime().block_on(broker.kill());
    until("the bridge knows", || {
        bridge.admin("/readyz").text().contains("no connection to the broker").then_some(())
    });
    bench.runtime().block_on(broker.restart());
    service.ledger().wait_effects(60);
    until("ready again", || (bridge.admin("/readyz").status == 200).then_some(()));
    assert!(service.ledger().twice().is_empty(), "{:?}", service.ledger().twice());
}

/// The example as it is started by its page: a service in Python, killed and started again.
#[test]
fn m11_a_service_in_python_is_killed_and_comes_back() {
    let bench = Bench::new();
    let address = crate::support::free_address();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/bridge/service.py");
    let start = || {
        let mut python = Command::new("python3");
        python.args([file, &address.port().to_string()]).stdout(Stdio::piped());
        Python(python.spawn().expect("python3 is missing: install Debian's package python3"))
    };
    let order = |id: &str, more: &str| {
        let body = format!("{{\"account\":\"a-1\",\"cents\":100{more}}}");
        semel_messaging::Message::new(bench.queue.clone(), body).with_id(id)
    };
    let service = start();
    let mut bridge = bench.start(address, "lane = \"json:/account\"");
    bench.send([order("o-1", ""), order("o-1", ""), order("o-2", ",\"flaky\":true")]);
    bench.send([semel_messaging::Message::new(bench.queue.clone(), "{\"account\":\"a-9\",\"cents\":1}")
        .with_id("o-3")]);
    bench.wait_dead(1);
    until("all are done", || {
        (bench.operator().keys().iter().filter(|key| key.state == "completed").count() == 2).then_some(())
    });
    let said = service.kill();
    assert_eq!(said.matches("booked 100 on a-1").count(), 2, "{said}");
    assert!(said.contains("under \"o-2\", attempt 2: 200"), "{said}");
    bench.send([order("o-4", "")]);
    bridge.wait_for_log("nothing was begun");
    let service = start();
    until("o-4 is done", || bench.operator().show("o-4").filter(|record| record.state == "completed"));
    assert!(service.kill().contains("attempt 1: 100"));
    assert!(bench.done(&["list"]).contains("no account a-9"));
}

struct Python(std::process::Child);

impl Python {
    /// Kills it, and gives what it has said.
    fn kill(mut self) -> String {
        let _ = self.0.kill();
        let mut said = String::new();
        let out = self.0.stdout.take().expect("a pipe");
        std::io::Read::read_to_string(&mut { out }, &mut said).expect("text");
        said
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
