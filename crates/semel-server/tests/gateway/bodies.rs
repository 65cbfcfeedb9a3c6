//! The bounds of bodies: H13, H14.

use crate::assert::{metric, plain, refused, replayed, states};
use crate::support::{Call, Client, Gateway, Plan, Reply, Service, until};

const KIB: usize = 1024;

/// Reads answers until one that is not interim.
fn final_answer(client: &mut Client) -> (bool, crate::support::Answer) {
    let first = client.receive().expect("an answer");
    if first.status == 100 { (true, client.receive().expect("a final answer")) } else { (false, first) }
}

#[test]
fn h14_a_body_over_the_limit_is_refused_before_any_claim() {
    let (service, gateway) = plain(&["--body-bytes-max", "2KiB"]);
    let call = |size| Call::post("/charges", &format!("size-{size}")).body("x".repeat(size));
    for size in [2 * KIB - 1, 2 * KIB] {
        assert_eq!(gateway.call(&call(size)).status, 201);
    }
    for size in [2 * KIB + 1, 100 * KIB] {
        refused(&gateway.call(&call(size)), 413, "body-too-large", false, "none");
        let chunked = format!("{size:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(size));
        let chunked = Call::post("/charges", "chunked").header("Transfer-Encoding", "chunked").body(chunked);
        refused(&gateway.call(&chunked), 413, "body-too-large", false, "none");
    }
    assert_eq!((service.ledger().received_count(), states(&gateway).len()), (2, 2));
}

#[test]
fn h14_the_limit_is_1_mib_by_default() {
    let (_service, gateway) = plain(&[]);
    let call = |size| Call::post("/charges", &format!("size-{size}")).body("x".repeat(size));
    assert_eq!(gateway.call(&call(1024 * KIB)).status, 201);
    refused(&gateway.call(&call(1024 * KIB + 1)), 413, "body-too-large", false, "none");
    assert_eq!(
        gateway.call(&Call::new("POST", "/x").body("x".repeat(3 * 1024 * KIB))).status,
        201,
        "unguarded"
    );
}

#[test]
fn h14_413_arrives_although_the_client_still_writes() {
    let (service, gateway) = plain(&[]);
    let size = 5 * 1024 * KIB;
    for keyed in 0..5 {
        let call = Call::post("/charges", &format!("large-{keyed}")).body("x".repeat(size));
        let mut client = gateway.connect();
        client.send(&call.bytes()).expect("all of it is taken");
        refused(&client.receive().expect("the answer arrives"), 413, "body-too-large", false, "none");
        assert_eq!(client.call(&Call::post("/charges", &format!("next-{keyed}"))).unwrap().status, 201);
    }
    assert_eq!(service.ledger().received_count(), 5);
}

#[test]
fn h14_a_refused_body_that_does_not_end_is_cut_off() {
    let (service, gateway) = plain(&[]);
    let mut client = gateway.connect();
    client
        .send(b"POST /a HTTP/1.1\r\nHost: h\r\nIdempotency-Key: e\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let mut piece = b"10000\r\n".to_vec();
    piece.extend([b'x'; 64 * KIB]);
    piece.extend(b"\r\n");
    // It stops taking it: after the limit and what is thrown away, the connection is closed.
    let sent = (0..).take_while(|_| client.send(&piece).is_ok()).take(1000).count();
    assert!(sent < 1000, "more than 64 MiB were taken");
    assert_eq!((service.ledger().received_count(), states(&gateway).len()), (0, 0));
}

#[test]
fn h14_a_body_that_breaks_off_claims_nothing() {
    let (service, gateway) = plain(&[]);
    let mut client = gateway.connect();
    client
        .send(b"POST /a HTTP/1.1\r\nHost: h\r\nIdempotency-Key: b\r\nContent-Length: 100\r\n\r\nonly so much")
        .unwrap();
    client.end_sending().unwrap();
    let answer = String::from_utf8(client.receive_to_end().unwrap()).unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    gateway.wait_for_log(|line| line.contains("body_broken")).expect("it is said");
    assert_eq!((service.ledger().received_count(), states(&gateway).len()), (0, 0));
}

#[test]
fn h14_expect_100_continue_is_answered_and_the_body_is_taken() {
    let (service, gateway) = plain(&[]);
    let mut client = gateway.connect();
    let head = "POST /a HTTP/1.1\r\nHost: shop.example\r\nIdempotency-Key: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.send(head.as_bytes()).unwrap();
    assert_eq!(client.receive().unwrap().status, 100, "before a byte of the body is sent");
    client.send(b"hello").unwrap();
    assert_eq!(client.receive().unwrap().status, 201);
    assert_eq!(service.ledger().last().body, b"hello");
    assert!(
        client.call(&Call::post("/a", "x").body("hello")).unwrap().is_replay(),
        "the connection is usable"
    );
}

#[test]
fn h14_a_body_that_will_be_refused_is_not_asked_for() {
    let (service, gateway) = plain(&["--key", "required"]);
    let expecting =
        |call: Call, length: &str| call.header("Expect", "100-continue").header("Content-Length", length);
    for (call, status) in [
        (expecting(Call::post("/a", "large"), "5000000"), 413),
        (expecting(Call::new("POST", "/a"), "5"), 400),
        (expecting(Call::post("/a", "bro\"ken"), "5"), 400),
    ] {
        let mut client = gateway.connect();
        client.send(&call.bytes()).unwrap();
        let (asked, answer) = final_answer(&mut client);
        assert_eq!((asked, answer.status), (false, status));
        assert!(client.is_closed(), "whether a body follows is not known");
    }
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn c74_a_hundred_endless_bodies_do_not_fill_the_memory() {
    let (service, gateway) = plain(&[]);
    let warm: Vec<_> =
        (0..100).map(|n| gateway.call_aside(&Call::post("/w", &format!("warm-{n}")).body("x"))).collect();
    warm.into_iter().for_each(|call| drop(call.join().unwrap()));
    let before = gateway.memory_kib();
    let mut clients: Vec<_> = (0..100).map(|_| gateway.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let head =
            Call::post("/endless", &format!("endless-{number}")).header("Transfer-Encoding", "chunked");
        client.send(&head.bytes()).unwrap();
    }
    let mut piece = b"8000\r\n".to_vec();
    piece.extend([b'x'; 32 * KIB]);
    piece.extend(b"\r\n");
    // All of them just below the limit, then beyond it: what a refused one held is free again.
    let mut peak = 0;
    for round in 0..48 {
        clients.iter_mut().for_each(|client| client.send(&piece).unwrap());
        if round % 8 == 7 {
            peak = peak.max(gateway.memory_kib());
        }
    }
    until("all are refused", || {
        let refused = gateway.log().matches("body_too_large").count();
        (refused == 100).then_some(())
    });
    // A hundred bodies of 1 MiB each, with room to grow: bounded by the limit, not by what is sent.
    assert!(peak < before + 300 * KIB as u64, "{before} KiB grew to {peak} KiB");
    drop(clients);
    until("it is given back", || (gateway.memory_kib() < before + 64 * KIB as u64).then_some(()));
    assert_eq!((service.ledger().received_count(), states(&gateway).len()), (100, 100));
}

#[test]
fn c10_an_answer_that_is_too_large_to_keep_is_never_made_again() {
    let limit = 256 * KIB;
    for size in [limit - 1, limit] {
        let (service, gateway) = answering(size);
        replayed(&gateway, &Call::post("/exports", "fits"));
        assert_eq!(service.ledger().received_count(), 1);
    }
    for size in [limit + 1, 600 * KIB] {
        let (service, gateway) = answering(size);
        let call = Call::post("/exports", "large");
        let first = gateway.call(&call);
        assert_eq!((first.status, first.body.len()), (201, size), "the first caller gets all of it");
        let again = gateway.call(&call);
        refused(&again, 410, "response-not-kept", false, "done");
        assert_eq!(
            (again.header("semel-original-status"), again.header("location")),
            (Some("201"), Some("/exports/7"))
        );
        assert_eq!(
            (&again.json()["original_status"], &again.json()["location"]),
            (&201.into(), &"/exports/7".into())
        );
        assert_eq!(service.ledger().effects("large"), 1);
        assert_eq!(gateway.operator().show("large").unwrap().state, "completed");
        assert_eq!(metric(&gateway, "semel_claims_total", "result=\"run\""), 1.0);
    }
}

fn answering(size: usize) -> (Service, Gateway) {
    let reply = Reply::new(201, "y".repeat(size)).header("Location", "/exports/7");
    let service = Service::doing(Plan { reply, ..Plan::default() });
    let gateway = Gateway::start(service.address(), &["--kept-bytes-max", "256KiB"]);
    (service, gateway)
}
