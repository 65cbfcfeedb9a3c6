//! The token of the admin address.

mod support;

use std::path::PathBuf;

use support::{Answer, Call, Client, Gateway, Launch, Service, semel};

const TOKEN: &str = "admin-token-0123456789";

struct Guarded {
    gateway: Gateway,
    service: Service,
}

impl Guarded {
    fn start() -> Guarded {
        let service = Service::plain();
        let launch = Launch::new(service.address());
        let file = token_file(&launch, TOKEN);
        let gateway = launch.args(["--admin-token-file", file.to_str().unwrap(), "--log", "debug"]).start();
        Guarded { gateway, service }
    }

    fn get(&self, path: &str, authorization: Option<&str>) -> Answer {
        let call = Call::new("GET", path);
        let call = match authorization {
            Some(value) => call.header("Authorization", value),
            None => call,
        };
        Client::connect(self.gateway.admin).unwrap().call(&call).unwrap()
    }
}

fn token_file(launch: &Launch, text: &str) -> PathBuf {
    let file = launch.directory().join("token");
    std::fs::write(&file, text).unwrap();
    file
}

#[test]
fn readiness_and_metrics_ask_for_the_token_and_health_does_not() {
    let guarded = Guarded::start();
    let good = format!("Bearer {TOKEN}");
    for path in ["/readyz", "/metrics"] {
        for wrong in
            [None, Some("Bearer admin-token-012345678"), Some("Bearer "), Some("Basic YTpi"), Some(TOKEN)]
        {
            let answer = guarded.get(path, wrong);
            assert_eq!(answer.status, 401, "{path} {wrong:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"semel\""));
            assert!(
                !answer.text().contains("gateway\"") && !answer.text().contains("semel_"),
                "{}",
                answer.text()
            );
        }
        assert_eq!(guarded.get(path, Some(&good)).status, 200, "{path}");
    }
    assert_eq!(guarded.get("/nothing", None).status, 401, "what there is is not said either");
    assert_eq!(guarded.get("/nothing", Some(&good)).status, 404);
    assert_eq!(guarded.get("/healthz", None).text(), "ok\n");
}

#[test]
fn the_token_stands_in_no_log_no_answer_and_no_argument() {
    let guarded = Guarded::start();
    let seen = guarded.get("/readyz", Some(&format!("Bearer {TOKEN}"))).text()
        + &guarded.get("/metrics", Some(&format!("Bearer {TOKEN}"))).text()
        + &guarded.get("/metrics", Some(&format!("Bearer {TOKEN}x"))).text()
        + &guarded.gateway.call(&Call::post("/charges", "k").body("x")).text()
        + &guarded.gateway.call(&Call::new("GET", "/.well-known/semel-policy")).text()
        + &guarded.gateway.arguments()
        + &guarded.gateway.log();
    assert!(!seen.contains(TOKEN), "{seen}");
    assert_eq!(guarded.service.ledger().received_count(), 1);
}

#[test]
fn an_admin_address_that_others_can_reach_needs_a_token() {
    let service = Service::plain();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = refused(&["--admin", address]);
        assert!(refused.contains("--admin") && refused.contains("--admin-token-file"), "{refused}");
    }
    let launch = Launch::new(service.address());
    let file = token_file(&launch, TOKEN);
    let with = ["--admin", "0.0.0.0:9901", "--admin-token-file", file.to_str().unwrap()];
    let empty = launch.directory().join("semel.toml");
    std::fs::write(&empty, "upstream = \"http://127.0.0.1:9\"").unwrap();
    let checked = semel().arg("check-config").arg(&empty).args(with).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    for loopback in ["127.0.0.9:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        let checked = semel().arg("check-config").arg(&empty).args(["--admin", loopback]).output().unwrap();
        assert!(checked.status.success(), "{loopback}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn a_token_that_is_none_is_refused_in_one_line_that_does_not_show_it() {
    let service = Service::plain();
    let launch = Launch::new(service.address());
    for (text, wants) in
        [("", "0 bytes"), ("short-token", "11 bytes"), ("two lines of it\nand another one\n", "one line")]
    {
        let file = token_file(&launch, text);
        let refused = refused(&["--admin-token-file", file.to_str().unwrap()]);
        assert!(refused.contains("--admin-token-file") && refused.contains(wants), "{refused}");
        assert!(text.is_empty() || !refused.contains(text.lines().next().unwrap()), "{refused}");
    }
    assert!(refused(&["--admin-token-file", "/nowhere/token"]).contains("/nowhere/token"));
}

fn refused(args: &[&str]) -> String {
    let output = semel().args(["gateway", "--upstream", "http://127.0.0.1:9"]).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{args:?}: {said}");
    said
}
