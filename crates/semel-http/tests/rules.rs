//! The rules of the contract, H1 to H14, each by its number, over the whole service.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request, StatusCode};
use http_body_util::BodyExt;
use semel::{OnUnknown, Policy};
use semel_http::{Body, KeyPolicy, NotSent, Statuses, Syntax};
use support::{AtEnd, Chunks, Gate, Reply, Shop, body_of, post, posting, respond, with};
use tokio::time::{advance, sleep};
use tower::ServiceExt;

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
        let (events, _) = Chunks::new(vec![b"data: 1\n\n"], AtEnd::Hang);
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
        let (body, _) = Chunks::new(vec![b"first"], AtEnd::Hang);
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
async fn h08_replay_is_byte_for_byte() {
    let body: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let sent = body.clone();
    let shop = Shop::new(move |_, _| {
        let headers =
            [("content-type", "application/octet-stream"), ("location", "/charges/1"), ("x-app", "a b")];
        let response = respond(201, &headers, sent.clone());
        async { Ok(response) }
    });
    let first = shop.send(post("k-1")).await;
    assert_eq!((first.status, &first.body[..]), (StatusCode::CREATED, &body[..]));
    assert!(!first.headers.contains_key("idempotent-replayed"));
    for _ in 0..2 {
        let mut retry = shop.send(post("k-1")).await;
        assert_eq!(retry.headers.remove("idempotent-replayed").unwrap(), "true");
        assert_eq!(retry, first);
    }
    assert_eq!(shop.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn h08_in_flight_is_told_at_once_and_when_to_come_back() {
    let gate = Gate::new();
    let inside = gate.clone();
    let shop = Shop::new(move |_, _| {
        let gate = inside.clone();
        async move {
            gate.pass().await;
            Ok(respond(201, &[], "charged"))
        }
    });
    let first = shop.start(post("k-1"));
    gate.entered().await;
    let retry = shop.send(post("k-1")).await;
    assert_eq!((retry.status, retry.code().as_str()), (StatusCode::CONFLICT, "in-flight"));
    assert_eq!((retry.header("retry-after"), retry.effect().as_str()), (Some("1"), "unknown"));
    advance(Duration::from_millis(5500)).await;
    assert_eq!(shop.send(post("k-1")).await.header("retry-after"), Some("6"));
    gate.open();
    assert_eq!(first.await.unwrap().status, 201);
    assert!(shop.send(post("k-1")).await.is_replay());
    assert_eq!(shop.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn h08_retry_after_is_no_longer_than_the_lease_and_the_status_is_a_choice() {
    let shop = Shop::with(
        |o| o.in_flight_status = StatusCode::TOO_EARLY,
        |_, _| async {
            sleep(Duration::from_secs(3600)).await;
            Ok(respond(201, &[], ""))
        },
    );
    let first = shop.start(post("k-1"));
    sleep(Duration::from_secs(905)).await;
    let retry = shop.send(post("k-1")).await;
    assert_eq!((retry.status, retry.code().as_str()), (StatusCode::TOO_EARLY, "in-flight"));
    let after: u64 = retry.header("retry-after").unwrap().parse().unwrap();
    assert!((20..=30).contains(&after), "the lease is renewed at a third of 30 s: {after}");
    first.abort();
}

#[tokio::test]
async fn h09_mismatch_is_422_or_what_the_settings_say() {
    for status in [422, 400, 409] {
        let status = StatusCode::from_u16(status).unwrap();
        let shop = Shop::with(|o| o.mismatch_status = status, |_, _| async { Ok(respond(201, &[], "")) });
        shop.send(posting("k-1", "a")).await;
        let refused = shop.send(posting("k-1", "b")).await;
        assert_eq!(
            (refused.status, refused.code().as_str(), refused.effect().as_str()),
            (status, "key-reused", "none")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn h09_a_late_retry_is_410_and_runs_nothing() {
    let shop = Shop::answering(201, "charged");
    shop.send(post("k-1")).await;
    advance(Duration::from_secs(24 * 3600 + 1)).await;
    let late = shop.send(post("k-1")).await;
    assert_eq!((late.status, late.code().as_str()), (StatusCode::GONE, "key-expired"));
    assert_eq!((late.effect().as_str(), late.json()["retryable"].as_bool()), ("done", Some(false)));
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn h09_own_run_unknown_is_502_and_the_retry_409() {
    let shop = Shop::new(|_, _| async { Err("connection reset by peer".into()) });
    let own = shop.send(post("k-1")).await;
    assert_eq!(
        (own.status, own.code().as_str(), own.effect().as_str()),
        (StatusCode::BAD_GATEWAY, "outcome-unknown", "unknown")
    );
    assert!(own.json().get("upstream_status").is_none());
    let retry = shop.send(post("k-1")).await;
    assert_eq!((retry.status, retry.code().as_str()), (StatusCode::CONFLICT, "outcome-unknown"));
    assert_eq!((shop.runs(), shop.state("k-1").await), (1, "unknown"));
}

#[tokio::test]
async fn h09_a_run_that_panics_is_unknown() {
    let shop = Shop::new(|_, _| async { panic!("a handler's own fault") });
    assert_eq!(shop.send(post("k-1")).await.code(), "outcome-unknown");
    assert_eq!(shop.state("k-1").await, "unknown");
}

#[tokio::test]
async fn h09_unreachable_is_502_without_effect_and_the_key_is_free() {
    let shop = Shop::new(|run, _| async move {
        match run {
            1 => Err(NotSent::new("connection refused").into()),
            _ => Ok(respond(201, &[], "charged")),
        }
    });
    let refused = shop.send(post("k-1")).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::BAD_GATEWAY, "upstream-unreachable"));
    assert_eq!((refused.effect().as_str(), shop.state("k-1").await), ("none", "released"));
    assert_eq!(shop.send(post("k-1")).await.status, 201);
}

#[tokio::test]
async fn h09_unreachable_after_an_unknown_says_nothing_about_the_effect() {
    let shop = Shop::with(
        |o| o.policy = Arc::new(Policy::new(OnUnknown::Rerun)),
        |run, _| async move {
            match run {
                1 => Err("connection reset".into()),
                _ => Err(NotSent::new("connection refused").into()),
            }
        },
    );
    assert_eq!(shop.send(post("k-1")).await.code(), "outcome-unknown");
    for _ in 0..2 {
        let refused = shop.send(post("k-1")).await;
        assert_eq!((refused.code().as_str(), refused.effect().as_str()), ("upstream-unreachable", "unknown"));
    }
}

#[tokio::test(start_paused = true)]
async fn h09_a_slow_answer_is_504_and_settles_all_the_same() {
    let within = Some(Duration::from_secs(30));
    let shop = Shop::with(
        |o| o.policy = Arc::new(Policy { answer_within: within, ..Policy::new(OnUnknown::Park) }),
        |_, _| async {
            sleep(Duration::from_secs(40)).await;
            Ok(respond(201, &[], "charged"))
        },
    );
    let own = shop.send(post("k-1")).await;
    assert_eq!(
        (own.status, own.code().as_str(), own.effect().as_str()),
        (StatusCode::GATEWAY_TIMEOUT, "upstream-timeout", "unknown")
    );
    assert_eq!(shop.send(post("k-1")).await.code(), "in-flight");
    sleep(Duration::from_secs(11)).await;
    let retry = shop.send(post("k-1")).await;
    assert_eq!((retry.is_replay(), &retry.body[..], shop.runs()), (true, &b"charged"[..], 1));
}

#[tokio::test]
async fn h09_dead_is_409_attempts_exhausted() {
    let shop = Shop::with(
        |o| o.policy = Arc::new(Policy { attempts_max: 2, ..Policy::new(OnUnknown::Park) }),
        |_, _| async { Ok(respond(503, &[], "")) },
    );
    for _ in 0..2 {
        assert_eq!(shop.send(post("k-1")).await.status, 503);
    }
    let dead = shop.send(post("k-1")).await;
    assert_eq!((dead.status, dead.code().as_str()), (StatusCode::CONFLICT, "attempts-exhausted"));
    assert_eq!((dead.json()["retryable"].as_bool(), shop.runs()), (Some(false), 2));
}

#[tokio::test(start_paused = true)]
async fn h09_store_down_is_503_before_any_effect() {
    let shop = Shop::answering(201, "");
    shop.store.claims_fail.store(true, Ordering::SeqCst);
    let refused = shop.send(post("k-1")).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable")
    );
    assert_eq!((refused.header("retry-after"), refused.effect().as_str()), (Some("1"), "unknown"));
    assert_eq!(shop.runs(), 0);
    shop.store.claims_fail.store(false, Ordering::SeqCst);
    assert_eq!(shop.send(post("k-1")).await.status, 201);
}

#[tokio::test]
async fn h09_a_stopping_engine_is_503() {
    let shop = Shop::answering(201, "");
    shop.engine.drain(Duration::from_secs(1)).await;
    let refused = shop.send(post("k-1")).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable")
    );
    assert_eq!((refused.header("retry-after"), shop.runs()), (Some("1"), 0));
}

#[tokio::test]
async fn h11_what_is_final_is_kept() {
    for status in [200, 202, 302, 400, 402, 404, 410, 422] {
        let shop = Shop::answering(status, "final");
        let first = shop.send(post("k-1")).await;
        let retry = shop.send(post("k-1")).await;
        assert_eq!((retry.status.as_u16(), retry.is_replay(), &retry.body), (status, true, &first.body));
        assert_eq!(shop.runs(), 1);
    }
}

#[tokio::test]
async fn h11_what_took_no_effect_passes_unchanged_and_releases_the_key() {
    for status in [401, 403, 407, 408, 409, 421, 423, 425, 429, 500, 501, 503] {
        let shop = Shop::new(move |_, _| async move { Ok(respond(status, &[("x-err", "7")], "why")) });
        for run in 1..=2 {
            let reply = shop.send(post("k-1")).await;
            assert_eq!(
                (reply.status.as_u16(), reply.header("x-err"), &reply.body[..]),
                (status, Some("7"), &b"why"[..])
            );
            assert_eq!((reply.is_replay(), shop.runs(), shop.state("k-1").await), (false, run, "released"));
        }
    }
}

#[tokio::test]
async fn h11_a_released_key_stays_bound_to_its_request_but_for_401_and_403() {
    for (status, code) in [(500, Some("key-reused")), (409, Some("key-reused")), (401, None), (403, None)] {
        let shop = Shop::answering(status, "");
        shop.send(posting("k-1", "a")).await;
        let other = shop.send(posting("k-1", "b")).await;
        assert_eq!(other.status.as_u16(), if code.is_some() { 422 } else { status });
        assert_eq!(shop.runs(), if code.is_some() { 1 } else { 2 });
    }
}

#[tokio::test]
async fn h11_an_answer_of_a_proxy_in_between_is_unknown() {
    for status in [502, 504] {
        let shop = Shop::answering(status, "<html>bad gateway</html>");
        let own = shop.send(post("k-1")).await;
        assert_eq!((own.status, own.code().as_str()), (StatusCode::BAD_GATEWAY, "outcome-unknown"));
        assert_eq!(own.json()["upstream_status"], status);
        assert_eq!((shop.send(post("k-1")).await.status, shop.runs()), (StatusCode::CONFLICT, 1));
    }
}

#[tokio::test]
async fn h11_the_application_says_it_itself_and_its_word_goes_no_further() {
    for (said, status, state) in [
        ("keep", 500, "completed"),
        ("release", 201, "released"),
        ("unknown", 200, "unknown"),
        ("keep", 504, "completed"),
    ] {
        let shop = Shop::new(move |_, _| async move { Ok(respond(status, &[("semel-outcome", said)], "")) });
        let reply = shop.send(post("k-1")).await;
        assert_eq!(shop.state("k-1").await, state);
        assert_eq!(reply.status.as_u16(), if state == "unknown" { 502 } else { status });
        for reply in [reply, shop.send(post("k-1")).await] {
            assert!(!reply.headers.contains_key("semel-outcome"));
        }
    }
}

#[tokio::test]
async fn h11_cautious_trusts_no_5xx() {
    let shop = Shop::with(|o| o.statuses = Statuses::cautious(), |_, _| async { Ok(respond(503, &[], "")) });
    assert_eq!(shop.send(post("k-1")).await.json()["upstream_status"], 503);
    assert_eq!((shop.send(post("k-1")).await.code().as_str(), shop.runs()), ("outcome-unknown", 1));
}

#[tokio::test]
async fn h12_repeated_lines_and_representation_headers_are_replayed() {
    let headers = [
        ("link", "</1>; rel=a"),
        ("link", "</2>; rel=b"),
        ("etag", "\"v1\""),
        ("cache-control", "no-store"),
        ("content-language", "eo"),
        ("retry-after", "120"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("idempotent-replayed", "true"),
        ("semel-fence", "9"),
    ];
    let shop = Shop::new(move |_, _| async move { Ok(respond(202, &headers, "")) });
    let first = shop.send(post("k-1")).await;
    let retry = shop.send(post("k-1")).await;
    assert!(!first.is_replay() && retry.is_replay());
    for reply in [&first, &retry] {
        let links: Vec<_> = reply.headers.get_all("link").iter().collect();
        assert_eq!(links, ["</1>; rel=a", "</2>; rel=b"]);
        assert_eq!((reply.header("etag"), reply.header("retry-after")), (Some("\"v1\""), Some("120")));
        for gone in ["connection", "x-hop", "keep-alive", "semel-fence"] {
            assert!(!reply.headers.contains_key(gone), "{gone}");
        }
    }
}

#[tokio::test]
async fn h12_a_body_is_decoded_for_a_retry_that_does_not_accept_its_coding() {
    let coded = gzip(b"plain text");
    let sent = coded.clone();
    let shop = Shop::new(move |_, _| {
        let headers = [("content-encoding", "gzip"), ("etag", "\"v1\""), ("vary", "accept-encoding")];
        let response = respond(200, &headers, sent.clone());
        async { Ok(response) }
    });
    let first = shop.send(with(post("k-1"), "accept-encoding", "gzip, br")).await;
    assert_eq!((&first.body, first.header("etag")), (&coded, Some("\"v1\"")));
    let same = shop.send(with(post("k-1"), "accept-encoding", "gzip")).await;
    assert_eq!((&same.body, same.header("content-encoding")), (&coded, Some("gzip")));
    for retry in [post("k-1"), with(post("k-1"), "accept-encoding", "identity")] {
        let plain = shop.send(retry).await;
        assert_eq!((&plain.body[..], plain.header("content-encoding")), (&b"plain text"[..], None));
        assert_eq!((plain.header("content-length"), plain.header("etag")), (Some("10"), Some("W/\"v1\"")));
        assert_eq!((plain.header("vary"), plain.is_replay()), (Some("accept-encoding"), true));
    }
}

fn gzip(plain: &[u8]) -> Bytes {
    use std::io::Write;
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coder.write_all(plain).unwrap();
    coder.finish().unwrap().into()
}

#[tokio::test]
async fn h13_a_long_answer_reaches_the_first_caller_and_is_never_run_again() {
    let shop = Shop::with(
        |o| o.kept_bytes_max = 10,
        |_, _| async {
            let (body, _) = Chunks::new(vec![b"0123456", b"789a", b"b"], AtEnd::Close);
            Ok(respond(201, &[("location", "/exports/7")], body))
        },
    );
    let first = shop.open(post("k-1")).await;
    assert_eq!(shop.state("k-1").await, "completed", "before the first byte goes out");
    let first = Reply::read(first).await;
    assert_eq!((first.status, &first.body[..]), (StatusCode::CREATED, &b"0123456789ab"[..]));
    let retry = shop.send(post("k-1")).await;
    assert_eq!(
        (retry.status, retry.code().as_str(), retry.effect().as_str()),
        (StatusCode::GONE, "response-not-kept", "done")
    );
    assert_eq!(retry.header("semel-original-status"), Some("201"));
    assert_eq!((retry.header("location"), shop.runs()), (Some("/exports/7"), 1));
    assert_eq!(
        (&retry.json()["original_status"], &retry.json()["location"]),
        (&201.into(), &"/exports/7".into())
    );
}

#[tokio::test]
async fn h13_the_limit_itself_is_still_kept() {
    for (bytes, kept) in [(9, true), (10, true), (11, false)] {
        let shop = Shop::with(
            |o| o.kept_bytes_max = 10,
            move |_, _| async move { Ok(respond(200, &[], "x".repeat(bytes))) },
        );
        assert_eq!(shop.send(post("k-1")).await.body.len(), bytes);
        assert_eq!(shop.send(post("k-1")).await.is_replay(), kept, "{bytes} bytes");
        assert_eq!(shop.runs(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn h13_who_does_not_read_a_long_answer_changes_nothing() {
    let shop = Shop::with(
        |o| o.kept_bytes_max = 4,
        |_, _| async {
            let (endless, _) = Chunks::new(vec![b"12345"], AtEnd::Hang);
            Ok(respond(200, &[], endless))
        },
    );
    drop(shop.open(post("k-1")).await);
    assert_eq!((shop.send(post("k-1")).await.code().as_str(), shop.runs()), ("response-not-kept", 1));
}

#[tokio::test]
async fn h14_a_length_over_the_limit_is_refused_unread_and_the_rest_thrown_away() {
    let shop = Shop::with(|o| o.body.bytes_max = 8, |_, _| async { Ok(respond(201, &[], "")) });
    let (body, asked) = Chunks::new(vec![b"12345", b"67890"], AtEnd::Close);
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
    let (endless, asked) = Chunks::new(vec![b"123", b"456", b"789", b"abc", b"def"], AtEnd::Hang);
    let refused = shop.send(posting("k-1", endless)).await;
    assert_eq!((refused.code().as_str(), refused.header("connection")), ("body-too-large", Some("close")));
    assert_eq!(asked.load(Ordering::SeqCst), 4, "one over the limit, two thrown away, one too many");
    let (stuck, _) = Chunks::new(vec![b"123"], AtEnd::Hang);
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
    let (body, asked) = Chunks::new(vec![b"12345", b"67890"], AtEnd::Close);
    let request = with(with(posting("k-1", body), "content-length", "10"), "expect", "100-Continue");
    let refused = shop.send(request).await;
    assert_eq!((refused.code().as_str(), refused.header("connection")), ("body-too-large", Some("close")));
    assert_eq!(asked.load(Ordering::SeqCst), 0, "asking for the body is what makes a server send 100");
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
    let (body, _) = Chunks::new(vec![b"123", b"45"], AtEnd::Trailers);
    let request = with(with(posting("k-1", body), "expect", "100-continue"), "transfer-encoding", "chunked");
    let reply = shop.send(request).await;
    assert_eq!((reply.status, &reply.body[..]), (StatusCode::CREATED, &b"5"[..]));
}

#[tokio::test(start_paused = true)]
async fn h14_a_body_that_does_not_come_claims_nothing() {
    let shop = Shop::answering(201, "");
    let (slow, _) = Chunks::new(vec![b"123"], AtEnd::Hang);
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

#[tokio::test(start_paused = true)]
async fn k10_the_first_caller_gets_the_truth_marked_as_not_recorded() {
    let shop = Shop::answering(201, "charged");
    shop.store.settles_fail.store(true, Ordering::SeqCst);
    let first = shop.send(post("k-1")).await;
    assert_eq!((first.status, first.header("semel-recorded")), (StatusCode::CREATED, Some("false")));
    assert_eq!(shop.send(post("k-1")).await.code(), "in-flight");
    shop.store.settles_fail.store(false, Ordering::SeqCst);
    while shop.state("k-1").await != "completed" {
        sleep(Duration::from_millis(100)).await;
    }
    let retry = shop.send(post("k-1")).await;
    assert_eq!((retry.is_replay(), retry.header("semel-recorded"), shop.runs()), (true, None, 1));
}
