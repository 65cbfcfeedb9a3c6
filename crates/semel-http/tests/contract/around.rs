//! What stands around the layer, and what stands inside of it: each row of the table at `SemelLayer`, with the layers
//! that people use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request as AxumRequest};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response as AxumResponse};
use axum::routing::post;
use http::{HeaderName, Method, Request, StatusCode};
use http_body_util::Full;
use semel::{Engine, Entropy, MemoryStore, OnUnknown, Policy};
use semel_http::{Body, Options, SemelLayer, Settings};
use tower::ServiceExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;

use crate::support::{AtEnd, Chunks, Gate, Reply, posting, with};

fn semel() -> SemelLayer {
    SemelLayer::over(Arc::new(MemoryStore::new()), OnUnknown::Park)
}

/// A router whose only route counts its runs, and those runs.
fn counting<F, Fut, R>(handle: F) -> (Router, Arc<AtomicU32>)
where
    F: Fn(u32) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = R> + Send,
    R: IntoResponse + 'static,
{
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let run = move |_body: String| {
        let (handle, run) = (handle.clone(), counted.fetch_add(1, Ordering::SeqCst) + 1);
        async move { handle(run).await }
    };
    (Router::new().route("/charges", post(run)), runs)
}

async fn send(router: &Router, request: Request<Body>) -> Reply {
    let response = router.clone().oneshot(request.map(axum::body::Body::new)).await.unwrap();
    Reply::read(response.map(Body::new)).await
}

fn charge(key: &str) -> Request<Body> {
    posting(key, "5")
}

async fn only_alice(request: AxumRequest, next: Next) -> AxumResponse {
    match request.headers().get("x-caller").map(|caller| caller == "alice") {
        Some(true) => next.run(request).await,
        _ => StatusCode::FORBIDDEN.into_response(),
    }
}

