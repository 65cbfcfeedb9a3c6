//! A service that does what the test says, one thread for each connection.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{DEADLINE, Ledger, Received};

/// A fake service with a ledger. Dropping it closes everything.
pub(crate) struct Service {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

/// What is done with one request, in this order.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Wait so long before the effect.
    pub(crate) delay: Duration,
    /// Wait until the test opens it, before the effect.
    pub(crate) gate: Option<Gate>,
    /// Take effect.
    pub(crate) effect: bool,
    /// Wait so long after it.
    pub(crate) delay_answer: Duration,
    pub(crate) reply: Reply,
    /// Close the connection after so many bytes of the answer, by a reset.
    pub(crate) cut_after: Option<usize>,
    /// Never answer; the connection stays open until the service goes.
    pub(crate) hang: bool,
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Written as they are.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// In chunks of 7 bytes, instead of with a Content-Length.
    pub(crate) chunked: bool,
    /// Instead of all of the above: exactly these bytes.
    pub(crate) raw: Option<Vec<u8>>,
    /// Put `{"effect":N}` into an empty body, so that each effect has an answer of its own.
    pub(crate) numbered: bool,
}

/// Closed until it is opened. Clones are the same gate.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

type Decide = Box<dyn Fn(&Received) -> Plan + Send + Sync>;

