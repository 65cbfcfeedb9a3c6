//! A tripwire for request heads that two servers could read differently (RFC 9112 §2.2, §11.2).
//!
//! hyper refuses obsolete line folding, lengths that differ and broken chunks by itself. What it lets by is a head
//! line that ends in LF without CR, and a head that says twice how its body is framed: the same length again, or a
//! length beside a transfer coding. This wrapper follows where heads begin and end, and turns the LF of such a line
//! into NUL, which hyper answers with 400 and a closed connection: never a second request. hyper looks at a head that
//! came in several pieces only when it sees its end, and that is what the NUL may have taken away; so an end follows.
//!
//! It decides nothing about framing: hyper's reading counts. If the two ever disagreed, the worst would be a 400
//! too many, or a bare LF that hyper reads as the end of a line, as it does without the wrapper.
//!
//! Behind a head that asks for another protocol nothing is read before its answer is known ([`Switch`]): until then
//! nobody can say whether what follows is a request. A connection that has become a tunnel leaves the wrapper.
//! HTTP/2, where lengths stand outside of the text, never gets it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::switch::Switch;
use super::tap::{Tap, Tapped};

/// A connection whose heads are watched.
pub type Watched<S> = Tapped<S, Watch>;

/// What watches.
#[derive(Debug)]
pub struct Watch {
    framing: Framing,
    switch: Arc<Switch>,
    /// What came with a head that asks for another protocol, behind it.
    held: Vec<u8>,
}

impl<S> Watched<S> {
    pub fn new(inner: S, switch: Arc<Switch>) -> Watched<S> {
        Tapped::by(inner, Watch { framing: Framing::default(), switch, held: Vec::new() })
    }
}

impl Watch {
    /// What was read and passed on to nobody.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Watches what has just been read; what must wait is taken back.
    fn pass(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let left = self.framing.watch(&mut buf.filled_mut()[before..]);
        if self.framing.part == Part::Held {
            self.switch.hold();
            let end = buf.filled().len() - left;
            self.held.splice(..0, buf.filled()[end..].iter().copied());
            buf.set_filled(end);
        }
    }
}

impl Tap for Watch {
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.framing.part == Part::Held {
            ready!(self.switch.poll_stays(cx));
            self.framing.part = Part::Before;
        }
        if self.framing.ends {
            self.framing.ends = false;
            buf.put_slice(&HEADS_END[..HEADS_END.len().min(buf.remaining())]);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        if self.held.is_empty() {
            let read = Pin::new(inner).poll_read(cx, buf);
            self.pass(buf, before);
            return read;
        }
        let count = self.held.len().min(buf.remaining());
        buf.put_slice(&self.held[..count]);
        self.held.drain(..count);
        self.pass(buf, before);
        Poll::Ready(Ok(()))
    }
}

/// Where in a stream of requests the next byte belongs.
#[derive(Debug, Default)]
struct Framing {
    part: Part,
    /// The beginning of the line that is being read: enough for the headers that frame a body.
    line: Vec<u8>,
    /// Whether the line is longer than what is kept of it.
    long: bool,
    /// Whether the last byte seen was CR.
    cr: bool,
    length: Option<u64>,
    chunked: bool,
    /// Whether the head asks for another protocol.
    upgrade: bool,
    /// Whether a head was spoilt, and its end is to follow.
    ends: bool,
}

const LINE_KEPT: usize = 64;

/// What no head lacks.
const HEADS_END: &[u8; 4] = b"\r\n\r\n";

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Part {
    /// Before the request line; empty lines may stand here (RFC 9112 §2.2).
    #[default]
    Before,
    Head,
    Body {
        left: u64,
    },
    ChunkSize,
    Chunk {
        left: u64,
    },
    Trailer,
    /// Behind a head that asks for another protocol, before its answer.
    Held,
    /// Something here is refused by hyper, or cannot be followed.
    Lost,
}

impl Framing {
    /// How many of the bytes must wait, which are the last ones.
    fn watch(&mut self, mut bytes: &mut [u8]) -> usize {
        while !bytes.is_empty() {
            bytes = match self.part {
                Part::Lost => return 0,
                Part::Held => return bytes.len(),
                Part::Body { left } => self.skip(bytes, left, Part::Before, |left| Part::Body { left }),
                Part::Chunk { left } => self.skip(bytes, left, Part::ChunkSize, |left| Part::Chunk { left }),
                Part::Before | Part::Head | Part::ChunkSize | Part::Trailer => self.read_line(bytes),
            };
        }
        0
    }

