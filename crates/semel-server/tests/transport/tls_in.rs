//! TLS towards callers: G2.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustls::ClientConfig;

use crate::bridge::Bridge;
use crate::certificates::{Authority, Issued, written};
use crate::http2::Http2;
use crate::support::{Answer, Call, Client, DEADLINE, Gateway, Launch, Service, semel};

/// A gateway where TLS ends.
fn secure(service: &Service, authority: &Authority, args: &[&str]) -> Gateway {
    let launch = Launch::new(service.address());
    let own = authority.issue(&["localhost"]).args(launch.directory());
    launch.args(own.iter().map(String::as_str)).args(args.iter().copied()).start()
}

/// A request by HTTP/1.1 through TLS, or why there is no answer.
fn call(gateway: &Gateway, config: Arc<ClientConfig>, call: &Call) -> std::io::Result<Answer> {
    let bridge = Bridge::to_tls(gateway.listen, config);
    Client::connect(bridge.address)?.call(call)
}

#[test]
fn g2_one_address_has_both_versions_by_alpn_and_a_key_is_the_same_in_both() {
    let (service, authority) = (Service::plain(), Authority::new("us"));
    let gateway = secure(&service, &authority, &[]);
    let post = Call::post("/charges", "tls").body("amount=1");
    let http2 = Bridge::to_tls(gateway.listen, authority.client(&["h2", "http/1.1"], None));
    let first = Http2::connect(http2.address).call(&post).unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));
    for protocols in [&["http/1.1"][..], &[]] {
        let again = call(&gateway, authority.client(protocols, None), &post).unwrap();
        assert_eq!((again.status, again.is_replay(), &again.body), (201, true, &first.body));
    }
    let seen = service.ledger().last();
    assert_eq!(
        (seen.header("x-forwarded-proto"), seen.header("host")),
        (Some("https"), Some("shop.example"))
    );
    assert_eq!(service.ledger().received_count(), 1);
}

