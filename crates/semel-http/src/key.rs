//! The key in a request's head: H1 and H2.
//!
//! 1. The key stands in `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header-07, section 2.1), or in one
//!    of the other names that the settings list.
//! 2. Its value is a structured-field string (RFC 9651, section 3.3.3): `"abc"`. Parameters after it must be
//!    well formed and are ignored.
//! 3. In lenient syntax the bare form `abc` is accepted too: visible ASCII without `" , ; \`. It is the same key
//!    as `"abc"`. Bare `123`, `?1` and `:YQ==:` are these characters, not a number, a boolean or bytes: a key is
//!    text, whatever structured field it looks like. Strict syntax refuses the bare form.
//! 4. There is one field line over all names. Two lines are refused even when they are equal, and so is a list:
//!    a proxy that joins `K` and `K` to `K, K` would otherwise make another key of it (case C18).
//! 5. Empty, longer than [`Key::BYTES_MAX`] bytes after decoding, not ASCII, a broken quote: refused, never
//!    guessed at and never cut (case C89).
//! 6. No line at all is no error here; what it means is the route's choice (H4).

use http::header::{HeaderMap, HeaderName, HeaderValue};
use semel::Key;
use sfv::{Item, Parser};

/// The header of the IETF draft.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How a key may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Syntax {
    /// `"abc"`, and `abc` as existing clients send it.
    #[default]
    Lenient,
    /// Only `"abc"`.
    Strict,
}

/// Why a request's key cannot be read. The text is for the client; it never repeats the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// More than one field line, over all names.
    #[error("There is more than one key header.")]
    Several,
    /// One in a header and another one in the body.
    #[error("The key in the header is not the one in the body.")]
    Differs,
    /// Nothing between the quotes, or no value.
    #[error("The key is empty.")]
    Empty,
    /// Longer than [`Key::BYTES_MAX`].
    #[error("The key is longer than 255 bytes.")]
    TooLong,
    /// A byte outside ASCII, or a control character.
    #[error("The key holds a character that is not printable ASCII.")]
    NotAscii,
    /// It begins with a quote and is no structured-field string.
    #[error("The key begins with a quote but is no structured-field string (RFC 9651).")]
    BrokenString,
    /// Without quotes, and with a character that only quotes allow.
    #[error("A key without quotes holds no space and none of \" , ; \\ characters.")]
    BrokenBare,
    /// Without quotes, where only quotes are accepted.
    #[error("The key must be a structured-field string in quotes (RFC 9651).")]
    NotQuoted,
}

/// The request's key, if it carries one.
pub(crate) fn read(
    headers: &HeaderMap,
    names: &[HeaderName],
    syntax: Syntax,
) -> Result<Option<Key>, Malformed> {
    let mut lines = names.iter().flat_map(|name| headers.get_all(name));
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(Malformed::Several);
    }
    parse(line, syntax).map(Some)
}

fn parse(line: &HeaderValue, syntax: Syntax) -> Result<Key, Malformed> {
    let bytes = line.as_bytes().trim_ascii();
    match bytes.first() {
        None => Err(Malformed::Empty),
        Some(b'"') => string(bytes),
        Some(_) if syntax == Syntax::Strict => Err(Malformed::NotQuoted),
        Some(_) => bare(bytes),
    }
}

fn string(bytes: &[u8]) -> Result<Key, Malformed> {
    let item: Item = Parser::new(bytes).parse().map_err(|_| not_ascii_or(bytes, Malformed::BrokenString))?;
    let text = item.bare_item.as_string().ok_or(Malformed::BrokenString)?;
    checked(text.as_str())
}

fn bare(bytes: &[u8]) -> Result<Key, Malformed> {
    let is_bare = |byte: &u8| byte.is_ascii_graphic() && !b"\",;\\".contains(byte);
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(is_bare) => checked(text),
        _ => Err(not_ascii_or(bytes, Malformed::BrokenBare)),
    }
}

/// A key of this text, wherever in the request it stands: one in a body has the limits of one in a header.
pub(crate) fn checked(text: &str) -> Result<Key, Malformed> {
    if !text.is_ascii() {
        return Err(Malformed::NotAscii);
    }
    Key::new(text).map_err(|error| match error {
        semel::KeyError::TooLong { .. } => Malformed::TooLong,
        semel::KeyError::Empty => Malformed::Empty,
        _ => Malformed::NotAscii,
    })
}

