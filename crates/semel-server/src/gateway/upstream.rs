//! Connections to a service, and the one thing that must be known about each request: was any of it sent?
//!
//! 1. A request is written once. It is never sent again once a byte of it may have left (G4): hyper hands it back
//!    only if it was never taken from its queue, and only then another connection is tried.
//! 2. An idle connection serves a request only within `upstream_idle` of its last use, or less if the service says so
//!    (`Keep-Alive: timeout`), and after a look at the socket: a request written into a connection that the service
//!    is closing would be unknown for nothing.
//! 3. No redirect is followed, nothing is decoded.
//! 4. [`SendError::NotSent`] and [`SendError::Refused`] are certain: the name did not resolve, the connection was
//!    refused, TLS was not agreed on, or the service said itself that it did not process the request. Everything
//!    else that goes wrong is [`SendError::Cut`]: the service may have acted.
//! 5. HTTP/1.1 on clear text unless told otherwise; over TLS what the service chooses of HTTP/2 and HTTP/1.1.
//!    Something that asks for another protocol goes by HTTP/1.1 always.
//!
//! What remains: a request that is on its way while the service closes an idle connection leaves an unknown, since
//! the service may have read it; no look can see an end that has not arrived. The service's keep-alive should be
//! longer than `upstream_idle`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use semel_http::Body;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::tls::Connector;
use crate::failpoint;
use crate::values::{HttpVersion, Upstream};

mod http1;
mod http2;
mod socket;

use socket::Stream;

/// How long a connection may take to be made, handshakes included.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// What a connection may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// What the service chooses.
    Either,
    Http1,
    Http2,
}

/// Connections to one service. Clones share them.
#[derive(Debug, Clone)]
pub struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    upstream: Upstream,
    speaks: Speaks,
    /// Where the service is reached over TLS.
    tls: Option<Connector>,
    idle_for: Duration,
    http1: http1::Idle,
    http2: http2::Open,
    /// A connection that many can share is made by one, while the others wait for it.
    connecting: Mutex<()>,
    /// Whether the service, asked, chose HTTP/1.1: then nobody waits for anybody.
    chose_http1: AtomicBool,
}

