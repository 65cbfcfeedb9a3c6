//! How a request arrives, by the numbers of the contract: keys, scopes, fingerprints, bodies (H1 to H6, H14).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use semel::{Engine, Entropy, MemoryStore, OnUnknown, Policy};
use semel_http::{Body, KeyPolicy, Options, SemelLayer, Settings, Syntax};
use tower::{Layer, Service, ServiceExt};

use crate::support::{AtEnd, Chunks, Shop, body_of, post, posting, respond, with};

#[tokio::test]
async fn h01_quoted_bare_and_alias_are_one_key() {
    let alias = HeaderName::from_static("x-idempotency-key");
    let shop = Shop::with(|o| o.key_names.push(alias.clone()), |_, _| async { Ok(respond(201, &[], "")) });
    shop.send(post("\"k-1\"")).await;
    assert!(shop.send(post("k-1")).await.is_replay());
    assert!(shop.send(post("\"k-1\";version=2")).await.is_replay());
    let mut aliased = post("k-1");
    let value = aliased.headers_mut().remove("idempotency-key").unwrap();
    aliased.headers_mut().insert(alias, value);
    assert!(shop.send(aliased).await.is_replay());
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn h01_strict_syntax_refuses_the_bare_form() {
    let shop = Shop::with(|o| o.key_syntax = Syntax::Strict, |_, _| async { Ok(respond(201, &[], "")) });
    assert_eq!(shop.send(post("k-1")).await.code(), "key-malformed");
    assert_eq!(shop.send(post("\"k-1\"")).await.status, 201);
}

#[tokio::test]
async fn h02_what_is_no_key_is_refused_and_nothing_runs() {
    let shop = Shop::answering(201, "");
    let long = "k".repeat(256);
    for key in ["", "\"\"", "a, b", "\"a\", \"b\"", "\"a", "a b", long.as_str()] {
        let refused = shop.send(post(key)).await;
        assert_eq!((refused.status, refused.code().as_str()), (StatusCode::BAD_REQUEST, "key-malformed"));
        assert_eq!(refused.effect(), "none");
    }
    assert_eq!((shop.runs(), shop.number_of_records().await), (0, 0));
}

#[tokio::test]
async fn h03_other_methods_and_grpc_pass_by() {
    let shop = Shop::answering(200, "");
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
        let mut request = post("k-1");
        *request.method_mut() = method;
        assert_eq!(shop.send(request).await.status, 200);
    }
    let mut grpc = post("k-1");
    grpc.headers_mut().insert("content-type", "application/grpc+proto".parse().unwrap());
    shop.send(grpc).await;
    assert_eq!((shop.runs(), shop.number_of_records().await), (6, 0));
}

