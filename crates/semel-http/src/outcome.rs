//! A kept HTTP response as the store holds it: [`Outcome::HTTP`].
//!
//! ```text
//! version u8 · flags u8 · status u16 · lines u32 · (name length u16 · name · value length u32 · value)* · body
//! ```
//!
//! 1. Numbers are big endian. The body is everything behind the lines, and is there only with its flag.
//! 2. Header lines stand in their order, repeated ones as separate lines; values are bytes, not text.
//! 3. Decoding is total: whatever the bytes are, it gives a response or says why not, and never panics. It copies
//!    nothing: values and body are slices of the outcome.
//! 4. A response that was not kept whole has no body at all, which is not an empty one (H13).
//! 5. The line `semel-trace` is no header: it is the trace context of the run ([`Kept::trace`]), and is read as that or
//!    not at all.
//! 6. The version is raised when the layout changes; older ones stay readable for as long as outcomes live.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use semel::Outcome;

use crate::headers::SEMEL_TRACE;
use crate::trace::TraceContext;

const VERSION: u8 = 1;
const BODY_KEPT: u8 = 1;
const NEGOTIATED: u8 = 1 << 1;

static TRACE_LINE: HeaderName = SEMEL_TRACE;

/// Room for the lines of a usual answer, so that encoding allocates once.
const HEAD_BYTES_USUAL: usize = 512;

/// A response that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its status, 200 or above.
    pub status: StatusCode,
    /// Its header lines, without those that no replay carries.
    pub headers: HeaderMap,
    /// Its body; `None` when it was too long to be kept, or endless.
    pub body: Option<Bytes>,
    /// Whether the first request named the content codings that it accepts.
    pub negotiated: bool,
    /// What its run belongs to, where its request said so. No replay carries it.
    pub trace: Option<TraceContext>,
}

/// Why an outcome is not a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// It is not [`Outcome::HTTP`].
    #[error("its format is {0}, not an HTTP response")]
    Format(u8),
    /// A newer program made it, or it is damaged.
    #[error("its version is {0}; this program reads up to {VERSION}")]
    Version(u8),
    /// It ends too early.
    #[error("it is cut off")]
    Cut,
    /// A status that ends no exchange.
    #[error("its status is {0}")]
    Status(u16),
    /// A name or value that no header can have.
    #[error("it holds a malformed header")]
    Header,
    /// It has no body, and bytes where one would be.
    #[error("it has bytes behind its end")]
    Rest,
}

impl Kept {
    /// A response for an operation that somebody found out about: what `semel resolve --completed` keeps.
    ///
    /// # Errors
    ///
    /// [`Unreadable::Status`] when the status is informational: a replay has to end the exchange.
    pub fn new(status: StatusCode, body: impl Into<Bytes>) -> Result<Kept, Unreadable> {
        if status.is_informational() {
            return Err(Unreadable::Status(status.as_u16()));
        }
        Ok(Kept {
            status,
            headers: HeaderMap::new(),
            body: Some(body.into()),
            negotiated: false,
            trace: None,
        })
    }

    /// With one more header line.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Kept {
        self.headers.append(name, value);
        self
    }

    /// The outcome to keep.
    #[must_use]
    pub fn encode(&self) -> Outcome {
        encode(self.status, self.headers.iter(), self.body.as_deref(), self.negotiated, self.trace.as_ref())
    }

    /// Reads an outcome back.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] when it is no response, or not one that this version reads.
    pub fn decode(outcome: &Outcome) -> Result<Kept, Unreadable> {
        if outcome.format != Outcome::HTTP {
            return Err(Unreadable::Format(outcome.format));
        }
        let mut bytes = outcome.bytes.clone();
        let version = bytes.try_get_u8().map_err(cut)?;
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
        let flags = bytes.try_get_u8().map_err(cut)?;
        let status = status(bytes.try_get_u16().map_err(cut)?)?;
        let mut headers = lines(&mut bytes)?;
        let trace = headers.remove(SEMEL_TRACE).and_then(|line| TraceContext::parse(line.as_bytes()));
        let body = (flags & BODY_KEPT != 0).then_some(bytes.clone());
        if body.is_none() && !bytes.is_empty() {
            return Err(Unreadable::Rest);
        }
        Ok(Kept { status, headers, body, negotiated: flags & NEGOTIATED != 0, trace })
    }
}