/// Something that can carry one request.
#[derive(Debug)]
enum Connection {
    Http1(http1::Connection),
    Http2(http2::Stream),
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
    /// Certainly not processed: the service says so.
    #[error("the service at {upstream} refused the request before it processed any of it: {source}")]
    Refused {
        /// Which service.
        upstream: Upstream,
        /// How it said so.
        source: hyper::Error,
    },
    /// The request was sent, at least in part, and the connection broke.
    #[error("the connection broke after the request was sent: {0}")]
    Cut(#[source] hyper::Error),
}

/// What became of one request on one connection.
#[allow(clippy::large_enum_variant, reason = "a response is the usual case, and moves once")]
enum Sent {
    Response(Response<Arriving>),
    /// Not a byte of it was written.
    Returned(Box<Request<Body>>),
}

impl Connections {
    /// Connections to a service, made when they are needed: over TLS where there is a connector.
    pub fn new(
        upstream: Upstream,
        http: HttpVersion,
        tls: Option<Connector>,
        idle_for: Duration,
    ) -> Connections {
        let speaks = match http {
            HttpVersion::Auto if tls.is_some() => Speaks::Either,
            HttpVersion::Auto | HttpVersion::One => Speaks::Http1,
            HttpVersion::Two => Speaks::Http2,
        };
        Connections(Arc::new(Shared {
            upstream,
            speaks,
            tls,
            idle_for,
            http1: http1::Idle::default(),
            http2: http2::Open::default(),
            connecting: Mutex::new(()),
            chose_http1: AtomicBool::new(false),
        }))
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Errors
    ///
    /// [`SendError`], which says whether the service may have acted.
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<Arriving>, SendError> {
        let speaks =
            if request.headers().contains_key(header::UPGRADE) { Speaks::Http1 } else { self.0.speaks };
        while let Some(connection) = self.0.take(speaks).await {
            match self.send_on(connection, request).await? {
                Sent::Response(response) => return Ok(response),
                Sent::Returned(returned) => request = *returned,
            }
        }
        let connection = self.0.open(speaks).await.map_err(|source| self.not_sent(source))?;
        match self.send_on(connection, request).await? {
            Sent::Response(response) => Ok(response),
            Sent::Returned(_) => Err(self.not_sent(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    fn not_sent(&self, source: io::Error) -> SendError {
        SendError::NotSent { upstream: self.0.upstream.clone(), source }
    }

    async fn send_on(
        &self,
        mut connection: Connection,
        mut request: Request<Body>,
    ) -> Result<Sent, SendError> {
        let sent = match &mut connection {
            Connection::Http1(connection) => {
                if connection.sender.ready().await.is_err() {
                    return Ok(Sent::Returned(Box::new(request)));
                }
                http1::address(&mut request);
                failpoint::while_sent(connection.sender.try_send_request(request)).await
            }
            Connection::Http2(stream) => {
                http2::address(&mut request, self.0.tls.is_some());
                failpoint::while_sent(stream.sender().try_send_request(request)).await
            }
        };
        match sent {
            Ok(response) => Ok(Sent::Response(self.arriving(connection, response))),
            Err(mut error) => match (error.take_message(), error.into_error()) {
                (Some(request), _) => Ok(Sent::Returned(Box::new(request))),
                (None, source) if http2::is_refused(&source) => {
                    Err(SendError::Refused { upstream: self.0.upstream.clone(), source })
                }
                (None, source) => Err(SendError::Cut(source)),
            },
        }
    }

    fn arriving(&self, mut connection: Connection, response: Response<Incoming>) -> Response<Arriving> {
        if let Connection::Http1(connection) = &mut connection {
            connection.heed(response.headers());
        }
        // One that has switched protocols is nobody's to use again.
        let connection = (response.status() != StatusCode::SWITCHING_PROTOCOLS).then_some(connection);
        response.map(|body| {
            let mut arriving = Arriving { body, connection, home: self.0.clone() };
            arriving.give_back_at_end();
            arriving
        })
    }
}

impl Shared {
    /// A connection that is there already.
    async fn take(&self, speaks: Speaks) -> Option<Connection> {
        if speaks != Speaks::Http1
            && let Some(stream) = self.http2.take(self.idle_for).await
        {
            return Some(Connection::Http2(stream));
        }
        if speaks == Speaks::Http2 {
            return None;
        }
        self.http1.take(self.idle_for).map(Connection::Http1)
    }

    /// A new connection; or one that somebody else has made meanwhile, if it can be shared.
    async fn open(&self, speaks: Speaks) -> io::Result<Connection> {
        let opened = timeout(CONNECT_MAX, async {
            if self.is_shared(speaks) {
                let _turn = self.connecting.lock().await;
                if let Some(stream) = self.http2.take(self.idle_for).await {
                    return Ok(Connection::Http2(stream));
                }
                if self.is_shared(speaks) {
                    return self.connect(speaks).await;
                }
            }
            self.connect(speaks).await
        });
        opened.await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    fn is_shared(&self, speaks: Speaks) -> bool {
        match speaks {
            Speaks::Http1 => false,
            Speaks::Http2 => true,
            Speaks::Either => !self.chose_http1.load(Ordering::Relaxed),
        }
    }

    async fn connect(&self, speaks: Speaks) -> io::Result<Connection> {
        let Upstream { host, port, .. } = &self.upstream;
        let socket = TcpStream::connect((host.as_str(), *port)).await?;
        socket.set_nodelay(true)?;
        let socket = Arc::new(socket);
        let Some(tls) = &self.tls else {
            return match speaks {
                Speaks::Http2 => self.http2.prior_knowledge(socket).await.map(Connection::Http2),
                Speaks::Either | Speaks::Http1 => self.http1_over(Stream(socket.clone()), &socket).await,
            };
        };
        let (stream, is_http2) = tls.connect(host, Stream(socket.clone()), speaks).await?;
        if speaks == Speaks::Either {
            self.chose_http1.store(!is_http2, Ordering::Relaxed);
        }
        if is_http2 {
            return self.http2.agreed(stream, &socket).await.map(Connection::Http2);
        }
        self.http1_over(stream, &socket).await
    }

    async fn http1_over<S>(&self, stream: S, socket: &Arc<TcpStream>) -> io::Result<Connection>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let connection = http1::Connection::over(stream, socket, self.idle_for).await;
        connection.map(Connection::Http1).map_err(io::Error::other)
    }
}

/// A response body on its way; at its end, what carried it is free again.
#[derive(Debug)]
pub struct Arriving {
    body: Incoming,
    connection: Option<Connection>,
    home: Arc<Shared>,
}

impl Arriving {
    fn give_back_at_end(&mut self) {
        if http_body::Body::is_end_stream(&self.body)
            && let Some(Connection::Http1(connection)) = self.connection.take()
        {
            self.home.http1.give_back(connection);
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
