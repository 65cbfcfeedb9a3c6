//! What the fuzz targets in `fuzz/` run: one function for each parser that reads what a stranger sends. Each takes
//! any bytes, panics where a property does not hold, and is run on its corpus by an ordinary test. Not for users.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Request, Uri};
use semel::{Key, Outcome};

pub use crate::fingerprint::fuzzing::{json as fingerprint_json, multipart as fingerprint_multipart};
#[cfg(feature = "jwt")]
pub use crate::jwt::fuzzing::token;
pub use crate::routes::fuzzing::routes;

use crate::field::{Field, FieldError};
use crate::key::{self, IDEMPOTENCY_KEY, Malformed, Syntax};
use crate::outcome::Kept;

/// The key header. Lines are separated by line feeds.
pub fn key(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n').take(3) {
        let Ok(value) = HeaderValue::from_bytes(line) else { return };
        headers.append(IDEMPOTENCY_KEY, value);
    }
    let read = |headers: &HeaderMap, syntax| key::read(headers, &[IDEMPOTENCY_KEY], syntax);
    let (lenient, strict) = (read(&headers, Syntax::Lenient), read(&headers, Syntax::Strict));
    if headers.len() > 1 {
        assert_eq!((lenient, strict), (Err(Malformed::Several), Err(Malformed::Several)));
        return;
    }
    if strict.is_ok() {
        assert_eq!(strict, lenient, "what is strict is lenient too");
    }
    if let Ok(found) = lenient {
        let key = found.expect("there is a line");
        assert!((1..=Key::BYTES_MAX).contains(&key.as_str().len()));
        assert!(key.as_str().bytes().all(|byte| matches!(byte, b' '..=b'~')));
        let quoted = format!("\"{}\"", key.as_str().replace('\\', r"\\").replace('"', "\\\""));
        headers.insert(IDEMPOTENCY_KEY, quoted.parse().expect("it is visible ASCII"));
        assert_eq!(read(&headers, Syntax::Strict), Ok(Some(key)), "the quoted form is the same key");
    }
}

/// The fields of a body, and their names. The first line is the field's name, the rest is the body, and the query.
pub fn fields(bytes: &[u8]) {
    let split = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (name, body) = (&bytes[..split], bytes.get(split + 1..).unwrap_or_default());
    let Ok(Ok(field)) = std::str::from_utf8(name).map(str::parse::<Field>) else { return };
    assert_eq!(field.to_string().parse(), Ok(field.clone()), "it is written as it is read");
    let found = find(&field, body);
    let Ok(Some(value)) = &found else { return };
    let again = match &field {
        Field::Query(name) | Field::Form(name) => [escaped(name), "=".to_owned(), escaped(value)].concat(),
        Field::Xml(name) => {
            let value: String = value.chars().map(|letter| format!("&#{};", u32::from(letter))).collect();
            format!("<{name}>{value}</{name}>")
        }
        _ => return agrees(&field, body, value),
    };
    // A character that XML cannot name by its number.
    if !value.contains('\0') {
        assert_eq!(find(&field, again.as_bytes()), found, "{again}");
    }
}

fn find(field: &Field, body: &[u8]) -> Result<Option<String>, FieldError> {
    field.find(&head(body), body, [])
}

/// A head with these bytes as its query, where it can have them.
fn head(query: &[u8]) -> Parts {
    let target = [b"/?", query].concat();
    let uri = Uri::from_maybe_shared(Bytes::from(target)).unwrap_or_default();
    let mut parts = Request::new(()).into_parts().0;
    parts.uri = uri;
    parts
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Whether a reader of JSON that others wrote finds the same.
fn agrees(field: &Field, body: &[u8], found: &str) {
    let Field::Json(pointer) = field else { return };
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(body) else { return };
    match document.pointer(&pointer.to_string()) {
        Some(serde_json::Value::String(text)) => assert_eq!(text, found),
        Some(serde_json::Value::Bool(is)) => assert_eq!(is.to_string(), found),
        Some(serde_json::Value::Number(number)) => {
            // Theirs is a float, and its last digit is not promised.
            let (ours, theirs) =
                (found.parse::<f64>().unwrap_or(f64::NAN), number.as_f64().unwrap_or(f64::NAN));
            assert!((ours - theirs).abs() <= theirs.abs() * 1e-9, "{found} and {number}");
        }
        other => panic!("{found:?} was found where others find {other:?}"),
    }
}

/// The decoder of kept responses.
pub fn outcome(bytes: &[u8]) {
    let outcome = Outcome { format: Outcome::HTTP, bytes: Bytes::copy_from_slice(bytes) };
    if let Ok(kept) = Kept::decode(&outcome) {
        assert_eq!(Kept::decode(&kept.encode()), Ok(kept), "what is read can be written and read again");
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    /// Runs a target on what `fuzz/corpus` has for it, and on what a crash has left there.
    fn replay(target: &str, run: fn(&[u8])) {
        let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../fuzz/corpus", target].iter().collect();
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if std::panic::catch_unwind(|| run(&bytes)).is_err() {
                panic!("{} breaks the target {target}", path.display());
            }
            count += 1;
        }
        assert!(count > 0, "{} is empty", folder.display());
    }

    #[test]
    fn p5_the_corpus_of_each_target_holds() {
        replay("key", super::key);
        replay("fingerprint_json", super::fingerprint_json);
        replay("fingerprint_multipart", super::fingerprint_multipart);
        replay("fields", super::fields);
        replay("outcome", super::outcome);
        replay("routes", super::routes);
        #[cfg(feature = "jwt")]
        replay("token", super::token);
    }
}
