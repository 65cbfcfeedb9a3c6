//! A service that writes bytes as the test says, where a planned reply is not enough: streams, pauses, breaks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Such a service: one request for each connection.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Wire {
    /// Gives each request's number, from 1, and its connection to `answer`; then the connection is closed.
    pub(crate) fn start(answer: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let requests = Arc::new(AtomicUsize::new(0));
        let (counted, answer) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (counted, answer) = (counted.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &counted, &*answer));
            }
        });
        Wire { address, requests }
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, requests: &AtomicUsize, answer: &(impl Fn(usize, &mut TcpStream) + ?Sized)) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut length = 0;
    loop {
        let mut line = String::new();
        match reader.read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line == "\r\n" => break,
            Ok(_) => {}
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    answer(requests.fetch_add(1, Ordering::SeqCst) + 1, &mut stream);
}

/// One chunk of a chunked body.
pub(crate) fn chunk(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let framed = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    stream.write_all(&framed)
}

/// A head that promises chunks.
pub(crate) const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