#[tokio::test]
async fn h03_patch_is_guarded_and_an_upgrade_header_changes_nothing() {
    let shop = Shop::answering(200, "");
    let patch = || {
        let mut request = with(with(post("k-1"), "upgrade", "h2c"), "connection", "upgrade");
        *request.method_mut() = Method::PATCH;
        request
    };
    shop.send(patch()).await;
    assert!(shop.send(patch()).await.is_replay());
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn h03_configured_methods_are_guarded_head_without_a_body() {
    let shop = Shop::with(
        |o| o.methods = vec![Method::HEAD],
        |_, _| async { Ok(respond(200, &[("content-length", "7"), ("etag", "\"a\"")], "")) },
    );
    let head = || {
        let mut request = post("k-1");
        *request.method_mut() = Method::HEAD;
        request
    };
    assert_eq!(shop.send(head()).await.header("content-length"), Some("7"));
    let replay = shop.send(head()).await;
    assert!(replay.is_replay());
    assert_eq!((replay.header("content-length"), replay.header("etag")), (None, Some("\"a\"")));
}

#[tokio::test(start_paused = true)]
async fn h03_an_event_stream_completes_the_key_without_a_body() {
    let shop = Shop::new(|_, _| async {
        let (events, _) = Chunks::body(vec![b"data: 1\n\n"], AtEnd::Hang);
        Ok(respond(200, &[("content-type", "text/event-stream; charset=utf-8")], events))
    });
    let mut first = shop.open(post("k-1")).await;
    assert_eq!(shop.state("k-1").await, "completed");
    let event = first.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(event, "data: 1\n\n");
    let retry = shop.send(post("k-1")).await;
    assert_eq!(
        (retry.code().as_str(), retry.header("semel-original-status")),
        ("response-not-kept", Some("200"))
    );
    assert_eq!(shop.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn h04_optional_lets_a_request_without_a_key_by_streaming() {
    let shop = Shop::new(|_, request| async {
        // The inner service sees the first chunk of a body that never ends: nothing was held back.
        let chunk = request.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        Ok(respond(201, &[("idempotent-replayed", "true")], Body::from(chunk)))
    });
    for run in 1..=2 {
        let (body, _) = Chunks::body(vec![b"first"], AtEnd::Hang);
        let mut request = posting("", body);
        request.headers_mut().remove("idempotency-key");
        let reply = shop.send(request).await;
        assert_eq!(
            (reply.status, &reply.body[..], reply.is_replay()),
            (StatusCode::CREATED, &b"first"[..], false)
        );
        assert_eq!((shop.runs(), shop.number_of_records().await), (run, 0));
    }
}

#[tokio::test]
async fn h04_required_refuses_a_request_without_a_key() {
    let shop = Shop::with(|o| o.key = KeyPolicy::Required, |_, _| async { Ok(respond(201, &[], "")) });
    let mut request = post("k");
    request.headers_mut().remove("idempotency-key");
    let refused = shop.send(request).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::BAD_REQUEST, "key-missing"));
    assert_eq!(refused.json()["retryable"], false);
    assert_eq!(shop.runs(), 0);
    assert_eq!(shop.send(Request::get("/charges").body(Body::empty()).unwrap()).await.status, 201);
}

#[tokio::test]
async fn h05_the_scope_is_the_hashed_authorization_or_anonymous() {
    let shop = Shop::answering(201, "");
    shop.send(post("k-1")).await;
    shop.send(with(post("k-1"), "authorization", "Bearer sk_test_a")).await;
    shop.send(with(post("k-1"), "authorization", "Bearer sk_test_b")).await;
    assert!(shop.send(with(post("k-1"), "authorization", "Bearer sk_test_a")).await.is_replay());
    assert_eq!(shop.runs(), 3);
    let scopes: Vec<_> = shop.records("k-1").await.iter().map(|entry| entry.scope.to_string()).collect();
    assert_eq!(scopes[0], "http:default:anonymous");
    assert!(scopes[1..].iter().all(|scope| scope.starts_with("http:default:authorization-")));
    assert!(!format!("{scopes:?}").contains("sk_test"));
}

#[tokio::test]
async fn h06_every_byte_of_what_is_asked_for_counts() {
    let shop = Shop::answering(201, "");
    shop.send(post("k-1")).await;
    let changed = |change: fn(&mut Request<Body>)| {
        let mut request = post("k-1");
        change(&mut request);
        request
    };
    for other in [
        posting("k-1", "{\"amount\":6}"),
        posting("k-1", "{ \"amount\":5}"),
        changed(|r| *r.method_mut() = Method::PATCH),
        changed(|r| *r.uri_mut() = "/refunds".parse().unwrap()),
        changed(|r| *r.uri_mut() = "/charges?".parse().unwrap()),
        changed(|r| drop(r.headers_mut().insert("host", "other.example".parse().unwrap()))),
        changed(|r| drop(r.headers_mut().remove("content-type"))),
    ] {
        assert_eq!(shop.send(other).await.code(), "key-reused");
    }
    let same = changed(|r| drop(r.headers_mut().insert("host", "SHOP.example".parse().unwrap())));
    assert!(shop.send(with(same, "x-attempt", "2")).await.is_replay());
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn h14_a_length_over_the_limit_is_refused_unread_and_the_rest_thrown_away() {
    let shop = Shop::with(|o| o.body.bytes_max = 8, |_, _| async { Ok(respond(201, &[], "")) });
    let (body, asked) = Chunks::body(vec![b"12345", b"67890"], AtEnd::Close);
    let refused = shop.send(with(posting("k-1", body), "content-length", "10")).await;
    assert_eq!(
        (refused.status, refused.code().as_str(), refused.effect().as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "none")
    );
    assert_eq!(refused.header("connection"), None, "all was read, so the connection can serve on");
    assert_eq!((asked.load(Ordering::SeqCst), shop.runs(), shop.number_of_records().await), (3, 0, 0));
}

#[tokio::test]
async fn h14_a_body_without_a_length_is_counted_and_the_limit_itself_is_taken() {
    for (bytes, status) in [(7, 201), (8, 201), (9, 413)] {
        let shop = Shop::with(
            |o| o.body.bytes_max = 8,
            |_, request| async { Ok(respond(201, &[], body_of(request).await.to_vec())) },
        );
        let chunks = (0..bytes).map(|_| Ok(Bytes::from_static(b"x"))).collect();
        let reply = shop.send(posting("k-1", Chunks::of(chunks, AtEnd::Close).0)).await;
        assert_eq!(reply.status, status, "{bytes} bytes");
        if status == 201 {
            assert_eq!(reply.body, "x".repeat(bytes));
        }
        assert_eq!(shop.number_of_records().await, usize::from(status == 201));
    }
}

#[tokio::test(start_paused = true)]
async fn h14_draining_ends_at_its_bounds_and_closes_the_connection() {
    let shop = Shop::with(
        |o| (o.body.bytes_max, o.body.drain_bytes_max) = (1, 6),
        |_, _| async { Ok(respond(201, &[], "")) },
    );
    let (endless, asked) = Chunks::body(vec![b"123", b"456", b"789", b"abc", b"def"], AtEnd::Hang);
    let refused = shop.send(posting("k-1", endless)).await;
    assert_eq!((refused.code().as_str(), refused.header("connection")), ("body-too-large", Some("close")));
    assert_eq!(asked.load(Ordering::SeqCst), 4, "one over the limit, two thrown away, one too many");
    let (stuck, _) = Chunks::body(vec![b"123"], AtEnd::Hang);
    let refused = shop.send(posting("k-1", stuck)).await;
    assert_eq!((refused.code().as_str(), refused.header("connection")), ("body-too-large", Some("close")));
}

#[tokio::test]
async fn h14_http_2_gets_no_connection_header() {
    let shop = Shop::with(
        |o| (o.body.bytes_max, o.body.drain_bytes_max) = (1, 1),
        |_, _| async { Ok(respond(201, &[], "")) },
    );
    let mut request = posting("k-1", "12345");
    *request.version_mut() = http::Version::HTTP_2;
    let refused = shop.send(request).await;
    assert_eq!((refused.code().as_str(), refused.header("connection")), ("body-too-large", None));
}

#[tokio::test]
async fn h14_expect_is_not_answered_with_100_by_a_refusal() {
    let shop = Shop::with(|o| o.body.bytes_max = 8, |_, _| async { Ok(respond(201, &[], "")) });
    let (body, asked) = Chunks::body(vec![b"12345", b"67890"], AtEnd::Close);
    let request = with(with(posting("k-1", body), "content-length", "10"), "expect", "100-Continue");
    let refused = shop.send(request).await;
    assert_eq!((refused.code().as_str(), refused.header("connection")), ("body-too-large", Some("close")));
    assert_eq!(asked.load(Ordering::SeqCst), 0, "asking for the body is what makes a server send 100");
}

#[tokio::test]
async fn h14_a_body_that_was_asked_for_is_thrown_away_like_any_other() {
    let shop = Shop::with(|o| o.body.bytes_max = 4, |_, _| async { Ok(respond(201, &[], "")) });
    let (body, asked) = Chunks::body(vec![b"12345", b"67890"], AtEnd::Close);
    let refused = shop.send(with(posting("k-1", body), "expect", "100-continue")).await;
    assert_eq!((refused.code().as_str(), refused.header("connection")), ("body-too-large", None));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn h14_expect_works_and_is_gone_before_the_inner_service() {
    let shop = Shop::new(|_, request| async {
        let seen =
            request.headers().contains_key("expect") || request.headers().contains_key("transfer-encoding");
        let length = request.headers()["content-length"].clone();
        assert_eq!(body_of(request).await, "12345");
        Ok(respond(if seen { 500 } else { 201 }, &[], length.to_str().unwrap().to_owned()))
    });
    let (body, _) = Chunks::body(vec![b"123", b"45"], AtEnd::Trailers);
    let request = with(with(posting("k-1", body), "expect", "100-continue"), "transfer-encoding", "chunked");
    let reply = shop.send(request).await;
    assert_eq!((reply.status, &reply.body[..]), (StatusCode::CREATED, &b"5"[..]));
}

#[tokio::test(start_paused = true)]
async fn h14_a_body_that_does_not_come_claims_nothing() {
    let shop = Shop::answering(201, "");
    let (slow, _) = Chunks::body(vec![b"123"], AtEnd::Hang);
    let refused = shop.send(posting("k-1", slow)).await;
    assert_eq!((refused.status, refused.header("connection")), (StatusCode::REQUEST_TIMEOUT, Some("close")));
    assert_eq!(
        (&refused.json()["type"], &refused.json()["effect"]),
        (&"about:blank".into(), &"unknown".into())
    );
    let refused = shop.send(posting("k-1", Chunks::broken(vec![b"123"]))).await;
    assert_eq!((refused.status, refused.header("connection")), (StatusCode::BAD_REQUEST, Some("close")));
    assert_eq!((shop.runs(), shop.number_of_records().await), (0, 0));
    assert_eq!(shop.send(post("k-1")).await.status, 201);
}

#[tokio::test]
async fn the_inner_service_sees_the_key_the_fence_and_the_lease() {
    let shop = Shop::new(|run, request| async move {
        let head = request.headers();
        let seen = ["idempotency-key", "semel-fence", "semel-attempt"]
            .map(|name| head[name].to_str().unwrap().to_owned());
        let lease = request.extensions().get::<semel::Lease>().expect("the lease").fence.0.to_string();
        assert_eq!(head.get_all("semel-fence").iter().count(), 1);
        Ok(respond(if run < 3 { 503 } else { 201 }, &[], [&seen[..], &[lease]].concat().join(" ")))
    });
    for attempt in 1..=3 {
        let forged = with(with(post("\"k-1\";a=1"), "semel-fence", "99"), "semel-attempt", "99");
        let reply = shop.send(forged).await;
        assert_eq!(reply.body, format!("\"k-1\";a=1 {attempt} {attempt} {attempt}"));
    }
}

#[tokio::test]
async fn an_unguarded_request_carries_no_fence_of_the_callers_and_fails_with_the_inner_error() {
    let shop = Shop::new(|run, request| async move {
        assert!(
            !request.headers().contains_key("semel-fence")
                && !request.headers().contains_key("semel-attempt")
        );
        if run == 1 { Ok(respond(200, &[("semel-outcome", "keep")], "")) } else { Err("gone".into()) }
    });
    let get = || {
        Request::get("/").header("semel-fence", "9").header("semel-attempt", "9").body(Body::empty()).unwrap()
    };
    assert!(!shop.send(get()).await.headers.contains_key("semel-outcome"));
    assert_eq!(shop.service.clone().oneshot(get()).await.unwrap_err().to_string(), "gone");
}

/// A service that may be called only when it has been asked whether it is ready, as tower has it.
#[derive(Debug, Default)]
struct Ready(bool);

impl Clone for Ready {
    fn clone(&self) -> Ready {
        Ready(false)
    }
}

impl Service<Request<Body>> for Ready {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0 = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.0), "it was not asked whether it is ready");
        std::future::ready(Ok(respond(201, &[], "")))
    }
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let engine = Engine::new(Arc::new(MemoryStore::new()), Entropy::system());
    let settings = Settings::new(Options::new(Arc::new(Policy::new(OnUnknown::Park)))).unwrap();
    let mut service = SemelLayer::new(engine, Arc::new(settings)).layer(Ready::default());
    let get = Request::get("/").body(Body::empty()).unwrap();
    for request in [post("k-1"), get, post("k-2")] {
        let ready = ServiceExt::<Request<Body>>::ready(&mut service).await.unwrap();
        assert_eq!(ready.call(request).await.unwrap().status(), 201);
    }
}
