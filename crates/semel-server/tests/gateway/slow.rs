//! Slow and idle connections are bounded. The bounds are built in, so these tests wait for them: 30 s here, and 60 s
//! for a body where `SEMEL_LONG` is set.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use crate::assert::plain;
use crate::support::{Call, Client, Launch, Service};

/// Waits for the end of a connection, sending a byte of `trickle` each second meanwhile.
fn closed_within(client: &mut Client, bound: Duration, trickle: &[u8]) -> (Duration, Vec<u8>) {
    let started = Instant::now();
    let mut trickle = trickle.iter();
    client.socket().set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    loop {
        match client.socket().peek(&mut [0]) {
            Ok(0) => return (started.elapsed(), Vec::new()),
            Ok(_) => return (started.elapsed(), client.receive_to_end().unwrap_or_default()),
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return (started.elapsed(), Vec::new());
            }
            Err(_) => {}
        }
        assert!(started.elapsed() < bound, "open after {bound:?}");
        if let Some(byte) = trickle.next() {
            let _ = client.send(&[*byte]);
        }
    }
}

#[test]
fn slow_heads_and_idle_connections_are_bounded() {
    const BOUND: Duration = Duration::from_secs(45);
    let (service, gateway) = plain(&[]);
    let mut silent = gateway.connect();
    let mut slow = gateway.connect();
    slow.send(b"POST /slow HTTP/1.1\r\nHost: h\r\nX-Slow: ").unwrap();
    let mut idle = gateway.connect();
    assert_eq!(idle.call(&Call::post("/a", "k")).unwrap().status, 201);
    let mut unused = Client::connect(gateway.admin).unwrap();
    std::thread::scope(|scope| {
        let waits = [
            scope.spawn(|| closed_within(&mut silent, BOUND, b"")),
            scope.spawn(|| closed_within(&mut slow, BOUND, &[b'y'; 60])),
            scope.spawn(|| closed_within(&mut idle, BOUND, b"")),
            scope.spawn(|| closed_within(&mut unused, BOUND, b"")),
        ];
        for wait in waits {
            let (after, said) = wait.join().expect("it is closed");
            assert!(after > Duration::from_secs(5), "not at once: {after:?}");
            assert!(
                said.is_empty() || said.starts_with(b"HTTP/1.1 408"),
                "{}",
                String::from_utf8_lossy(&said)
            );
        }
    });
    assert_eq!(service.ledger().received_count(), 1);
}

/// Callers that only connect do not take the files that the work of the others needs.
#[test]
fn more_connections_than_files_leave_room_for_the_work() {
    let service = Service::plain();
    let gateway = Launch::new(service.address()).open_files(150).start();
    let mut clients: Vec<_> = (0..138).map(|_| gateway.connect()).collect();
    for (number, client) in clients.iter_mut().take(10).enumerate() {
        let call = Call::post("/a", &format!("crowd-{number}"));
        assert_eq!(client.call(&call).expect("an answer").status, 201);
    }
    assert_eq!(gateway.admin("/readyz").status, 200);
    let mut last = clients.pop().unwrap();
    drop(clients);
    assert_eq!(last.call(&Call::post("/a", "last")).expect("it has its turn").status, 201);
    assert!(!gateway.log().contains("could not be accepted"));
}

#[test]
fn a_slow_body_is_bounded() {
    if std::env::var_os("SEMEL_LONG").is_none() {
        eprintln!("a body may take 60 s: set SEMEL_LONG=1 to wait for that");
        return;
    }
    let (service, gateway) = plain(&[]);
    let mut client = gateway.connect();
    client
        .send(b"POST /a HTTP/1.1\r\nHost: h\r\nIdempotency-Key: s\r\nContent-Length: 5000\r\n\r\n")
        .unwrap();
    let (_, said) = closed_within(&mut client, Duration::from_secs(90), &[b'y'; 100]);
    assert!(said.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&said));
    assert_eq!((service.ledger().received_count(), gateway.operator().keys().len()), (0, 0));
}
