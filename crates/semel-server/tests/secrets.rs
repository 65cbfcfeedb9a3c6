//! Case C08: what callers and services send is in no log line at info or warn, and in no metric. Everything that can
//! happen to a request happens here, with a secret wherever one may stand.
//!
//! What is logged on purpose is the method and the path: a secret in a path is for whoever chose that path.

mod support;

use support::{Call, Gateway, Launch, Plan, Reply, Service};

/// Each stands in one kind of place, so that a failure says which.
const SECRETS: [&str; 12] = [
    "secret-in-key",
    "secret-in-alias",
    "secret-in-field",
    "secret-in-query",
    "secret-in-body",
    "secret-in-token",
    "secret-in-cookie",
    "secret-in-header",
    "secret-in-answer",
    "secret-in-answers-header",
    "secret-in-host",
    "secret-of-the-probe",
];

const ROUTES: &str = r#"
on_unknown = "rerun"
body_bytes_max = "1KiB"
key_aliases = ["X-Request-Key"]

[[route]]
match = "/required"
key = "required"

[[route]]
match = "/field"
key_field = "json:/request_id"

[[route]]
match = "/derive"
key = "derive"
derive = ["json:/order_id", "query:token"]

[[route]]
match = "/generate"
key = "generate"

[[route]]
match = "/json"
fingerprint = ["json"]

[[route]]
match = "/redact"
redact = ["/secret"]

[[route]]
match = "/head"
keep_no_body = true

[[route]]
match = "/observe"
observe = true

[[route]]
match = "/bypass"
store_down = "bypass"

[[route]]
match = "/wait"
wait_max = "1s"

[[route]]
match = "/probe"
on_unknown = "probe"
probe = "/ask?key={key}"
probe_after = "1ms"
probe_token_file = "probe-token"
"#;

