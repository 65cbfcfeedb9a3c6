//! G4: a quiet service closes its idle connections, and that makes no unknowns.

use std::time::Duration;

use crate::support::{Call, Client, Gateway, Random, Service, note};

/// How long the gateway uses an idle connection, in the one test, and the service keeps it, in the other.
const IDLE: Duration = Duration::from_millis(50);

/// One request that takes effect once. Gives the number of the connection that it came to the service on.
fn once(service: &Service, client: &mut Client, key: &str) -> usize {
    let answer = client.call(&Call::post("/charges", key)).expect("the gateway answers");
    assert_eq!((answer.status, answer.is_replay()), (201, false), "{key}: {answer:?}");
    assert_eq!(service.ledger().effects(key), 1);
    service.ledger().last().connection
}

fn nothing_is_unknown(gateway: &Gateway) {
    assert!(gateway.operator().keys().iter().all(|record| record.state == "completed"));
}

/// A request right after the service has closed: the connection looked idle, and was not.
#[test]
fn a_connection_that_the_service_has_closed_makes_no_unknown() {
    let service = Service::plain();
    service.close_idle(IDLE);
    let gateway = Gateway::start(service.address(), &[]);
    let mut client = gateway.connect();
    for number in 1..=40 {
        let connection = once(&service, &mut client, &format!("closed-{number}"));
        assert_eq!(connection, number, "each has to find that its connection was closed");
        service.ledger().wait_disconnected();
    }
    nothing_is_unknown(&gateway);
}

/// Requests around the moment at which the service closes: a connection is used for no longer than
/// `--upstream-idle`, so none is written into a closing one.
#[test]
fn around_the_services_keep_alive_there_are_no_unknowns() {
    let seed = Random::seed();
    note(&format!("SEMEL_SEED={seed}"));
    let mut random = Random::new(seed);
    let service = Service::plain();
    service.close_idle(2 * IDLE);
    let gateway = Gateway::start(service.address(), &["--upstream-idle", "50ms"]);
    let mut client = gateway.connect();
    let (mut last, mut reused) = (0, 0);
    for number in 0..80 {
        let pause = random.millis(0, 150);
        std::thread::sleep(pause);
        let connection = once(&service, &mut client, &format!("around-{number}"));
        // The other way round is not sure: the machine may have been busy.
        assert!(connection != last || pause <= IDLE, "an old connection was used after {pause:?}");
        reused += usize::from(connection == last);
        last = connection;
    }
    assert!(reused > 0, "a connection that is young enough is used again");
    nothing_is_unknown(&gateway);
    note(&format!("80 requests, {reused} of them on a connection of an earlier one, no unknown"));
}
