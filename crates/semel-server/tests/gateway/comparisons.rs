//! Requests that are the same though their bytes differ, where a route asks for it: H6.

use crate::assert::{plain, refused, replayed};
use crate::support::{Answer, Call, Gateway, Launch, Service};

const AMOUNT_5: &str = r#"{"amount":5,"to":{"iban":"X","name":"Y"}}"#;
const SWAPPED: &str = "{ \"to\" : { \"name\":\"Y\", \"iban\":\"X\" },\r\n \"amount\" : 5 }";

fn json(key: &str, body: &str) -> Call {
    Call::post("/charges", key).header("Content-Type", "application/json").body(body)
}

#[track_caller]
fn mismatch(answer: &Answer) {
    refused(answer, 422, "key-reused", false, "none");
}

/// A 400 of plain HTTP, of which nothing ran.
#[track_caller]
fn incomparable(answer: &Answer, detail: &str) {
    assert_eq!((answer.status, answer.json()["detail"].as_str()), (400, Some(detail)), "{}", answer.text());
}

#[test]
fn c97_the_same_json_in_another_order_is_the_same_request() {
    let (service, gateway) = plain(&["--fingerprint", "json"]);
    replayed(&gateway, &json("K", AMOUNT_5));
    assert!(gateway.call(&json("K", SWAPPED)).is_replay());
    let charset = |body| {
        Call::post("/charges", "K").header("Content-Type", "application/json; charset=UTF-8").body(body)
    };
    assert!(gateway.call(&charset(SWAPPED)).is_replay());
    mismatch(&gateway.call(&json("K", &AMOUNT_5.replace('5', "6"))));
    mismatch(&gateway.call(&Call::post("/charges", "K").body(AMOUNT_5)));
    assert_eq!(service.ledger().received_count(), 1);
}