#[tokio::test]
async fn h7_outside_of_it_stands_what_says_who_may_call() {
    let (router, runs) = counting(|run| async move { format!("secret {run}") });
    let router = router.layer(semel()).layer(from_fn(only_alice));
    let from = |caller| with(charge("k"), "x-caller", caller);
    assert_eq!(send(&router, from("alice")).await.body, "secret 1");
    assert!(send(&router, from("alice")).await.is_replay());
    let other = send(&router, from("mallory")).await;
    assert_eq!((other.status, other.body.is_empty()), (StatusCode::FORBIDDEN, true), "no replay for her");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn inside_of_it_stands_what_changes_the_path() {
    let shop = |name: &'static str| counting(move |_| async move { name }).0;
    let at = |path: &str| {
        let mut request = charge("k");
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    let layer = semel();
    let outside = Router::new().nest("/a", shop("a")).nest("/b", shop("b")).layer(layer);
    assert_eq!(send(&outside, at("/a/charges")).await.body, "a");
    assert_eq!(send(&outside, at("/b/charges")).await.code(), "key-reused");

    let layer = semel();
    let inside = Router::new().nest("/a", shop("a").layer(layer.clone())).nest("/b", shop("b").layer(layer));
    assert_eq!(send(&inside, at("/a/charges")).await.body, "a");
    assert_eq!(send(&inside, at("/b/charges")).await.body, "a", "the wrong place: both are /charges to it");
}

#[tokio::test]
async fn h16_outside_of_it_stands_cors() {
    let cors = || {
        CorsLayer::new()
            .allow_origin(["https://a.example".parse().unwrap(), "https://b.example".parse().unwrap()])
            .allow_methods([Method::POST])
            .allow_headers([HeaderName::from_static("idempotency-key")])
            .expose_headers([HeaderName::from_static("idempotent-replayed"), http::header::RETRY_AFTER])
    };
    let from = |origin, key| with(charge(key), "origin", origin);
    let allowed = |reply: &Reply| reply.header("access-control-allow-origin").map(str::to_owned);
    let exposed = |reply: &Reply| reply.header("access-control-expose-headers").map(str::to_owned);

    let (router, _) = counting(|_| async { "charged" });
    let outside = router.layer(semel()).layer(cors());
    send(&outside, from("https://a.example", "k")).await;
    let replay = send(&outside, from("https://b.example", "k")).await;
    assert!(replay.is_replay());
    assert_eq!(allowed(&replay).as_deref(), Some("https://b.example"));
    assert!(exposed(&replay).unwrap().contains("idempotent-replayed"));
    let refusal = send(&outside, from("https://b.example", "k, k")).await;
    assert_eq!((refusal.code().as_str(), allowed(&refusal).is_some()), ("key-malformed", true));
    let preflight = Request::options("/charges")
        .header("origin", "https://a.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "idempotency-key")
        .body(Body::empty());
    let preflight = send(&outside, preflight.unwrap()).await;
    assert_eq!(preflight.header("access-control-allow-headers"), Some("idempotency-key"));

    let (router, _) = counting(|_| async { "charged" });
    let inside = router.layer(cors()).layer(semel());
    send(&inside, from("https://a.example", "k")).await;
    let replay = send(&inside, from("https://b.example", "k")).await;
    assert_eq!(allowed(&replay).as_deref(), Some("https://a.example"), "the wrong place: the first caller's");
    assert_eq!(allowed(&send(&inside, from("https://b.example", "k, k")).await), None);
}

#[tokio::test]
async fn h12_compression_fits_on_either_side() {
    let text = "charged ".repeat(100);
    for outside in [true, false] {
        let body = text.clone();
        let (router, runs) = counting(move |_| std::future::ready(body.clone()));
        let router = match outside {
            true => router.layer(semel()).layer(CompressionLayer::new()),
            false => router.layer(CompressionLayer::new()).layer(semel()),
        };
        let first = send(&router, with(charge("k"), "accept-encoding", "gzip")).await;
        assert_eq!(first.header("content-encoding"), Some("gzip"), "outside: {outside}");
        let coded = send(&router, with(charge("k"), "accept-encoding", "gzip")).await;
        assert_eq!((coded.is_replay(), &coded.body), (true, &first.body));
        let plain = send(&router, with(charge("k"), "accept-encoding", "identity")).await;
        assert_eq!((plain.header("content-encoding"), plain.body == text), (None, true));
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn c01_a_timeout_outside_ends_the_waiting_and_not_the_run() {
    let gate = Gate::new();
    let passed = gate.clone();
    let (router, runs) = counting(move |run| {
        let gate = passed.clone();
        async move {
            gate.pass().await;
            format!("run {run}")
        }
    });
    let timeout = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(1));
    let router = router.layer(semel()).layer(timeout);
    assert_eq!(send(&router, charge("k")).await.status, StatusCode::GATEWAY_TIMEOUT);
    gate.entered().await;
    assert_eq!(send(&router, charge("k")).await.code(), "in-flight");
    gate.open();
    let replay = loop {
        let retry = send(&router, charge("k")).await;
        if retry.status != StatusCode::CONFLICT {
            break retry;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((replay.is_replay(), replay.body.as_ref()), (true, &b"run 1"[..]));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// The hazard that the table names.
#[tokio::test(start_paused = true)]
async fn a_timeout_inside_answers_in_the_name_of_a_run_that_it_cut_off() {
    let (router, runs) = counting(|run| async move {
        if run == 1 {
            std::future::pending::<()>().await;
        }
        format!("run {run}")
    });
    let timeout = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(1));
    let router = router.layer(timeout).layer(semel());
    assert_eq!(send(&router, charge("k")).await.status, StatusCode::REQUEST_TIMEOUT);
    assert_eq!(send(&router, charge("k")).await.body, "run 2", "released: it said that nothing took effect");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn g7_answer_within_is_the_timeout_that_knows() {
    let gate = Gate::new();
    let passed = gate.clone();
    let (router, runs) = counting(move |_| {
        let gate = passed.clone();
        async move {
            gate.pass().await;
            "charged"
        }
    });
    let policy = Policy { answer_within: Some(Duration::from_secs(1)), ..Policy::new(OnUnknown::Park) };
    let engine = Engine::new(Arc::new(MemoryStore::new()), Entropy::system());
    let router = router.layer(SemelLayer::new(engine.clone(), Settings::new(Options::new(policy)).unwrap()));
    assert_eq!(send(&router, charge("k")).await.code(), "upstream-timeout");
    gate.open();
    assert_eq!(engine.drain(Duration::from_secs(60)).await, 0, "the run went on to its end");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_run_that_panics_is_unknown_and_not_caught_inside() {
    let panicking = || {
        counting(|run| async move {
            assert!(run > 1, "it breaks after the money has moved");
            "charged"
        })
    };
    let (router, runs) = panicking();
    let router = router.layer(semel()).layer(CatchPanicLayer::new());
    let first = send(&router, charge("k")).await;
    assert_eq!((first.status, first.code().as_str()), (StatusCode::BAD_GATEWAY, "outcome-unknown"));
    assert_eq!(send(&router, charge("k")).await.code(), "outcome-unknown");
    assert_eq!(runs.load(Ordering::SeqCst), 1);

    let (router, runs) = panicking();
    let router = router.layer(CatchPanicLayer::new()).layer(semel());
    assert_eq!(send(&router, charge("k")).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(send(&router, charge("k")).await.body, "charged", "the wrong place: a 500 of a run cut off");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn h14_a_limit_of_the_body_is_the_layers_own_and_others_stay_what_they_are() {
    let long = || "x".repeat(3000);
    let (router, runs) = counting(|_| async { "charged" });
    let mut options = Options::new(Policy::new(OnUnknown::Park));
    options.body.bytes_max = 2000;
    let engine = Engine::new(Arc::new(MemoryStore::new()), Entropy::system());
    let own = router.clone().layer(SemelLayer::new(engine, Settings::new(options).unwrap()));
    assert_eq!(send(&own, posting("k", long())).await.code(), "body-too-large");

    let outside = router.clone().layer(semel()).layer(RequestBodyLimitLayer::new(2000));
    let declared = with(posting("k", Body::new(Full::from(long()))), "content-length", "3000");
    assert_eq!(send(&outside, declared).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let (streamed, _) = Chunks::body(vec![&[0; 1500], &[0; 1500]], AtEnd::Close);
    let streamed = send(&outside, posting("k", streamed)).await;
    assert_eq!(
        streamed.status,
        StatusCode::BAD_REQUEST,
        "to the layer its body broke off: nothing is claimed"
    );
    assert_eq!(runs.load(Ordering::SeqCst), 0);

    let inside = router.layer(DefaultBodyLimit::max(2000)).layer(semel());
    assert_eq!(send(&inside, posting("k", long())).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let retry = send(&inside, posting("k", long())).await;
    assert_eq!((retry.status, retry.is_replay()), (StatusCode::PAYLOAD_TOO_LARGE, true));
}
