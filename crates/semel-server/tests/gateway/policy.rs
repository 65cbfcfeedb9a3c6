//! The published policy through a socket (H10).

use crate::support::{Call, Client, Gateway, Launch, Service};

const PATH: &str = "/.well-known/semel-policy";

fn get() -> Call {
    Call::new("GET", PATH)
}

/// Of a shop with a route of its own and one of another host.
fn shop(service: &Service) -> Gateway {
    let launch = Launch::new(service.address());
    let file = launch.directory().join("semel.toml");
    let text = "[[route]]\nmatch = \"/charges\"\nkey = \"required\"\n\
                [[route]]\nmatch = \"/refunds\"\nhost = \"pay.example\"\n";
    std::fs::write(&file, text).unwrap();
    launch.args(["--config", file.to_str().unwrap(), "--service", "internal-name"]).start()
}

#[test]
fn h10_a_refusal_leads_to_the_policy_and_nothing_of_it_reaches_the_service() {
    let service = Service::plain();
    let gateway = shop(&service);
    let refused = gateway.call(&Call::new("POST", "/charges").body("x"));
    assert_eq!(refused.code(), "key-missing");
    assert_eq!(refused.header("link"), Some("</.well-known/semel-policy>; rel=\"describedby\""));
    let policy = gateway.call(&get().header("Accept", "application/json")).json();
    let row = policy["refusals"].as_array().unwrap().iter().find(|row| row["code"] == "key-missing").unwrap();
    assert_eq!(
        (&row["status"], &row["retryable"], &row["effect"]),
        (&400.into(), &false.into(), &"none".into())
    );
    assert_eq!(policy["routes"][0]["match"], "/charges");
    assert_eq!(policy["routes"][0]["key"], "required");
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn it_is_text_or_html_or_json_as_the_caller_likes() {
    let service = Service::plain();
    let gateway = shop(&service);
    for (accept, kind, start) in [
        (None, "text/plain; charset=utf-8", "Idempotency policy"),
        (Some("*/*"), "text/plain; charset=utf-8", "Idempotency policy"),
        (Some("application/json"), "application/json", "{"),
        (Some("text/html,application/xhtml+xml,*/*;q=0.8"), "text/html; charset=utf-8", "<!doctype html>"),
        (Some("image/png"), "text/plain; charset=utf-8", "Idempotency policy"),
    ] {
        let call = accept.map_or_else(get, |accept| get().header("Accept", accept));
        let answer = gateway.call(&call);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{accept:?}");
        assert!(answer.text().starts_with(start), "{accept:?}: {}", answer.text());
        assert_eq!(answer.header("vary"), Some("Accept"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn it_is_kept_for_a_minute_and_asked_for_again_by_its_tag() {
    let service = Service::plain();
    let gateway = shop(&service);
    let first = gateway.call(&get());
    assert_eq!(first.header("cache-control"), Some("public, max-age=60"));
    let tag = first.header("etag").unwrap();
    let again = gateway.call(&get().header("If-None-Match", tag));
    assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, Some(tag)));
    let html = gateway.call(&get().header("Accept", "text/html").header("If-None-Match", tag));
    assert_eq!(html.status, 200, "another form is another text");
}

#[test]
fn a_head_is_the_get_without_its_body() {
    let service = Service::plain();
    let gateway = shop(&service);
    let mut client = gateway.connect();
    let head = client.call(&Call::new("HEAD", PATH)).unwrap();
    let whole = client.call(&get()).unwrap();
    assert_eq!((head.status, head.body.len()), (200, 0));
    for name in ["content-length", "content-type", "etag", "vary", "cache-control"] {
        assert_eq!(head.header(name), whole.header(name), "{name}");
    }
    assert_eq!(whole.header("content-length"), Some(whole.body.len().to_string().as_str()));
}

/// What operators know is on the admin address.
#[test]
fn h10_it_says_nothing_of_how_the_gateway_is_built() {
    let service = Service::plain();
    let gateway = shop(&service);
    let upstream = service.address().to_string();
    let secrets = [upstream.as_str(), "sqlite", "semel.db", "internal-name", "upstream_timeout", "\"lease\""];
    for accept in ["application/json", "text/html", "text/plain"] {
        let page = gateway.call(&get().header("Accept", accept)).text();
        for secret in secrets {
            assert!(!page.contains(secret), "{secret} in\n{page}");
        }
    }
    let ready = gateway.admin("/readyz").text();
    for secret in secrets {
        assert!(ready.contains(secret), "{secret} is for operators, in\n{ready}");
    }
}

#[test]
fn a_host_sees_its_routes_and_not_those_of_others() {
    let service = Service::plain();
    let gateway = shop(&service);
    let text = |host: &str| gateway.call(&get().header("Host", host)).text();
    assert!(text("pay.example").contains("/refunds") && text("PAY.example:8443").contains("/refunds"));
    let others = text("shop.example");
    assert!(others.contains("/charges") && !others.contains("/refunds") && !others.contains("pay.example"));
}

#[test]
fn only_reading_it_is_answered_here() {
    let service = Service::plain();
    let gateway = shop(&service);
    let mut client = Client::connect(gateway.listen).unwrap();
    for call in
        [Call::post(PATH, "k").body("x"), Call::new("DELETE", PATH), Call::new("GET", "/.well-known/other")]
    {
        assert_eq!(client.call(&call).unwrap().status, 201, "the service's: {call:?}");
    }
    assert_eq!(service.ledger().received_count(), 3);
}
