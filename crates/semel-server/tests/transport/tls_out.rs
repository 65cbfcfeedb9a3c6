//! TLS towards the service: G2, and H11 where it is not agreed on.

use crate::bridge::Bridge;
use crate::certificates::{Authority, Issued, written};
use crate::frames::Frames;
use crate::support::{Call, Gateway, Launch, Service, semel};

/// A gateway that reaches the service through TLS, by this name, and trusts this authority.
fn through(bridge: &Bridge, name: &str, trusted: &Authority) -> Gateway {
    let launch = Launch::new(bridge.address).upstream(&format!("https://{name}:{}", bridge.address.port()));
    let file = trusted.file(launch.directory());
    launch.args(["--upstream-ca", file.to_str().unwrap()]).start()
}

#[test]
fn g2_a_service_behind_tls_is_verified_by_its_name_and_host_is_kept() {
    let (service, authority) = (Service::plain(), Authority::new("us"));
    let own = authority.issue(&["localhost", "127.0.0.1"]);
    for (protocols, name) in [(&["http/1.1"][..], "localhost"), (&[], "localhost"), (&[], "127.0.0.1")] {
        let bridge = Bridge::from_tls(service.address(), own.server(protocols));
        let gateway = through(&bridge, name, &authority);
        let post = Call::post("/charges", "out").body("amount=1");
        let (first, again) = (gateway.call(&post), gateway.call(&post));
        assert_eq!((first.status, again.is_replay()), (201, true));
        assert_eq!(service.ledger().last().header("host"), Some("shop.example"));
        for _ in 0..3 {
            assert_eq!(gateway.call(&Call::new("GET", "/")).status, 201);
        }
        assert!(bridge.handshakes() < 4, "an idle connection is used again");
    }
}

#[test]
fn g2_over_tls_the_service_chooses_http2() {
    let frames = Frames::start(|request| request.ok());
    let authority = Authority::new("us");
    let own = authority.issue(&["localhost"]);
    let bridge = Bridge::from_tls(frames.address, own.server(&["h2", "http/1.1"]));
    let gateway = through(&bridge, "localhost", &authority);
    let answer = gateway.call(&Call::post("/charges", "alpn"));
    assert_eq!((answer.status, answer.text().as_str()), (200, "done"));
    assert!(gateway.call(&Call::post("/charges", "alpn")).is_replay());
    assert_eq!(frames.requests(), 1);
}

/// H11: certainly not processed, so the key is released and the same key runs when the service is back.
#[test]
fn h11_a_handshake_that_fails_is_certainly_not_processed() {
    let (service, ours, others) = (Service::plain(), Authority::new("us"), Authority::new("others"));
    let refused = |own: &Issued, name: &str, trusted: &Authority| {
        let bridge = Bridge::from_tls(service.address(), own.server(&[]));
        let gateway = through(&bridge, name, trusted);
        let answer = gateway.call(&Call::post("/charges", "k"));
        assert_eq!((answer.status, answer.code().as_str()), (502, "upstream-unreachable"));
        assert_eq!(answer.json()["effect"], "none");
        let record = gateway.operator().show("k").unwrap();
        assert_eq!((record.state.as_str(), record.attempts), ("released", 0));
    };
    refused(&others.issue(&["localhost"]), "localhost", &ours);
    refused(&ours.issue_expired(&["localhost"]), "localhost", &ours);
    refused(&ours.issue(&["elsewhere.example"]), "localhost", &ours);
    assert_eq!(service.ledger().received_count(), 0);

    // And one that speaks no TLS at all.
    let launch = Launch::new(service.address()).upstream(&format!("https://{}", service.address()));
    let file = ours.file(launch.directory());
    let gateway = launch.args(["--upstream-ca", file.to_str().unwrap()]).start();
    let answer = gateway.call(&Call::post("/charges", "k"));
    assert_eq!((answer.code().as_str(), &answer.json()["effect"]), ("upstream-unreachable", &"none".into()));
    assert_eq!(service.ledger().effects_count(), 0);
}

#[test]
fn without_root_certificates_it_does_not_start_and_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let empty = written(directory.path(), "none.pem", "");
    let start = |url: &str| {
        let mut command = semel();
        command.env("SSL_CERT_FILE", &empty).env_remove("SSL_CERT_DIR");
        command.args(["gateway", "--upstream", url, "--store", "nowhere:", "--listen", "127.0.0.1:0"]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = start("http://localhost:1");
    assert!(code == Some(2) && said.contains("--store"), "it is not needed: {said}");
    let (code, said) = start("https://localhost:1");
    assert_eq!(code, Some(2));
    assert!(said.contains("ca-certificates") && said.contains("--upstream-ca"), "{said}");
}
