//! HTTP/2 to a service: a connection carries many requests, each in a stream of its own.
//!
//! 1. A stream that the service refuses (REFUSED_STREAM), or that lies above the last one of its GOAWAY, was
//!    certainly not processed (RFC 9113, sections 6.8 and 8.7). h2 gives a remote GOAWAY as a stream's error only
//!    where the stream lies above; those below end as a broken connection, which is unknown.
//! 2. A connection without streams is used again within the same time as an idle HTTP/1.1 connection, after a look:
//!    a service that closes without GOAWAY would leave an unknown for nothing.
//! 3. No PING asks whether the service is still there: one that is busy for a minute would be cut off, and its runs
//!    unknown, where HTTP/1.1 would wait for the answer (G7).
//! 4. Streams share their connection's window, and one that its caller does not read keeps its part. The connection's
//!    window has room for all of them, so that none waits for another's caller.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use http::uri::{Authority, Scheme, Uri};
use http::{Request, header};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use semel_http::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::socket::{FirstByte, Sight, Stream as Socket, look};

/// Streams on one connection; or fewer, if the service allows fewer.
const STREAMS_MAX: usize = 100;

/// What the service may send in one stream before somebody reads it.
const STREAM_WINDOW: u32 = 128 * 1024;

/// What is buffered of a request before the service takes it.
const SEND_BUFFER: usize = 128 * 1024;

/// The largest head of an answer.
const HEAD_BYTES_MAX: u32 = 256 * 1024;

/// Streams that were given up and may still have frames on their way.
const RESET_STREAMS_KEPT: usize = 200;

/// A connection and how much it carries.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    socket: Weak<TcpStream>,
    streams: AtomicUsize,
    /// How many the service allows, as far as is known.
    streams_max: Arc<AtomicUsize>,
    /// Since when it has carried none.
    idle_since: Mutex<Instant>,
}

/// A place on a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Stream(Arc<Connection>);

impl Stream {
    pub(super) fn sender(&self) -> SendRequest<Body> {
        self.0.sender.clone()
    }

    /// Whether the connection is still worth a request. What waits on it to be read may be its end, so whoever
    /// reads it has a turn first.
    async fn is_open(&self) -> bool {
        let is_alone = self.0.streams.load(Ordering::Relaxed) == 1;
        for _ in 0..2 {
            match look(&self.0.socket) {
                _ if self.0.sender.is_closed() => return false,
                Sight::Closed => return false,
                Sight::Quiet => return true,
                Sight::Bytes => tokio::task::yield_now().await,
            }
        }
        // On a busy one there is always something to read.
        !self.0.sender.is_closed() && (!is_alone || look(&self.0.socket) == Sight::Quiet)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        *self.0.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The open connections.
#[derive(Debug, Default)]
pub(super) struct Open(Mutex<Vec<Arc<Connection>>>);

impl Open {
    /// A place on the connection that carries least.
    pub(super) async fn take(&self, idle_for: Duration) -> Option<Stream> {
        loop {
            let stream = self.least_busy(idle_for)?;
            if stream.is_open().await {
                return Some(stream);
            }
            self.lock().retain(|connection| !Arc::ptr_eq(connection, &stream.0));
        }
    }

    fn least_busy(&self, idle_for: Duration) -> Option<Stream> {
        let mut open = self.lock();
        open.retain(|connection| !connection.sender.is_closed() && !connection.is_too_old(idle_for));
        let least = open.iter().min_by_key(|connection| connection.streams.load(Ordering::Relaxed))?;
        let room = least.streams_max.load(Ordering::Relaxed).min(STREAMS_MAX);
        (least.streams.load(Ordering::Relaxed) < room).then(|| least.place())
    }

    /// A new connection, and a place on it. On clear text nobody has agreed on HTTP/2: the service's first byte
    /// shows whether it speaks it, before anything is sent that it could take for something else.
    pub(super) async fn prior_knowledge(&self, socket: Arc<TcpStream>) -> io::Result<Stream> {
        let (stream, first_byte) = FirstByte::of(Socket(socket.clone()));
        let connection = Connection::over(stream, &socket).await.map_err(io::Error::other)?;
        // The length of a SETTINGS frame begins with it; no text does.
        match first_byte.await {
            Ok(0) => Ok(self.add(connection)),
            _ => Err(io::Error::other("the service does not speak HTTP/2 (--upstream-http 2)")),
        }
    }

    /// A new connection on which HTTP/2 was agreed, and a place on it.
    pub(super) async fn agreed<S>(&self, stream: S, socket: &Arc<TcpStream>) -> io::Result<Stream>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Ok(self.add(Connection::over(stream, socket).await.map_err(io::Error::other)?))
    }

    fn add(&self, connection: Connection) -> Stream {
        let connection = Arc::new(connection);
        self.lock().push(connection.clone());
        connection.place()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Connection>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    async fn over<S>(stream: S, socket: &Arc<TcpStream>) -> hyper::Result<Connection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, mut driver) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW * STREAMS_MAX as u32)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(HEAD_BYTES_MAX)
            .max_concurrent_reset_streams(RESET_STREAMS_KEPT)
            .handshake(TokioIo::new(stream))
            .await?;
        let streams_max = Arc::new(AtomicUsize::new(STREAMS_MAX));
        let allowed = streams_max.clone();
        tokio::spawn(async move {
            let ended = std::future::poll_fn(|cx| {
                let polled = std::pin::Pin::new(&mut driver).poll(cx);
                if polled.is_pending() {
                    allowed.store(driver.current_max_send_streams(), Ordering::Relaxed);
                }
                polled
            });
            if let Err(error) = ended.await {
                tracing::debug!(%error, "a connection to the service ended");
            }
        });
        let idle_since = Mutex::new(Instant::now());
        let socket = Arc::downgrade(socket);
        Ok(Connection { sender, socket, streams: AtomicUsize::new(0), streams_max, idle_since })
    }

    fn place(self: &Arc<Connection>) -> Stream {
        self.streams.fetch_add(1, Ordering::Relaxed);
        Stream(self.clone())
    }

    fn is_too_old(&self, idle_for: Duration) -> bool {
        let idle_since = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        self.streams.load(Ordering::Relaxed) == 0 && idle_since.elapsed() > idle_for
    }
}

/// As HTTP/2 has it: scheme and authority with the path, and no Host (RFC 9113, section 8.3.1). A Host that names
/// nothing stays what it is.
pub(super) fn address(request: &mut Request<Body>, secure: bool) {
    let host = request.headers().get(header::HOST).map(|host| Authority::try_from(host.as_bytes()));
    let Some(Ok(authority)) = host else { return };
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = Some(if secure { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(authority);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
        request.headers_mut().remove(header::HOST);
    }
}

/// Whether the service has said that it did not process the request.
pub(super) fn is_refused(error: &hyper::Error) -> bool {
    let said = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    said.is_some_and(|said| {
        said.is_remote() && (said.is_go_away() || said.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_becomes_the_authority() {
        let request = |host: &str| {
            let mut request = Request::post("/a?b=1").header(header::HOST, host).body(Body::empty()).unwrap();
            address(&mut request, true);
            request
        };
        let named = request("shop.example:8443");
        assert_eq!(named.uri(), "https://shop.example:8443/a?b=1");
        assert!(!named.headers().contains_key(header::HOST));
        assert_eq!(request("").uri(), "/a?b=1");
    }
}
