//! Bytes that two servers could read differently: 400, or one request with one framing. Never a second one.

use std::io::Read;
use std::time::Duration;

use crate::assert::plain;
use crate::support::{Client, Gateway, Service};

/// What must never reach the service, in all tests here.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n\r\n";

fn post(number: usize, rest: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: h\r\nIdempotency-Key: framing-{number}\r\n{rest}")
}

/// Everything that comes back until the connection ends.
#[track_caller]
fn exchange(gateway: &Gateway, bytes: &[u8]) -> String {
    let mut client = gateway.connect();
    // It may answer and close before all is written.
    let _ = client.send(bytes);
    String::from_utf8_lossy(&client.receive_to_end().expect("an end")).into_owned()
}

#[track_caller]
fn all_are_refused(service: &Service, gateway: &Gateway, requests: &[String]) {
    for request in requests {
        let before = service.ledger().received_count();
        let text = exchange(gateway, request.as_bytes());
        assert!(text.starts_with("HTTP/1.1 400 "), "{request:?} is answered by {text:?}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{request:?} is answered by {text:?}");
        if let Some((_, document)) = text.split_once("\r\n\r\n").filter(|(_, body)| body.starts_with('{')) {
            let problem: serde_json::Value = serde_json::from_str(document).expect("JSON");
            assert_eq!(problem["type"], "about:blank");
            assert_eq!(problem["error"]["message"], problem["detail"], "{problem}");
        }
        assert_eq!(service.ledger().received_count(), before, "{request:?}");
    }
    assert_eq!(gateway.operator().keys().len(), 0, "nothing was claimed");
}

#[test]
fn two_framings_are_refused() {
    let (service, gateway) = plain(&[]);
    let heads = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "content-LENGTH: 5\r\nX: y\r\nTRANSFER-encoding: Chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: CHUNKED\r\nX: y\r\ncontent-length: 0\r\n\r\n0\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "Content-Length: 6\r\nContent-Length: 5\r\n\r\nhello",
        "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "Content-Length: 5\r\ncontent-length:5\r\n\r\nhello",
        "Content-Length: 5, 5\r\n\r\nhello",
        "Content-Length: 5, 6\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ];
    let requests: Vec<_> = heads.iter().enumerate().map(|(n, head)| post(n, head) + SMUGGLED).collect();
    all_are_refused(&service, &gateway, &requests);
}

#[test]
fn lengths_and_codings_that_are_written_otherwise_are_refused() {
    let (service, gateway) = plain(&[]);
    let lengths = ["+5", "-5", "0x5", "5 5", "5;", "5.0", "", "five", "99999999999999999999999", "5,"];
    let lengths = lengths.map(|length| format!("Content-Length: {length}\r\n\r\nhello"));
    let codings = [
        "chunked, identity",
        "identity, chunked",
        "gzip, chunked",
        "chunked, chunked",
        "identity",
        "xchunked",
        "gzip",
        "\"chunked\"",
        "",
        "chunked;q=1",
        "\x0bchunked",
        "chunked\x0c",
    ];
    let codings = codings.map(|coding| format!("Transfer-Encoding: {coding}\r\n\r\n0\r\n\r\n"));
    let heads = lengths.iter().chain(&codings);
    let requests: Vec<_> = heads.enumerate().map(|(n, head)| post(n, head) + SMUGGLED).collect();
    all_are_refused(&service, &gateway, &requests);
}

#[test]
fn heads_that_break_their_lines_otherwise_are_refused() {
    let (service, gateway) = plain(&[]);
    let heads = [
        "X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
        "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 5\r\n\t\r\n\r\nhello",
        "X: y\nContent-Length: 5\r\n\r\nhello",
        "Content-Length: 5\n\r\nhello",
        "Content-Length: 5\r\n\nhello",
        "Content-Length: 5\n\nhello",
        "X: y\rContent-Length: 5\r\n\r\nhello",
        "Content-Length : 5\r\n\r\nhello",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        " Content-Length: 5\r\n\r\nhello",
        "X: a\0b\r\nContent-Length: 5\r\n\r\nhello",
        "X\0: a\r\nContent-Length: 5\r\n\r\nhello",
        "no colon\r\nContent-Length: 5\r\n\r\nhello",
        ": no name\r\nContent-Length: 5\r\n\r\nhello",
    ];
    let mut requests: Vec<_> = heads.iter().enumerate().map(|(n, head)| post(n, head) + SMUGGLED).collect();
    requests.push(format!("POST /a HTTP/1.1\nHost: h\r\nContent-Length: 5\r\n\r\nhello{SMUGGLED}"));
    requests.push(format!("\nPOST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello{SMUGGLED}"));
    all_are_refused(&service, &gateway, &requests);
}

#[test]
fn broken_chunks_are_refused() {
    let (service, gateway) = plain(&[]);
    let bodies = [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5;a=\nb\r\nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5_0\r\nhello\r\n0\r\n\r\n",
        "0\r\nX: y\nZ: z\r\n\r\n",
        "0\r\nX: y\n\r\n\r\n",
    ];
    let requests: Vec<_> =
        bodies.iter().enumerate().map(|(n, body)| post(n, CHUNKED) + body + SMUGGLED).collect();
    all_are_refused(&service, &gateway, &requests);
}

