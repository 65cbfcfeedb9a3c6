//! A gateway as one would build it from axum and axum-idempotent: `bench-axum-gateway LISTEN UPSTREAM`.
//!
//! 1. The library keeps answers in the caller's session, so a request needs one: a cookie, which the load brings.
//! 2. Keys are taken from the header, and the sessions are in memory, in the store that the library's README uses. Nothing
//!    is durable, nothing compares two requests, and two with one key at the same time both run.
//! 3. What it forwards goes through hyper-util's client with its pool, as in axum's own example of a reverse proxy.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::any};
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, SessionLayer};
use tower_cookies::CookieManagerLayer;

/// More than the load brings, so that none is evicted.
const SESSIONS_MAX: u64 = 100_000;

#[derive(Clone)]
struct Upstream {
    client: Client<HttpConnector, Body>,
    address: Arc<str>,
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        panic!("bench-axum-gateway LISTEN UPSTREAM");
    };
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client =
        Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(60)).build(connector);
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("idempotency-key"), true)
        .expire_after(24 * 3600);
    let store = Arc::new(MokaStore::builder().max_capacity(SESSIONS_MAX).build());
    let app = Router::new()
        .fallback(any(forward))
        .with_state(Upstream { client, address: upstream.into() })
        .layer(IdempotentLayer::<MokaStore>::new(options))
        .layer(SessionLayer::new(store).with_cookie_options(CookieOptions::build().name("session")))
        .layer(CookieManagerLayer::new());
    let listener = tokio::net::TcpListener::bind(listen).await.expect("the address is free");
    let listener =
        axum::serve::ListenerExt::tap_io(listener, |stream| stream.set_nodelay(true).expect("a socket"));
    axum::serve(listener, app).await.expect("it serves");
}

async fn forward(State(upstream): State<Upstream>, mut request: Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = Uri::try_from(format!("http://{}{path}", upstream.address)).expect("a URI");
    match upstream.client.request(request).await {
        Ok(response) => response.into_response(),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
