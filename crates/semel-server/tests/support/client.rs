//! HTTP/1.1 as bytes: a client that sends what it is told and shows what it got.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::DEADLINE;

/// One connection. Nothing is sent or read but what the test asks for.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

/// A request, before it is bytes.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A response as it came: header lines in order, names in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Exactly these bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// A request, and its response.
    pub(crate) fn call(&mut self, call: &Call) -> io::Result<Answer> {
        self.send(&call.bytes())?;
        self.receive_for(&call.method)
    }

    /// The response to a request that was no HEAD; an interim one (100) counts as one.
    pub(crate) fn receive(&mut self) -> io::Result<Answer> {
        self.receive_for("POST")
    }

    /// The response to a request of that method.
    pub(crate) fn receive_for(&mut self, method: &str) -> io::Result<Answer> {
        let (status, headers) = self.receive_head()?;
        let mut answer = Answer { status, headers, body: Vec::new() };
        if method != "HEAD" && !matches!(status, 100..=199 | 204 | 304) {
            answer.body = self.receive_body(&answer)?;
        }
        Ok(answer)
    }

    /// Status and header lines, and not a byte of the body.
    pub(crate) fn receive_head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| broken(&format!("no status line: {first:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok((status, headers));
            }
            let (name, value) =
                line.split_once(':').ok_or_else(|| broken(&format!("no header: {line:?}")))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    fn receive_body(&mut self, head: &Answer) -> io::Result<Vec<u8>> {
        if head.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return self.receive_chunks();
        }
        let mut body = Vec::new();
        match head.header("content-length") {
            Some(length) => {
                body.resize(length.parse().map_err(|_| broken("no length"))?, 0);
                self.stream.read_exact(&mut body)?;
            }
            None => drop(self.stream.read_to_end(&mut body)?),
        }
        Ok(body)
    }

    fn receive_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = self.line()?;
            let size = size.split(';').next().unwrap_or_default().trim().to_owned();
            let size = usize::from_str_radix(&size, 16).map_err(|_| broken("no chunk size"))?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            let start = body.len();
            body.resize(start + size, 0);
            self.stream.read_exact(&mut body[start..])?;
            self.line()?;
        }
    }

    /// So many bytes of whatever comes, or fewer at the end.
    pub(crate) fn receive_bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.by_ref().take(count as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Everything until the other side closes.
    pub(crate) fn receive_to_end(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            // What was not read by the other side makes its close a reset.
            Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error),
            _ => Ok(bytes),
        }
    }

    /// Whether the other side has closed, or does so within the deadline, without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.fill_buf() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Nothing more will be sent.
    pub(crate) fn end_sending(&mut self) -> io::Result<()> {
        self.stream.get_ref().shutdown(Shutdown::Write)
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\r\n") else {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection ended within a head"));
        };
        Ok(String::from_utf8_lossy(line).into_owned())
    }
}

impl Call {
    pub(crate) fn new(method: &str, target: &str) -> Call {
        Call { method: method.to_owned(), target: target.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    /// A POST with a key in quotes.
    pub(crate) fn post(target: &str, key: &str) -> Call {
        Call::new("POST", target).header("Idempotency-Key", &format!("\"{key}\""))
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Call {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Call {
        self.body = body.as_ref().to_vec();
        self
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    pub(crate) fn body_bytes(&self) -> &[u8] {
        &self.body
    }

    /// Host and Content-Length are added where they are not given.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let given = |name: &str| self.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !given("host") {
            text += "Host: shop.example\r\n";
        }
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        let bodiless = self.body.is_empty() && matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS");
        if !bodiless && !given("content-length") && !given("transfer-encoding") {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        [text.as_bytes(), b"\r\n", &self.body].concat()
    }
}

impl Answer {
    /// The first line of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(line, _)| line == name).map(|(_, value)| value.as_str())
    }

    /// All lines of that name.
    pub(crate) fn header_lines(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(line, _)| line == name).map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The body as JSON; null where it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The stable code of a problem document; empty where it is none.
    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn broken(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.to_owned())
}
