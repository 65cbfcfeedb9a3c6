//! Health, readiness and metrics, on an address of their own.
//!
//! With a token, readiness and metrics are for those who have it. Health is for everybody who can connect: whoever
//! watches whether a process lives should not need a secret for it, and it says nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use semel::Engine;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

mod token;

pub use token::Token;

/// What the admin address shows.
#[derive(Clone)]
pub struct Admin {
    pub engine: Engine,
    /// What runs, in a word, and what it says of itself.
    pub statement: (&'static str, Arc<Value>),
    pub metrics: PrometheusHandle,
    pub token: Option<Token>,
    /// What else keeps it from being ready.
    pub waits_for: Arc<dyn Fn() -> Option<&'static str> + Send + Sync>,
    pub stopping: CancellationToken,
}

const CONNECTIONS_MAX: usize = 64;

impl Admin {
    /// Why it is not ready, if it is not.
    pub async fn unready(&self) -> Option<String> {
        if self.stopping.is_cancelled() {
            return Some("stopping".to_owned());
        }
        if let Some(reason) = (self.waits_for)() {
            return Some(reason.to_owned());
        }
        self.engine.check().await.err().map(|error| error.to_string())
    }
}

/// Serves until the process is gone: readiness must say "no" while it stops.
pub async fn serve(listener: TcpListener, admin: Admin) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(permit) = room.clone().acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let admin = admin.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, admin.clone()));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(30))
                .serve_connection(TokioIo::new(stream), service);
            let _ = connection.await;
            drop(permit);
        });
    }
}

async fn answer(request: Request<Incoming>, admin: Admin) -> Result<Response<Full<Bytes>>, Infallible> {
    const TEXT: &str = "text/plain; charset=utf-8";
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET only\n".into()));
    }
    let path = request.uri().path();
    if path != "/healthz" && admin.token.as_ref().is_some_and(|token| !token.is_in(request.headers())) {
        return Ok(unauthorized());
    }
    Ok(match path {
        "/healthz" => response(StatusCode::OK, TEXT, "ok\n".into()),
        "/readyz" => ready(&admin).await,
        "/metrics" => response(StatusCode::OK, "text/plain; version=0.0.4", admin.metrics.render()),
        _ => response(StatusCode::NOT_FOUND, TEXT, "/healthz, /readyz or /metrics\n".into()),
    })
}

/// Ready, and what for: the same statement that is made at start.
async fn ready(admin: &Admin) -> Response<Full<Bytes>> {
    let reason = admin.unready().await;
    let status = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let (what, statement) = &admin.statement;
    let text = serde_json::json!({ "ready": reason.is_none(), "reason": reason, *what: **statement });
    response(status, "application/json", format!("{text}\n"))
}

/// The same for a token that is wrong as for none (RFC 6750, section 3).
fn unauthorized() -> Response<Full<Bytes>> {
    const CHALLENGE: header::HeaderValue = header::HeaderValue::from_static("Bearer realm=\"semel\"");
    let text = "Authorization: Bearer with the token of --admin-token-file\n";
    let mut response = response(StatusCode::UNAUTHORIZED, "text/plain; charset=utf-8", text.into());
    response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
    response
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
