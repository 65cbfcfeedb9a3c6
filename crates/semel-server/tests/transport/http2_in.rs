//! HTTP/2 from callers: what holds for HTTP/1.1 holds for each stream (G2, G6, K9).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use rustix::process::Signal;

use crate::http2::Http2;
use crate::support::{Call, Client, Gate, Gateway, Launch, Plan, Service, until};

fn plain(args: &[&str]) -> (Service, Gateway) {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), args);
    (service, gateway)
}

fn gated(args: &[&str]) -> (Gate, Service, Gateway) {
    let gate = Gate::new();
    let service = Service::doing(Plan::behind(&gate));
    let gateway = Gateway::start(service.address(), args);
    (gate, service, gateway)
}

#[test]
fn g2_prior_knowledge_and_http1_share_an_address_and_their_keys() {
    let (service, gateway) = plain(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    let call = Call::post("/charges?a=1", "both").header("Content-Type", "text/plain").body("amount=1");
    let first = http2.call(&call).unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));
    let seen = service.ledger().last();
    assert_eq!((seen.target.as_str(), seen.header_lines("host")), ("/charges?a=1", vec!["shop.example"]));
    assert_eq!(
        (seen.header("x-forwarded-host"), seen.header("x-forwarded-proto")),
        (Some("shop.example"), Some("http"))
    );
    let again = gateway.call(&call);
    assert_eq!((again.is_replay(), again.body), (true, first.body));
    assert!(http2.call(&call).unwrap().is_replay());
    assert_eq!(http2.call(&Call::new("GET", "/")).unwrap().status, 201);
    assert_eq!(service.ledger().received_count(), 2);
}