    fn skip<'a>(&mut self, bytes: &'a mut [u8], left: u64, then: Part, or: fn(u64) -> Part) -> &'a mut [u8] {
        let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - skipped as u64;
        self.part = if left == 0 { then } else { or(left) };
        &mut bytes[skipped..]
    }

    fn read_line<'a>(&mut self, bytes: &'a mut [u8]) -> &'a mut [u8] {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            self.keep(bytes);
            return &mut [];
        };
        self.keep(&bytes[..end]);
        if !self.cr {
            return self.lose(&mut bytes[end]);
        }
        if self.part == Part::Head && self.is_second_framing() {
            return self.lose(&mut bytes[end]);
        }
        self.end_line();
        &mut bytes[end + 1..]
    }

    /// Leaves the rest to hyper, which refuses it. In a chunk's size line it refuses the LF, and would take a NUL
    /// for part of an extension.
    fn lose<'a>(&mut self, lf: &mut u8) -> &'a mut [u8] {
        if self.part != Part::ChunkSize {
            *lf = 0;
            self.ends = true;
        }
        self.part = Part::Lost;
        &mut []
    }

    fn is_second_framing(&self) -> bool {
        let is_framing = matches!(field(self.line.trim_ascii()), Some(Field::Length(_) | Field::Coding));
        is_framing && (self.chunked || self.length.is_some())
    }

    fn keep(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.cr = *last == b'\r';
        let room = LINE_KEPT - self.line.len();
        self.long |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        let mut kept = std::mem::take(&mut self.line);
        let line = kept.trim_ascii();
        self.part = match self.part {
            Part::Before if line.is_empty() => Part::Before,
            Part::Before => Part::Head,
            Part::Head if line.is_empty() => self.after_head(),
            Part::Head => self.header(line),
            Part::ChunkSize => chunk(line),
            Part::Trailer if line.is_empty() => Part::Before,
            part => part,
        };
        (self.long, self.cr) = (false, false);
        // Its room is the next line's.
        kept.clear();
        self.line = kept;
    }

    fn header(&mut self, line: &[u8]) -> Part {
        match field(line) {
            Some(Field::Coding) => self.chunked = true,
            Some(Field::Upgrade) => self.upgrade = true,
            Some(Field::Length(value)) => match number(value, 10) {
                Some(length) if !self.long => self.length = Some(length),
                _ => return Part::Lost,
            },
            None => {}
        }
        Part::Head
    }

    fn after_head(&mut self) -> Part {
        let (chunked, length) = (std::mem::take(&mut self.chunked), self.length.take());
        let upgrade = std::mem::take(&mut self.upgrade);
        match length.unwrap_or(0) {
            _ if chunked => Part::ChunkSize,
            0 if upgrade => Part::Held,
            0 => Part::Before,
            left => Part::Body { left },
        }
    }
}

/// What a header line says about where the request ends, and what follows it.
enum Field<'a> {
    Length(&'a [u8]),
    Coding,
    Upgrade,
}

fn field(line: &[u8]) -> Option<Field<'_>> {
    // Nearly every line is another one, and its first letter says so.
    if !line.first().is_some_and(|first| b"CcTtUu".contains(first)) {
        return None;
    }
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.eq_ignore_ascii_case(b"transfer-encoding") {
        return Some(Field::Coding);
    }
    if name.eq_ignore_ascii_case(b"upgrade") {
        return Some(Field::Upgrade);
    }
    name.eq_ignore_ascii_case(b"content-length").then_some(Field::Length(value))
}

