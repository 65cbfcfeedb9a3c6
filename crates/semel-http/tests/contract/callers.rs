//! Who calls, and whether they may, in the layer: H5, H7.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use http::request::Parts;
use http::{Request, Response};
use semel_http::{AuthCheck, Body, ClientCertificate, Network, Options, Peer};

use crate::support::{Shop, body_of, post, respond, with};

fn by_account(options: &mut Options) {
    options.principals = vec!["header:x-account-id".parse().unwrap(), "certificate".parse().unwrap()];
    options.trusted_proxies = ["10.0.0.0/8".parse::<Network>().unwrap()].into_iter().collect();
}

fn from(peer: &str, mut request: Request<Body>) -> Request<Body> {
    request.extensions_mut().insert(Peer(peer.parse::<IpAddr>().unwrap()));
    request
}

/// Answers with the account that it was told.
fn shop(change: impl FnOnce(&mut Options)) -> Shop {
    Shop::with(change, |_, request| async move {
        let account = request.headers().get("x-account-id").cloned();
        drop(body_of(request).await);
        Ok(respond(201, &[], account.map_or_else(Body::empty, |account| account.as_bytes().to_vec().into())))
    })
}

#[tokio::test]
async fn h5_the_layer_believes_whom_it_is_told_to_believe() {
    let shop = shop(by_account);
    let acme = || with(post("k"), "x-account-id", "acme");
    let first = shop.send(from("10.0.0.1", acme())).await;
    assert_eq!((first.status.as_u16(), first.body.as_ref()), (201, &b"acme"[..]));
    assert!(shop.send(from("10.0.0.2", acme())).await.is_replay());
    let forged = shop.send(from("192.0.2.1", acme())).await;
    assert_eq!((forged.is_replay(), forged.body.len()), (false, 0), "it is taken off");
    let unguarded = with(Request::new(Body::empty()), "x-account-id", "acme");
    assert_eq!(shop.send(from("192.0.2.1", unguarded)).await.body.len(), 0);
    assert_eq!(shop.number_of_records().await, 2);
}

#[tokio::test]
async fn h5_a_layer_that_is_not_told_who_sent_a_header_says_so() {
    let shop = shop(by_account);
    let refused = shop.send(with(post("k"), "x-account-id", "acme")).await;
    assert_eq!((refused.status.as_u16(), refused.json()["type"].as_str()), (500, Some("about:blank")));
    assert_eq!((shop.runs(), shop.number_of_records().await), (0, 0));
    // Without the header there is nothing to be in doubt about.
    let mut by_certificate = post("k");
    by_certificate.extensions_mut().insert(ClientCertificate([7; 32]));
    assert_eq!(shop.send(by_certificate).await.status, 201);
    assert!(shop.records("k").await[0].scope.as_str().starts_with("http:default:certificate-0707"));
}

/// Lets by, until it is told otherwise.
#[derive(Debug, Default)]
struct Asked {
    revoked: AtomicBool,
}

#[async_trait]
impl AuthCheck for Asked {
    async fn check(&self, parts: &Parts) -> Result<(), Response<Body>> {
        assert!(parts.headers.contains_key("idempotency-key"), "the head as it came");
        if !self.revoked.load(Ordering::SeqCst) {
            return Ok(());
        }
        let headers = [
            ("www-authenticate", "Basic"),
            ("semel-outcome", "keep"),
            ("connection", "x-one"),
            ("x-one", "1"),
        ];
        Err(respond(401, &headers, "gone"))
    }
}

#[tokio::test]
async fn c32_whoever_may_no_longer_gets_no_replay_and_the_store_is_not_asked() {
    let asked = Arc::new(Asked::default());
    let shop = shop(|options| options.auth_check = Some(asked.clone()));
    assert_eq!(shop.send(post("k")).await.status, 201);
    assert!(shop.send(post("k")).await.is_replay());
    asked.revoked.store(true, Ordering::SeqCst);
    for key in ["k", "another"] {
        let refused = shop.send(post(key)).await;
        assert_eq!((refused.status.as_u16(), refused.body.as_ref()), (401, &b"gone"[..]));
        assert_eq!(refused.header("www-authenticate"), Some("Basic"));
        for ours in ["semel-outcome", "x-one", "idempotent-replayed"] {
            assert_eq!(refused.header(ours), None, "{ours}");
        }
    }
    assert_eq!((shop.runs(), shop.number_of_records().await), (1, 1));
    // What carries no key is the service's own affair.
    let unguarded = Request::post("/charges").body(Body::empty()).unwrap();
    assert_eq!(shop.send(unguarded).await.status, 201);
}