struct Shared {
    ledger: Ledger,
    decide: Mutex<Arc<Decide>>,
    /// Plans for the next requests, before `decide` is asked.
    next: Mutex<VecDeque<Plan>>,
    idle_for: Mutex<Duration>,
    refusing: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Service {
    /// A service that does this with each request.
    pub(crate) fn start(decide: impl Fn(&Received) -> Plan + Send + Sync + 'static) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            ledger: Ledger::default(),
            decide: Mutex::new(Arc::new(Box::new(decide))),
            next: Mutex::default(),
            idle_for: Mutex::new(Duration::from_secs(600)),
            refusing: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let accepting = Mutex::new(Some(shared.clone().accept_on(listener)));
        Service { shared, address, accepting }
    }

    /// A service that does the same with each request.
    pub(crate) fn doing(plan: Plan) -> Service {
        Service::start(move |_| plan.clone())
    }

    /// A service whose every request takes effect and is answered by 201 and the effect's number.
    pub(crate) fn plain() -> Service {
        Service::doing(Plan::default())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// From now on, do this.
    pub(crate) fn set(&self, decide: impl Fn(&Received) -> Plan + Send + Sync + 'static) {
        *self.shared.decide.lock().unwrap() = Arc::new(Box::new(decide));
    }

    /// Do this with the next request that nothing else was said for.
    pub(crate) fn next(&self, plan: Plan) {
        self.shared.next.lock().unwrap().push_back(plan);
    }

    /// Close connections that are idle for so long; those that are accepted from now on.
    pub(crate) fn close_idle(&self, after: Duration) {
        *self.shared.idle_for.lock().unwrap() = after;
    }

    /// Close every connection, and listen no longer.
    pub(crate) fn refuse(&self) {
        self.shared.refusing.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; it closes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.lock().unwrap().take() {
            let _ = accepting.join();
        }
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listen again, on the same address.
    pub(crate) fn accept_again(&self) {
        self.shared.refusing.store(false, Ordering::SeqCst);
        let listener = TcpListener::bind(self.address).expect("the same port");
        *self.accepting.lock().unwrap() = Some(self.shared.clone().accept_on(listener));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.refuse();
    }
}

impl Default for Plan {
    /// Takes effect, and answers 201 with the effect's number.
    fn default() -> Plan {
        Plan {
            delay: Duration::ZERO,
            gate: None,
            effect: true,
            delay_answer: Duration::ZERO,
            reply: Reply::numbered(),
            cut_after: None,
            hang: false,
        }
    }
}

impl Plan {
    /// An answer without an effect.
    pub(crate) fn without_effect(status: u16) -> Plan {
        Plan { effect: false, reply: Reply::new(status, "no effect"), ..Plan::default() }
    }

    /// Takes effect when the gate is opened.
    pub(crate) fn behind(gate: &Gate) -> Plan {
        Plan { gate: Some(gate.clone()), ..Plan::default() }
    }
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl AsRef<[u8]>) -> Reply {
        Reply { status, body: body.as_ref().to_vec(), ..Reply::default() }
    }

    pub(crate) fn numbered() -> Reply {
        Reply { status: 201, numbered: true, ..Reply::default() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn bytes(&self, effect: usize) -> Vec<u8> {
        if let Some(raw) = &self.raw {
            return raw.clone();
        }
        let mut head = format!("HTTP/1.1 {} Whatever\r\n", self.status);
        let mut body = self.body.clone();
        if self.numbered {
            head += "Content-Type: application/json\r\n";
            body = format!("{{\"effect\":{effect}}}").into_bytes();
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if self.chunked {
            head += "Transfer-Encoding: chunked\r\n";
            let chunks = body
                .chunks(7)
                .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
            body = chunks.chain(*b"0\r\n\r\n").collect();
        } else if !matches!(self.status, 204 | 304) {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        [head.as_bytes(), b"\r\n", &body].concat()
    }
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate::default()
    }

    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let end = Instant::now() + 4 * DEADLINE;
        let mut open = self.0.0.lock().unwrap();
        while !*open && Instant::now() < end {
            open = self.0.1.wait_timeout(open, end.saturating_duration_since(Instant::now())).unwrap().0;
        }
    }
}

impl Shared {
    fn accept_on(self: Arc<Shared>, listener: TcpListener) -> JoinHandle<()> {
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if self.refusing.load(Ordering::SeqCst) {
                    return;
                }
                let (shared, number) = (self.clone(), self.ledger.connected());
                if let Ok(clone) = stream.try_clone() {
                    let mut streams = self.streams.lock().unwrap();
                    // Those that ended are let go, or their sockets would stay open.
                    streams.retain(|stream| stream.take_error().is_ok() && stream.peer_addr().is_ok());
                    streams.push(clone);
                }
                std::thread::spawn(move || {
                    let _ = shared.serve(&stream, number);
                    let _ = stream.shutdown(Shutdown::Both);
                    shared.ledger.disconnected();
                });
            }
        })
    }

    fn serve(&self, stream: &TcpStream, connection: usize) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(*self.idle_for.lock().unwrap()))?;
        let mut reader = BufReader::new(stream);
        while let Some(received) = read_request(&mut reader, stream, connection)? {
            let received = self.ledger.receive(received);
            let planned = self.next.lock().unwrap().pop_front();
            let decide = self.decide.lock().unwrap().clone();
            let plan = planned.unwrap_or_else(|| decide(&received));
            let carried_out = self.carry_out(&plan, &received, stream);
            self.ledger.end();
            if plan.hang {
                hang(stream);
            }
            if !carried_out? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the connection goes on.
    fn carry_out(&self, plan: &Plan, received: &Received, mut stream: &TcpStream) -> io::Result<bool> {
        std::thread::sleep(plan.delay);
        if let Some(gate) = &plan.gate {
            gate.pass();
        }
        let effect = if plan.effect { self.ledger.effect(received) } else { 0 };
        std::thread::sleep(plan.delay_answer);
        if plan.hang {
            return Ok(false);
        }
        let bytes = plan.reply.bytes(effect);
        match plan.cut_after {
            None => {
                stream.write_all(&bytes)?;
                let closes = |(name, value): &(String, String)| {
                    name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close")
                };
                Ok(!plan.reply.headers.iter().any(closes))
            }
            Some(count) => {
                stream.write_all(&bytes[..count.min(bytes.len())])?;
                Ok(false)
            }
        }
    }
}

/// Waits for the other side's end.
fn hang(mut stream: &TcpStream) {
    let _ = stream.set_read_timeout(Some(4 * DEADLINE));
    let _ = stream.read(&mut [0]);
}

/// The next request; `None` when the other side has closed, or nothing came for as long as the connection may be
/// idle.
fn read_request(
    reader: &mut BufReader<&TcpStream>,
    mut stream: &TcpStream,
    connection: usize,
) -> io::Result<Option<Received>> {
    let Some(first) = line(reader)? else { return Ok(None) };
    let mut words = first.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    while let Some(line) = line(reader)?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut received = Received { method, target, headers, body: Vec::new(), earlier: 0, connection };
    if received.header("expect").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    received.body = read_body(reader, &received)?;
    Ok(Some(received))
}

fn read_body(reader: &mut BufReader<&TcpStream>, received: &Received) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if received.header("transfer-encoding").is_some() {
        loop {
            let size = line(reader)?.unwrap_or_default();
            let size = usize::from_str_radix(size.trim(), 16).map_err(|_| io::ErrorKind::InvalidData)?;
            let start = body.len();
            body.resize(start + size, 0);
            reader.read_exact(&mut body[start..])?;
            line(reader)?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    let length = received.header("content-length").map_or(Ok(0), str::parse);
    body.resize(length.map_err(|_| io::ErrorKind::InvalidData)?, 0);
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn line(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    match reader.read_until(b'\n', &mut line) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned())),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}
