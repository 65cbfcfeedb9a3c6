//! One request on a connection of its own. Dropping the call closes the socket: the client has hung up.

use std::net::SocketAddr;
use std::pin::pin;

use bytes::Bytes;
use http::{Method, Request, header, response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use semel_http::IDEMPOTENCY_KEY;
use tokio::net::TcpStream;

/// A request.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    pub method: Method,
    pub path: &'a str,
    pub key: Option<&'a str>,
    pub body: String,
}

/// An answer, whole.
#[derive(Debug)]
pub struct Reply {
    pub head: response::Parts,
    pub body: Bytes,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// Nobody listens there.
    Refused,
    /// The connection broke.
    Broken,
}

/// Sends it, and waits for the answer.
///
/// # Cancel safety
///
/// Dropping the future closes the connection, whatever was sent by then.
pub async fn call(address: SocketAddr, call: &Call<'_>) -> Result<Reply, Unanswered> {
    let stream = TcpStream::connect(address).await.map_err(|_| Unanswered::Refused)?;
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|_| Unanswered::Broken)?;
    let mut connection = pin!(connection);
    let request = request(address, call)?;
    let mut answer = pin!(async move {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Reply { head, body })
    });
    let answered: Result<Reply, hyper::Error> = tokio::select! {
        biased;
        answered = &mut answer => answered,
        // It may have read all that there is: the answer is then on its way through its channel.
        _ = &mut connection => answer.await,
    };
    answered.map_err(|_| Unanswered::Broken)
}

fn request(address: SocketAddr, call: &Call<'_>) -> Result<Request<Full<Bytes>>, Unanswered> {
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(call.path)
        .header(header::HOST, address.to_string())
        .header(header::CONNECTION, "close")
        .header(header::AUTHORIZATION, "Bearer the-shop");
    if !call.body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    if let Some(key) = call.key {
        request = request.header(IDEMPOTENCY_KEY, format!("\"{key}\""));
    }
    // Of words of our own: it is one that can be built.
    request.body(Full::from(call.body.clone())).map_err(|_| Unanswered::Broken)
}
