use proptest::prelude::*;
use semel::{Algorithm, Fingerprint};

use super::*;

/// The parts of a body with the boundary `b`: header lines and bytes.
type Told = Vec<(Vec<(String, String)>, String)>;

fn read(body: &str) -> Option<Told> {
    read_by("b", body)
}

fn read_by(boundary: &str, body: &str) -> Option<Told> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let body = Bytes::copy_from_slice(body.as_bytes());
    let parts = Parts::read(&body, boundary.as_bytes())?;
    let told = parts.0.iter().map(|part| {
        (part.lines.iter().map(|(name, value)| (text(name), text(value))).collect(), text(part.bytes))
    });
    Some(told.collect())
}

fn bytes(body: &str) -> Option<Vec<String>> {
    read(body).map(|told| told.into_iter().map(|(_, bytes)| bytes).collect())
}

fn digest(parts: &Parts<'_>) -> Fingerprint {
    parts.add_to(Fingerprint::builder(Algorithm::MULTIPART)).finish()
}

#[test]
fn rfc_2046_preamble_and_epilogue_padding_and_the_last_line_do_not_count() {
    let told = Some(vec!["1".to_owned(), "2".to_owned()]);
    for body in [
        "--b\r\n\r\n1\r\n--b\r\n\r\n2\r\n--b--",
        "--b\r\n\r\n1\r\n--b\r\n\r\n2\r\n--b--\r\n",
        "--b \t\r\n\r\n1\r\n--b\t\r\n\r\n2\r\n--b-- \r\n",
        "--b\r\n\r\n1\r\n--b\r\n\r\n2\r\n--b-- ",
        "\r\n--b\r\n\r\n1\r\n--b\r\n\r\n2\r\n--b--\r\n\r\n",
        "This is text.\r\n--b\r\n\r\n1\r\n--b\r\n\r\n2\r\n--b--\r\nAnd this.",
    ] {
        assert_eq!(bytes(body), told, "{body:?}");
    }
}

#[test]
fn a_part_is_every_byte_between_its_empty_line_and_the_line_end_before_the_boundary() {
    assert_eq!(bytes("--b\r\n\r\n\r\n--b--"), Some(vec!["".to_owned()]));
    assert_eq!(bytes("--b\r\n\r\n\r\n\r\n--b--"), Some(vec!["\r\n".to_owned()]));
    assert_eq!(bytes("--b\r\n\r\n--\r\n--c\r\n-\r\n--b--"), Some(vec!["--\r\n--c\r\n-".to_owned()]));
    assert_eq!(bytes("--b\r\nA: 1\r\n\r\n\r\n\r\n2\r\n--b--"), Some(vec!["\r\n\r\n2".to_owned()]));
    assert_eq!(bytes("--b--"), Some(vec![]));
}

#[test]
fn header_lines_count_with_their_names_in_lower_case() {
    let told = read("--b\r\nX-A:  1 \r\nContent-Type:text/plain\r\nx-a:\r\n\r\n1\r\n--b--").unwrap();
    let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(told[0].0, [line("X-A", "1"), line("Content-Type", "text/plain"), line("x-a", "")]);

    let of = |head: &str| {
        let body = Bytes::from(format!("--b\r\n{head}\r\n\r\n1\r\n--b--"));
        digest(&Parts::read(&body, b"b").unwrap())
    };
    let base = of("Content-Disposition: form-data; name=\"a\"; filename=\"f\"\r\nContent-Type: text/plain");
    assert_eq!(
        base,
        of("content-disposition:form-data; name=\"a\"; filename=\"f\"\r\nContent-TYPE: text/plain ")
    );
    for other in [
        "Content-Disposition: form-data; name=\"b\"; filename=\"f\"\r\nContent-Type: text/plain",
        "Content-Disposition: form-data; name=\"a\"; filename=\"g\"\r\nContent-Type: text/plain",
        "Content-Disposition: form-data; name=\"a\"; filename=\"f\"\r\nContent-Type: text/html",
        "Content-Disposition: form-data; name=\"a\"; filename=\"f\"",
        "Content-Disposition: form-data; name=\"a\"; filename=\"f\"\r\nContent-Type: text/plain\r\nX-New: 1",
        "Content-Disposition: form-data; name=\"a\"; filename=\"f\"\r\nContent-Type: text/plain\x0c",
    ] {
        assert_ne!(base, of(other), "{other}");
    }
}

#[test]
fn c16_the_order_of_parts_counts_and_where_one_ends() {
    let of = |body: &str| {
        let body = Bytes::copy_from_slice(body.as_bytes());
        digest(&Parts::read(&body, b"b").unwrap())
    };
    let all = [
        of("--b\r\n\r\n1\r\n--b\r\n\r\n2\r\n--b--"),
        of("--b\r\n\r\n2\r\n--b\r\n\r\n1\r\n--b--"),
        of("--b\r\n\r\n1\r\n2\r\n--b--"),
        of("--b\r\n\r\n12\r\n--b--"),
        of("--b\r\n\r\n12\r\n--b\r\n\r\n\r\n--b--"),
        of("--b\r\na:1\r\n\r\n2\r\n--b--"),
        of("--b\r\n\r\na\r\n--b\r\n\r\n1\r\n--b\r\n\r\n2\r\n--b--"),
        of("--b\r\n\r\na:1\r\n\r\n2\r\n--b--"),
        of("--b--"),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(all[at + 1..].iter().all(|other| other != one), "number {at} is not alone");
    }
}

