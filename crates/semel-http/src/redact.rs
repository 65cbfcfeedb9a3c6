//! What a route keeps of an answer: case C08.
//!
//! 1. The first caller gets the answer as it came. What is redacted is what is **kept**, and so what a retry gets.
//! 2. A redacted member is absent from what is kept, as if it had never stood there; the rest is kept as compact JSON,
//!    with its members in order. Validators and digests of the whole (`ETag`, `Content-Digest` and the like) go too.
//! 3. Where the redaction cannot be made, nothing of the body is kept: an answer that is no JSON, is encoded, names a
//!    member twice or is too deep. Then a retry is told `response-not-kept`. It never keeps a secret for want of
//!    understanding.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{self, HeaderName};

use crate::json::{self, Pointer};

/// What of an answer's body is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Keeping {
    /// All of it.
    #[default]
    Whole,
    /// JSON without these members.
    Without(Vec<Pointer>),
    /// Nothing: status and headers only. A retry is told `response-not-kept`.
    Head,
}

/// The headers that speak of the whole body.
const OF_THE_WHOLE: [HeaderName; 5] = [
    header::ETAG,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// The body without these members; `None` where they cannot be taken out for certain. Takes the headers that no longer
/// hold off.
pub(crate) fn without(pointers: &[Pointer], headers: &mut HeaderMap, body: &[u8]) -> Option<Bytes> {
    if body.is_empty() {
        return Some(Bytes::new());
    }
    if headers.contains_key(header::CONTENT_ENCODING) {
        return None;
    }
    let form = json::form(body, pointers).ok()?;
    for name in &OF_THE_WHOLE {
        headers.remove(name);
    }
    Some(written(&form.text).into())
}

/// A document in its form as JSON text: without the commas before a closing bracket, and with the escapes that JSON
/// asks for.
fn written(form: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(form.len());
    let (mut in_string, mut at) = (false, 0);
    while let Some(&byte) = form.get(at) {
        match byte {
            b'\\' if in_string => {
                text.extend_from_slice(&form[at..form.len().min(at + 2)]);
                at += 1;
            }
            b'"' => {
                in_string = !in_string;
                text.push(byte);
            }
            _ if in_string => at += character(&form[at..], &mut text) - 1,
            b',' if matches!(form.get(at + 1), Some(b']' | b'}')) => {}
            _ => text.push(byte),
        }
        at += 1;
    }
    text
}

/// Writes what a string begins with, and gives how many bytes of it that was.
fn character(rest: &[u8], text: &mut Vec<u8>) -> usize {
    match *rest {
        // A surrogate without its other half, as the form has it.
        [0xed, high @ 0xa0..=0xbf, low, ..] => {
            let unit = 0xd000 | u16::from(high & 0x3f) << 6 | u16::from(low & 0x3f);
            text.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            3
        }
        [control @ ..=0x1f, ..] => {
            text.extend_from_slice(format!("\\u{control:04x}").as_bytes());
            1
        }
        [byte, ..] => {
            text.push(byte);
            1
        }
        [] => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;
    use serde_json::Value;

    fn kept(pointers: &[&str], body: &str) -> Option<String> {
        let pointers: Vec<Pointer> = pointers.iter().map(|text| text.parse().unwrap()).collect();
        let kept = without(&pointers, &mut HeaderMap::new(), body.as_bytes());
        kept.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn c08_a_redacted_member_is_not_kept() {
        let body = r#"{"secret":"sk_test_zzz","id":1,"list":[1,{"secret":"sk"},3]}"#;
        assert_eq!(kept(&["/secret", "/list/1/secret"], body).unwrap(), r#"{"id":1,"list":[1,{},3]}"#);
        assert_eq!(
            kept(&["/none"], body).unwrap(),
            r#"{"id":1,"list":[1,{"secret":"sk"},3],"secret":"sk_test_zzz"}"#
        );
        assert_eq!(kept(&["/secret"], r#"{"\u0073ecret":"x","n":1.0e5}"#).unwrap(), r#"{"n":1.0e5}"#);
    }

    #[test]
    fn c08_what_cannot_be_redacted_for_certain_is_not_kept_at_all() {
        for body in ["secret=x", "{\"secret\":1,\"secret\":2}", "{\"secret\":1", "\u{feff}{}"] {
            assert_eq!(kept(&["/secret"], body), None, "{body}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(without(&["/secret".parse().unwrap()], &mut headers, b"{}"), None);
    }

    #[test]
    fn what_speaks_of_the_whole_body_goes() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ETAG, HeaderValue::from_static("\"1\""));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        without(&["/secret".parse().unwrap()], &mut headers, b"{}").unwrap();
        assert!(!headers.contains_key(header::ETAG) && headers.contains_key(header::CONTENT_TYPE));
    }

    #[test]
    fn strings_are_written_as_json_has_them() {
        let body = r#"["a\"b\\c\n\u0001é\ud83d\ude00","\ud800x"]"#;
        assert_eq!(kept(&["/9"], body).unwrap(), r#"["a\"b\\c\u000a\u0001é😀","\ud800x"]"#);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[a-c,\\\\\"\\]]{0,3}", inner, 0..4)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_kept_says_the_same_without_the_member(mut document in json()) {
            let kept = kept(&["/a"], &document.to_string()).unwrap();
            if let Some(members) = document.as_object_mut() {
                members.remove("a");
            }
            if !document.is_array() {
                prop_assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), document);
            }
        }
    }
}