#[test]
fn h8_of_two_streams_with_one_key_one_runs_and_the_other_is_told() {
    let (gate, service, gateway) = gated(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    let call = Call::post("/charges", "twins").body("amount=1");
    let (one, other) = (http2.send(&call).unwrap(), http2.send(&call).unwrap());
    service.ledger().wait_received(1);
    let (told, runs) = http2.receive_first(one, other).unwrap();
    assert_eq!((told.status, told.code().as_str()), (409, "in-flight"));
    gate.open();
    let ran = http2.receive(runs).unwrap();
    assert_eq!((ran.status, ran.is_replay()), (201, false));
    assert_eq!(service.ledger().effects("twins"), 1);
}

#[test]
fn each_stream_has_its_own_claim() {
    const STREAMS: usize = 30;
    let (gate, service, gateway) = gated(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    let call = |number: usize| Call::post("/charges", &format!("stream-{number}")).body("x");
    let sent: Vec<_> = (0..STREAMS).map(|number| http2.send(&call(number)).unwrap()).collect();
    service.ledger().wait_received(STREAMS);
    gate.open();
    for sent in sent {
        assert_eq!(http2.receive(sent).unwrap().status, 201);
    }
    assert_eq!(service.ledger().effects_count(), STREAMS);
    assert!((0..STREAMS).all(|number| http2.call(&call(number)).unwrap().is_replay()));
}

/// K9: the run goes on, and the retry gets its answer.
#[test]
fn k9_a_stream_that_its_caller_resets_changes_nothing() {
    let (gate, service, gateway) = gated(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    let call = Call::post("/charges", "reset").body("amount=1");
    let mut sent = http2.send(&call).unwrap();
    service.ledger().wait_received(1);
    sent.body.send_reset(Reason::CANCEL);
    drop(sent);
    let told = http2.call(&call).unwrap();
    assert_eq!((told.status, told.code().as_str()), (409, "in-flight"));
    // And so does a connection that is gone.
    drop(http2);
    gate.open();
    let mut http2 = Http2::connect(gateway.listen);
    let again =
        until("it is settled", || Some(http2.call(&call).unwrap()).filter(|answer| answer.status != 409));
    assert_eq!((again.status, again.is_replay(), service.ledger().effects("reset")), (201, true, 1));
}

#[test]
fn h2_a_key_that_stands_twice_is_malformed() {
    let (service, gateway) = plain(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    for second in ["k", "l"] {
        let twice = Call::post("/charges", "k").header("idempotency-key", second).body("x");
        let refused = http2.call(&twice).unwrap();
        assert_eq!((refused.status, refused.code().as_str()), (400, "key-malformed"));
    }
    assert_eq!(service.ledger().received_count(), 0);
}

/// It is one stream's fault: the others go on, and it never becomes a second request.
#[test]
fn a_body_that_is_not_as_long_as_it_says_is_no_request() {
    let (service, gateway) = plain(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    for (length, body) in [("5", "abc"), ("3", "abcde"), ("0", "abc"), ("x", "abc")] {
        let mut sent =
            http2.begin(&Call::post("/a", "length").header("content-length", length), false).unwrap();
        let _ = sent.body.send_data(Bytes::from(body), true);
        match http2.receive(sent) {
            Ok(answer) => assert_eq!(answer.status, 400, "{length}"),
            Err(error) => assert!(error.is_reset(), "{length}: {error}"),
        }
    }
    let twice =
        Call::post("/a", "length").header("content-length", "1").header("content-length", "1").body("x");
    match http2.call(&twice) {
        Ok(answer) => assert_eq!(answer.status, 400),
        Err(error) => assert!(error.is_reset(), "{error}"),
    }
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(http2.call(&Call::post("/a", "length").body("abc")).unwrap().status, 201);
}

#[test]
fn an_authority_and_another_host_are_no_request() {
    let (service, gateway) = plain(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    // The client takes `Host` for the authority, so this one goes beside it.
    let refused = http2.call_with_host("shop.example", &[("host", "other.example")]).unwrap();
    assert_eq!(refused.status, 400);
    let refused =
        http2.call_with_host("shop.example", &[("host", "shop.example"), ("host", "shop.example")]).unwrap();
    assert_eq!(refused.status, 400);
    let refused = http2.call_with_host("user@shop.example", &[]).unwrap();
    assert_eq!(refused.status, 400);
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(http2.call_with_host("shop.example", &[("host", "Shop.example")]).unwrap().status, 201);
    assert_eq!(service.ledger().last().header_lines("host"), ["shop.example"]);
}

#[test]
fn connect_is_not_served() {
    let (service, gateway) = plain(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    let refused = http2.connect_to("shop.example:443").unwrap();
    assert_eq!(refused.status, 501);
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn cookie_crumbs_reach_the_service_as_one_cookie() {
    let (service, gateway) = plain(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    let call =
        Call::post("/a", "crumbs").header("cookie", "a=1").header("cookie", "b=2").header("x-own", "1");
    http2.call(&call.header("x-own", "2").body("x")).unwrap();
    let seen = service.ledger().last();
    assert_eq!((seen.header_lines("cookie"), seen.header_lines("x-own")), (vec!["a=1; b=2"], vec!["1", "2"]));
}

#[test]
fn heads_and_bodies_are_bounded() {
    let (service, gateway) = plain(&["--body-bytes-max", "1KiB"]);
    let mut http2 = Http2::connect(gateway.listen);
    let large = Call::post("/a", "large").header("x-large", &"y".repeat(40_000)).body("x");
    match http2.call(&large) {
        Ok(answer) => assert_eq!(answer.status, 431),
        Err(error) => assert!(error.is_reset(), "{error}"),
    }
    let refused = http2.call(&Call::post("/a", "large").body("x".repeat(5_000))).unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (413, "body-too-large"));
    let passes = http2.call(&Call::new("PUT", "/file").body("x".repeat(300_000))).unwrap();
    assert_eq!((passes.status, service.ledger().last().body.len()), (201, 300_000));
    assert_eq!(service.ledger().received_count(), 1);
}

/// G6: GOAWAY, what runs is answered, and nothing new begins.
#[test]
fn g6_told_to_stop_it_says_farewell_and_answers_what_runs() {
    let (gate, service, mut gateway) = gated(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    let idle = Http2::connect(gateway.listen);
    let sent = http2.send(&Call::post("/charges", "slow").body("x")).unwrap();
    service.ledger().wait_received(1);
    gateway.send(Signal::TERM);
    assert!(idle.ended().is_ok());
    until("nothing new begins", || http2.send(&Call::new("GET", "/new")).err());
    assert!(gateway.ended().is_none(), "it waits for what runs");
    gate.open();
    assert_eq!(http2.receive(sent).unwrap().status, 201);
    assert!(http2.ended().is_ok());
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(service.ledger().effects("slow"), 1);
}

/// Each of them may need a connection to the service, for which there are not files enough.
#[test]
fn more_streams_than_files_wait_for_their_turn() {
    let service = Service::doing(Plan { delay: Duration::from_millis(20), ..Plan::default() });
    let gateway = Launch::new(service.address()).open_files(110).args(["--workers", "1"]).start();
    let mut http2 = Http2::connect(gateway.listen);
    let call = |number: usize| Call::post("/charges", &format!("turn-{number}")).body("x");
    let sent: Vec<_> = (0..100).map(|number| http2.send(&call(number)).unwrap()).collect();
    for sent in sent {
        assert_eq!(http2.receive(sent).unwrap().status, 201);
    }
    assert_eq!(service.ledger().effects_count(), 100);
}

/// Rapid reset: the connection is cut, and the gateway serves the others.
#[test]
fn a_caller_that_resets_its_streams_without_end_is_cut() {
    let (_gate, _service, gateway) = gated(&[]);
    let mut http2 = Http2::connect(gateway.listen);
    let flood = (0..5_000).try_for_each(|_| {
        let mut sent = http2.begin(&Call::new("GET", "/flood"), true)?;
        sent.body.send_reset(Reason::CANCEL);
        Ok::<_, h2::Error>(())
    });
    let cut = flood.is_err() || http2.call(&Call::new("GET", "/.well-known/semel-policy")).is_err();
    assert!(cut, "five thousand resets on one connection");
    let mut other = Http2::connect(gateway.listen);
    assert_eq!(other.call(&Call::new("GET", "/.well-known/semel-policy")).unwrap().status, 200);
}

/// Frames of HTTP/2, sent by hand.
fn connect_by_hand(address: SocketAddr, frames: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frames].concat()).unwrap();
    stream
}

/// How long it takes until the other side has closed.
fn closed_after(mut stream: TcpStream, begun: Instant, bound: Duration) -> Duration {
    let mut bytes = [0; 1024];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return begun.elapsed(),
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return begun.elapsed(),
        }
        assert!(begun.elapsed() < bound, "open after {bound:?}");
    }
}

#[test]
fn slow_and_idle_connections_are_bounded() {
    let (service, gateway) = plain(&[]);
    let begun = Instant::now();
    let settings: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    // HEADERS of 100 bytes, of which one comes.
    let head_begun: &[u8] = b"\0\0\x64\x01\x04\0\0\0\x01\x82";
    let never_pongs = [connect_by_hand(gateway.listen, b""), connect_by_hand(gateway.listen, settings), {
        connect_by_hand(gateway.listen, &[settings, head_begun].concat())
    }];
    let mut idle = Http2::connect(gateway.listen);
    assert_eq!(idle.call(&Call::post("/a", "k").body("x")).unwrap().status, 201);
    let preface_begun = TcpStream::connect(gateway.listen).unwrap();
    (&preface_begun).write_all(b"PRI * HTT").unwrap();
    preface_begun.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    assert!(idle.is_open_after(Duration::from_secs(10)), "not at once");
    for stream in never_pongs {
        let after = closed_after(stream, begun, Duration::from_secs(60));
        assert!(after > Duration::from_secs(5), "not at once: {after:?}");
    }
    closed_after(preface_begun, begun, Duration::from_secs(60));
    assert!(idle.ended().is_ok(), "with a farewell");
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(service.ledger().received_count(), 1);
}

/// `h2c` would carry requests past the guard; a caller that asks for it is answered by HTTP/1.1.
#[test]
fn an_upgrade_to_h2c_is_not_made_and_not_passed_on() {
    let (service, gateway) = plain(&[]);
    let mut client = gateway.connect();
    for (number, call) in
        [Call::new("GET", "/a"), Call::post("/a", "h2c"), Call::new("PUT", "/a")].into_iter().enumerate()
    {
        let call = call
            .header("Connection", "Upgrade, HTTP2-Settings")
            .header("Upgrade", "h2c")
            .header("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA");
        assert_eq!(client.call(&call).unwrap().status, 201, "on the same connection");
        let seen = service.ledger().last();
        assert!(
            ["upgrade", "http2-settings"].iter().all(|name| seen.header(name).is_none()),
            "{:?}",
            seen.headers
        );
        assert_eq!(service.ledger().received_count(), number + 1);
    }
    let again = client.call(&Call::post("/a", "h2c")).unwrap();
    assert!(again.is_replay(), "and the guarded one was guarded");
    // What stands behind it is a request like others.
    let mut raw = Client::connect(gateway.listen).unwrap();
    raw.send(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nGET /b HTTP/1.1\nHost: h\n\n").unwrap();
    assert_eq!(raw.receive().unwrap().status, 201);
    let refused = raw.receive().unwrap();
    assert_eq!((refused.status, raw.is_closed()), (400, true));
}