#[test]
fn c16_what_readers_take_in_two_ways_is_not_read() {
    for body in [
        "",
        "--b",
        "--b\r\n",
        "--b\r\n\r\n1",
        "--b\r\n\r\n1\r\n--b\r\n",
        "--b\r\n\r\n1\r\n--b",
        // Mere line feeds.
        "--b\n\n1\n--b--",
        "--b\r\n\r\n1\n--b--",
        "--b\r\n\r\n1\n--b\n\n2\r\n--b--",
        "\n--b\r\n\r\n1\r\n--b--",
        // Not at the start of a line.
        "x--b\r\n\r\n1\r\n--b--",
        "--b\r\n\r\n1--b--",
        "--b\r\n\r\nsee --b\r\n--b--",
        // A longer word that begins with the boundary.
        "--b\r\n\r\n1\r\n--bc\r\n\r\n2\r\n--b--",
        "--b\r\n\r\n1\r\n--b-\r\n\r\n2\r\n--b--",
        "--b\r\n\r\n1\r\n--b x\r\n\r\n2\r\n--b--",
        "--b\r\n\r\n1\r\n--b--x",
        "--b\r\n\r\n1\r\n--b---",
        "--b\r\n\r\n1\r\n--b--\r",
        "--b\r\n\r\n1\r\n--b--\n",
        // Again behind the end.
        "--b\r\n\r\n1\r\n--b--\r\n--b\r\n\r\n2\r\n--b--",
        "--b--\r\n--b--",
        // Without the empty line.
        "--b\r\n--b--",
        "--b\r\n\r\n--b--",
        "--b\r\nA: 1\r\n--b--",
        "--b\r\nA: 1\r\n\r\n--b--",
        // Header lines that are none.
        "--b\r\nA\r\n\r\n1\r\n--b--",
        "--b\r\n: 1\r\n\r\n1\r\n--b--",
        "--b\r\nA : 1\r\n\r\n1\r\n--b--",
        "--b\r\nA: 1\r\n 2\r\n\r\n1\r\n--b--",
        "--b\r\nA: 1\n2\r\n\r\n1\r\n--b--",
        "--b\r\nA: 1\0\r\n\r\n1\r\n--b--",
    ] {
        assert_eq!(read(body), None, "{body:?}");
    }
}

#[test]
fn rfc_2046_the_letters_of_a_boundary() {
    let body = |boundary: &str| format!("--{boundary}\r\n\r\n1\r\n--{boundary}--");
    for boundary in ["b", "-", "--", "a b", "'()+_,-./:=?", &"x".repeat(70), "----WebKitFormBoundary7MA4YWxk"]
    {
        assert!(read_by(boundary, &body(boundary)).is_some(), "{boundary}");
    }
    for boundary in ["", " ", "a ", "a\"b", "\u{e9}", "a\r\nb", "a;b", &"x".repeat(71)] {
        assert_eq!(read_by(boundary, &body(boundary)), None, "{boundary}");
    }
}

#[test]
fn k11_parts_are_bounded() {
    let body = |count| ["--b\r\n\r\n1\r\n".repeat(count), "--b--".to_owned()].concat();
    assert_eq!(read(&body(PARTS_MAX)).unwrap().len(), PARTS_MAX);
    assert_eq!(read(&body(PARTS_MAX + 1)), None);
}

fn told() -> impl Strategy<Value = Told> {
    let line = ("[a-z]{1,3}", "[a-c:;\"=]{0,3}");
    let lines = prop::collection::vec(line, 0..3);
    prop::collection::vec((lines, "[ab\r\n:-]{0,6}"), 0..4)
}

fn written(told: &Told, boundary: &str) -> String {
    let mut body = String::new();
    for (lines, bytes) in told {
        body += &format!("--{boundary}\r\n");
        lines.iter().for_each(|(name, value)| body += &format!("{name}: {value}\r\n"));
        body += &format!("\r\n{bytes}\r\n");
    }
    body + &format!("--{boundary}--\r\n")
}

proptest! {
    #[test]
    fn c16_with_any_boundary_the_parts_are_the_parts(told in told(), one in "[xy]{1,4}", other in "[xy]{1,4}") {
        let read = |boundary: &str| read_by(boundary, &written(&told, boundary));
        prop_assert_eq!(read(&one), Some(told.clone()));
        prop_assert_eq!(read(&one), read(&other));
    }

    #[test]
    fn c16_digests_are_equal_only_if_parts_are(one in told(), other in told()) {
        let of = |told: &Told| {
            let body = Bytes::from(written(told, "x"));
            digest(&Parts::read(&body, b"x").unwrap())
        };
        prop_assert_eq!(of(&one) == of(&other), one == other);
    }

    #[test]
    fn c16_one_byte_in_a_part_shows(
        told in told(),
        (bytes, at) in "[ab\r\n:-]{1,6}".prop_flat_map(|bytes| (0..bytes.len(), Just(bytes)).prop_map(|(at, bytes)| (bytes, at))),
        byte in b'c'..=b'w',
        last in any::<bool>(),
    ) {
        let of = |bytes: &str| {
            let mut told = told.clone();
            told.insert(if last { told.len() } else { 0 }, (Vec::new(), bytes.to_owned()));
            let body = Bytes::from(written(&told, "x"));
            digest(&Parts::read(&body, b"x").unwrap())
        };
        let mut other = bytes.clone();
        other.replace_range(at..=at, char::from(byte).encode_utf8(&mut [0; 4]));
        prop_assert_ne!(of(&bytes), of(&other));
    }

    /// What is read could have been written so: the boundary is nowhere else.
    #[test]
    fn no_bytes_panic_and_what_is_read_is_without_doubt(body in "(--b|--|b|\r\n|\r\n\r\n|\n| |a:|a){0,20}") {
        if let Some(told) = read(&body) {
            prop_assert_eq!(read(&written(&told, "b")), Some(told.clone()));
            prop_assert_eq!(body.matches("--b").count(), told.len() + 1);
        }
    }
}
