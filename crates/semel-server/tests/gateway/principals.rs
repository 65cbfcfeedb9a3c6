//! Who calls, as far as headers say it: H5.

use crate::assert::{metric, plain};
use crate::support::{Answer, Call, Gateway, Launch, Service};

const TRUSTING: [&str; 4] = ["--principal", "header:x-account-id", "--trusted-proxies", "127.0.0.0/8"];

fn as_account(key: &str, account: &str) -> Call {
    Call::post("/charges", key).header("X-Account-Id", account).body("a=1")
}

fn scope(gateway: &Gateway, key: &str) -> String {
    gateway.operator().show(key).expect("a record").scope
}

/// A refusal of HTTP's own.
#[track_caller]
pub(crate) fn refused_by_http(answer: &Answer, status: u16) {
    let problem = answer.json();
    assert_eq!((answer.status, problem["type"].as_str()), (status, Some("about:blank")), "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!((problem["code"].is_null(), problem["retryable"].as_bool()), (true, Some(true)), "{problem}");
}

#[test]
fn h5_a_trusted_proxys_header_is_the_principal_whatever_the_token() {
    let (service, gateway) = plain(&TRUSTING);
    let first = gateway.call(&as_account("k", "acme").header("Authorization", "Bearer one"));
    let retry = gateway.call(&as_account("k", "acme").header("Authorization", "Bearer two"));
    assert!(retry.is_replay() && retry.body == first.body, "a fresh token is the same caller");
    let other = gateway.call(&as_account("k", "bolt").header("Authorization", "Bearer one"));
    assert!(!other.is_replay(), "another account's key is its own");
    assert_eq!(service.ledger().effects("k"), 2);
    assert_eq!(service.ledger().last().header("x-account-id"), Some("bolt"));
    let records = gateway.operator().keys();
    assert!(records.iter().all(|record| record.scope.starts_with("http:default:header-x-account-id-")));
    assert!(records.iter().all(|record| !record.scope.contains("acme")));
}

#[test]
fn h5_from_anybody_else_the_header_counts_for_nothing_and_goes_no_further() {
    let args = ["--principal", "header:x-account-id,authorization", "--trusted-proxies", "192.0.2.0/24,::1"];
    let (service, gateway) = plain(&args);
    let forged = |key: &str, account: &str| as_account(key, account).header("Authorization", "Bearer mine");
    gateway.call(&forged("k", "victim"));
    assert!(scope(&gateway, "k").starts_with("http:default:authorization-"));
    assert!(gateway.call(&forged("k", "somebody")).is_replay(), "the header makes no difference");
    assert_eq!(service.ledger().last().header("x-account-id"), None, "the service would believe it");
    // Guarded or not.
    gateway.call(&Call::new("GET", "/account").header("x-account-id", "victim"));
    assert_eq!(service.ledger().last().header("x-account-id"), None);
    gateway.call(&Call::new("POST", "/charges").header("x-account-id", "victim").header("X-ACCOUNT-ID", "b"));
    assert_eq!(service.ledger().last().header_lines("x-account-id"), [""; 0]);
    assert_eq!(metric(&gateway, "semel_untrusted_headers_total", ""), 4.0);
    assert_eq!(gateway.log().matches("no trusted proxy").count(), 1, "said once");
    // An address that a header claims is not the peer's.
    let lying =
        forged("k2", "victim").header("X-Forwarded-For", "192.0.2.1").header("Forwarded", "for=192.0.2.1");
    gateway.call(&lying);
    assert!(scope(&gateway, "k2").starts_with("http:default:authorization-"));
}

#[test]
fn h5_two_lines_of_the_header_are_refused_and_none_is_guessed() {
    let (service, gateway) = plain(&TRUSTING);
    for second in ["acme", "bolt", ""] {
        refused_by_http(&gateway.call(&as_account("k", "acme").header("x-account-id", second)), 400);
    }
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(gateway.operator().keys().len(), 0);
}

#[test]
fn h5_required_refuses_whoever_is_nobody() {
    let (service, gateway) = plain(&["--principal", "required"]);
    let refused = gateway.call(&Call::post("/charges", "k"));
    refused_by_http(&refused, 401);
    assert_eq!(refused.header("www-authenticate"), None, "which scheme the service wants is not known here");
    assert_eq!(service.ledger().received_count(), 0);
    assert_eq!(gateway.call(&Call::post("/charges", "k").header("Authorization", "Bearer a")).status, 201);
    // What carries no key is not guarded, and so the service's own affair.
    assert_eq!(gateway.call(&Call::new("POST", "/charges")).status, 201);
}

#[test]
fn h5_each_route_has_its_own_callers() {
    let service = Service::plain();
    let launch = Launch::new(service.address());
    let file = launch.directory().join("semel.toml");
    let text = "trusted_proxies = \"127.0.0.1\"\n[[route]]\nmatch = \"/charges\"\n\
                principal = [\"header:x-account-id\", \"required\"]";
    std::fs::write(&file, text).unwrap();
    let gateway = launch.args(["--config", file.to_str().unwrap()]).start();
    refused_by_http(&gateway.call(&Call::post("/charges", "k")), 401);
    assert_eq!(gateway.call(&as_account("k", "acme")).status, 201);
    assert!(scope(&gateway, "k").starts_with("http:default:header-x-account-id-"));
    assert_eq!(gateway.call(&Call::post("/refunds", "k2")).status, 201);
    assert_eq!(scope(&gateway, "k2"), "http:default:anonymous");
}

/// The service may take the one path for the other.
#[test]
fn h5_another_spelling_of_the_path_does_not_bring_the_header_to_the_service() {
    let service = Service::plain();
    let launch = Launch::new(service.address());
    let file = launch.directory().join("semel.toml");
    let text = "trusted_proxies = \"192.0.2.1\"\n[[route]]\nmatch = \"/charges\"\nprincipal = \"header:x-account-id\"";
    std::fs::write(&file, text).unwrap();
    let gateway = launch.args(["--config", file.to_str().unwrap()]).start();
    for (method, target) in
        [("POST", "/charges"), ("POST", "//charges"), ("POST", "/%63harges"), ("GET", "/charges/")]
    {
        gateway.call(&Call::new(method, target).header("X-Account-Id", "victim"));
        let last = service.ledger().last();
        assert_eq!((last.target.as_str(), last.header("x-account-id")), (target, None));
    }
}

#[test]
fn h5_the_start_says_what_cannot_be_told_apart_and_only_that() {
    let said = |args: &[&str]| {
        let (_service, gateway) = plain(args);
        let log = gateway.log();
        (log.contains("share the scope 'anonymous'"), log.contains("whose token changes"))
    };
    assert_eq!(said(&[]), (true, true));
    assert_eq!(said(&["--principal", "required"]), (false, true));
    assert_eq!(said(&TRUSTING), (true, false));
    let required =
        ["--principal", "header:x-account-id", "--principal", "required", "--trusted-proxies", "::1"];
    assert_eq!(said(&required), (false, false));
}
