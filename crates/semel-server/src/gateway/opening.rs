//! The first bytes of a connection in clear text: HTTP/2 with prior knowledge begins with its preface (RFC 9113,
//! section 3.4), everything else is read as HTTP/1.1.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::tap::{Tap, Tapped};

const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first byte of a TLS handshake (RFC 8446, section 5.1), and of no request.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a caller speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// Reads as many bytes as it takes to tell, and gives them back to whoever reads on.
///
/// # Errors
///
/// The caller says nothing, or speaks TLS; an answer in clear text would tell it nothing.
pub async fn read<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(Protocol, Opened<S>)> {
    let (mut first, mut count) = ([0; PREFACE.len()], 0);
    loop {
        let read = stream.read(&mut first[count..]).await?;
        if count + read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first[0] == TLS_HANDSHAKE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "TLS, where none is spoken"));
        }
        count += read;
        let protocol = match &first[..count] {
            all if all == PREFACE => Protocol::Http2,
            some if read > 0 && PREFACE.starts_with(some) => continue,
            _ => Protocol::Http1,
        };
        return Ok((protocol, Tapped::by(stream, First { bytes: first, next: 0, count })));
    }
}

/// A stream whose first bytes have been read, and are read again.
pub type Opened<S> = Tapped<S, First>;

/// Those bytes, and how many of them were read again.
#[derive(Debug)]
pub struct First {
    bytes: [u8; PREFACE.len()],
    next: usize,
    count: usize,
}

impl Tap for First {
    fn read<S: AsyncRead + Unpin>(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.next == self.count {
            return Pin::new(inner).poll_read(cx, buf);
        }
        let end = self.count.min(self.next + buf.remaining());
        buf.put_slice(&self.bytes[self.next..end]);
        self.next = end;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};

    /// The protocol, and what whoever reads on gets; sent in pieces of every size.
    async fn opened(text: &[u8]) -> Vec<(io::Result<Protocol>, Vec<u8>)> {
        let mut all = Vec::new();
        for size in 1..=text.len().max(1) {
            let (ours, mut theirs) = duplex(size);
            let text = text.to_vec();
            tokio::spawn(async move { theirs.write_all(&text).await });
            match read(ours).await {
                Ok((protocol, mut stream)) => {
                    let mut rest = Vec::new();
                    stream.read_to_end(&mut rest).await.unwrap();
                    all.push((Ok(protocol), rest));
                }
                Err(error) => all.push((Err(error), Vec::new())),
            }
        }
        all
    }

    #[tokio::test]
    async fn the_preface_is_http2_and_all_else_http1_and_no_byte_is_lost() {
        let preface = [&PREFACE[..], b"\0\0\0\x04\0\0\0\0\0"].concat();
        let texts: [(&[u8], Protocol); 6] = [
            (&preface, Protocol::Http2),
            (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", Protocol::Http1),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", Protocol::Http1),
            (b"PUT / HTTP/1.1\r\n\r\n", Protocol::Http1),
            (b"PRI", Protocol::Http1),
            (b"\r\nP", Protocol::Http1),
        ];
        for (text, expected) in texts {
            for (protocol, rest) in opened(text).await {
                assert_eq!((protocol.unwrap(), rest), (expected, text.to_vec()));
            }
        }
    }

    #[tokio::test]
    async fn silence_and_tls_are_neither() {
        for text in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
            assert!(opened(text).await.iter().all(|(protocol, _)| protocol.is_err()));
        }
    }
}
