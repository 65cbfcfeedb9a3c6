//! The layer in an axum router, as a Rust service uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::{Extension, State};
use axum::routing::post;
use axum::{Router, body::Body};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use semel::{Engine, Entropy, Lease, MemoryStore, OnUnknown, Policy};
use semel_http::{Options, SemelLayer, Settings};
use tower::ServiceExt;

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
    let engine = Engine::new(Arc::new(MemoryStore::new()), Entropy::system());
    let settings = Settings::new(Options::new(Arc::new(Policy::new(OnUnknown::Park)))).unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let router: Router = Router::new()
        .route("/charges", post(charge))
        .layer(SemelLayer::new(engine, Arc::new(settings)))
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
