//! A connection that does nothing but be there: whoever holds many leaves none for others.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

/// A client that is connected and waits. Its connection ends when it is dropped.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "held, never used")] Client);

#[derive(Debug)]
enum Client {
    Program(#[expect(dead_code, reason = "held, never used")] Program),
    Stream(#[expect(dead_code, reason = "held, never used")] TcpStream),
}

#[derive(Debug)]
struct Program(Child);

impl Held {
    /// Starts a client that reads statements from its standard input, and has it run one. Nothing when the server
    /// refused it.
    pub(crate) fn by(mut client: Command, statement: &str) -> Option<Held> {
        let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut held = Program(client.spawn().expect("a client of the server"));
        let mut input = held.0.stdin.take().expect("a pipe");
        let mut answers = BufReader::new(held.0.stdout.take().expect("a pipe"));
        writeln!(input, "{statement}").ok()?;
        input.flush().ok()?;
        let mut line = String::new();
        // Else it was refused, and says so elsewhere or in other words.
        let is_connected = answers.read_line(&mut line).is_ok() && line.trim() == "1";
        held.0.stdin = Some(input);
        held.0.stdout = Some(answers.into_inner());
        is_connected.then_some(Held(Client::Program(held)))
    }

    /// For Redis, whose own client keeps its answers back while nobody sees them.
    pub(crate) fn by_ping(address: SocketAddr) -> Option<Held> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(crate::DEADLINE)).ok()?;
        stream.write_all(b"PING\r\n").ok()?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).ok()?;
        line.starts_with("+PONG").then_some(Held(Client::Stream(stream)))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
