//! The properties of fingerprints, for any bytes. See `crate::fuzzing`.

use std::cmp::Ordering;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HeaderValue};
use semel::{Algorithm, Fingerprint};

use super::multipart::Parts;
use super::{Comparison, Incomparable, Subject};
use crate::json::{self, Fault};

/// Compares everything by what it says.
fn reading() -> Comparison {
    Comparison { json: true, multipart: true, ignore: Vec::new() }
}

fn subject(content_type: &HeaderValue, body: &[u8]) -> Subject {
    let mut request = Request::new(());
    request.headers_mut().insert(CONTENT_TYPE, content_type.clone());
    Subject::of(&request.into_parts().0, &Bytes::copy_from_slice(body))
}

fn of(content_type: &HeaderValue, body: &[u8]) -> Result<Fingerprint, Incomparable> {
    let subject = subject(content_type, body);
    let fingerprint = reading().fingerprint(&subject);
    assert_eq!(fingerprint, reading().fingerprint(&subject), "the same request has the same fingerprint");
    if let Ok(fingerprint) = fingerprint {
        let by = Comparison::default().fingerprint_by(fingerprint.algorithm, &subject);
        assert_eq!(by, Some(fingerprint), "a record is compared by its own algorithm");
    }
    fingerprint
}

/// Two JSON documents, separated by a byte that no text has.
pub fn json(bytes: &[u8]) {
    let split = bytes.iter().position(|byte| *byte == 0xff).unwrap_or(bytes.len());
    let (one, other) = (&bytes[..split], bytes.get(split + 1..).unwrap_or_default());
    let forms = [one, other].map(form);
    let json = HeaderValue::from_static("application/json");
    let (Ok(one_print), Ok(other_print)) = (of(&json, one), of(&json, other)) else { return };
    let exactly = |body| Comparison::default().fingerprint(&subject(&json, body));
    assert_eq!(exactly(one) == exactly(other), one == other, "exactly the same bytes, or another request");
    let same = match &forms {
        [Some(one), Some(other)] => one == other,
        _ => one == other,
    };
    assert_eq!(one_print == other_print, same, "the same form, or another request");
    let values = [one, other].map(|text| serde_json::from_slice::<serde_json::Value>(text).ok());
    if let ([Some(one), Some(other)], true) = (&values, same) {
        assert_eq!(one, other, "others read the same from what has one form");
    }
}

/// The form of a document, after it was held against another reader, and read back.
fn form(text: &[u8]) -> Option<Vec<u8>> {
    let form = json::form(text, &[]).map(|form| form.text);
    if serde_json::from_slice::<serde_json::Value>(text).is_ok() {
        assert!(matches!(form, Ok(_) | Err(Fault::Twice)), "others read it, and here it is {form:?}");
    }
    let form = form.ok()?;
    let again = read_back(&form);
    let shown = String::from_utf8_lossy(&again);
    assert_eq!(json::form(&again, &[]).map(|form| form.text), Ok(form.clone()), "{shown}");
    let pointers = ["/a", "/0", "/a/0"].map(|pointer| pointer.parse().expect("it is a pointer"));
    let without = json::form(text, &pointers).expect("taking out is no error");
    match without.taken.iter().any(Option::is_some) {
        true => assert_eq!(without.text.len().cmp(&form.len()), Ordering::Less, "what was taken is gone"),
        false => assert_eq!(without.text, form, "nothing was taken"),
    }
    Some(form)
}

/// A form as JSON, with white space and with escapes for what text cannot hold.
fn read_back(form: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut at = 0;
    let mut in_string = false;
    while let Some(byte) = form.get(at) {
        match byte {
            b'\\' => text.extend_from_slice(&form[at..=at + 1]),
            b'"' => {
                in_string = !in_string;
                text.push(b'"');
            }
            0..=0x1f => text.extend_from_slice(format!("\\u{byte:04X}").as_bytes()),
            // A lone surrogate: three bytes that are no UTF-8.
            0xed if form[at + 1] >= 0xa0 => {
                let unit = 0xd000 | u32::from(form[at + 1] & 0x3f) << 6 | u32::from(form[at + 2] & 0x3f);
                text.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
            b',' if !in_string && matches!(form[at + 1], b']' | b'}') => {}
            b'[' | b',' | b':' if !in_string => text.extend([*byte, b'\n', b' ']),
            _ => text.push(*byte),
        }
        at += match byte {
            b'\\' => 2,
            0xed if form[at + 1] >= 0xa0 => 3,
            _ => 1,
        };
    }
    text
}

/// A boundary, a line feed, and a body.
pub fn multipart(bytes: &[u8]) {
    let split = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (boundary, body) = (&bytes[..split], bytes.get(split + 1..).unwrap_or_default());
    let typed = |boundary: &[u8]| {
        HeaderValue::from_bytes(&[b"multipart/form-data; boundary=\"", boundary, b"\""].concat())
    };
    let Ok(content_type) = typed(boundary) else { return };
    if boundary.contains(&b'"') || boundary.contains(&b'\\') {
        return;
    }
    let Ok(fingerprint) = of(&content_type, body) else { panic!("only JSON is incomparable") };
    if fingerprint.algorithm == Algorithm::EXACT {
        return;
    }
    let body = Bytes::copy_from_slice(body);
    let parts = Parts::read(&body, boundary).expect("it was read");
    let other = "z".repeat(70);
    if String::from_utf8_lossy(&body).contains(&other) {
        return;
    }
    let other_type = typed(other.as_bytes()).expect("it is text");
    assert_eq!(of(&other_type, &parts.written(&other, b"")), Ok(fingerprint), "the boundary does not count");
    let more = parts.written(&other, b"!");
    let empty = more == parts.written(&other, b"");
    assert_eq!(of(&other_type, &more) == Ok(fingerprint), empty, "a byte more is another request");
}
