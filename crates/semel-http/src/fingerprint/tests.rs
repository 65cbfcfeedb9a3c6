use http::Request;
use proptest::prelude::*;

use super::*;

fn post(uri: &str) -> http::request::Builder {
    Request::post(uri)
}

fn subject(request: http::request::Builder, body: &[u8]) -> Subject {
    Subject::of(&request.body(()).unwrap().into_parts().0, &Bytes::copy_from_slice(body))
}

fn of(request: http::request::Builder, body: &[u8]) -> Fingerprint {
    Comparison::default().fingerprint(&subject(request, body)).unwrap()
}

fn typed(content_type: &str, body: &[u8]) -> Subject {
    subject(post("/a?x=1").header(HOST, "h").header(CONTENT_TYPE, content_type), body)
}

fn reading() -> Comparison {
    Comparison { json: true, multipart: true, ..Comparison::default() }
}

fn read(content_type: &str, body: &str) -> Fingerprint {
    reading().fingerprint(&typed(content_type, body.as_bytes())).unwrap()
}

fn hex(fingerprint: Fingerprint) -> String {
    fingerprint.digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Digests are kept in stores, so they are the same for ever.
#[test]
fn h6_the_digests_stay_as_they_are() {
    let exact = typed("Text/Plain", b"b");
    assert_eq!(
        hex(Comparison::default().fingerprint(&exact).unwrap()),
        "ca56e2d3f9686a34ddb901ae5af6a88a4780745606d5a7fdc47e0040ef115401"
    );
    assert_eq!(
        hex(read("application/json; charset=utf-8; v=1", r#"{"b":1,"a":"x"}"#)),
        "75e5178b03741b1d35a9bc2f5602113315d1819df134978613369734f2ce6eca"
    );
    let form = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n";
    assert_eq!(
        hex(read("multipart/form-data; boundary=x", form)),
        "1cf892b32952a5ea3b425f01499eb57e57de9ff15795f5061997383bbb101369"
    );
}

#[test]
fn every_part_counts() {
    let base = || post("/a?x=1").header(HOST, "h").header(CONTENT_TYPE, "t");
    let others = [
        of(base().method(Method::PATCH), b"b"),
        of(base().uri("/b?x=1"), b"b"),
        of(base().uri("/a?x=2"), b"b"),
        of(base().uri("/a?"), b"b"),
        of(base().uri("/a"), b"b"),
        of(post("/a?x=1").header(HOST, "i").header(CONTENT_TYPE, "t"), b"b"),
        of(post("/a?x=1").header(HOST, "h").header(CONTENT_TYPE, ""), b"b"),
        of(post("/a?x=1").header(HOST, "h"), b"b"),
        of(base().header(CONTENT_TYPE, "u"), b"b"),
        of(base().header(HOST, "u"), b"b"),
        of(base(), b"c"),
        of(base(), b""),
    ];
    let mut all = vec![of(base(), b"b")];
    all.extend(others);
    for (at, one) in all.iter().enumerate() {
        assert!(all[at + 1..].iter().all(|other| other != one), "number {at} is not alone");
    }
    assert_eq!(of(base(), b"b"), all[0]);
}

#[test]
fn the_host_has_no_case_and_the_target_wins_over_the_header() {
    assert_eq!(
        of(post("/a").header(HOST, "Shop.Example"), b""),
        of(post("/a").header(HOST, "shop.example"), b"")
    );
    assert_eq!(
        of(post("http://shop.example/a").header(HOST, "x"), b""),
        of(post("http://SHOP.example/a").header(HOST, "x"), b""),
    );
    assert_ne!(of(post("http://a/p").header(HOST, "x"), b""), of(post("http://b/p").header(HOST, "x"), b""));
    assert_eq!(of(post("http://h/p"), b""), of(post("/p").header(HOST, "h"), b""));
}

#[test]
fn c24_large_numbers_are_compared_as_written() {
    assert_ne!(of(post("/"), b"9007199254740992"), of(post("/"), b"9007199254740993"));
    assert_ne!(of(post("/"), b"0.1"), of(post("/"), b"0.10000000000000001"));
    assert_ne!(of(post("/"), b"1e400"), of(post("/"), b"1e401"));
    assert_ne!(of(post("/"), br#"{"a":1,"a":2}"#), of(post("/"), br#"{"a":2}"#));
}

#[test]
fn c96_every_byte_of_the_body_is_significant() {
    for (one, other) in [("[1,2]", "[2,1]"), ("{\"a\":null}", "{}"), ("\"1\"", "1"), ("e\u{301}", "\u{e9}")] {
        assert_ne!(of(post("/"), one.as_bytes()), of(post("/"), other.as_bytes()));
    }
}

const JSON: &str = "application/json";

#[test]
fn c97_json_is_compared_by_what_it_says_where_the_route_asks_for_it() {
    let (one, other) = (r#"{"amount":5,"to":{"iban":"X"}}"#, "{ \"to\":{\"iban\":\"X\"}, \"amount\":5 }");
    assert_eq!(read(JSON, one), read(JSON, other));
    assert_eq!(read(JSON, one).algorithm, Algorithm::JSON);
    assert_ne!(read(JSON, one), read(JSON, &one.replace('5', "6")));
    assert_eq!(read("application/vnd.x+json", one), read("application/vnd.x+json", other));
    for exact in
        ["text/plain", "application/jsonp", "application/json-patch", "json", "application/json, a/b", ""]
    {
        assert_eq!(read(exact, one).algorithm, Algorithm::EXACT, "{exact}");
        assert_ne!(read(exact, one), read(exact, other), "{exact}");
    }
    assert_ne!(
        of(post("/").header(CONTENT_TYPE, JSON), one.as_bytes()),
        of(post("/").header(CONTENT_TYPE, JSON), other.as_bytes())
    );
}

#[test]
fn h6_of_a_json_content_type_only_the_usual_charset_does_not_count() {
    let of = |content_type| read(content_type, "{}");
    for same in [
        "Application/JSON",
        "application/json;charset=utf-8",
        "application/json ; Charset=\"UTF-8\"",
        "application/json;",
    ] {
        assert_eq!(of(JSON), of(same), "{same}");
    }
    for other in [
        "application/problem+json",
        "application/json; v=1",
        "application/json; v=2",
        "application/json;charset=utf-16",
    ] {
        assert_ne!(of(JSON), of(other), "{other}");
    }
    // In another charset the same bytes are another text.
    assert_eq!(of("application/json;charset=latin1").algorithm, Algorithm::EXACT);
}

#[test]
fn h6_of_a_json_request_every_other_part_counts() {
    let of = |request: http::request::Builder| {
        reading().fingerprint(&subject(request.header(CONTENT_TYPE, JSON), b"{}")).unwrap()
    };
    let all = [
        of(post("/a")),
        of(Request::patch("/a")),
        of(post("/b")),
        of(post("/a?")),
        of(post("/a?x")),
        of(post("/a").header(HOST, "h")),
        of(post("/a").header(HOST, "h").header(HOST, "i")),
        of(post("/a").header(CONTENT_TYPE, JSON)),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(all[at + 1..].iter().all(|other| other != one), "number {at} is not alone");
    }
    assert_eq!(of(post("/a").header(HOST, "H")), of(post("http://h/a")));
}

#[test]
fn h6_a_body_that_is_no_json_is_compared_exactly() {
    for body in ["", "{", "{} ,", "\u{feff}{}", "\"\\ud83\""] {
        assert_eq!(read(JSON, body).algorithm, Algorithm::EXACT, "{body:?}");
    }
    assert_ne!(read(JSON, "{"), read(JSON, "{ "));
}

#[test]
fn c24_a_member_twice_and_10_000_brackets_are_refused() {
    let refused = |body: &str| reading().fingerprint(&typed(JSON, body.as_bytes())).unwrap_err();
    assert_eq!(refused(r#"{"a":1,"a":2}"#), Incomparable::Twice);
    assert_eq!(refused(r#"{"a":1,"\u0061":1}"#), Incomparable::Twice);
    assert_eq!(refused(&"[".repeat(10_000)), Incomparable::TooDeep);
    assert_eq!(Incomparable::TooDeep.to_string(), "The JSON body is nested more than 128 deep.");
}

#[test]
fn c70_ignored_members_do_not_count_and_not_everything_can_be_ignored() {
    let ignore = |pointers: &[&str]| Comparison {
        ignore: pointers.iter().map(|pointer| pointer.parse().unwrap()).collect(),
        ..reading()
    };
    let of =
        |comparison: &Comparison, body: &str| comparison.fingerprint(&typed(JSON, body.as_bytes())).unwrap();
    let some = ignore(&["/meta/attempt", "/card/blob"]);
    let first = r#"{"amount":5,"meta":{"attempt":1},"card":{"blob":"x"}}"#;
    let retry = r#"{"amount":5,"meta":{"attempt":2},"card":{"blob":"y"}}"#;
    assert_eq!(of(&some, first), of(&some, retry));
    assert_ne!(of(&some, first), of(&some, &retry.replace('5', "6")));
    // The list has changed meanwhile: equal where both leave the same.
    assert_eq!(of(&some, r#"{"amount":5}"#), of(&reading(), r#"{"amount":5}"#));
    assert_ne!(of(&some, first), of(&reading(), first));

    assert_eq!(some.check(), Ok(()));
    assert_eq!(reading().check(), Ok(()));
    assert_eq!(ignore(&["/a", ""]).check(), Err(ComparisonError::IgnoresAll));
    let unread = Comparison { json: false, ..ignore(&["/a"]) };
    assert_eq!(unread.check(), Err(ComparisonError::IgnoresUnread("/a".parse().unwrap())));
}

fn upload(boundary: &str, file: &str) -> Subject {
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhi\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n\
         {file}\r\n--{boundary}--\r\n"
    );
    typed(&format!("multipart/form-data; boundary={boundary}"), body.as_bytes())
}

#[test]
fn c16_the_same_upload_with_another_boundary_is_the_same_request() {
    let of = |subject: &Subject| reading().fingerprint(subject).unwrap();
    assert_eq!(of(&upload("aaa", "x")), of(&upload("zzz", "x")));
    assert_eq!(of(&upload("aaa", "x")).algorithm, Algorithm::MULTIPART);
    assert_ne!(of(&upload("aaa", "x")), of(&upload("aaa", "y")));
    let exactly = |subject: &Subject| Comparison::default().fingerprint(subject).unwrap();
    assert_ne!(exactly(&upload("aaa", "x")), exactly(&upload("zzz", "x")));
}

#[test]
fn c16_other_parameters_of_a_multipart_type_count_and_doubt_is_compared_exactly() {
    let body = "--x\r\n\r\n1\r\n--x--";
    let of = |content_type: &str| read(content_type, body);
    assert_eq!(of("multipart/form-data;boundary=x"), of("Multipart/Form-Data; Boundary=\"x\""));
    assert_ne!(of("multipart/form-data;boundary=x"), of("multipart/form-data;boundary=x;charset=utf-8"));
    for doubt in [
        "multipart/form-data",
        "multipart/form-data;boundary=y",
        "multipart/form-data;boundary=x;boundary=x",
        "multipart/mixed;boundary=x",
    ] {
        assert_eq!(of(doubt).algorithm, Algorithm::EXACT, "{doubt}");
    }
}

/// Each algorithm on each kind of request, read or not.
fn samples() -> Vec<Subject> {
    vec![
        typed(JSON, b"{}"),
        typed(JSON, b"{ }"),
        typed(JSON, b"{"),
        typed(JSON, br#"{"a":1,"a":1}"#),
        typed("application/json;charset=latin1", b"{}"),
        typed("text/plain", b"{}"),
        upload("aaa", "x"),
        upload("zzz", "x"),
        upload("a b ", "x"),
    ]
}

#[test]
fn h6_a_record_is_compared_by_the_algorithm_that_made_it() {
    // The route was switched: what was read is exact now, and what was exact is read.
    for subject in samples() {
        for (then, now) in [(reading(), Comparison::default()), (Comparison::default(), reading())] {
            let Ok(record) = then.fingerprint(&subject) else { continue };
            assert_eq!(now.fingerprint_by(record.algorithm, &subject), Some(record), "{subject:?}");
        }
    }
    let by = |algorithm, subject: &Subject| Comparison::default().fingerprint_by(algorithm, subject).unwrap();
    assert_eq!(by(Algorithm::JSON, &typed(JSON, b"{}")), by(Algorithm::JSON, &typed(JSON, b"{ }")));
    assert_eq!(by(Algorithm::MULTIPART, &upload("aaa", "x")), by(Algorithm::MULTIPART, &upload("zzz", "x")));
    assert_eq!(Comparison::default().fingerprint_by(Algorithm(0), &typed(JSON, b"{}")), None);
    assert_eq!(Comparison::default().fingerprint_by(Algorithm(4), &typed(JSON, b"{}")), None);
}

#[test]
fn k6_another_kind_of_body_is_another_request_by_every_algorithm() {
    let samples = samples();
    for algorithm in [Algorithm::EXACT, Algorithm::JSON, Algorithm::MULTIPART] {
        let all: Vec<_> =
            samples.iter().map(|subject| reading().fingerprint_by(algorithm, subject).unwrap()).collect();
        assert!(all.iter().all(|one| one.algorithm == algorithm));
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate().skip(at + 1) {
                let read_alike = match algorithm {
                    Algorithm::JSON => (at, other_at) == (0, 1),
                    Algorithm::MULTIPART => (at, other_at) == (6, 7),
                    _ => false,
                };
                assert_eq!(one == other, read_alike, "{algorithm:?}: {at} and {other_at}");
            }
        }
    }
}

prop_compose! {
    fn requests()(
        method in prop::sample::select(vec![Method::POST, Method::PATCH]),
        target in prop::sample::select(vec!["/", "/a", "/a?", "/a?b", "/%61", "http://h/a"]),
        host in prop::option::of(prop::sample::select(vec!["h", "i", ""])),
        types in prop::collection::vec(prop::sample::select(vec!["", "a/b", JSON, "multipart/form-data;boundary=x"]), 0..3),
        body in prop::sample::select(vec!["", "{}", "{ }", "--x--", "a/b"]),
    ) -> (Method, &'static str, Option<&'static str>, Vec<&'static str>, &'static str) {
        (method, target, host, types, body)
    }
}

fn subject_of(
    asked: &(Method, &'static str, Option<&'static str>, Vec<&'static str>, &'static str),
) -> Subject {
    let (method, target, host, types, body) = asked;
    let mut request = Request::builder().method(method).uri(*target);
    if let Some(host) = host {
        request = request.header(HOST, *host);
    }
    request = types.iter().fold(request, |request, line| request.header(CONTENT_TYPE, *line));
    subject(request, body.as_bytes())
}

proptest! {
    #[test]
    fn h6_exactly_the_same_request_has_the_same_fingerprint(one in requests(), other in requests()) {
        let of = |asked| Comparison::default().fingerprint(&subject_of(asked)).unwrap();
        prop_assert_eq!(of(&one), of(&one));
        // The one thing that two of these requests can say in two ways: the host, in the target or in its header.
        let host = |asked: &(Method, &'static str, Option<&'static str>, _, _)| {
            if asked.1.starts_with("http") { "h" } else { asked.2.unwrap_or_default() }
        };
        let target = |asked: &(Method, &'static str, _, _, _)| asked.1.trim_start_matches("http://h");
        let same = one.0 == other.0
            && target(&one) == target(&other)
            && host(&one) == host(&other)
            && one.3 == other.3
            && one.4 == other.4;
        prop_assert_eq!(of(&one) == of(&other), same);
    }

    #[test]
    fn h6_what_is_the_same_exactly_is_the_same_by_every_algorithm(one in requests(), other in requests()) {
        let [one, other] = [&one, &other].map(subject_of);
        for algorithm in [Algorithm::JSON, Algorithm::MULTIPART] {
            let by = |subject: &Subject, algorithm| reading().fingerprint_by(algorithm, subject).unwrap();
            if by(&one, Algorithm::EXACT) == by(&other, Algorithm::EXACT) {
                prop_assert_eq!(by(&one, algorithm), by(&other, algorithm));
            }
        }
    }
}
