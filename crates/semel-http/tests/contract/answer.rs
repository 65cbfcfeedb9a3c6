//! What a caller is told, by the numbers of the contract: replays, refusals, what is kept (H8 to H13).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use semel::{OnUnknown, Policy};
use semel_http::{Body, NotSent, Statuses};
use tokio::time::{advance, sleep};

use crate::support::{AtEnd, Chunks, Gate, Reply, Shop, post, posting, respond, with};

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

async fn runs_nothing(_: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
    panic!("nothing runs")
}

#[tokio::test]
async fn k11_too_many_open_claims_are_429_before_any_effect() {
    let bounds = semel::Bounds { open_claims_max: 0, ..semel::Bounds::default() };
    let store = Arc::new(semel::MemoryStore::new());
    let engine = semel::Engine::new(store, semel::Entropy::system()).with_bounds(bounds);
    let policy = Arc::new(semel::Policy::new(semel::OnUnknown::Park));
    let settings = Arc::new(semel_http::Settings::new(semel_http::Options::new(policy)).unwrap());
    let inner = tower::service_fn(runs_nothing);
    let guarded = semel_http::Semel::new(inner, engine, settings);
    let refused = Reply::read(tower::ServiceExt::oneshot(guarded, post("k-1")).await.unwrap()).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (429, "too-many-claims"));
    assert_eq!((refused.header("retry-after"), refused.effect().as_str()), (Some("1"), "unknown"));
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
            let (body, _) = Chunks::body(vec![b"0123456", b"789a", b"b"], AtEnd::Close);
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
async fn h13_trailers_are_dropped_from_what_streams_as_from_what_is_kept() {
    for kept_bytes_max in [1, 100] {
        let shop = Shop::with(
            |o| o.kept_bytes_max = kept_bytes_max,
            |_, _| async { Ok(respond(200, &[], Chunks::body(vec![b"12", b"34"], AtEnd::Trailers).0)) },
        );
        let whole = shop.open(post("k-1")).await.into_body().collect().await.unwrap();
        assert!(whole.trailers().is_none());
        assert_eq!(whole.to_bytes(), "1234");
    }
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
            let (endless, _) = Chunks::body(vec![b"12345"], AtEnd::Hang);
            Ok(respond(200, &[], endless))
        },
    );
    drop(shop.open(post("k-1")).await);
    assert_eq!((shop.send(post("k-1")).await.code().as_str(), shop.runs()), ("response-not-kept", 1));
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