#[test]
fn c24_c96_what_says_something_else_is_another_request() {
    let (service, gateway) = plain(&["--fingerprint", "json"]);
    let pairs = [
        ("9007199254740992", "9007199254740993"),
        ("0.1", "0.10000000000000001"),
        ("1e400", "1e401"),
        ("1", "1.0"),
        ("100", "1e2"),
        ("[1,2]", "[2,1]"),
        (r#"["debit","credit"]"#, r#"["credit","debit"]"#),
        (r#"{"a":null}"#, "{}"),
        ("\"1\"", "1"),
        ("true", "1"),
        ("\"A\"", "\"a\""),
        ("\"x \"", "\"x\""),
        ("\"e\u{301}\"", "\"\u{e9}\""),
        (r#""\ud800""#, r#""\ud801""#),
    ];
    for (number, (one, other)) in pairs.iter().enumerate() {
        let call = |body: &str| json(&format!("pair-{number}"), body);
        assert_eq!(gateway.call(&call(one)).status, 201, "{one}");
        mismatch(&gateway.call(&call(other)));
        assert!(gateway.call(&call(&format!(" {one}\n"))).is_replay(), "{one}");
    }
    assert_eq!(service.ledger().received_count(), pairs.len());
}

#[test]
fn c24_a_member_twice_and_10_000_brackets_are_refused_and_run_nothing() {
    let (service, gateway) = plain(&["--fingerprint", "json"]);
    let twice = "The JSON body names a member twice in one object.";
    incomparable(&gateway.call(&json("K", r#"{"a":1,"a":2}"#)), twice);
    incomparable(&gateway.call(&json("K", r#"[{"a":1,"\u0061":1}]"#)), twice);
    incomparable(
        &gateway.call(&json("K", &"[".repeat(10_000))),
        "The JSON body is nested more than 128 deep.",
    );
    assert_eq!(service.ledger().received_count(), 0);
    // The key is free: nothing was claimed.
    replayed(&gateway, &json("K", r#"{"a":2}"#));
    incomparable(&gateway.call(&json("K", r#"{"a":1,"a":2}"#)), twice);
}

#[test]
fn h6_what_is_no_json_is_the_services_business() {
    let (service, gateway) = plain(&["--fingerprint", "json"]);
    replayed(&gateway, &json("K", "{"));
    mismatch(&gateway.call(&json("K", "{ ")));
    mismatch(&gateway.call(&json("K", "{}")));
    assert_eq!(service.ledger().received_count(), 1);
}

#[test]
fn c70_what_changes_with_every_attempt_can_be_ignored() {
    let (service, gateway) = plain(&["--fingerprint", "json", "--ignore", "/meta/attempt,/card/blob"]);
    let body = |amount, attempt, blob: &str| {
        format!(r#"{{"amount":{amount},"meta":{{"attempt":{attempt}}},"card":{{"blob":"{blob}"}}}}"#)
    };
    replayed(&gateway, &json("K", &body(5, 1, "x")));
    assert!(gateway.call(&json("K", &body(5, 2, "y"))).is_replay());
    mismatch(&gateway.call(&json("K", &body(6, 1, "x"))));
    assert_eq!(service.ledger().received_count(), 1);
}

/// An upload of a note and a file.
fn upload(boundary: &str, file: &str) -> String {
    format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhi\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n{file}\r\n--{boundary}--\r\n"
    )
}

fn uploading(boundary: &str, body: &str) -> Call {
    let content_type = format!("multipart/form-data; boundary={boundary}");
    Call::post("/files", "K").header("Content-Type", &content_type).body(body)
}

#[test]
fn c16_the_same_upload_with_another_boundary_chunked_and_expecting_is_replayed() {
    let (service, gateway) = plain(&["--fingerprint", "multipart"]);
    replayed(&gateway, &uploading("aaa", &upload("aaa", "1\r\n\0\n2")));
    assert!(gateway.call(&uploading("zzz", &upload("zzz", "1\r\n\0\n2"))).is_replay());

    let body = upload("zzz", "1\r\n\0\n2");
    let (head, rest) = body.split_at(40);
    let chunks = format!("{:x}\r\n{head}\r\n{:x}\r\n{rest}\r\n0\r\n\r\n", head.len(), rest.len());
    let chunked =
        uploading("zzz", &chunks).header("Transfer-Encoding", "chunked").header("Expect", "100-continue");
    let mut client = gateway.connect();
    client.send(&chunked.bytes()).unwrap();
    let mut answer = client.receive().unwrap();
    if answer.status == 100 {
        answer = client.receive().unwrap();
    }
    assert!(answer.is_replay(), "{} {}", answer.status, answer.text());

    mismatch(&gateway.call(&uploading("zzz", &upload("zzz", "1\r\n\0\n3"))));
    mismatch(&gateway.call(&uploading("zzz", &upload("zzz", "1\r\n\0\n2").replace("a.bin", "b.bin"))));
    let parts: Vec<_> = body.split("--zzz").collect();
    let swapped = ["", parts[2], parts[1], parts[3]].join("--zzz");
    mismatch(&gateway.call(&uploading("zzz", &swapped)));
    assert_eq!(service.ledger().received_count(), 1);
}

/// The same store, and another way to compare.
fn switched(gateway: Gateway, service: &Service, args: &[&str]) -> Gateway {
    let launch = Launch::new(service.address()).args(args.iter().copied()).on_store_of(gateway.launch());
    drop(gateway);
    launch.start()
}

#[test]
fn h6_switching_a_route_makes_no_false_mismatch_and_lets_no_other_request_through() {
    let (service, gateway) = plain(&[]);
    replayed(&gateway, &json("exact", AMOUNT_5));
    let gateway = switched(gateway, &service, &["--fingerprint", "json,multipart"]);
    assert!(gateway.call(&json("exact", AMOUNT_5)).is_replay());
    mismatch(&gateway.call(&json("exact", SWAPPED)));
    replayed(&gateway, &json("json", AMOUNT_5));
    replayed(&gateway, &uploading("aaa", &upload("aaa", "x")));

    let gateway = switched(gateway, &service, &[]);
    assert!(gateway.call(&json("json", AMOUNT_5)).is_replay());
    assert!(gateway.call(&json("json", SWAPPED)).is_replay(), "it was bound by what it says");
    mismatch(&gateway.call(&json("json", &AMOUNT_5.replace('5', "6"))));
    mismatch(&gateway.call(&json("json", r#"{"a":1,"a":2}"#)));
    mismatch(&gateway.call(&json("json", "{")));
    assert!(gateway.call(&uploading("zzz", &upload("zzz", "x"))).is_replay());
    mismatch(&gateway.call(&uploading("zzz", &upload("zzz", "y"))));
    assert_eq!(service.ledger().received_count(), 3);
}
