//! HTTP/1.1 to a service: a connection carries one request at a time, and is idle between two.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use http::header::{self, HeaderMap, HeaderName};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Request};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use semel_http::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::socket::{Sight, look};

/// Idle connections kept; more are closed.
const IDLE_MAX: usize = 512;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// A connection that carries nothing, or one request.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<Body>,
    socket: Weak<TcpStream>,
    since: Instant,
    /// For how long it may be idle; the service may have said less than we would.
    idle_for: Duration,
}

impl Connection {
    pub(super) async fn over<S>(
        stream: S,
        socket: &Arc<TcpStream>,
        idle_for: Duration,
    ) -> hyper::Result<Connection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = driver.with_upgrades().await {
                tracing::debug!(%error, "a connection to the service ended");
            }
        });
        Ok(Connection { sender, socket: Arc::downgrade(socket), since: Instant::now(), idle_for })
    }

    /// Takes note of a `Keep-Alive: timeout=N` (RFC 2068, section 19.7.1): seconds after which the service closes.
    /// It counts from when it wrote, and the next request takes its time to arrive, so a part of it is left out.
    pub(super) fn heed(&mut self, headers: &HeaderMap) {
        if let Some(timeout) = headers.get(KEEP_ALIVE).and_then(timeout) {
            self.idle_for = self.idle_for.min(timeout - Duration::from_secs(1).min(timeout / 2));
        }
    }

    /// Bytes that wait are no answer to anything, most likely a 408 before the end.
    fn is_open(&self) -> bool {
        !self.sender.is_closed() && look(&self.socket) == Sight::Quiet
    }
}

/// Connections that carry nothing, the one that was used last on top.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<Vec<Connection>>);

impl Idle {
    /// The connection that was used last, if it is young enough and open.
    pub(super) fn take(&self, idle_for: Duration) -> Option<Connection> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let connection = idle.pop()?;
            let age = connection.since.elapsed();
            if age > idle_for {
                // Those below it have waited longer.
                idle.clear();
                return None;
            }
            if age <= connection.idle_for && connection.is_open() {
                return Some(connection);
            }
        }
    }

    pub(super) fn give_back(&self, mut connection: Connection) {
        connection.since = Instant::now();
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !connection.idle_for.is_zero() && !connection.sender.is_closed() {
            idle.push(connection);
        }
    }
}

/// As HTTP/1.1 has it: a path, and a Host. `TE` would have to stand in `Connection` here, and no trailers are read.
pub(super) fn address(request: &mut Request<Body>) {
    request.headers_mut().remove(header::TE);
    let Some(authority) = request.uri().authority() else { return };
    let host = HeaderValue::from_str(authority.as_str());
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    if let Ok(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
}

fn timeout(value: &HeaderValue) -> Option<Duration> {
    let mut parameters = value.to_str().ok()?.split(',').map(str::trim);
    let seconds = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().parse().ok())?
    })?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keep_alive_timeout_is_read_and_nothing_else_is_taken_for_one() {
        let of = |text: &'static str| timeout(&HeaderValue::from_static(text));
        assert_eq!(of("timeout=5, max=100"), Some(Duration::from_secs(5)));
        assert_eq!(of("max=100, Timeout = 5"), Some(Duration::from_secs(5)));
        assert_eq!(of("timeout=0"), Some(Duration::ZERO));
        for text in ["", "max=100", "timeout", "timeout=", "timeout=-1", "timeout=soon", "xtimeout=5"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn what_came_back_from_http2_is_addressed_as_before() {
        let mut request = Request::post("https://shop.example:8443/a?b=1")
            .header(header::TE, "trailers")
            .body(Body::empty())
            .unwrap();
        address(&mut request);
        assert_eq!(request.uri(), "/a?b=1");
        assert_eq!(request.headers()[header::HOST], "shop.example:8443");
        assert!(!request.headers().contains_key(header::TE));
        address(&mut request);
        assert_eq!(request.headers()[header::HOST], "shop.example:8443");
    }
}
