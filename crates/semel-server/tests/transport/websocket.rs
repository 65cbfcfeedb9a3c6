//! Connections that change to WebSocket: G2, G6, H3.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use crate::bridge::Bridge;
use crate::certificates::Authority;
use crate::support::{Call, Client, Gateway, Launch, Service, until};

const SWITCHES: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// A service that answers each head with these bytes, and everything behind it with itself.
struct Echo {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    fn start(answer: &'static [u8]) -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let seen = seen.clone();
                std::thread::spawn(move || echo(stream, answer, &seen));
            }
        });
        Echo { address, heads }
    }
}

fn echo(mut stream: TcpStream, answer: &[u8], seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    seen.lock().unwrap().push(head.to_ascii_lowercase());
    stream.write_all(answer)?;
    let mut bytes = [0; 4096];
    loop {
        match reader.read(&mut bytes)? {
            0 => return stream.shutdown(std::net::Shutdown::Write),
            count => stream.write_all(&bytes[..count])?,
        }
    }
}

fn asking() -> Call {
    Call::new("GET", "/ws")
        .header("Connection", "keep-alive, Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

#[track_caller]
fn echoes(client: &mut Client, text: &[u8]) {
    client.send(text).unwrap();
    assert_eq!(client.receive_bytes(text.len()).unwrap(), text);
}

/// Bytes that the watch for HTTP would change if it were still there.
const LIKE_HTTP: &[u8] =
    b"GET / HTTP/1.1\nHost: h\n\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n\x81\x05hello";

#[test]
fn h3_a_websocket_passes_by_and_nothing_touches_what_it_carries() {
    let echo = Echo::start(SWITCHES);
    let gateway = Gateway::start(echo.address, &[]);
    let mut client = gateway.connect();
    client.send(&asking().bytes()).unwrap();
    let (status, headers) = client.receive_head().unwrap();
    assert_eq!(status, 101);
    let header = |name: &str| headers.iter().find(|(line, _)| line == name).map(|(_, value)| value.as_str());
    assert_eq!((header("connection"), header("upgrade")), (Some("upgrade"), Some("websocket")));
    assert_eq!(header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    let head = echo.heads.lock().unwrap()[0].clone();
    for line in ["\r\nconnection: upgrade\r\n", "\r\nupgrade: websocket\r\n", "\r\nsec-websocket-key: dghl"] {
        assert!(head.contains(line), "{line} in {head}");
    }
    for _ in 0..3 {
        echoes(&mut client, LIKE_HTTP);
    }
    client.end_sending().unwrap();
    assert!(client.is_closed(), "the end passes too, both ways");
}

#[test]
fn what_is_sent_before_the_answer_arrives_untouched() {
    let echo = Echo::start(SWITCHES);
    let gateway = Gateway::start(echo.address, &[]);
    let mut client = gateway.connect();
    client.send(&[&asking().bytes(), LIKE_HTTP].concat()).unwrap();
    assert_eq!(client.receive_head().unwrap().0, 101);
    assert_eq!(client.receive_bytes(LIKE_HTTP.len()).unwrap(), LIKE_HTTP);
    echoes(&mut client, LIKE_HTTP);
}

#[test]
fn a_websocket_passes_through_tls_on_both_sides() {
    let echo = Echo::start(SWITCHES);
    let authority = Authority::new("us");
    let own = authority.issue(&["localhost"]);
    // The service would choose HTTP/2, which has no such change: it is not offered.
    let behind = Bridge::from_tls(echo.address, own.server(&["h2", "http/1.1"]));
    let launch =
        Launch::new(behind.address).upstream(&format!("https://localhost:{}", behind.address.port()));
    let file = authority.file(launch.directory());
    let args = own.args(launch.directory());
    let launch = launch.args(args.iter().map(String::as_str)).args(["--upstream-ca", file.to_str().unwrap()]);
    let gateway = launch.start();
    let before = Bridge::to_tls(gateway.listen, authority.client(&["http/1.1"], None));
    let mut client = Client::connect(before.address).unwrap();
    client.send(&asking().bytes()).unwrap();
    assert_eq!(client.receive_head().unwrap().0, 101);
    echoes(&mut client, LIKE_HTTP);
}

/// G6: an open tunnel is waited for like everything else that is under way.
#[test]
fn g6_told_to_stop_it_carries_a_websocket_to_its_end() {
    let echo = Echo::start(SWITCHES);
    let mut gateway = Gateway::start(echo.address, &[]);
    let mut client = gateway.connect();
    client.send(&asking().bytes()).unwrap();
    assert_eq!(client.receive_head().unwrap().0, 101);
    gateway.send(Signal::TERM);
    until("new connections are refused", || Client::connect(gateway.listen).err());
    echoes(&mut client, LIKE_HTTP);
    assert!(gateway.ended().is_none(), "it waits for what is open");
    drop(client);
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn g6_a_websocket_that_does_not_end_is_cut_at_the_limit() {
    let echo = Echo::start(SWITCHES);
    let mut gateway = Gateway::start(echo.address, &["--drain-for", "100ms"]);
    let mut client = gateway.connect();
    client.send(&asking().bytes()).unwrap();
    assert_eq!(client.receive_head().unwrap().0, 101);
    gateway.send(Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(client.is_closed());
}

/// Whatever the service answers, what follows on the connection is HTTP, and watched.
#[test]
fn a_service_that_does_not_switch_leaves_http_as_it_was() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let mut client = gateway.connect();
    for _ in 0..2 {
        assert_eq!(client.call(&asking()).unwrap().status, 201);
    }
    client
        .send(&[&asking().bytes(), &asking().bytes()[..], b"GET / HTTP/1.1\nHost: h\n\n"].concat())
        .unwrap();
    for expected in [201, 201, 400] {
        assert_eq!(client.receive().unwrap().status, expected);
    }
    assert!(client.is_closed());
    assert_eq!(service.ledger().received_count(), 4);
}

#[test]
fn a_switch_that_nobody_asked_for_is_no_answer() {
    let others: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    for (answer, call) in [
        (others, asking()),
        (SWITCHES, Call::new("GET", "/ws")),
        (SWITCHES, asking().header("Upgrade", "h2c")),
        (SWITCHES, Call::post("/ws", "k").header("Connection", "upgrade").header("Upgrade", "websocket")),
    ] {
        let gateway = Gateway::start(Echo::start(answer).address, &[]);
        let refused = gateway.call(&call);
        assert_eq!((refused.status, refused.code().as_str()), (502, "outcome-unknown"));
    }
}
