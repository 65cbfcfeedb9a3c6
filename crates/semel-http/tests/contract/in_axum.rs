//! The layer in an axum router, as a Rust service uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::{Extension, State};
use axum::routing::{get, post};
use axum::{Router, body::Body};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use semel::{Engine, Entropy, Lease, MemoryStore, OnUnknown, Policy};
use semel_http::{Attempt, IdempotencyKey, KeyPolicy, KeySecret, Options, SemelLayer, Settings};
use tower::ServiceExt;

use crate::support::Reply;

async fn charge(
    State(runs): State<Arc<AtomicU32>>,
    Extension(lease): Extension<Lease>,
    body: String,
) -> (StatusCode, String) {
    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
    (StatusCode::CREATED, format!("run {run} fence {} of {body}", lease.fence.0))
}

#[tokio::test]
async fn a_router_replays_and_a_handler_gets_its_lease() {
    let runs = Arc::new(AtomicU32::new(0));
    let router: Router = Router::new()
        .route("/charges", post(charge))
        .layer(SemelLayer::over(Arc::new(MemoryStore::new()), OnUnknown::Park))
        .with_state(runs.clone());
    for is_replay in [false, true] {
        let request =
            Request::post("/charges").header("idempotency-key", "k").body(Body::from("5 EUR")).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.headers().contains_key("idempotent-replayed"), is_replay);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "run 1 fence 1 of 5 EUR");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// What it has, or 503 with what it has: the key is released, and a retry is another attempt.
async fn told(key: IdempotencyKey, attempt: Attempt) -> (StatusCode, String) {
    let said = format!("{} fence {} attempt {}", key.as_str(), attempt.fence.0, attempt.number);
    (if attempt.number == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, said)
}

async fn asked(key: Option<IdempotencyKey>, attempt: Option<Attempt>) -> String {
    format!("{} {}", key.is_some(), attempt.is_some())
}

fn router(change: impl FnOnce(&mut Options)) -> Router {
    let mut options = Options::new(Policy::new(OnUnknown::Park));
    change(&mut options);
    let engine = Engine::new(Arc::new(MemoryStore::new()), Entropy::system());
    let layer = SemelLayer::new(engine, Settings::new(options).unwrap());
    Router::new()
        .route("/told", post(told).get(told))
        .route("/asked", post(asked).get(asked))
        .layer(layer)
        .route("/outside", get(told))
}

async fn call(router: &Router, method: &str, path: &str, key: Option<&str>) -> Reply {
    let request = Request::builder().method(method).uri(path);
    let request = match key {
        Some(key) => request.header("idempotency-key", key),
        None => request,
    };
    let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    Reply::read(response.map(semel_http::Body::new)).await
}

#[tokio::test]
async fn g2_a_handler_gets_the_key_the_fence_and_the_attempt() {
    let router = router(|_| {});
    let first = call(&router, "POST", "/told", Some("\"order 77\"")).await;
    assert_eq!(
        (first.status, first.body.as_ref()),
        (503.try_into().unwrap(), &b"order 77 fence 1 attempt 1"[..])
    );
    let second = call(&router, "POST", "/told", Some("\"order 77\"")).await;
    assert_eq!(second.body, "order 77 fence 2 attempt 2");
    assert_eq!(call(&router, "POST", "/asked", Some("k")).await.body, "true true");
}

#[tokio::test]
async fn a_handler_that_needs_them_on_an_unguarded_request_is_a_mistake_of_the_set_up_said_in_words() {
    let router = router(|_| {});
    // A method that is not guarded, an optional key that is missing, a route that the layer is not around.
    for (method, path, key) in
        [("GET", "/told", Some("k")), ("POST", "/told", None), ("GET", "/outside", Some("k"))]
    {
        let refused = call(&router, method, path, key).await;
        assert_eq!(refused.status, StatusCode::INTERNAL_SERVER_ERROR, "{method} {path}");
        assert!(refused.body.starts_with(b"This handler needs a request that Semel guards"), "{refused:?}");
    }
    assert_eq!(call(&router, "GET", "/asked", Some("k")).await.body, "false false");
    assert_eq!(call(&router, "POST", "/asked", None).await.body, "false false");
}

/// Observed is not guarded: there is no lease, and so there is no key to rely on.
#[tokio::test]
async fn h18_an_observed_request_has_neither() {
    let router = router(|options| options.observe = true);
    assert_eq!(call(&router, "POST", "/asked", Some("k")).await.body, "false false");
}

#[tokio::test]
async fn the_key_is_in_clear_where_the_store_has_an_hmac_and_the_one_that_the_route_made_where_it_makes_one()
{
    let hashed = router(|options| options.key_secret = KeySecret::new(b"a secret of 20 bytes"));
    assert!(call(&hashed, "POST", "/told", Some("order-77")).await.body.starts_with(b"order-77 "));

    let derived = router(|options| options.key = KeyPolicy::Derive(vec!["query:order".parse().unwrap()]));
    let made = call(&derived, "POST", "/told?order=77", None).await;
    assert!(made.body.starts_with(b"derived-1-"), "{made:?}");

    let generated = router(|options| options.key = KeyPolicy::Generate);
    let made = call(&generated, "POST", "/told", None).await;
    let said = made.header("idempotency-key").unwrap().trim_matches('"').to_owned();
    assert!(made.body.starts_with(said.as_bytes()), "{made:?}");
}

/// Outside axum: the same, from the extensions of any request.
#[tokio::test]
async fn without_axum_the_extensions_are_asked() {
    let seen = tower::service_fn(async |request: Request<semel_http::Body>| {
        let (parts, _) = request.into_parts();
        let key = IdempotencyKey::of(&parts.extensions).map(IdempotencyKey::as_str).unwrap_or_default();
        let number = Attempt::of(&parts.extensions).map_or(0, |attempt| attempt.number);
        Ok::<_, std::convert::Infallible>(Response::new(semel_http::Body::from(format!("{key} {number}"))))
    });
    let layer = SemelLayer::over(Arc::new(MemoryStore::new()), OnUnknown::Park);
    let service = tower::Layer::layer(&layer, seen);
    let request = Request::post("/").header("idempotency-key", "k").body(semel_http::Body::empty()).unwrap();
    assert_eq!(Reply::read(service.clone().oneshot(request).await.unwrap()).await.body, "k 1");
    let request = Request::get("/").header("idempotency-key", "k").body(semel_http::Body::empty()).unwrap();
    assert_eq!(Reply::read(service.oneshot(request).await.unwrap()).await.body, " 0");
}

/// A key may be a secret.
#[tokio::test]
async fn a_key_does_not_print_itself() {
    let shown = async |key: IdempotencyKey| format!("{key:?}");
    let layer = SemelLayer::over(Arc::new(MemoryStore::new()), OnUnknown::Park);
    let router = Router::new().route("/told", post(shown)).layer(layer);
    let said = call(&router, "POST", "/told", Some("order-77")).await;
    assert!(said.body.starts_with(b"IdempotencyKey(") && !said.body.windows(5).any(|part| part == b"order"));
}
