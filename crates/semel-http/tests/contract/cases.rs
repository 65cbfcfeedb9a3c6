//! Public failures of other systems, each by its number in the list of cases.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::{AtEnd, Chunks, Gate, Reply, Shop, body_of, post, posting, respond, with};
use bytes::Bytes;
use http::{HeaderName, Request, StatusCode};
use http_body_util::BodyExt;
use semel::{OnUnknown, Policy};
use semel_http::Body;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn c01_a_caller_that_hangs_up_changes_nothing() {
    let shop = Shop::new(|_, _| async {
        sleep(Duration::from_millis(300)).await;
        Ok(respond(201, &[], "paid"))
    });
    assert!(timeout(Duration::from_millis(150), shop.send(post("k-hang-1"))).await.is_err(), "it hung up");
    assert_eq!(shop.send(post("k-hang-1")).await.code(), "in-flight");
    sleep(Duration::from_secs(1)).await;
    let retry = shop.send(post("k-hang-1")).await;
    assert_eq!((retry.status, retry.is_replay(), shop.runs()), (StatusCode::CREATED, true, 1));
}

#[tokio::test(start_paused = true)]
async fn c12_a_slow_withdrawal_is_not_taken_over() {
    let slow = |on_unknown| {
        let policy = Policy {
            lease_for: Duration::from_millis(300),
            answer_within: Some(Duration::from_millis(200)),
            late_answer_for: Duration::from_millis(500),
            ..Policy::new(on_unknown)
        };
        Shop::with(
            |o| o.policy = Arc::new(policy),
            |_, request| async move {
                let attempt = request.headers()["semel-attempt"].clone();
                sleep(Duration::from_secs(5)).await;
                Ok(respond(201, &[], attempt.to_str().unwrap().to_owned()))
            },
        )
    };
    let parking = slow(OnUnknown::Park);
    assert_eq!(parking.send(post("k")).await.code(), "upstream-timeout");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(parking.send(post("k")).await.code(), "outcome-unknown");
    assert_eq!(parking.runs(), 1);

    let rerunning = slow(OnUnknown::Rerun);
    rerunning.send(post("k")).await;
    sleep(Duration::from_secs(1)).await;
    rerunning.send(post("k")).await;
    assert_eq!((rerunning.runs(), rerunning.records("k").await[0].attempts), (2, 2));
}

#[tokio::test]
async fn c18_two_key_lines_are_never_another_key() {
    let alias = HeaderName::from_static("x-idempotency-key");
    let shop = Shop::with(|o| o.key_names.push(alias), |_, _| async { Ok(respond(201, &[], "")) });
    for (key, name, second) in [
        ("K", "idempotency-key", Some("K")),
        ("K", "idempotency-key", Some("L")),
        ("K, K", "idempotency-key", None),
        ("\"K\", \"K\"", "idempotency-key", None),
        ("K", "x-idempotency-key", Some("K")),
        ("K", "x-idempotency-key", Some("other")),
    ] {
        let request = second.map_or_else(|| post(key), |second| with(post(key), name, second));
        assert_eq!(shop.send(request).await.code(), "key-malformed");
    }
    assert_eq!((shop.runs(), shop.number_of_records().await), (0, 0));
}

#[tokio::test]
async fn c24_large_numbers_are_not_the_same() {
    let shop = Shop::answering(201, "");
    for (key, one, other) in [
        ("a", "9007199254740992", "9007199254740993"),
        ("b", "0.1", "0.10000000000000001"),
        ("c", "1e400", "1e401"),
        ("d", "{\"a\":1,\"a\":2}", "{\"a\":2}"),
    ] {
        shop.send(posting(key, one)).await;
        assert_eq!(shop.send(posting(key, other)).await.code(), "key-reused");
    }
}

#[tokio::test]
async fn c32_an_answer_of_401_is_not_stored_and_another_tenant_runs_on_its_own() {
    let shop = Shop::new(|_, request| async move {
        let is_good = request.headers().get("authorization").is_some_and(|token| token != "Bearer revoked");
        Ok(if is_good { respond(201, &[], "a") } else { respond(401, &[("www-authenticate", "Bearer")], "") })
    });
    for _ in 0..2 {
        let refused = shop.send(with(post("k"), "authorization", "Bearer revoked")).await;
        assert_eq!(
            (refused.status, refused.header("www-authenticate")),
            (StatusCode::UNAUTHORIZED, Some("Bearer"))
        );
    }
    for token in ["Bearer a", "Bearer b"] {
        let own = shop.send(with(post("k"), "authorization", token)).await;
        assert_eq!((own.status, own.is_replay()), (StatusCode::CREATED, false));
    }
    assert_eq!(shop.runs(), 4);
}