#[test]
fn requests_that_name_no_host_or_several_are_refused() {
    let (service, gateway) = plain(&[]);
    let rest = "Content-Length: 0\r\n\r\n";
    let requests = [
        format!("POST /a HTTP/1.1\r\n{rest}"),
        format!("POST /a HTTP/1.1\r\nHost: a\r\nHost: a\r\n{rest}"),
        format!("POST /a HTTP/1.1\r\nHost: a\r\nhost: b\r\n{rest}"),
        format!("POST /a HTTP/1.1\r\nHost: a, b\r\n{rest}"),
        format!("POST /a HTTP/1.1\r\nHost: a/b\r\n{rest}"),
        format!("POST /a HTTP/1.1\r\nHost: user@a\r\n{rest}"),
        format!("POST a.example:80 HTTP/1.1\r\nHost: a\r\n{rest}"),
        format!("POST  /a HTTP/1.1\r\nHost: a\r\n{rest}"),
        format!("POST /a b HTTP/1.1\r\nHost: a\r\n{rest}"),
        format!("POST /a HTTP/1.2\r\nHost: a\r\n{rest}"),
        format!("POST /a\r\n{rest}"),
    ];
    all_are_refused(&service, &gateway, &requests);
    let said = exchange(&gateway, requests[1].as_bytes());
    let problem: serde_json::Value = serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((&problem["detail"], &problem["retryable"]), (&"more than one Host".into(), &false.into()));
}

#[test]
fn a_request_before_http_1_1_has_no_transfer_coding_and_ends_its_connection() {
    let (service, gateway) = plain(&[]);
    let coded = format!("POST /a HTTP/1.0\r\nHost: h\r\nIdempotency-Key: a\r\n{CHUNKED}0\r\n\r\n{SMUGGLED}");
    all_are_refused(&service, &gateway, &[coded]);
    let text = exchange(&gateway, b"POST /a HTTP/1.0\r\nIdempotency-Key: b\r\nContent-Length: 2\r\n\r\nhi");
    assert!(text.starts_with("HTTP/1.0 201 ") || text.starts_with("HTTP/1.1 201 "), "{text}");
    assert!(!text.to_ascii_lowercase().contains("transfer-encoding"), "{text}");
    let seen = service.ledger().last();
    assert_eq!((seen.body.as_slice(), seen.header_lines("host").len()), (&b"hi"[..], 1));
}

#[test]
fn an_absolute_target_counts_before_the_host_line() {
    let (service, gateway) = plain(&[]);
    let request = "POST http://t.example/a?x=1 HTTP/1.1\r\nHost: other\r\nIdempotency-Key: abs\r\nContent-Length: 0\r\n";
    let text = exchange(&gateway, format!("{request}Connection: close\r\n\r\n").as_bytes());
    assert!(text.starts_with("HTTP/1.1 201 "), "{text}");
    let seen = service.ledger().last();
    assert_eq!((seen.target.as_str(), seen.header_lines("host")), ("/a?x=1", vec!["t.example"]));
}

#[test]
fn connect_is_not_served() {
    let (service, gateway) = plain(&[]);
    let text = exchange(&gateway, b"CONNECT t.example:80 HTTP/1.1\r\nHost: t.example:80\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 501 "), "{text}");
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn pipelined_requests_are_answered_in_order_and_each_runs_once() {
    let (service, gateway) = plain(&[]);
    let one = |key: &str, body: &str| {
        format!(
            "POST /p HTTP/1.1\r\nHost: h\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let chunked = post(1, CHUNKED) + "5;ext=1\r\nhel\n\n\r\n0\r\nX-Trailer: y\r\n\r\n";
    let mut client = gateway.connect();
    client
        .send((one("a", "a\n") + &one("b", "bb") + &one("a", "a\n") + &chunked + &one("c", "")).as_bytes())
        .unwrap();
    let answers: Vec<_> = (0..5).map(|_| client.receive().unwrap()).collect();
    assert!(answers.iter().all(|answer| answer.status == 201));
    assert!(answers[2].is_replay());
    assert_eq!(answers[2].body, answers[0].body);
    let bodies: Vec<_> = service.ledger().received().into_iter().map(|received| received.body).collect();
    assert_eq!(bodies, [&b"a\n"[..], b"bb", b"hel\n\n", b""]);
    assert!(
        service.ledger().received().iter().all(|received| received.header("transfer-encoding").is_none())
    );
}

#[test]
fn what_passes_by_has_one_framing_too() {
    let (service, gateway) = plain(&[]);
    let heads = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ];
    let requests: Vec<_> =
        heads.iter().map(|head| format!("PUT /a HTTP/1.1\r\nHost: h\r\n{head}{SMUGGLED}")).collect();
    all_are_refused(&service, &gateway, &requests);
    // A chunk that breaks in a body that streams: the service sees a request that is cut, and no other.
    let mut client: Client = gateway.connect();
    client
        .send(format!("PUT /a HTTP/1.1\r\nHost: h\r\n{CHUNKED}5\nhello\r\n0\r\n\r\n{SMUGGLED}").as_bytes())
        .unwrap();
    client.socket().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut text = String::new();
    let _ = client.socket().read_to_string(&mut text);
    assert!(text.matches("HTTP/1.1 ").count() <= 1, "{text}");
    assert!(service.ledger().received().iter().all(|received| received.target != "/smuggled"));
}

/// In however many pieces the head comes, and whatever follows it: nobody waits for more.
#[test]
fn two_framings_are_refused_at_once() {
    let (service, gateway) = plain(&[]);
    let head = "POST /charges HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n";
    for rest in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
        "Content-Length: 3\n\r\n",
    ] {
        for (body, pieces) in [("", 1), ("abc", 1), ("{\"abc\"}", 3), ("abc", 7)] {
            let text = [head, rest, body].concat();
            let mut client = gateway.connect();
            for piece in text.as_bytes().chunks(text.len().div_ceil(pieces)) {
                // It may be refused before all of it is sent.
                let _ = client.send(piece);
            }
            let answer = client.receive().unwrap();
            assert_eq!((answer.status, answer.header("connection")), (400, Some("close")), "{text:?}");
        }
    }
    assert_eq!(service.ledger().received_count(), 0);
}
