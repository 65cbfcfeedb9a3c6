//! What a retry gets: H8, H12, and the public failures of those who kept too little, or too much.

use crate::assert::{lasting, metric, plain, replayed};
use crate::support::{Answer, Call, Gateway, Plan, Reply, Service};

fn replying(reply: Reply) -> (Service, Gateway) {
    let service = Service::doing(Plan { reply, ..Plan::default() });
    let gateway = Gateway::start(service.address(), &[]);
    (service, gateway)
}

#[test]
fn h8_a_retry_gets_the_first_answer_byte_for_byte() {
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let reply = Reply::new(201, &bytes).header("Content-Type", "application/octet-stream");
    let (service, gateway) = replying(reply);
    let (first, again) = replayed(&gateway, &Call::post("/charges", "binary").body("amount=1"));
    assert_eq!(first.body, bytes);
    assert_eq!(lasting(&first), lasting(&again));
    assert_eq!(service.ledger().effects("binary"), 1);
}

#[test]
fn h8_it_survives_a_killed_gateway() {
    let (service, gateway) = plain(&[]);
    let call = Call::post("/charges", "durable").body("amount=1");
    let first = gateway.call(&call);
    let gateway = gateway.restart();
    let again = gateway.call(&call);
    assert!(again.is_replay());
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(service.ledger().effects("durable"), 1);
}

#[test]
fn h12_what_belongs_to_the_answer_is_replayed_in_its_own_lines() {
    let kept = [
        ("Content-Type", "application/json; charset=utf-8"),
        ("Content-Language", "de"),
        ("Content-Disposition", "attachment; filename=\"a;b\""),
        ("Location", "/charges/7"),
        ("ETag", "\"v1\""),
        ("Cache-Control", "no-store"),
        ("Link", "</a>; rel=\"next\""),
        ("Link", "</b>; rel=\"last\""),
        ("X-Own", "1"),
        ("X-Own", "2"),
    ];
    let reply = kept.iter().fold(Reply::new(201, "{}"), |reply, (name, value)| reply.header(name, value));
    let (_service, gateway) = replying(reply);
    let (first, again) = replayed(&gateway, &Call::post("/charges", "headers"));
    for answer in [&first, &again] {
        for (name, _) in kept {
            let lines: Vec<_> =
                kept.iter().filter(|(other, _)| *other == name).map(|(_, value)| *value).collect();
            assert_eq!(answer.header_lines(&name.to_ascii_lowercase()), lines, "{name}");
        }
    }
}

