//! A `multipart/form-data` body, part by part: RFC 2046, section 5.1.1, and RFC 7578.
//!
//! 1. What counts is, for each part in its order, its header lines and its bytes. The boundary does not, nor does
//!    what stands before the first part and behind the last (case C16).
//! 2. All header lines of a part count, each with its name in lower case and its value as written, in their order. So
//!    the field's name, the file's name and its type do, and whatever a client adds.
//! 3. A boundary stands at the start of a line, behind a line's end or at the start of the body. Spaces and tabs may
//!    follow it.
//! 4. **What readers could take in two ways is not read at all**: lines that end in a mere line feed, a boundary that
//!    occurs anywhere but between two parts (a longer word that begins with it is such a place), a part without the
//!    empty line, a folded header line, more than [`PARTS_MAX`] parts, no end. The request is then compared byte for
//!    byte, and its retry with another boundary is another request.
//! 5. A part is not read further. The boundary of a multipart inside a part counts.

use bytes::Bytes;
use memchr::memmem;
use semel::fingerprint::FingerprintBuilder;

use super::media_type::is_token;

/// The most parts that are told apart.
pub(super) const PARTS_MAX: usize = 1_000;

/// The longest boundary, in bytes.
const BOUNDARY_BYTES_MAX: usize = 70;

/// One part, as it stands in the body.
#[derive(Debug, PartialEq, Eq)]
struct Part<'a> {
    lines: Vec<(&'a [u8], &'a [u8])>,
    bytes: &'a [u8],
}

/// Parts that were read without doubt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a>(Vec<Part<'a>>);

impl<'a> Parts<'a> {
    /// Splits a body; `None` when there is doubt.
    pub(super) fn read(body: &'a Bytes, boundary: &[u8]) -> Option<Parts<'a>> {
        if !is_boundary(boundary) {
            return None;
        }
        let dashed = [b"--", boundary].concat();
        let mut parts = Vec::new();
        let mut start = None;
        for at in memmem::find_iter(body, &dashed) {
            if at > 0 && !body[..at].ends_with(b"\r\n") {
                return None;
            }
            if let Some(start) = start {
                // The line's end before a boundary belongs to the boundary.
                parts.push(part(body.get(start..at - 2)?)?);
            }
            match after(&body[at + dashed.len()..])? {
                After::Part(skipped) if parts.len() < PARTS_MAX => start = Some(at + dashed.len() + skipped),
                After::Part(_) => return None,
                After::End => return is_last(body, at, &dashed).then_some(Parts(parts)),
            }
        }
        None
    }

    /// Adds the parts, so that no other list of parts adds the same.
    pub(super) fn add_to(&self, builder: FingerprintBuilder) -> FingerprintBuilder {
        self.0.iter().fold(builder, |builder, part| {
            let lines = part
                .lines
                .iter()
                .fold(builder, |builder, (name, value)| builder.part(&name.to_ascii_lowercase()).part(value));
            // No name is absent, so this ends the lines.
            lines.optional(None).part(part.bytes)
        })
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Parts<'_> {
    /// The parts as a body with another boundary, and with `more` bytes at the end of the last part.
    pub(super) fn written(&self, boundary: &str, more: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        for (at, part) in self.0.iter().enumerate() {
            body.extend([b"--", boundary.as_bytes(), b"\r\n"].concat());
            for (name, value) in &part.lines {
                body.extend([name, &b": "[..], value, b"\r\n"].concat());
            }
            let more = if at + 1 == self.0.len() { more } else { b"" };
            body.extend([b"\r\n", part.bytes, more, b"\r\n"].concat());
        }
        body.extend([b"--", boundary.as_bytes(), b"--"].concat());
        body
    }
}

/// What a boundary's line says.
enum After {
    /// A part follows, so many bytes later.
    Part(usize),
    /// There are no more.
    End,
}

/// Reads the rest of a boundary's line.
fn after(rest: &[u8]) -> Option<After> {
    let (rest, ends) = match rest.strip_prefix(b"--") {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let line_ends = rest[padding..].starts_with(b"\r\n");
    match ends {
        true => (line_ends || rest.len() == padding).then_some(After::End),
        false => line_ends.then_some(After::Part(padding + 2)),
    }
}

/// Whether no further boundary follows the one at `at`.
fn is_last(body: &[u8], at: usize, dashed: &[u8]) -> bool {
    memmem::find(&body[at + dashed.len()..], dashed).is_none()
}

fn is_boundary(boundary: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len())
        && boundary.iter().all(is_letter)
        && boundary.last() != Some(&b' ')
}

fn part(text: &[u8]) -> Option<Part<'_>> {
    let (head, bytes) = match text.strip_prefix(b"\r\n") {
        Some(bytes) => (&b""[..], bytes),
        None => {
            let end = memmem::find(text, b"\r\n\r\n")?;
            (&text[..end + 2], &text[end + 4..])
        }
    };
    let mut lines = Vec::new();
    let mut rest = head;
    while !rest.is_empty() {
        let end = memmem::find(rest, b"\r\n")?;
        lines.push(line(&rest[..end])?);
        rest = &rest[end + 2..];
    }
    Some(Part { lines, bytes })
}

fn line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', text)?;
    let (name, value) = (&text[..colon], trimmed(&text[colon + 1..]));
    let sound = !name.is_empty()
        && name.iter().all(|byte| is_token(*byte))
        && !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    sound.then_some((name, value))
}

/// Without the spaces and tabs around it.
fn trimmed(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests;