#[tokio::test]
async fn c44_no_session_material_is_kept_or_replayed() {
    let headers = [
        ("set-cookie", "csrf=secret-1"),
        ("www-authenticate", "Bearer realm=secret-2"),
        ("authentication-info", "nextnonce=secret-3"),
        ("date", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ("age", "12"),
        ("x-request-id", "r-1"),
        ("ratelimit-remaining", "4"),
        ("x-ratelimit-limit", "9"),
        ("server-timing", "db;dur=3"),
        ("traceparent", "00-a-b-01"),
        ("location", "/charges/1"),
    ];
    let shop = Shop::new(move |_, _| async move { Ok(respond(201, &headers, "")) });
    let first = shop.send(post("k")).await;
    for (name, value) in headers {
        assert_eq!(first.header(name), Some(value), "the first caller gets what was meant for it");
    }
    let retry = shop.send(post("k")).await;
    let names: Vec<_> = retry.headers.keys().map(HeaderName::as_str).collect();
    assert_eq!(names, ["location", "idempotent-replayed", "content-length"]);
    assert!(!String::from_utf8_lossy(&shop.outcome("k").await).contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn c49_a_streamed_body_is_kept_whole_also_for_who_stopped_reading() {
    let shop = Shop::new(|_, _| async {
        let (body, _) = Chunks::body(vec![b"one ", b"two ", b"three ", b"four ", b"five"], AtEnd::Trailers);
        Ok(respond(200, &[("trailer", "x-trailer"), ("transfer-encoding", "chunked")], body))
    });
    let mut first = shop.open(post("k")).await;
    assert!(first.body_mut().frame().await.is_some());
    drop(first);
    let retry = shop.send(post("k")).await;
    assert_eq!(
        (&retry.body[..], retry.header("content-length")),
        (&b"one two three four five"[..], Some("23"))
    );
    assert!(!retry.headers.contains_key("trailer") && !retry.headers.contains_key("transfer-encoding"));
}

#[tokio::test]
async fn c49_a_body_that_breaks_off_is_no_success() {
    let shop =
        Shop::new(|_, _| async { Ok(respond(200, &[], Chunks::broken(vec![b"one", b"two", b"three"]))) });
    let own = shop.send(post("k")).await;
    assert_eq!((own.status, own.code().as_str()), (StatusCode::BAD_GATEWAY, "outcome-unknown"));
    assert_eq!(own.json()["upstream_status"], 200);
    assert_eq!((shop.state("k").await, shop.runs()), ("unknown", 1));
}

#[tokio::test]
async fn c58_another_tenants_key_is_another_operation_and_another_route_a_mismatch() {
    let shop = Shop::new(|run, _| async move { Ok(respond(201, &[], run.to_string())) });
    let of = |token| with(post("screen-1"), "authorization", token);
    assert_eq!(shop.send(of("Bearer a")).await.body, "1");
    assert_eq!(shop.send(of("Bearer b")).await.body, "2");
    let mut elsewhere = of("Bearer a");
    *elsewhere.uri_mut() = "/refunds".parse().unwrap();
    assert_eq!(shop.send(elsewhere).await.code(), "key-reused");
    assert_eq!((shop.send(of("Bearer a")).await.body, shop.runs()), (Bytes::from("1"), 2));
}

#[tokio::test]
async fn c59_one_request_is_one_call_of_the_inner_service_whatever_it_answers() {
    for status in [500, 502, 503, 504] {
        let shop = Shop::answering(status, "");
        shop.send(post("k")).await;
        assert_eq!(shop.runs(), 1, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn c59_a_resending_proxy_in_front_runs_it_once() {
    let shop = Shop::new(|_, _| async {
        sleep(Duration::from_secs(1)).await;
        Ok(respond(201, &[], ""))
    });
    let mut sends = Vec::new();
    for _ in 0..3 {
        sends.push(shop.start(post("k")));
        sleep(Duration::from_millis(100)).await;
    }
    let mut statuses = Vec::new();
    for send in sends {
        statuses.push(send.await.unwrap().status.as_u16());
    }
    assert_eq!((statuses, shop.runs()), (vec![201, 409, 409], 1));
}

#[tokio::test]
async fn c74_the_body_is_bounded_and_no_body_is_an_empty_one() {
    let shop = Shop::with(|o| o.body.drain_bytes_max = 0, |_, _| async { Ok(respond(201, &[], "")) });
    let mebibyte = Bytes::from(vec![b'x'; 1024 * 1024]);
    let endless = std::iter::repeat_n(mebibyte, 64).map(Ok).collect();
    let (body, asked) = Chunks::of(endless, AtEnd::Hang);
    assert_eq!(shop.send(posting("k-long", body)).await.code(), "body-too-large");
    assert_eq!(asked.load(Ordering::SeqCst), 3, "two to pass the limit, one to find that draining is over");
    assert_eq!(shop.number_of_records().await, 0);

    shop.send(posting("k-empty", Body::empty())).await;
    let announced = with(posting("k-empty", Body::from("")), "content-length", "0");
    assert!(shop.send(announced).await.is_replay());
    let (chunked, _) = Chunks::body(vec![], AtEnd::Close);
    assert!(shop.send(with(posting("k-empty", chunked), "transfer-encoding", "chunked")).await.is_replay());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c83_losing_the_race_is_no_error() {
    let gate = Gate::new();
    let inside = gate.clone();
    let shop = Shop::new(move |_, _| {
        let gate = inside.clone();
        async move {
            gate.pass().await;
            Ok(respond(201, &[], ""))
        }
    });
    let sends: Vec<_> = (0..50).map(|_| shop.start(post("k"))).collect();
    gate.entered().await;
    // The one that runs waits for the other 49 answers, or this test would wait for ever.
    let mut statuses = Vec::new();
    let mut sends = in_order_of_arrival(sends);
    for _ in 0..49 {
        statuses.push(sends.recv().await.unwrap());
    }
    gate.open();
    assert!(statuses.iter().all(|status| *status == 409), "{statuses:?}");
    assert_eq!((sends.recv().await, shop.runs()), (Some(201), 1));
}

/// Results in the order in which they come.
fn in_order_of_arrival(tasks: Vec<JoinHandle<Reply>>) -> UnboundedReceiver<u16> {
    let (sender, receiver) = unbounded_channel();
    for task in tasks {
        let sender = sender.clone();
        tokio::spawn(async move { sender.send(task.await.unwrap().status.as_u16()) });
    }
    receiver
}

#[tokio::test]
async fn c84_status_headers_and_bytes_are_those_of_the_first_answer() {
    type Lines = &'static [(&'static str, &'static str)];
    let answers: [(u16, Lines, &str); 7] = [
        (201, &[("location", "/1"), ("etag", "\"1\"")], "created"),
        (202, &[("link", "</a>"), ("link", "</b>")], ""),
        (204, &[], ""),
        (205, &[], ""),
        (303, &[("location", "/2")], ""),
        (406, &[("content-type", "application/json")], "{}"),
        (200, &[], ""),
    ];
    for (status, headers, body) in answers {
        let shop = Shop::new(move |_, _| async move { Ok(respond(status, headers, body)) });
        let first = shop.send(post("k")).await;
        let mut retry = shop.send(post("k")).await;
        assert!(retry.headers.remove("idempotent-replayed").is_some());
        assert_eq!((&retry, first.status.as_u16()), (&first, status));
        let length = if status == 204 { None } else { Some(body.len().to_string()) };
        assert_eq!(retry.header("content-length"), length.as_deref(), "{status}");
    }
}

#[tokio::test]
async fn c84_what_has_no_body_is_replayed_without_one_whatever_was_sent() {
    for status in [204, 205, 304] {
        let shop =
            Shop::new(move |_, _| async move { Ok(respond(status, &[("content-length", "4")], "body")) });
        for _ in 0..2 {
            let reply = shop.send(post("k")).await;
            assert_eq!((reply.status.as_u16(), reply.body.len()), (status, 0));
            assert!(matches!(reply.header("content-length"), None | Some("0")));
        }
    }
}

#[tokio::test]
async fn c89_a_key_of_255_bytes_is_taken_and_one_of_256_refused() {
    let shop = Shop::answering(201, "");
    assert_eq!(shop.send(post(&"k".repeat(255))).await.status, 201);
    assert!(!shop.send(post(&("k".repeat(254) + "x"))).await.is_replay());
    for long in ["k".repeat(256), "k".repeat(8192)] {
        assert_eq!(shop.send(post(&long)).await.code(), "key-malformed");
    }
    assert_eq!(shop.runs(), 2);
}

#[tokio::test]
async fn c93_a_failure_that_passes_is_not_pinned_to_the_key() {
    let shop = Shop::new(|run, _| async move { Ok(respond(if run == 1 { 503 } else { 201 }, &[], "")) });
    assert_eq!(shop.send(post("k")).await.status, 503);
    let second = shop.send(post("k")).await;
    assert_eq!((second.status, second.is_replay(), shop.runs()), (StatusCode::CREATED, false, 2));

    let pinning = Shop::with(
        |o| {
            o.statuses.released.retain(|status| *status != 503);
            o.statuses.kept.push(StatusCode::SERVICE_UNAVAILABLE);
        },
        |_, _| async { Ok(respond(503, &[], "down")) },
    );
    pinning.send(post("k")).await;
    assert!(pinning.send(post("k")).await.is_replay());
}

#[tokio::test]
async fn c98_each_answer_has_the_framing_of_its_own_bytes() {
    let shop = Shop::new(|_, _| async {
        let (chunked, _) = Chunks::body(vec![b"ab", b"cd", b"e"], AtEnd::Trailers);
        Ok(respond(200, &[("transfer-encoding", "chunked"), ("trailer", "x-trailer")], chunked))
    });
    for _ in 0..2 {
        let reply = shop.send(post("k")).await;
        assert_eq!((&reply.body[..], reply.header("content-length")), (&b"abcde"[..], Some("5")));
        assert!(!reply.headers.contains_key("transfer-encoding"));
    }
}

#[tokio::test]
async fn c100_a_preflight_leaves_no_record() {
    let shop = Shop::answering(204, "");
    let preflight = Request::options("/charges").header("idempotency-key", "k").body(Body::empty()).unwrap();
    shop.send(preflight).await;
    assert_eq!((shop.runs(), shop.store.calls.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test]
async fn c104_a_replayed_refusal_is_marked_and_a_fresh_one_is_not() {
    let shop = Shop::answering(402, "card declined");
    assert!(!shop.send(post("k")).await.is_replay());
    let retry = shop.send(post("k")).await;
    assert_eq!((retry.status, retry.is_replay()), (StatusCode::PAYMENT_REQUIRED, true));
}

#[tokio::test(start_paused = true)]
async fn c109_a_retry_in_flight_is_told_when_to_come_back() {
    let shop = Shop::new(|_, _| async {
        sleep(Duration::from_secs(3)).await;
        Ok(respond(201, &[], "secret"))
    });
    let first = shop.start(post("k"));
    sleep(Duration::from_millis(100)).await;
    let retry = shop.send(posting("k", "{\"amount\":5}")).await;
    assert_eq!((retry.status, retry.code().as_str()), (StatusCode::CONFLICT, "in-flight"));
    let after: u64 = retry.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&after));
    assert!(!String::from_utf8_lossy(&retry.body).contains("amount"));
    assert_eq!(first.await.unwrap().status, 201);
}

#[tokio::test]
async fn c112_the_claim_comes_before_the_work() {
    let gate = Gate::new();
    let inside = gate.clone();
    let shop = Shop::new(move |_, request| {
        let gate = inside.clone();
        async move {
            gate.pass().await;
            Ok(respond(201, &[], body_of(request).await.to_vec()))
        }
    });
    let first = shop.start(post("k"));
    gate.entered().await;
    assert_eq!(shop.send(post("k")).await.code(), "in-flight");
    // Another request with the key is a mismatch also while the first one runs: mismatch comes before in flight.
    assert_eq!(shop.send(posting("k", "other")).await.code(), "key-reused");
    gate.open();
    assert_eq!((first.await.unwrap().status, shop.runs()), (StatusCode::CREATED, 1));
}

#[tokio::test]
async fn c119_an_error_that_is_not_resent_reaches_the_caller_unchanged() {
    let headers = [("content-type", "application/json"), ("x-err", "7")];
    let shop = Shop::new(move |_, _| async move { Ok(respond(500, &headers, "{\"error\":\"db\"}")) });
    let reply = shop.send(post("k")).await;
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (500, &b"{\"error\":\"db\"}"[..]));
    assert_eq!((reply.header("content-type"), reply.header("x-err")), (Some("application/json"), Some("7")));
}