#[test]
fn c44_nothing_of_the_first_callers_session_is_kept_or_replayed() {
    let dropped = [
        ("Set-Cookie", "session=secret-cookie"),
        ("WWW-Authenticate", "Bearer realm=\"secret-realm\""),
        ("Date", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ("Age", "7"),
        ("X-Request-Id", "secret-request"),
        ("RateLimit-Remaining", "3"),
        ("X-RateLimit-Limit", "9"),
        ("Server-Timing", "db;dur=3"),
        ("Traceparent", "00-secret-trace-01"),
        ("Connection", "X-Hop"),
        ("X-Hop", "secret-hop"),
        ("Keep-Alive", "timeout=9"),
    ];
    let reply = Reply::new(201, "{}").header("Location", "/charges/7");
    let reply = dropped.iter().fold(reply, |reply, (name, value)| reply.header(name, value));
    let (_service, gateway) = replying(reply);
    let (first, again) = replayed(&gateway, &Call::post("/login", "session"));
    assert_eq!(first.header("set-cookie"), Some("session=secret-cookie"), "the first caller gets its own");
    assert_eq!(again.header("location"), Some("/charges/7"));
    for (name, _) in dropped.iter().filter(|(name, _)| *name != "Date") {
        assert_eq!(again.header(&name.to_ascii_lowercase()), None, "{name}");
    }
    let date = again.header("date").expect("a replay has a date");
    assert!(!date.contains("2024"), "and a fresh one: {date}");
    assert!(first.header("x-hop").is_none(), "hop-by-hop headers reach nobody");
    let shown = gateway.operator().done(&["show", "session"]);
    let files = std::fs::read_dir(gateway.launch().directory()).unwrap();
    for file in files.map(|file| file.unwrap().path()) {
        let stored = std::fs::read(&file).unwrap();
        assert!(!stored.windows(13).any(|part| part == b"secret-cookie"), "in {}", file.display());
    }
    assert!(shown.contains("/charges/7") && !shown.contains("secret"), "{shown}");
}

#[test]
fn h12_a_marker_that_the_service_made_is_removed() {
    let reply = Reply::new(201, "{}").header("Idempotent-Replayed", "true").header("Semel-Recorded", "false");
    let (_service, gateway) = replying(reply);
    replayed(&gateway, &Call::post("/charges", "marked"));
    for method in ["GET", "PUT", "POST"] {
        let passed = gateway.call(&Call::new(method, "/charges"));
        assert_eq!((passed.header("idempotent-replayed"), passed.header("semel-recorded")), (None, None));
    }
}

#[test]
fn h12_a_body_is_decoded_for_a_retry_that_does_not_accept_its_coding() {
    // "once and only once"
    const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\xcf\x4b\x4e\x55\x48\xcc\x4b\x51\xc8\xcf\xcb\xa9\x04\x12\xc9\xa9\x00\x23\xe9\x29\xe0\x12\x00\x00\x00";
    let reply = Reply::new(200, GZIP).header("Content-Encoding", "gzip").header("Content-Type", "text/plain");
    let (_service, gateway) = replying(reply);
    let call =
        |accepts: &str| gateway.call(&Call::post("/charges", "coded").header("Accept-Encoding", accepts));
    assert_eq!(call("gzip").body, GZIP);
    let coded = call("br, gzip");
    assert!(coded.is_replay());
    assert_eq!((coded.body.as_slice(), coded.header("content-encoding")), (GZIP, Some("gzip")));
    for accepts in ["identity", "gzip;q=0", "br"] {
        let plain = call(accepts);
        assert!(plain.is_replay());
        assert_eq!((plain.text().as_str(), plain.header("content-encoding")), ("once and only once", None));
        assert_eq!(plain.header("content-length"), Some("18"));
    }
}

#[test]
fn c84_status_headers_and_bytes_are_those_of_the_first_answer() {
    let located = |status| Reply::new(status, "{}").header("Location", "/x/1");
    for (number, reply) in [
        located(201).header("ETag", "\"1\""),
        Reply::new(202, "queued").header("Link", "</a>; rel=status").header("Link", "</b>; rel=cancel"),
        Reply::new(204, ""),
        located(303),
        Reply { status: 304, headers: vec![("ETag".into(), "\"1\"".into())], ..Reply::default() },
        Reply::new(406, "{\"error\":\"no\"}").header("Content-Type", "application/json"),
        Reply::new(200, ""),
        Reply::new(205, ""),
    ]
    .into_iter()
    .enumerate()
    {
        let status = reply.status;
        let (service, gateway) = replying(reply);
        let call = Call::post("/routes", &format!("route-{number}")).body("x");
        // Both on one connection, and another request after them: the framing was right.
        let mut client = gateway.connect();
        let [first, again]: [Answer; 2] = std::array::from_fn(|_| client.call(&call).expect("an answer"));
        assert_eq!((first.status, again.status), (status, status));
        assert!(!first.is_replay() && again.is_replay(), "{status}");
        assert_eq!(lasting(&first), lasting(&again), "{status}");
        assert_eq!(first.body, again.body, "{status}");
        if matches!(status, 204 | 304) {
            assert_eq!(again.header("content-length"), None, "{status}");
        }
        assert_eq!(client.call(&Call::new("GET", "/next")).expect("a usable connection").status, status);
        assert_eq!(service.ledger().received_count(), 2);
    }
}

#[test]
fn c98_a_replay_of_a_chunked_answer_has_one_framing() {
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                   3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\nX-Sum: 11\r\n\r\n";
    let reply = Reply { raw: Some(chunks.to_vec()), ..Reply::default() };
    let (service, gateway) = replying(reply);
    let call = Call::post("/chunks", "chunks");
    let mut client = gateway.connect();
    for replay in [false, true] {
        let answer = client.call(&call).expect("an answer");
        assert_eq!((answer.is_replay(), answer.text().as_str()), (replay, "onetwothree"));
        let framings =
            [answer.header_lines("content-length").len(), answer.header_lines("transfer-encoding").len()];
        assert_eq!(framings.iter().sum::<usize>(), 1, "{:?}", answer.headers);
    }
    let other = client.call(&Call::post("/chunks", "other")).expect("the same socket gives the next answer");
    assert!(!other.is_replay());
    assert_eq!(service.ledger().received_count(), 2);
}

#[test]
fn c104_a_replayed_refusal_is_marked_and_a_fresh_one_is_not() {
    let reply = Reply::new(422, "{\"error\":\"card declined\"}").header("Content-Type", "application/json");
    let (service, gateway) = replying(reply);
    replayed(&gateway, &Call::post("/charges", "declined"));
    assert_eq!(service.ledger().received_count(), 1);
    assert_eq!(metric(&gateway, "semel_claims_total", "result=\"replay\""), 1.0);
}

#[test]
fn c119_an_error_that_is_not_resent_reaches_the_caller_unchanged() {
    let reply =
        Reply::new(500, "{\"trace\":\"x\"}").header("X-Err", "7").header("Content-Type", "application/json");
    let (service, gateway) = replying(reply);
    for attempt in ["1", "2"] {
        let answer = gateway.call(&Call::post("/charges", "fails"));
        assert_eq!((answer.status, answer.header("x-err")), (500, Some("7")));
        assert_eq!((answer.text().as_str(), answer.is_replay()), ("{\"trace\":\"x\"}", false));
        assert_eq!(service.ledger().last().header("semel-attempt"), Some(attempt));
    }
    assert_eq!(service.ledger().received_count(), 2, "each request of the caller's was sent once");
}

#[test]
fn c100_a_preflight_reaches_the_service_and_leaves_no_record() {
    let (service, gateway) =
        replying(Reply::new(204, "").header("Access-Control-Allow-Headers", "idempotency-key"));
    let preflight = Call::new("OPTIONS", "/charges")
        .header("Idempotency-Key", "\"p\"")
        .header("Access-Control-Request-Headers", "idempotency-key");
    let answer = gateway.call(&preflight);
    assert_eq!(answer.header("access-control-allow-headers"), Some("idempotency-key"));
    assert_eq!((service.ledger().received_count(), gateway.operator().keys().len()), (1, 0));
}
