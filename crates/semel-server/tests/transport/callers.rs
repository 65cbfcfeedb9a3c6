//! Who calls, where TLS ends here, and whom the gateway asks through TLS: H5, H7.

use crate::bridge::Bridge;
use crate::certificates::{Authority, Issued};
use crate::http2::Http2;
use crate::support::{Answer, Call, Client, Gateway, Launch, Plan, Reply, Service};

fn call(gateway: &Gateway, ours: &Authority, own: &Issued, protocol: &str) -> Answer {
    let bridge = Bridge::to_tls(gateway.listen, ours.client(&[protocol], Some(own)));
    let post = Call::post("/charges", "k").body("amount=1");
    match protocol {
        "h2" => Http2::connect(bridge.address).call(&post).unwrap(),
        _ => Client::connect(bridge.address).unwrap().call(&post).unwrap(),
    }
}

#[test]
fn h5_the_client_certificate_is_the_principal_whatever_the_connection() {
    let (service, ours, clients) = (Service::plain(), Authority::new("us"), Authority::new("the clients"));
    let launch = Launch::new(service.address());
    let own = ours.issue(&["localhost"]).args(launch.directory());
    let file = clients.file(launch.directory());
    let launch = launch.args(own.iter().map(String::as_str));
    let args = ["--tls-client-ca", file.to_str().unwrap(), "--principal", "certificate,required"];
    let gateway = launch.args(args).start();
    let (till, other) = (clients.issue(&["till-7"]), clients.issue(&["till-8"]));
    let first = call(&gateway, &ours, &till, "http/1.1");
    assert_eq!((first.status, first.is_replay()), (201, false));
    let again = call(&gateway, &ours, &till, "h2");
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    assert!(!call(&gateway, &ours, &other, "h2").is_replay());
    assert_eq!(service.ledger().effects("k"), 2);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &till.certificate);
    let digits: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let scopes: Vec<_> = gateway.operator().keys().into_iter().map(|record| record.scope).collect();
    assert!(scopes.contains(&format!("http:default:certificate-{digits}")), "{scopes:?}");
}

fn answering(reply: Reply) -> Plan {
    Plan { effect: false, reply, ..Plan::default() }
}

#[cfg(feature = "jwt")]
#[test]
fn h5_keys_come_over_tls_only_from_whom_this_system_trusts() {
    let (ours, others) = (Authority::new("us"), Authority::new("others"));
    let keys = Service::doing(answering(Reply::new(200, "{\"keys\":[]}")));
    let bridge = Bridge::from_tls(keys.address(), ours.issue(&["localhost"]).server(&["http/1.1"]));
    for (trusted, status) in [(&ours, 200), (&others, 503)] {
        let launch = Launch::new(keys.address());
        let roots = trusted.file(launch.directory());
        let url = format!("https://localhost:{}/jwks.json", bridge.address.port());
        let args = ["--principal", "jwt:sub", "--jwks", &url, "--jwt-issuer", "i", "--jwt-audience", "a"];
        let gateway = launch.args(args).env("SSL_CERT_FILE", roots.to_str().unwrap()).start();
        assert_eq!(gateway.admin("/readyz").status, status);
    }
    assert_eq!(keys.ledger().received_count(), 1);
}

#[test]
fn h7_whoever_is_asked_over_tls_is_verified() {
    let (service, ours, others) = (Service::plain(), Authority::new("us"), Authority::new("others"));
    let asked = Service::doing(answering(Reply::new(204, "")));
    for (authority, status) in [(&ours, 201), (&others, 503)] {
        let bridge = Bridge::from_tls(asked.address(), authority.issue(&["localhost"]).server(&["http/1.1"]));
        let launch = Launch::new(service.address());
        let trusted = ours.file(launch.directory());
        let url = format!("https://localhost:{}/allowed", bridge.address.port());
        let args = ["--auth-check", &url, "--upstream-ca", trusted.to_str().unwrap()];
        let gateway = launch.args(args).start();
        assert_eq!(gateway.call(&Call::post("/charges", "k")).status, status);
    }
    assert_eq!((asked.ledger().received_count(), service.ledger().received_count()), (1, 1));
}
