//! What is not guarded streams in both directions, whatever is spoken on either side; trailers pass where both sides
//! know them (G2, H3).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, mpsc};

use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio::runtime::Runtime;

use crate::frames::{Frames, Then};
use crate::http2::Http2;
use crate::support::{Call, Gateway};

/// A gRPC service: answers with what it got, and ends with the caller's trailers and its status.
struct Grpc {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Grpc {
    fn start() -> Grpc {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        tokio::spawn(echo(request, respond));
                    }
                });
            }
        });
        Grpc { address, _runtime: runtime }
    }
}

async fn echo(request: http::Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>) {
    let te = request.headers().get("te").cloned();
    let mut body = request.into_body();
    let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut answer = respond.send_response(response, false).unwrap();
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
        answer.send_data(piece, false).unwrap();
    }
    let mut trailers = body.trailers().await.unwrap().unwrap_or_default();
    trailers.insert("grpc-status", "0".parse().unwrap());
    if let Some(te) = te {
        trailers.insert("x-te", te);
    }
    answer.send_trailers(trailers).unwrap();
}

#[test]
fn h3_grpc_passes_by_with_its_trailers_and_piece_by_piece() {
    let grpc = Grpc::start();
    let gateway = Gateway::start(grpc.address, &["--upstream-http", "2"]);
    let mut client = Http2::connect(gateway.listen);
    let call = Call::new("POST", "/shop.Charges/Watch").header("content-type", "application/grpc");
    for _ in 0..2 {
        let mut sent = client.begin(&call.clone().header("te", "trailers"), false).unwrap();
        sent.body.send_data(Bytes::from("first"), false).unwrap();
        let mut body = sent.body;
        let mut coming = client.head_of(sent.response).unwrap();
        assert_eq!(coming.status, 200);
        assert_eq!(client.piece(&mut coming).unwrap().unwrap(), "first", "before the request has ended");
        body.send_data(Bytes::from("second"), false).unwrap();
        assert_eq!(client.piece(&mut coming).unwrap().unwrap(), "second");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "7".parse().unwrap());
        body.send_trailers(trailers).unwrap();
        assert_eq!(client.piece(&mut coming).unwrap(), None);
        let trailers = client.trailers(&mut coming).unwrap().expect("trailers");
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(trailers["x-checksum"], "7");
        assert_eq!(trailers["x-te"], "trailers");
    }
}

#[test]
fn an_event_stream_passes_piece_by_piece_from_http1_to_http2() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        // The request's body, as far as it has come.
        let mut piece = [0; 10];
        reader.read_exact(&mut piece).unwrap();
        assert_eq!(&piece, b"5\r\nfirst\r\n");
        let head =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head).unwrap();
        stream.write_all(b"9\r\ndata: 1\n\n\r\n").unwrap();
        let mut rest = [0; 16];
        reader.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"6\r\nsecond\r\n0\r\n\r\n");
        stream.write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n").unwrap();
    });
    let gateway = Gateway::start(address, &[]);
    let mut client = Http2::connect(gateway.listen);
    let mut sent = client.begin(&Call::new("PUT", "/events"), false).unwrap();
    sent.body.send_data(Bytes::from("first"), false).unwrap();
    let mut body = sent.body;
    let mut coming = client.head_of(sent.response).unwrap();
    assert_eq!(client.piece(&mut coming).unwrap().unwrap(), "data: 1\n\n");
    body.send_data(Bytes::from("second"), true).unwrap();
    assert_eq!(client.piece(&mut coming).unwrap().unwrap(), "data: 2\n\n");
    assert!(client.piece(&mut coming).unwrap().is_none_or(|end| end.is_empty()));
    service.join().unwrap();
}

#[test]
fn a_stream_passes_piece_by_piece_from_http2_to_http1() {
    let (next, steps) = mpsc::channel::<()>();
    let steps = Mutex::new(steps);
    let frames = Frames::start(move |request| {
        request.head(false)?;
        request.data(b"first", false)?;
        steps.lock().unwrap().recv().unwrap();
        request.data(b"second", true)?;
        Ok(Then::GoOn)
    });
    let gateway = Gateway::start(frames.address, &["--upstream-http", "2"]);
    let mut client = gateway.connect();
    client.send(&Call::new("GET", "/stream").bytes()).unwrap();
    assert_eq!(client.receive_head().unwrap().0, 200);
    assert_eq!(client.receive_bytes(10).unwrap(), b"5\r\nfirst\r\n");
    next.send(()).unwrap();
    assert_eq!(client.receive_bytes(16).unwrap(), b"6\r\nsecond\r\n0\r\n\r\n");
}
