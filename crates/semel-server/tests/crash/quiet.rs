//! G4: a quiet service closes its idle connections, and that makes no unknowns.

use std::time::Duration;

use crate::support::{Call, Gateway, Random, Service, note};

/// How long the service keeps an idle connection.
const KEPT: Duration = Duration::from_millis(50);

fn each_once(service: &Service, gateway: &Gateway, requests: usize, mut pause: impl FnMut()) {
    let mut client = gateway.connect();
    for number in 0..requests {
        let key = format!("quiet-{number}");
        let answer = client.call(&Call::post("/charges", &key)).expect("the gateway answers");
        assert_eq!((answer.status, answer.is_replay()), (201, false), "{key}: {answer:?}");
        assert_eq!(service.ledger().effects(&key), 1);
        pause();
    }
    assert!(gateway.operator().keys().iter().all(|record| record.state == "completed"));
}

/// A request right after the service has closed: the connection looked idle, and was not.
#[test]
fn a_connection_that_the_service_has_closed_makes_no_unknown() {
    let service = Service::plain();
    service.close_idle(KEPT);
    let gateway = Gateway::start(service.address(), &[]);
    let requests = 40;
    each_once(&service, &gateway, requests, || service.ledger().wait_disconnected());
    assert_eq!(service.ledger().connections(), requests, "each found its connection closed");
}

/// Requests around the moment at which the service closes: a connection is used for no longer than
/// `--upstream-idle`, so none is written into a closing one.
#[test]
fn around_the_services_keep_alive_there_are_no_unknowns() {
    let seed = Random::seed();
    note(&format!("SEMEL_SEED={seed}"));
    let mut random = Random::new(seed);
    let service = Service::plain();
    service.close_idle(2 * KEPT);
    let gateway = Gateway::start(service.address(), &["--upstream-idle", "50ms"]);
    let requests = 80;
    each_once(&service, &gateway, requests, || std::thread::sleep(random.millis(0, 150)));
    let connections = service.ledger().connections();
    assert!(connections < requests, "a connection that is young enough is used again");
    assert!(connections > 1, "an old one is not");
    note(&format!("{requests} requests over {connections} connections, no unknown"));
}
