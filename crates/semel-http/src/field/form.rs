//! A field of `application/x-www-form-urlencoded` text, a query or a body: URL Standard, section 5.1.

use super::{FieldError, only, text};

pub(super) fn find(pairs: &[u8], name: &str) -> Result<Option<String>, FieldError> {
    let mut values = Vec::new();
    for pair in pairs.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let (left, right) = match memchr::memchr(b'=', pair) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        if decoded(left)? == name.as_bytes() {
            values.push(right);
        }
    }
    only(values.into_iter().map(|value| text(decoded(value)?)))
}

/// Without escapes, and with spaces for plus signs.
fn decoded(text: &[u8]) -> Result<Vec<u8>, FieldError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(*rest.next()?).to_digit(16);
                digit().zip(digit()).map(|(high, low)| (high << 4 | low) as u8).ok_or(FieldError::NotForm)?
            }
            byte => *byte,
        });
    }
    Ok(bytes)
}
