//! One caller's connection, from its first byte to its last.
//!
//! 1. What it speaks: over TLS what was agreed on, in clear text what its first bytes say. HTTP/1.1 and HTTP/2 on the
//!    same address.
//! 2. It may be slow to begin, slow to send a head, and idle, only so long; a caller that stops reading ends it.
//! 3. Told to stop, it finishes what it carries and takes nothing new.
//! 4. An HTTP/1.1 connection that has switched to another protocol is still this connection: it keeps its place, and
//!    stopping waits for it.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::answer;
use super::framing::Watched;
use super::front::Caller;
use super::opening::{self, Protocol};
use super::stall::Moving;
use super::streams::{Streams, Verdict};
use super::switch::Switch;
use super::tunnel;
use super::worker::Shared;

/// How long a request's head may take to arrive, and a connection may be idle.
pub const HEAD_MAX: Duration = Duration::from_secs(30);

/// How long a caller may leave an answer unread.
pub const STALL_MAX: Duration = Duration::from_secs(60);

/// The largest head; beyond it 431.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Requests that one HTTP/2 connection carries at the same time.
const STREAMS_MAX: u32 = 100;

/// What a caller may send in one stream before somebody reads it, and in all of a connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// What is buffered of an answer before its caller takes it.
const SEND_BUFFER: usize = 64 * 1024;

/// A caller on HTTP/2 is asked so often whether it is still there, and has so long to say so.
const PING_EVERY: Duration = Duration::from_secs(20);

/// What a connection's requests are answered with.
#[derive(Debug)]
pub struct Serving {
    pub shared: Shared,
    pub caller: Caller,
    pub switch: Arc<Switch>,
}

/// Serves a connection to its end.
pub async fn serve(stream: TcpStream, peer: IpAddr, shared: Shared) {
    let stream = Moving::new(stream, STALL_MAX);
    let stopping = shared.stop.stopping.clone();
    let mut caller = Caller::new(peer, shared.tls.is_some());
    let ended = if let Some(tls) = shared.tls.clone() {
        let accepted = tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            accepted = tls.accept(stream) => accepted,
        };
        match accepted {
            Ok(accepted) => {
                caller.certificate = accepted.certificate;
                let serving = Serving::new(shared, caller);
                if accepted.is_http2 {
                    Box::pin(by_http2(accepted.stream, serving)).await
                } else {
                    Box::pin(by_http1(accepted.stream, serving)).await
                }
            }
            Err(error) => Err(error),
        }
    } else {
        let opened = tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            opened = timeout(HEAD_MAX, opening::read(stream)) => opened,
        };
        let serving = Serving::new(shared, caller);
        match opened {
            Ok(Ok((Protocol::Http1, stream))) => by_http1(stream, serving).await,
            Ok(Ok((Protocol::Http2, stream))) => Box::pin(by_http2(stream, serving)).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a caller's connection ended");
    }
}

impl Serving {
    fn new(shared: Shared, caller: Caller) -> Arc<Serving> {
        Arc::new(Serving { shared, caller, switch: Arc::default() })
    }
}

async fn by_http1<S>(stream: S, serving: Arc<Serving>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (switch, stopping) = (serving.switch.clone(), serving.shared.stop.stopping.clone());
    let service = service_fn(move |request| {
        let serving = serving.clone();
        async move { Ok::<_, Infallible>(answer(request, &serving).await) }
    });
    {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(Watched::new(stream, switch.clone())), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended.map_err(io::Error::other)?;
    }
    match switch.tunnel() {
        Some(tunnel) => Box::pin(tunnel::carry::<S>(tunnel)).await,
        None => Ok(()),
    }
}

/// Each stream is a request like one of HTTP/1.1, with its own claim. A stream that its caller resets changes nothing
/// of what runs (K9).
async fn by_http2<S>(stream: S, serving: Arc<Serving>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stopping = serving.shared.stop.stopping.clone();
    let streams = Arc::new(Streams::new());
    let begun = streams.clone();
    let service = service_fn(move |request| {
        let (serving, stream) = (serving.clone(), begun.begin());
        async move {
            let stream = stream.seated(&serving.shared.room).await?;
            let response = answer(request, &serving).await;
            Ok::<_, h2::Error>(response.map(|body| stream.answering(body)))
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut leaving = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            () = stopping.cancelled(), if !leaving => {}
            verdict = streams.verdict(leaving) => if verdict == Verdict::Cut {
                return Err(io::ErrorKind::TimedOut.into());
            },
        }
        leaving = true;
        connection.as_mut().graceful_shutdown();
    }
}