/// The likelier of two reasons, for whoever has to mend the client.
fn not_ascii_or(bytes: &[u8], otherwise: Malformed) -> Malformed {
    if bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) { otherwise } else { Malformed::NotAscii }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lenient(line: &str) -> Result<String, Malformed> {
        of(line.as_bytes(), Syntax::Lenient)
    }

    fn of(line: &[u8], syntax: Syntax) -> Result<String, Malformed> {
        parse(&HeaderValue::from_bytes(line).unwrap(), syntax).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn the_bare_form_is_the_same_key_as_the_quoted_one() {
        assert_eq!(lenient("\"abc\""), lenient("abc"));
        assert_eq!(lenient("abc"), Ok("abc".to_owned()));
        assert_eq!(lenient("\"8e03978e-40d5\""), lenient("8e03978e-40d5"));
    }

    #[test]
    fn what_looks_like_another_structured_field_is_text() {
        for line in ["12345", "1.5", "?1", ":YQ==:", "@1700000000", "*a/b:c"] {
            assert_eq!(lenient(line), Ok(line.to_owned()));
        }
    }

    #[test]
    fn parameters_are_ignored_but_must_be_well_formed() {
        assert_eq!(lenient("\"abc\";v=1;w"), Ok("abc".to_owned()));
        assert_eq!(lenient("\"abc\" ;v=1"), Err(Malformed::BrokenString));
        assert_eq!(lenient("\"abc\";V=1"), Err(Malformed::BrokenString));
    }

    #[test]
    fn escapes_are_decoded_and_space_is_part_of_a_string() {
        assert_eq!(lenient(r#""a\"b\\c""#), Ok(r#"a"b\c"#.to_owned()));
        assert_eq!(lenient("\"a b\""), Ok("a b".to_owned()));
        assert_eq!(lenient("\" abc\""), Ok(" abc".to_owned()));
    }

    #[test]
    fn strict_refuses_the_bare_form() {
        assert_eq!(of(b"abc", Syntax::Strict), Err(Malformed::NotQuoted));
        assert_eq!(of(b"\"abc\"", Syntax::Strict), Ok("abc".to_owned()));
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_reason() {
        for (line, reason) in [
            ("", Malformed::Empty),
            ("\"\"", Malformed::Empty),
            ("\"abc", Malformed::BrokenString),
            ("abc\"", Malformed::BrokenBare),
            (r#""a\b""#, Malformed::BrokenString),
            ("\"a\", \"b\"", Malformed::BrokenString),
            ("\"a\"b", Malformed::BrokenString),
            ("a, b", Malformed::BrokenBare),
            ("a,b", Malformed::BrokenBare),
            ("a b", Malformed::BrokenBare),
            ("a;b", Malformed::BrokenBare),
            (r"a\b", Malformed::BrokenBare),
            ("%\"caf%c3%a9\"", Malformed::BrokenBare),
            ("caf\u{e9}", Malformed::NotAscii),
            ("\"caf\u{e9}\"", Malformed::NotAscii),
            ("a\tb", Malformed::NotAscii),
        ] {
            assert_eq!(lenient(line), Err(reason), "{line:?}");
        }
    }

    #[test]
    fn c89_the_length_counts_after_decoding() {
        let quoted = |text: &str| format!("\"{text}\"");
        assert!(lenient(&"k".repeat(255)).is_ok());
        assert!(lenient(&quoted(&"k".repeat(255))).is_ok());
        assert!(lenient(&quoted(&r#"\""#.repeat(255))).is_ok());
        assert_eq!(lenient(&"k".repeat(256)), Err(Malformed::TooLong));
        assert_eq!(lenient(&quoted(&"k".repeat(256))), Err(Malformed::TooLong));
    }

    #[test]
    fn h2_a_key_in_the_body_has_the_limits_of_one_in_the_header() {
        assert!(checked(&"k".repeat(255)).is_ok());
        assert!(checked("a b, \"c\"; d\\").is_ok());
        for (text, reason) in [
            ("", Malformed::Empty),
            (&*"k".repeat(256), Malformed::TooLong),
            ("a\nb", Malformed::NotAscii),
            ("a\0", Malformed::NotAscii),
            ("caf\u{e9}", Malformed::NotAscii),
        ] {
            assert_eq!(checked(text), Err(reason), "{text:?}");
        }
    }

    #[test]
    fn c18_one_line_over_all_names_or_none() {
        let alias = HeaderName::from_static("x-idempotency-key");
        let names = [IDEMPOTENCY_KEY, alias.clone()];
        let mut headers = HeaderMap::new();
        assert_eq!(read(&headers, &names, Syntax::Lenient), Ok(None));
        headers.append(alias.clone(), HeaderValue::from_static("k"));
        assert_eq!(read(&headers, &names, Syntax::Lenient), Ok(Some(Key::new("k").unwrap())));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("k"));
        assert_eq!(read(&headers, &names, Syntax::Lenient), Err(Malformed::Several));
        headers.remove(alias);
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("k"));
        assert_eq!(read(&headers, &names, Syntax::Lenient), Err(Malformed::Several));
    }

    proptest! {
        #[test]
        fn every_visible_text_survives_its_quoted_form(text in "[ -~]{1,255}") {
            let quoted = format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""));
            prop_assert_eq!(lenient(&quoted), Ok(text));
        }

        #[test]
        fn no_bytes_panic_and_a_bare_key_is_itself(line in prop::collection::vec(0x20u8..=0xff, 0..300)) {
            if let Ok(value) = HeaderValue::from_bytes(&line)
                && let Ok(key) = parse(&value, Syntax::Lenient)
                && line.trim_ascii().first() != Some(&b'"')
            {
                prop_assert_eq!(key.as_str().as_bytes(), line.trim_ascii());
            }
        }
    }
}
