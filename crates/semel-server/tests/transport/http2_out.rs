//! HTTP/2 towards the service: what is certainly not processed, and what is unknown (H11, G4).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::Duration;

use crate::frames::{CANCEL, ENHANCE_YOUR_CALM, Frames, NO_ERROR, REFUSED_STREAM, Request, Then};
use crate::support::{Answer, Call, Gateway, Service};

/// A gateway in front of it. One worker, so that all its requests may share a connection.
fn before(frames: &Frames) -> Gateway {
    Gateway::start(frames.address, &["--upstream-http", "2", "--workers", "1"])
}

/// A service that does this with its first request, and answers all others.
fn first(then: impl Fn(&Request<'_>) -> std::io::Result<Then> + Send + Sync + 'static) -> (Frames, Gateway) {
    let frames = Frames::start(move |request| if request.number == 1 { then(request) } else { request.ok() });
    let gateway = before(&frames);
    (frames, gateway)
}

#[track_caller]
fn certainly_not_processed(frames: &Frames, gateway: &Gateway) {
    let call = Call::post("/charges", "k").body("amount=1");
    let answer = gateway.call(&call);
    assert_eq!((answer.status, answer.code().as_str()), (502, "upstream-unreachable"), "{}", answer.text());
    assert_eq!((&answer.json()["effect"], &answer.json()["retryable"]), (&"none".into(), &true.into()));
    assert_eq!(frames.requests(), 1, "it is not sent again by itself");
    let record = gateway.operator().show("k").unwrap();
    assert_eq!((record.state.as_str(), record.attempts), ("released", 0));
    // The same key, at once.
    let answer = gateway.call(&call);
    assert_eq!((answer.status, answer.is_replay(), frames.requests()), (200, false, 2), "{}", answer.text());
    assert!(gateway.call(&call).is_replay());
}

#[track_caller]
fn unknown(frames: &Frames, gateway: &Gateway) -> Answer {
    let call = Call::post("/charges", "k").body("amount=1");
    let answer = gateway.call(&call);
    assert_eq!((answer.status, answer.code().as_str()), (502, "outcome-unknown"), "{}", answer.text());
    assert_eq!(answer.json()["effect"], "unknown");
    let again = gateway.call(&call);
    assert_eq!((again.status, again.code().as_str()), (409, "outcome-unknown"));
    assert_eq!(frames.requests(), 1, "nothing runs again by itself");
    answer
}

#[test]
fn h11_a_stream_that_is_refused_was_not_processed() {
    let (frames, gateway) = first(|request| request.reset(REFUSED_STREAM));
    certainly_not_processed(&frames, &gateway);
    assert_eq!(frames.connections(), 1);
}

#[test]
fn h11_a_stream_above_the_farewell_was_not_processed() {
    for reason in [NO_ERROR, ENHANCE_YOUR_CALM] {
        for then in [Then::GoOn, Then::Close] {
            let close = then == Then::Close;
            let (frames, gateway) = first(move |request| {
                request.go_away(0, reason)?;
                Ok(if close { Then::Close } else { Then::GoOn })
            });
            certainly_not_processed(&frames, &gateway);
            assert_eq!(frames.connections(), 2, "the next one goes by another connection");
        }
    }
}

#[test]
fn h11_a_stream_below_the_farewell_is_unknown_when_the_connection_ends() {
    for reason in [NO_ERROR, ENHANCE_YOUR_CALM, REFUSED_STREAM] {
        let (frames, gateway) = first(move |request| {
            request.go_away(request.stream, reason)?;
            Ok(Then::Close)
        });
        unknown(&frames, &gateway);
    }
}

#[test]
fn a_stream_below_the_farewell_is_answered_still() {
    let (frames, gateway) = first(|request| {
        request.go_away(request.stream, NO_ERROR)?;
        request.ok()
    });
    for key in ["one", "two"] {
        assert_eq!(gateway.call(&Call::post("/charges", key)).status, 200);
    }
    assert_eq!((frames.requests(), frames.connections()), (2, 2));
}

#[test]
fn h11_what_is_reset_or_cut_otherwise_is_unknown() {
    let (frames, gateway) = first(|request| request.reset(CANCEL));
    unknown(&frames, &gateway);
    let (frames, gateway) = first(|_| Ok(Then::Close));
    unknown(&frames, &gateway);
    // In the middle of its answer, which may have been going to say anything.
    let (frames, gateway) = first(|request| {
        request.head(false)?;
        request.data(b"don", false)?;
        Ok(Then::Close)
    });
    assert_eq!(unknown(&frames, &gateway).json()["upstream_status"], 200);
    let (frames, gateway) = first(|request| {
        request.head(false)?;
        request.reset(REFUSED_STREAM)
    });
    unknown(&frames, &gateway);
}

/// G4: it is not sent again without a key either.
#[test]
fn g4_without_a_key_a_refused_stream_is_unreachable_and_not_repeated() {
    let (frames, gateway) = first(|request| request.reset(REFUSED_STREAM));
    let answer = gateway.call(&Call::new("PUT", "/a").body("x"));
    assert_eq!((answer.status, answer.code().as_str()), (502, "upstream-unreachable"));
    assert_eq!(frames.requests(), 1);
}

#[test]
fn many_requests_share_a_connection() {
    const CALLERS: usize = 20;
    let waiting = Mutex::new(Vec::new());
    let frames = Frames::start(move |request| {
        // Answered when all of them are there, so they were there at the same time.
        let mut waiting = waiting.lock().unwrap();
        waiting.push(request.stream);
        if waiting.len() == CALLERS {
            for stream in waiting.drain(..) {
                request.on(stream).ok()?;
            }
        }
        Ok(Then::GoOn)
    });
    let gateway = before(&frames);
    std::thread::scope(|scope| {
        for number in 0..CALLERS {
            let gateway = &gateway;
            scope.spawn(move || {
                let answer = gateway.call(&Call::post("/charges", &format!("shared-{number}")));
                assert_eq!(answer.status, 200);
            });
        }
    });
    assert_eq!((frames.requests(), frames.connections()), (CALLERS, 1));
}

/// G4: a connection that the service closes while it is idle makes no unknown, whether it says farewell or not.
#[test]
fn g4_idle_connections_that_the_service_closes_make_no_unknown() {
    for farewell in [true, false] {
        let frames = Frames::start(move |request| {
            request.ok()?;
            if farewell {
                request.go_away(request.stream, NO_ERROR)?;
            }
            Ok(Then::Close)
        });
        let gateway = before(&frames);
        for number in 0..6 {
            let answer = gateway.call(&Call::post("/charges", &format!("quiet-{number}")));
            assert_eq!(answer.status, 200, "{}", answer.text());
            std::thread::sleep(Duration::from_millis(300));
        }
        assert_eq!((frames.requests(), frames.connections()), (6, 6));
    }
}

#[test]
fn g4_an_idle_connection_is_not_used_beyond_upstream_idle() {
    let frames = Frames::start(|request| request.ok());
    let args = ["--upstream-http", "2", "--workers", "1", "--upstream-idle", "100ms"];
    let gateway = Gateway::start(frames.address, &args);
    for number in 0..3 {
        assert_eq!(gateway.call(&Call::post("/charges", &format!("idle-{number}"))).status, 200);
        std::thread::sleep(Duration::from_millis(250));
    }
    assert_eq!(frames.connections(), 3);
}

/// A service of HTTP/1.1 that is taken for one of HTTP/2 by its settings: nothing was sent that it could act on.
#[test]
fn h11_a_service_that_does_not_speak_http2_was_sent_nothing() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &["--upstream-http", "2"]);
    let answer = gateway.call(&Call::post("/charges", "k"));
    assert_eq!((answer.code().as_str(), &answer.json()["effect"]), ("upstream-unreachable", &"none".into()));
    assert_eq!(service.ledger().effects("k"), 0);

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(silent.local_addr().unwrap(), &["--upstream-http", "2"]);
    let call = gateway.call_aside(&Call::post("/charges", "k"));
    let (mut stream, _) = silent.accept().unwrap();
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).unwrap();
    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    drop(stream);
    assert_eq!(call.join().unwrap().code(), "upstream-unreachable");
}