/// A chunk's size line; the CRLF behind the chunk counts as part of it.
fn chunk(line: &[u8]) -> Part {
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    match number(size, 16) {
        Some(0) => Part::Trailer,
        Some(size) => Part::Chunk { left: size.saturating_add(2) },
        None => Part::Lost,
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes after watching, fed in pieces of every size.
    fn watched(text: &str) -> Vec<String> {
        (1..=text.len())
            .map(|size| {
                let mut framing = Framing::default();
                let mut bytes = text.as_bytes().to_vec();
                bytes.chunks_mut(size).for_each(|piece| assert_eq!(framing.watch(piece), 0));
                String::from_utf8(bytes).unwrap()
            })
            .collect()
    }

    #[test]
    fn a_bare_lf_in_a_head_is_turned_into_nul() {
        for text in [
            "POST / HTTP/1.1\nHost: h\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\nContent-Length: 5\r\n\r\nhello",
            "POST / HTTP/1.1\r\nHost: h\r\n\n",
            "\nPOST / HTTP/1.1\r\nHost: h\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\nHost: h\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na\n\r\n0\r\n\r\nGET / HTTP/1.1\nHost: h\r\n\r\n",
        ] {
            assert!(watched(text).iter().all(|seen| seen.matches('\0').count() == 1), "{text:?}");
        }
    }

    #[test]
    fn a_second_framing_ends_in_nul() {
        let framings =
            ["Content-Length: 2", "content-length:2", "Transfer-Encoding: chunked", "TRANSFER-ENCODING: x"];
        for (one, other) in framings.iter().flat_map(|one| framings.map(|other| (one, other))) {
            let text = format!("POST / HTTP/1.1\r\n{one}\r\nHost: h\r\n{other}\r\n\r\nhi");
            let refused = format!("POST / HTTP/1.1\r\n{one}\r\nHost: h\r\n{other}\r\0\r\nhi");
            assert!(watched(&text).iter().all(|seen| *seen == refused), "{text:?}");
        }
    }

    #[test]
    fn a_bare_lf_in_a_chunk_size_line_is_left_to_hyper() {
        let text = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\nb\r\nx\r\n0\r\n\r\n";
        assert!(watched(text).iter().all(|seen| seen == text));
    }

    #[test]
    fn a_lf_in_a_body_stays() {
        for text in [
            "POST / HTTP/1.1\r\nContent-Length: 6\r\n\r\na\nb\n\nc",
            "POST / HTTP/1.1\r\ncontent-length:6\r\n\r\na\nb\n\ncPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n\n\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\na\n\n\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        ] {
            assert!(watched(text).iter().all(|seen| seen == text), "{text:?}");
        }
    }

    #[test]
    fn a_long_header_line_does_not_hide_a_length() {
        let text =
            format!("POST / HTTP/1.1\r\nX: {}\r\nContent-Length: 2\r\n\r\n\n\nGET /\n", "y".repeat(500));
        assert!(
            watched(&text).iter().all(|seen| seen.matches('\0').count() == 1 && seen.ends_with("GET /\0"))
        );
    }

    const ASKING: &str = "GET /ws HTTP/1.1\r\nupgrade: websocket\r\nConnection: upgrade\r\n\r\n";

    /// What is read of a connection until nothing more comes, and the connection.
    fn read_all(watched: &mut Watched<&[u8]>) -> String {
        let (mut read, mut cx) = (Vec::new(), Context::from_waker(std::task::Waker::noop()));
        loop {
            let mut bytes = [0; 7];
            let mut buf = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *watched).poll_read(&mut cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => read.extend_from_slice(buf.filled()),
                _ => return String::from_utf8(read).unwrap(),
            }
        }
    }

    #[test]
    fn behind_a_request_for_another_protocol_nothing_is_read_before_its_answer() {
        let text = format!("{ASKING}a\nb\n\nc");
        let mut watched = Watched::new(text.as_bytes(), Arc::default());
        assert_eq!(read_all(&mut watched), ASKING);
        let (rest, watch) = watched.into_parts();
        assert_eq!([watch.held(), rest].concat(), b"a\nb\n\nc", "and nothing of it is touched");
    }

    #[test]
    fn what_stays_http_is_watched_on() {
        let next = "GET /b HTTP/1.1\nHost: h\r\n\r\n";
        let text = format!("{ASKING}{ASKING}{next}");
        let switch: Arc<Switch> = Arc::default();
        let mut watched = Watched::new(text.as_bytes(), switch.clone());
        for _ in 0..2 {
            assert_eq!(read_all(&mut watched), ASKING);
            let (mut request, mut refused) = (http::Request::new(()), http::Response::new(()));
            switch.answered(hyper::upgrade::on(&mut request), &mut refused);
        }
        // Its end follows the piece that was spoilt.
        let read = read_all(&mut watched);
        assert_eq!(read.replacen("\r\n\r\n", "", 1), next.replacen('\n', "\0", 1));
        assert!(read.starts_with("GET /b HTTP/1.1\0"));
    }

    #[test]
    fn a_request_with_a_body_asks_for_nothing() {
        let text = ASKING.replace("\r\n\r\n", "\r\nContent-Length: 1\r\n\r\nxGET / HTTP/1.1\r\n\r\n");
        assert_eq!(read_all(&mut Watched::new(text.as_bytes(), Arc::default())), text);
    }
}