fn call(path: &str) -> Call {
    Call::new("POST", &format!("{path}?token=secret-in-query"))
        .header("Authorization", "Bearer secret-in-token")
        .header("Cookie", "session=secret-in-cookie")
        .header("X-Api-Key", "secret-in-header")
        .header("Content-Type", "application/json")
        .body(r#"{"request_id":"secret-in-field","order_id":"secret-in-field","card":"secret-in-body"}"#)
}

fn keyed(path: &str, key: &str) -> Call {
    call(path).header("Idempotency-Key", &format!("\"secret-in-key-{key}\""))
}

fn answering() -> Plan {
    let reply = Reply::new(201, r#"{"id":1,"secret":"secret-in-answer"}"#)
        .header("Content-Type", "application/json")
        .header("Set-Cookie", "session=secret-in-cookie")
        .header("Location", "/x?secret-in-answers-header")
        .header("X-Token", "secret-in-answers-header");
    Plan { reply, ..Plan::default() }
}

struct Told {
    log: String,
    metrics: String,
    requests: usize,
}

fn everything(level: &str) -> Told {
    let service = Service::doing(answering());
    let launch = Launch::new(service.address());
    let token = launch.directory().join("probe-token");
    std::fs::write(&token, "secret-of-the-probe").unwrap();
    let routes = ROUTES.replace("probe-token", token.to_str().unwrap());
    let file = launch.directory().join("semel.toml");
    std::fs::write(&file, routes).unwrap();
    let gateway = launch.args(["--config", file.to_str().unwrap(), "--log", level]).start();
    let mut requests = 0;
    let mut send = |call: &Call| {
        requests += 1;
        // One whose framing is in doubt is cut off.
        drop(gateway.connect().call(call));
    };

    // Run, replayed, refused: on every kind of route.
    for path in [
        "/charges",
        "/required",
        "/field",
        "/derive",
        "/generate",
        "/json",
        "/redact",
        "/head",
        "/observe",
        "/bypass",
        "/wait",
        "/probe",
    ] {
        let key = path.trim_start_matches('/');
        send(&keyed(path, key));
        send(&keyed(path, key).header("Prefer", "wait=1"));
        send(&keyed(path, key).header("X-Changed", "1").body("another secret-in-body"));
        send(&call(path));
        send(&call(path).header("X-Request-Key", "secret-in-alias"));
        send(&call(path).body("secret-in-body is no JSON {\"secret-in-field\""));
        send(&call(path).body(r#"{"request_id":"secret-in-field","request_id":"secret-in-field"}"#));
    }
    // Keys that cannot be read.
    send(&call("/charges").header("Idempotency-Key", "\"secret-in-key"));
    send(&keyed("/charges", "a").header("Idempotency-Key", "secret-in-key-b"));
    send(&keyed("/charges", &"long".repeat(100)));
    // Bodies and heads that are refused.
    send(&keyed("/charges", "large").body("secret-in-body".repeat(200)));
    send(&keyed("/charges", "host").header("Host", "secret-in-host@shop.example"));
    send(&keyed("/charges", "hosts").header("Host", "secret-in-host").header("Host", "other"));
    let framings =
        keyed("/charges", "framing").header("Content-Length", "3").header("Transfer-Encoding", "chunked");
    send(&framings.body("secret-in-body\r\n\r\n"));
    let mut broken = gateway.connect();
    broken.send(b"POST /charges HTTP/1.1\r\nHost: secret-in-host\r\nsecret-in-header\r\n\r\n").unwrap();
    drop(broken.receive_to_end());
    // A body that breaks off.
    let mut cut = gateway.connect();
    let whole = keyed("/charges", "short").bytes();
    cut.send(&whole[..whole.len() - 4]).unwrap();
    drop(cut);
    // The service fails: guarded, and without a key.
    for path in ["/charges", "/probe", "/observe"] {
        for status in [401, 409, 429, 500, 502, 503, 504] {
            let reply = Reply::new(status, "secret-in-answer").header("X-Token", "secret-in-answers-header");
            service.next(Plan { effect: false, reply, ..Plan::default() });
            send(&keyed(path, &format!("{status}")));
        }
        for request in [keyed(path, "cut"), call(path)] {
            service.next(Plan { cut_after: Some(0), ..answering() });
            send(&request);
            service.next(Plan { cut_after: Some(90), ..answering() });
            send(&request);
            service.next(Plan { reply: garbled(), ..Plan::default() });
            send(&request);
        }
    }
    send(&Call::new("GET", "/x?secret-in-query").header("Cookie", "secret-in-cookie"));
    service.refuse();
    for path in ["/charges", "/probe", "/observe", "/bypass"] {
        send(&keyed(path, "unreachable"));
        send(&call(path));
    }
    let metrics = gateway.admin("/metrics").text() + &gateway.admin("/readyz").text();
    let log = whole_log(gateway);
    Told { log, metrics, requests }
}

/// What is no answer in HTTP.
fn garbled() -> Reply {
    Reply { raw: Some(b"secret-in-answer\r\nsecret-in-answers-header\r\n\r\n".to_vec()), ..Reply::default() }
}

/// All that it has said, from its start to its end.
fn whole_log(mut gateway: Gateway) -> String {
    gateway.send(rustix::process::Signal::TERM);
    assert_eq!(gateway.wait().code(), Some(0));
    // Nothing fits, so it looks until the log has ended.
    gateway.wait_for_log(|_| false);
    gateway.log()
}

#[track_caller]
fn holds_no_secret(what: &str, text: &str) {
    for secret in SECRETS {
        let line = text.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret} in {what}: {}", line.unwrap_or_default());
    }
}

#[test]
fn c08_no_secret_is_in_the_log_or_the_metrics_at_info() {
    let told = everything("info");
    holds_no_secret("the log", &told.log);
    holds_no_secret("the metrics", &told.metrics);
    let decisions = told.log.matches("semel::decision").count();
    assert!(
        decisions > told.requests / 2,
        "{decisions} decisions of {} requests:\n{}",
        told.requests,
        told.log
    );
    for happened in ["\"replay\"", "\"mismatch\"", "key_malformed", "body_too_large"] {
        assert!(told.log.contains(happened), "{happened} has not happened:\n{}", told.log);
    }
}

/// Debug is for whoever looks for a fault, not for every day; what is a credential or content is not there either.
#[test]
fn c08_no_secret_is_in_the_log_at_debug() {
    let told = everything("debug");
    assert!(told.log.contains("\"DEBUG\""), "{}", told.log);
    holds_no_secret("the log", &told.log);
}

/// The text of a failure is the place where a secret slips through most easily.
#[test]
fn c08_no_secret_is_in_an_answer_that_the_gateway_makes() {
    let service = Service::doing(answering());
    let gateway = Gateway::start(service.address(), &["--key", "required"]);
    let malformed = call("/x").header("Idempotency-Key", "\"secret-in-key");
    let hosts = keyed("/x", "h").header("Host", "secret-in-host").header("Host", "other");
    for call in [call("/x"), malformed, hosts] {
        let answer = gateway.call(&call);
        assert_eq!(answer.status, 400);
        holds_no_secret("the answer", &format!("{:?}\n{}", answer.headers, answer.text()));
    }
    service.next(Plan { reply: garbled(), ..Plan::default() });
    let unknown = gateway.call(&keyed("/x", "g"));
    assert_eq!(unknown.code(), "outcome-unknown");
    holds_no_secret("the answer", &unknown.text());
}