/// Encodes a response without building a [`Kept`] of it first.
pub(crate) fn encode<'a>(
    status: StatusCode,
    headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
    body: Option<&[u8]>,
    negotiated: bool,
    trace: Option<&'a TraceContext>,
) -> Outcome {
    let body_bytes = body.unwrap_or_default();
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES_USUAL + body_bytes.len());
    bytes.put_u8(VERSION);
    bytes.put_u8(if body.is_some() { BODY_KEPT } else { 0 } | if negotiated { NEGOTIATED } else { 0 });
    bytes.put_u16(status.as_u16());
    let count_at = bytes.len();
    bytes.put_u32(0);
    let mut count = 0_u32;
    let trace = trace.map(|trace| (&TRACE_LINE, trace.line()));
    for (name, value) in headers.chain(trace) {
        // `http` bounds a name by 64 KiB, and no server takes a header of 4 GiB.
        bytes.put_u16(name.as_str().len() as u16);
        bytes.put_slice(name.as_str().as_bytes());
        bytes.put_u32(value.len() as u32);
        bytes.put_slice(value.as_bytes());
        count += 1;
    }
    bytes[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
    bytes.put_slice(body_bytes);
    Outcome { format: Outcome::HTTP, bytes: bytes.freeze() }
}

fn status(code: u16) -> Result<StatusCode, Unreadable> {
    let status = StatusCode::from_u16(code).map_err(|_| Unreadable::Status(code))?;
    if status.is_informational() { Err(Unreadable::Status(code)) } else { Ok(status) }
}

fn lines(bytes: &mut Bytes) -> Result<HeaderMap, Unreadable> {
    let count = bytes.try_get_u32().map_err(cut)?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let length = bytes.try_get_u16().map_err(cut)?;
        let name = HeaderName::from_bytes(&take(bytes, length.into())?).map_err(|_| Unreadable::Header)?;
        let length = bytes.try_get_u32().map_err(cut)?;
        let value = take(bytes, length as usize)?;
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| Unreadable::Header)?;
        // More than the map can hold is more than any server lets out.
        headers.try_append(name, value).map_err(|_| Unreadable::Header)?;
    }
    Ok(headers)
}

fn take(bytes: &mut Bytes, length: usize) -> Result<Bytes, Unreadable> {
    if bytes.len() < length { Err(Unreadable::Cut) } else { Ok(bytes.split_to(length)) }
}

