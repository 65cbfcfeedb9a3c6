//! The contract in a service on plain hyper: HTTP/1.1 and HTTP/2, records in memory.
//!
//! ```sh
//! cargo run -p hyper-example -- 127.0.0.1:3000
//! curl -i http://127.0.0.1:3000/tickets -H 'Idempotency-Key: "seat-12"' -d row=4
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use semel::{BoxError, MemoryStore, OnUnknown};
use semel_http::{Attempt, Body, IdempotencyKey, SemelLayer};
use tokio::net::TcpListener;
use tower::{Layer, service_fn};

/// Gives away the next ticket. A GET says how many are gone.
async fn ticket(request: Request<Body>, gone: Arc<AtomicU32>) -> Result<Response<Body>, Infallible> {
    if request.method() == Method::GET {
        return Ok(Response::new(Body::from(gone.load(Ordering::SeqCst).to_string())));
    }
    let number = gone.fetch_add(1, Ordering::SeqCst) + 1;
    // Both are there where a lease is: a request without a key has none, and nothing keeps it from running twice.
    let said = match (IdempotencyKey::of(request.extensions()), Attempt::of(request.extensions())) {
        (Some(key), Some(attempt)) => {
            format!("ticket {number} for {}, fence {}", key.as_str(), attempt.fence.0)
        }
        _ => format!("ticket {number}"),
    };
    Ok(Response::new(Body::from(said)))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let gone = Arc::new(AtomicU32::new(0));
    let guard = SemelLayer::over(Arc::new(MemoryStore::new()), OnUnknown::Park);
    let service = guard.layer(service_fn(move |request| ticket(request, gone.clone())));

    let listener = TcpListener::bind(address).await?;
    eprintln!("http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let builder = Builder::new(TokioExecutor::new());
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                eprintln!("a connection ended: {error}");
            }
        });
    }
}
