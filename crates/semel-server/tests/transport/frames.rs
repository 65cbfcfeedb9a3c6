//! A service that speaks HTTP/2 frame by frame, as the test says: resets, farewells, and what breaks.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// Such a service. It answers a request when the request has ended.
pub(crate) struct Frames {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

/// A request, by its number from 1 and its stream; and the connection it came on.
pub(crate) struct Request<'a> {
    pub(crate) number: usize,
    pub(crate) stream: u32,
    socket: &'a TcpStream,
}

/// What follows.
#[derive(Debug, PartialEq)]
pub(crate) enum Then {
    GoOn,
    Close,
}

impl Frames {
    pub(crate) fn start(answer: impl Fn(&Request<'_>) -> io::Result<Then> + Send + Sync + 'static) -> Frames {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, connected, answer) = (requests.clone(), connections.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                connected.fetch_add(1, Ordering::SeqCst);
                let (counted, answer) = (counted.clone(), answer.clone());
                std::thread::spawn(move || serve(&socket, &counted, &*answer));
            }
        });
        Frames { address, requests, connections }
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Request<'_> {
    /// Another one on the same connection.
    pub(crate) fn on(&self, stream: u32) -> Request<'_> {
        Request { stream, ..*self }
    }

    pub(crate) fn reset(&self, reason: u32) -> io::Result<Then> {
        frame(self.socket, RST_STREAM, 0, self.stream, &reason.to_be_bytes())?;
        Ok(Then::GoOn)
    }

    /// A farewell: what lies above `last` was not processed.
    pub(crate) fn go_away(&self, last: u32, reason: u32) -> io::Result<Then> {
        frame(self.socket, GOAWAY, 0, 0, &[last.to_be_bytes(), reason.to_be_bytes()].concat())?;
        Ok(Then::GoOn)
    }

    /// 200, and perhaps a body after it.
    pub(crate) fn head(&self, ends: bool) -> io::Result<Then> {
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        // Number 8 of the static table: `:status: 200` (RFC 7541, appendix A).
        frame(self.socket, HEADERS, flags, self.stream, &[0x88])?;
        Ok(Then::GoOn)
    }

    pub(crate) fn data(&self, bytes: &[u8], ends: bool) -> io::Result<Then> {
        frame(self.socket, DATA, if ends { END_STREAM } else { 0 }, self.stream, bytes)?;
        Ok(Then::GoOn)
    }

    pub(crate) fn ok(&self) -> io::Result<Then> {
        self.head(false)?;
        self.data(b"done", true)
    }
}

fn serve(
    mut socket: &TcpStream,
    requests: &AtomicUsize,
    answer: &(impl Fn(&Request<'_>) -> io::Result<Then> + ?Sized),
) -> io::Result<()> {
    let _ = socket.set_nodelay(true);
    let mut preface = [0; 24];
    socket.read_exact(&mut preface)?;
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame(socket, SETTINGS, 0, 0, &[])?;
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload)?;
        match kind {
            SETTINGS if flags & ACK == 0 => frame(socket, SETTINGS, ACK, 0, &[])?,
            PING if flags & ACK == 0 => frame(socket, PING, ACK, 0, &payload)?,
            HEADERS | DATA if flags & END_STREAM != 0 => {
                let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
                if answer(&Request { number, stream, socket })? == Then::Close {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
}

fn frame(mut socket: &TcpStream, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    socket.write_all(&[length, &[kind, flags], &stream.to_be_bytes(), payload].concat())
}
