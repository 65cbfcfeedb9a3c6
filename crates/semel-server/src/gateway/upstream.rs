//! Connections to the service, and the one thing that must be known about each request: was any of it sent?
//!
//! 1. A request is written once. It is never sent again once a byte of it may have left (G4): hyper hands it back
//!    only if it was never taken from its queue, and only then a second connection is tried.
//! 2. An idle connection serves a request only within `upstream_idle` of its last use, and after a look at the
//!    socket: a request written into a connection that the service is closing would be unknown for nothing.
//! 3. No redirect is followed, nothing is decoded.
//! 4. [`SendError::NotSent`] is certain: the name did not resolve, or the connection was refused. Everything else
//!    that goes wrong is [`SendError::Cut`]: the service may have acted.
//!
//! What remains: a request that is on its way while the service closes an idle connection leaves an unknown, since
//! the service may have read it; no look can see an end that has not arrived. The service's keep-alive should be
//! longer than `upstream_idle`.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use semel_http::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::failpoint;
use crate::values::Upstream;

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Idle connections kept; more are closed.
const IDLE_MAX: usize = 512;

/// Connections to one service. Clones share them.
#[derive(Debug, Clone)]
pub struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    upstream: Upstream,
    idle_for: Duration,
    idle: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    /// Gone when hyper is done with the connection.
    stream: Weak<TcpStream>,
    since: Instant,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Certainly not processed.
    #[error("the service at {upstream} cannot be reached: {source}")]
    NotSent {
        /// Which service.
        upstream: Upstream,
        /// Why.
        source: io::Error,
    },
    /// The request was sent, at least in part, and the connection broke.
    #[error("the connection broke after the request was sent: {0}")]
    Cut(#[source] hyper::Error),
}

/// What became of one request on one connection.
enum Sent {
    Response(Response<Incoming>),
    /// Not a byte of it was written.
    Returned(Box<Request<Body>>),
}

impl Connections {
    pub fn new(upstream: Upstream, idle_for: Duration) -> Connections {
        Connections(Arc::new(Shared { upstream, idle_for, idle: Mutex::default() }))
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Errors
    ///
    /// [`SendError`], which says whether the service may have acted.
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<Arriving>, SendError> {
        while let Some(connection) = self.0.take_idle() {
            match self.send_on(connection, request).await? {
                (connection, Sent::Response(response)) => return Ok(self.arriving(connection, response)),
                (_, Sent::Returned(returned)) => request = *returned,
            }
        }
        let connection = self.connect().await.map_err(|source| self.not_sent(source))?;
        match self.send_on(connection, request).await? {
            (connection, Sent::Response(response)) => Ok(self.arriving(connection, response)),
            (_, Sent::Returned(_)) => Err(self.not_sent(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    fn not_sent(&self, source: io::Error) -> SendError {
        SendError::NotSent { upstream: self.0.upstream.clone(), source }
    }

    async fn send_on(
        &self,
        mut connection: Connection,
        request: Request<Body>,
    ) -> Result<(Connection, Sent), SendError> {
        if connection.sender.ready().await.is_err() {
            return Ok((connection, Sent::Returned(Box::new(request))));
        }
        let response = failpoint::while_sent(connection.sender.try_send_request(request)).await;
        match response {
            Ok(response) => Ok((connection, Sent::Response(response))),
            Err(mut error) => match error.take_message() {
                Some(request) => Ok((connection, Sent::Returned(Box::new(request)))),
                None => Err(SendError::Cut(error.into_error())),
            },
        }
    }

    async fn connect(&self) -> io::Result<Connection> {
        let Upstream { host, port } = &self.0.upstream;
        let connecting = TcpStream::connect((host.as_str(), *port));
        let stream =
            tokio::time::timeout(CONNECT_MAX, connecting).await.map_err(|_| io::ErrorKind::TimedOut)??;
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        let weak = Arc::downgrade(&stream);
        let io = TokioIo::new(Stream(stream));
        let (sender, driver) = http1::handshake(io).await.map_err(io::Error::other)?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection to the service ended");
            }
        });
        Ok(Connection { sender, stream: weak, since: Instant::now() })
    }

    fn arriving(&self, connection: Connection, response: Response<Incoming>) -> Response<Arriving> {
        response.map(|body| {
            let mut arriving = Arriving { body, connection: Some(connection), home: self.0.clone() };
            arriving.give_back_at_end();
            arriving
        })
    }
}

impl Shared {
    /// The connection that was used last, if it is young enough and open.
    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let connection = idle.pop()?;
            if connection.since.elapsed() > self.idle_for {
                // Those below it have waited longer.
                idle.clear();
                return None;
            }
            if connection.is_open() {
                return Some(connection);
            }
        }
    }

    fn give_back(&self, mut connection: Connection) {
        connection.since = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !connection.sender.is_closed() {
            idle.push(connection);
        }
    }
}

impl Connection {
    /// A look at the socket itself: hyper learns of the other side's end only when it is polled again. Bytes that
    /// wait there are no answer to anything, most likely a 408 before the end.
    fn is_open(&self) -> bool {
        let Some(stream) = self.stream.upgrade() else { return false };
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let looked = socket2::SockRef::from(&*stream).peek(&mut byte);
        !self.sender.is_closed() && matches!(looked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// A response body on its way; the connection becomes idle at its end.
#[derive(Debug)]
pub struct Arriving {
    body: Incoming,
    connection: Option<Connection>,
    home: Arc<Shared>,
}

impl Arriving {
    fn give_back_at_end(&mut self) {
        if http_body::Body::is_end_stream(&self.body)
            && let Some(connection) = self.connection.take()
        {
            self.home.give_back(connection);
        }
    }
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Err(_)) => self.connection = None,
            _ => self.give_back_at_end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket that hyper reads and writes while its idle state can be looked at from outside.
struct Stream(Arc<TcpStream>);

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buf) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Stream {
    fn poll_try(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.0).shutdown(std::net::Shutdown::Write))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