#[test]
fn g2_a_protocol_that_is_none_of_ours_is_not_agreed_on() {
    let (service, authority) = (Service::plain(), Authority::new("us"));
    let gateway = secure(&service, &authority, &[]);
    assert!(call(&gateway, authority.client(&["spdy/3"], None), &Call::new("GET", "/")).is_err());
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn a_caller_must_show_a_certificate_where_one_is_required_and_a_good_one_where_it_is_optional() {
    let (service, ours, theirs) = (Service::plain(), Authority::new("us"), Authority::new("them"));
    let clients = Authority::new("the clients");
    let directory = tempfile::tempdir().unwrap();
    let file = clients.file(directory.path());
    let file = file.to_str().unwrap();
    let (good, bad) = (clients.issue(&["till-7"]), theirs.issue(&["till-7"]));
    let expired = clients.issue_expired(&["till-7"]);
    let with = |gateway: &Gateway, own: Option<&Issued>| {
        ["http/1.1", "h2"].map(|protocol| {
            let bridge = Bridge::to_tls(gateway.listen, ours.client(&[protocol], own));
            let get = Call::new("GET", "/");
            match protocol {
                // Where TLS ends, a caller learns of a refusal with the first byte it reads.
                "http/1.1" => Client::connect(bridge.address).unwrap().call(&get).is_ok(),
                _ => Http2::try_connect(bridge.address).and_then(|mut http2| http2.call(&get)).is_ok(),
            }
        })
    };
    let required = secure(&service, &ours, &["--tls-client-ca", file]);
    assert_eq!(with(&required, Some(&good)), [true; 2]);
    for refused in [None, Some(&bad), Some(&expired)] {
        assert_eq!(with(&required, refused), [false; 2]);
    }
    assert_eq!(service.ledger().received_count(), 2);

    let optional = secure(&service, &ours, &["--tls-client-ca", file, "--tls-client-cert", "optional"]);
    assert_eq!(with(&optional, Some(&good)), [true; 2]);
    assert_eq!(with(&optional, None), [true; 2]);
    assert_eq!(with(&optional, Some(&bad)), [false; 2]);
    assert_eq!(service.ledger().received_count(), 6);
}

#[test]
fn clear_text_where_tls_is_spoken_is_no_request() {
    let (service, authority) = (Service::plain(), Authority::new("us"));
    let gateway = secure(&service, &authority, &[]);
    for text in [&Call::post("/charges", "clear").bytes()[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut client = gateway.connect();
        client.send(text).unwrap();
        let said = client.receive_to_end().unwrap();
        // An alert (RFC 8446, section 6) at most.
        assert!(said.is_empty() || said[0] == 0x15, "{said:?}");
    }
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn tls_where_clear_text_is_spoken_is_no_request() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let mut client = gateway.connect();
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").unwrap();
    assert_eq!(client.receive_to_end().unwrap(), b"");
    assert_eq!(service.ledger().received_count(), 0);
}

#[test]
fn slow_handshakes_are_bounded_and_keep_nobody_waiting() {
    let (service, authority) = (Service::plain(), Authority::new("us"));
    let gateway = secure(&service, &authority, &["--workers", "1"]);
    let begun = Instant::now();
    let slow: Vec<TcpStream> = (0..50)
        .map(|number| {
            let mut stream = TcpStream::connect(gateway.listen).unwrap();
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            // Half of them begin, and say no more.
            stream.write_all(if number % 2 == 0 { b"\x16\x03\x01\x02\x00\x01" } else { b"" }).unwrap();
            stream
        })
        .collect();
    let answer = call(&gateway, authority.client(&["http/1.1"], None), &Call::new("GET", "/")).unwrap();
    assert_eq!(answer.status, 201);
    assert!(begun.elapsed() < Duration::from_secs(8), "others are served meanwhile");
    for mut stream in slow {
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.is_empty() || said[0] == 0x15, "{said:?}");
    }
    assert!(begun.elapsed() > Duration::from_secs(5), "not at once");
}

#[test]
fn sighup_reads_the_certificate_again_and_keeps_the_old_one_where_it_cannot() {
    let (service, old, new) = (Service::plain(), Authority::new("old"), Authority::new("new"));
    let gateway = secure(&service, &old, &[]);
    let get = Call::new("GET", "/");
    let trusting = |authority: &Authority| call(&gateway, authority.client(&[], None), &get).is_ok();
    assert_eq!((trusting(&old), trusting(&new)), (true, false));
    let kept = Bridge::to_tls(gateway.listen, old.client(&[], None));
    let mut open = Client::connect(kept.address).unwrap();
    assert_eq!(open.call(&get).unwrap().status, 201);

    let directory = gateway.launch().directory();
    written(directory, "server.key", "no key");
    gateway.send(Signal::HUP);
    let said = gateway.wait_for_log(|line| line.contains("stays as it was")).expect("a line");
    assert!(said.contains("--tls-key"), "{said}");
    assert_eq!((trusting(&old), trusting(&new)), (true, false));

    new.issue(&["localhost"]).args(directory);
    gateway.send(Signal::HUP);
    gateway.wait_for_log(|line| line.contains("was read again")).expect("a line");
    assert_eq!((trusting(&old), trusting(&new)), (false, true));
    assert_eq!(open.call(&get).unwrap().status, 201, "an open connection stays as it is");
}

/// G6, over TLS.
#[test]
fn told_to_stop_it_closes_what_is_idle_over_tls() {
    let (service, authority) = (Service::plain(), Authority::new("us"));
    let mut gateway = secure(&service, &authority, &[]);
    let bridge = Bridge::to_tls(gateway.listen, authority.client(&[], None));
    let mut idle = Client::connect(bridge.address).unwrap();
    assert_eq!(idle.call(&Call::new("GET", "/")).unwrap().status, 201);
    let _handshaking = gateway.connect();
    gateway.send(Signal::TERM);
    assert!(idle.is_closed());
    assert_eq!(gateway.wait().code(), Some(0));
}

/// `semel gateway` with these, and what it says.
fn mistake(args: &[&str]) -> String {
    let mut command = semel();
    command.args(["gateway", "--upstream", "http://127.0.0.1:9000", "--listen", "127.0.0.1:0"]);
    let output = command.args(["--admin", "127.0.0.1:0", "--store", "memory:"]).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{args:?}: {said}");
    said
}

#[test]
fn what_is_wrong_with_certificates_is_said_at_start_on_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let authority = Authority::new("us");
    let [_, certificate, _, key] = authority.issue(&["localhost"]).args(directory.path());
    let other = directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let [_, _, _, other_key] = authority.issue(&["localhost"]).args(&other);
    let none = path("none.pem");
    let text = written(directory.path(), "text.pem", "this is no PEM\n");
    let cut = written(directory.path(), "cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let damaged = written(
        directory.path(),
        "bad.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let [text, cut, damaged] = [&text, &cut, &damaged].map(|path| path.to_str().unwrap());
    for (args, wants) in [
        (vec!["--tls-cert", &certificate], "--tls-cert needs --tls-key"),
        (vec!["--tls-key", &key], "--tls-key needs --tls-cert"),
        (vec!["--tls-client-ca", &certificate], "--tls-client-ca needs --tls-cert"),
        (vec!["--tls-client-cert", "optional"], "--tls-client-cert needs --tls-client-ca"),
        (vec!["--tls-client-cert", "optionl"], "did you mean 'optional'?"),
        (vec!["--tls-cert", &none, "--tls-key", &key], "none.pem: No such file"),
        (vec!["--tls-cert", &certificate, "--tls-key", &none], "none.pem: No such file"),
        (vec!["--tls-cert", text, "--tls-key", &key], "there is no certificate in it"),
        (vec!["--tls-cert", cut, "--tls-key", &key], "not PEM"),
        (vec!["--tls-cert", damaged, "--tls-key", &key], "--tls-cert"),
        (vec!["--tls-cert", &certificate, "--tls-key", &certificate], "there is no private key in it"),
        (vec!["--tls-cert", &certificate, "--tls-key", &other_key], "not the key of the certificate"),
        (vec!["--upstream-ca", &none], "--upstream-ca"),
        (vec!["--upstream-ca", text], "there is no certificate in it"),
        (vec!["--upstream-http", "h2"], "did you mean '2'?"),
    ] {
        let said = mistake(&args);
        assert!(said.contains(wants), "{args:?}: {said}");
    }
    let own = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca"];
    for (file, wants) in [(none.as_str(), "No such file"), (text, "no certificate"), (damaged, "bad.pem")] {
        let said = mistake(&[&own[..], &[file]].concat());
        assert!(said.contains("--tls-client-ca") && said.contains(wants), "{said}");
    }
}
