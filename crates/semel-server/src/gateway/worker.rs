//! A thread that accepts connections and serves them.
//!
//! Each worker has a runtime of its own thread: no request crosses a thread, and the workers share nothing but the
//! listening socket, the engine and its store. A connection may be slow to send its head, and idle, only so long;
//! there are only so many of them.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use semel::BoxError;
use semel_http::{Body, Code, NotSent, Problem, Semel};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::cors::Cors;
use super::forward::{Forward, TooLate};
use super::framing::Watched;
use super::front::{self, Refusal};
use super::page::Page;
use super::stall::Moving;
use super::statement::POLICY_LINK;

/// How long a request's head may take to arrive, and a connection may be idle.
const HEAD_MAX: Duration = Duration::from_secs(30);

/// How long a caller may leave an answer unread.
const STALL_MAX: Duration = Duration::from_secs(60);

/// The largest head; beyond it 431.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Connections of all workers together.
const CONNECTIONS_MAX: usize = 8192;

/// Files that are open beside connections: the store's, the log, the admin address's.
const FILES_KEPT: u64 = 128;

/// How many callers there is room for: each may need a connection to the service too, and one that could not be made
/// for want of a file would be refused as unreachable. The soft limit is raised first, as far as it goes.
pub fn room() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let files = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    let pairs = files.map_or(u64::MAX, |files| files.saturating_sub(FILES_KEPT) / 2);
    usize::try_from(pairs).unwrap_or(usize::MAX).clamp(1, CONNECTIONS_MAX)
}

/// What a worker serves with.
#[derive(Debug, Clone)]
pub struct Shared {
    pub guarded: Semel<Forward>,
    pub page: Arc<Page>,
    pub cors: Arc<Cors>,
    /// A place for each connection.
    pub room: Arc<Semaphore>,
    pub stop: Stop,
}

/// How workers are stopped.
#[derive(Debug, Clone)]
pub struct Stop {
    /// No new connections; those that are open finish what they carry.
    pub stopping: CancellationToken,
    /// The runtime may go.
    pub stopped: CancellationToken,
    /// Those that are open.
    pub connections: TaskTracker,
}

/// Serves until [`Stop::stopped`].
pub fn run(listener: std::net::TcpListener, shared: &Shared) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        accept(&listener, shared).await;
        drop(listener);
        shared.stop.stopped.cancelled().await;
        Ok(())
    })
}

async fn accept(listener: &TcpListener, shared: &Shared) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.stop.stopping.cancelled() => return,
            accepted = accept_one(listener, shared) => accepted,
        };
        match accepted {
            Ok((stream, peer, room)) => {
                let shared = shared.clone();
                let connections = shared.stop.connections.clone();
                connections.spawn(async move {
                    serve(stream, peer.ip(), shared).await;
                    drop(room);
                });
            }
            Err(error) => {
                // Out of file descriptors, most often: some connection has to end first.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Where there is no room, callers wait in the listener's queue.
async fn accept_one(
    listener: &TcpListener,
    shared: &Shared,
) -> std::io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let room = shared.room.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, peer, room))
}

async fn serve(stream: TcpStream, peer: IpAddr, shared: Shared) {
    let stopping = shared.stop.stopping.clone();
    let service = service_fn(move |request| answer(request, peer, shared.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Watched::new(Moving::new(stream, STALL_MAX))), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a caller's connection ended");
    }
}

async fn answer(
    request: Request<Incoming>,
    peer: IpAddr,
    shared: Shared,
) -> Result<Response<Body>, Infallible> {
    let cors = shared.cors.clone();
    // Read before anything is taken off the request.
    let asked = cors.asked(&request);
    Ok(cors.answer(asked, answer_all(request, peer, shared).await))
}

async fn answer_all(request: Request<Incoming>, peer: IpAddr, shared: Shared) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    if let Err(refusal) = front::admit(&mut parts, peer) {
        return refused(refusal);
    }
    if let Some(page) = shared.page.answer(&parts) {
        return page;
    }
    let mut guarded = shared.guarded;
    guarded.call(Request::from_parts(parts, body)).await.unwrap_or_else(|error| unguarded_failed(&error))
}

/// Why an unguarded request has no answer. With no key, repeating one that was sent could take effect twice.
fn unguarded_failed(error: &BoxError) -> Response<Body> {
    let problem = if error.is::<NotSent>() {
        Problem::new(Code::UpstreamUnreachable, "The service cannot be reached.")
    } else if error.is::<TooLate>() {
        let late = "The service did not answer in time. The request had no key.";
        Problem::new(Code::UpstreamTimeout, late).without_key()
    } else {
        let unknown = "The connection to the service broke. The request had no key.";
        Problem::new(Code::OutcomeUnknown, unknown).status(StatusCode::BAD_GATEWAY).without_key()
    };
    tracing::warn!(%error, "an unguarded request has no answer");
    problem.into_response(&HeaderValue::from_static(POLICY_LINK))
}

/// The two ends may not agree where this request ends, so nothing more is read from the connection.
fn refused(refusal: Refusal) -> Response<Body> {
    tracing::debug!(reason = refusal.reason, "refused");
    let text = serde_json::json!({
        "type": "about:blank", "title": refusal.reason, "status": refusal.status.as_u16(),
    });
    let mut response = Response::new(Body::from(text.to_string()));
    *response.status_mut() = refusal.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
