//! Answers that come in pieces: H3 and H13, and who stops in the middle (C49).

use std::io::Write;
use std::sync::{Arc, Mutex, mpsc};

use crate::assert::{refused, unknown};
use crate::support::{Call, Gateway, until};
use crate::wire::{self, CHUNKED, Wire};

const PIECE: usize = 10 * 1024;

/// Five pieces of 10 KiB, each of its own letter; the next one is written when the test says so.
fn pieces(break_at: Option<usize>) -> (Wire, mpsc::Sender<()>) {
    let (next, steps) = mpsc::channel();
    let steps = Mutex::new(steps);
    let wire = Wire::start(move |_, stream| {
        let _ = stream.write_all(CHUNKED);
        for number in 0..5 {
            if break_at == Some(number) || steps.lock().unwrap().recv().is_err() {
                return;
            }
            let _ = wire::chunk(stream, &[b'a' + number as u8; PIECE]);
        }
        let _ = stream.write_all(b"0\r\n\r\n");
    });
    (wire, next)
}

fn whole() -> Vec<u8> {
    (0..5).flat_map(|number| [b'a' + number; PIECE]).collect()
}

#[test]
fn c49_a_streamed_answer_is_replayed_whole() {
    let (wire, next) = pieces(None);
    let gateway = Gateway::start(wire.address, &[]);
    let call = Call::post("/stream", "streamed");
    let first = gateway.call_aside(&call);
    (0..5).for_each(|_| next.send(()).unwrap());
    assert_eq!(first.join().unwrap().body, whole());
    let again = gateway.call(&call);
    assert!(again.is_replay());
    assert_eq!((again.body, wire.requests()), (whole(), 1));
}

#[test]
fn c49_a_client_that_stops_reading_changes_nothing() {
    let (wire, next) = pieces(None);
    let gateway = Gateway::start(wire.address, &[]);
    let call = Call::post("/stream", "stopped");
    let mut client = gateway.connect();
    client.send(&call.bytes()).unwrap();
    (0..2).for_each(|_| next.send(()).unwrap());
    until("the service has the request", || (wire.requests() == 1).then_some(()));
    drop(client);
    (0..3).for_each(|_| next.send(()).unwrap());
    let again =
        until("the record is whole", || Some(gateway.call(&call)).filter(|answer| answer.status == 200));
    assert!(again.is_replay());
    assert_eq!((again.body, wire.requests()), (whole(), 1));
}

#[test]
fn c49_a_stream_that_breaks_is_no_success() {
    let (wire, next) = pieces(Some(3));
    let gateway = Gateway::start(wire.address, &[]);
    let call = Call::post("/stream", "broken");
    let first = gateway.call_aside(&call);
    (0..3).for_each(|_| next.send(()).unwrap());
    refused(&first.join().unwrap(), 502, "outcome-unknown", true, "unknown");
    unknown(&gateway.call(&call));
    assert_eq!(wire.requests(), 1);
}

#[test]
fn c49_a_large_stream_passes_in_constant_memory() {
    const MIB: usize = 1024 * 1024;
    let long = std::env::var_os("SEMEL_LONG").is_some();
    let total = if long { 1024 * MIB } else { 128 * MIB };
    let wire = Wire::start(move |_, stream| {
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n");
        let piece = vec![b'z'; MIB];
        let _ = (0..total / MIB).try_for_each(|_| stream.write_all(&piece));
    });
    let gateway = Gateway::start(wire.address, &[]);
    gateway.admin("/healthz");
    let before = gateway.memory_kib();
    let call = Call::post("/export", "large");
    let mut client = gateway.connect();
    client.send(&call.bytes()).unwrap();
    let (status, headers) = client.receive_head().unwrap();
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-length".to_owned(), total.to_string())));
    // Completed before the first byte went out: a retry meanwhile neither runs nor waits.
    refused(&gateway.call(&call), 410, "response-not-kept", false, "done");
    let mut peak = 0;
    for _ in 0..total / (16 * MIB) {
        assert_eq!(client.receive_bytes(16 * MIB).unwrap().len(), 16 * MIB);
        peak = peak.max(gateway.memory_kib());
    }
    // What the allocator keeps of freed buffers is in it too.
    assert!(peak < before + 16 * 1024, "{before} KiB grew to {peak} KiB");
    assert_eq!(wire.requests(), 1);
}

#[test]
fn h13_a_first_caller_that_hangs_up_in_a_large_answer_leaves_it_completed() {
    let wire = Wire::start(|_, stream| {
        let _ =
            stream.write_all(b"HTTP/1.1 201 Created\r\nLocation: /e/1\r\nContent-Length: 90000000\r\n\r\n");
        let piece = vec![b'z'; 1024 * 1024];
        while stream.write_all(&piece).is_ok() {}
    });
    let gateway = Gateway::start(wire.address, &[]);
    let call = Call::post("/export", "hung-up");
    let mut client = gateway.connect();
    client.send(&call.bytes()).unwrap();
    assert_eq!(client.receive_head().unwrap().0, 201);
    drop(client);
    let again = gateway.call(&call);
    refused(&again, 410, "response-not-kept", false, "done");
    assert_eq!((again.header("location"), wire.requests()), (Some("/e/1"), 1));
}

#[test]
fn h3_an_event_stream_completes_the_key_without_a_body() {
    let (next, steps) = mpsc::channel::<()>();
    let steps = Arc::new(Mutex::new(steps));
    let wire = Wire::start(move |_, stream| {
        let head =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head).unwrap();
        wire::chunk(stream, b"data: 1\n\n").unwrap();
        steps.lock().unwrap().recv().unwrap();
        wire::chunk(stream, b"data: 2\n\n").unwrap();
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let gateway = Gateway::start(wire.address, &[]);
    let call = Call::post("/events", "events");
    let mut client = gateway.connect();
    client.send(&call.bytes()).unwrap();
    assert_eq!(client.receive_head().unwrap().0, 200);
    assert_eq!(client.receive_bytes(14).unwrap(), b"9\r\ndata: 1\n\n\r\n", "at once, not at its end");
    refused(&gateway.call(&call), 410, "response-not-kept", false, "done");
    next.send(()).unwrap();
    assert_eq!(client.receive_bytes(19).unwrap(), b"9\r\ndata: 2\n\n\r\n0\r\n\r\n");
    assert_eq!(wire.requests(), 1);
}