fn cut(_: bytes::TryGetError) -> Unreadable {
    Unreadable::Cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACE: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn sample() -> Kept {
        Kept::new(StatusCode::CREATED, "body")
            .unwrap()
            .header(HeaderName::from_static("link"), HeaderValue::from_static("</1>; rel=a"))
            .header(HeaderName::from_static("link"), HeaderValue::from_static("</2>; rel=b"))
            .header(HeaderName::from_static("x-bin"), HeaderValue::from_bytes(b"\xff\xfe").unwrap())
    }

    fn of(bytes: &[u8]) -> Result<Kept, Unreadable> {
        Kept::decode(&Outcome { format: Outcome::HTTP, bytes: Bytes::copy_from_slice(bytes) })
    }

    #[test]
    fn the_layout_stays_as_it_is() {
        let small = Kept::new(StatusCode::OK, "hi")
            .unwrap()
            .header(HeaderName::from_static("a"), HeaderValue::from_static("b"));
        assert_eq!(&small.encode().bytes[..], b"\x01\x01\x00\xc8\0\0\0\x01\0\x01a\0\0\0\x01bhi");
    }

    /// Whatever a line of that name holds, no replay has it among its headers.
    #[test]
    fn the_trace_is_a_line_of_the_outcome_and_no_header() {
        let line = |value: &'static [u8]| {
            sample().header(SEMEL_TRACE, HeaderValue::from_bytes(value).unwrap()).encode()
        };
        for (outcome, trace) in [
            (Kept { trace: TraceContext::parse(TRACE), ..sample() }.encode(), TraceContext::parse(TRACE)),
            (line(TRACE), TraceContext::parse(TRACE)),
            (line(b"nonsense"), None),
        ] {
            assert_eq!(Kept::decode(&outcome).unwrap(), Kept { trace, ..sample() });
        }
    }

    #[test]
    fn repeated_lines_stay_apart_and_in_order() {
        let read = Kept::decode(&sample().encode()).unwrap();
        let links: Vec<_> = read.headers.get_all("link").iter().collect();
        assert_eq!(links, ["</1>; rel=a", "</2>; rel=b"]);
        assert_eq!(read, sample());
    }

    #[test]
    fn no_body_is_not_an_empty_one() {
        let empty = Kept { body: Some(Bytes::new()), ..sample() };
        let none = Kept { body: None, ..sample() };
        assert_eq!(Kept::decode(&empty.encode()).unwrap().body, Some(Bytes::new()));
        assert_eq!(Kept::decode(&none.encode()).unwrap().body, None);
    }

    #[test]
    fn what_is_no_response_says_why() {
        let whole = Kept { body: None, ..sample() }.encode().bytes;
        for length in 0..whole.len() {
            assert_eq!(of(&whole[..length]), Err(Unreadable::Cut), "cut at {length}");
        }
        assert_eq!(of(&[&whole[..], b"x"].concat()), Err(Unreadable::Rest));
        assert_eq!(of(b"\x02"), Err(Unreadable::Version(2)));
        assert_eq!(of(b"\x01\x01\0\x64\0\0\0\0"), Err(Unreadable::Status(100)));
        assert_eq!(of(b"\x01\x01\x10\0\0\0\0\0"), Err(Unreadable::Status(4096)));
        assert_eq!(of(b"\x01\x01\0\xc8\0\0\0\x01\0\x01 \0\0\0\0"), Err(Unreadable::Header));
        assert_eq!(of(b"\x01\x01\0\xc8\0\0\0\x01\0\x01a\0\0\0\x01\n"), Err(Unreadable::Header));
        assert_eq!(Kept::decode(&Outcome::value("v")), Err(Unreadable::Format(Outcome::VALUE)));
        assert_eq!(Kept::new(StatusCode::CONTINUE, ""), Err(Unreadable::Status(100)));
    }

    prop_compose! {
        fn kept()(
            status in 200_u16..=999,
            lines in prop::collection::vec(("[a-z][a-z0-9-]{0,20}", "[ -~\u{e9}]{0,40}"), 0..12),
            body in prop::option::of(prop::collection::vec(any::<u8>(), 0..200)),
            negotiated in any::<bool>(),
            traced in any::<bool>(),
        ) -> Kept {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
                headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
            }
            let status = StatusCode::from_u16(status).unwrap();
            let trace = traced.then(|| TraceContext::parse(TRACE).unwrap());
            Kept { status, headers, body: body.map(Bytes::from), negotiated, trace }
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read_back(kept in kept()) {
            prop_assert_eq!(Kept::decode(&kept.encode()), Ok(kept));
        }

        /// A store that somebody has written to makes no second header line and no second answer.
        #[test]
        fn whatever_is_stored_no_header_breaks_its_line(
            kept in kept(),
            at in any::<prop::sample::Index>(),
            byte in prop::sample::select(vec![b'\r', b'\n', b'\0', b':', b' ', 0x7f]),
        ) {
            let mut bytes = kept.encode().bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(read) = of(&bytes) {
                for (name, value) in &read.headers {
                    prop_assert!(!value.as_bytes().iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0' | 0x7f)));
                    prop_assert!(name.as_str().bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'));
                }
            }
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = of(&bytes);
        }

        #[test]
        fn no_damage_panics(kept in kept(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut bytes = kept.encode().bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = of(&bytes);
        }
    }
}
