//! Asking the service about what is unknown: G5.

use crate::assert::{refused, unknown};
use crate::support::{Call, Gateway, Plan, Received, Reply, Service, until};
use crate::{configured, launch};

fn call(key: &str) -> Call {
    Call::post("/charges", key).body("amount=1")
}

const TOML: &str = "[[route]]\nmatch = \"/charges\"\non_unknown = \"probe\"\nprobe = \"/charges/by-key/{key}\"\n\
                    probe_after = \"1ms\"\nprobe_keep = [200]\nprobe_release = [404]\n";

/// A service that cuts its first answer, and answers questions so.
fn asked(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Service {
    let service = Service::start(move |request| match request.method.as_str() {
        "GET" => Plan { effect: false, reply: answer(request), ..Plan::default() },
        _ => Plan::default(),
    });
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    service
}

fn become_unknown(gateway: &Gateway, key: &str) {
    refused(&gateway.call(&call(key)), 502, "outcome-unknown", true, "unknown");
}

fn settled(gateway: &Gateway, key: &str, state: &str) {
    until(&format!("{key} is {state}"), || {
        gateway.operator().show(key).filter(|record| record.state == state)
    });
}

#[test]
fn g5_what_took_effect_is_completed_and_what_did_not_may_run() {
    let service =
        asked(|_| Reply::new(200, "{\"id\":1}").header("Set-Cookie", "a=1").header("ETag", "\"1\""));
    let gateway = configured(&service, TOML);
    become_unknown(&gateway, "a/../b?c");
    settled(&gateway, "a/../b?c", "completed");
    let replay = gateway.call(&call("a/../b?c"));
    assert_eq!((replay.status, replay.is_replay(), replay.text().as_str()), (200, true, "{\"id\":1}"));
    assert_eq!((replay.header("etag"), replay.header("set-cookie")), (Some("\"1\""), None));
    let question = service.ledger().received().into_iter().find(|request| request.method == "GET").unwrap();
    assert_eq!(question.target, "/charges/by-key/a%2F..%2Fb%3Fc");
    assert!(question.header("authorization").is_none() && question.header("semel-fence").is_some());
    assert_eq!(service.ledger().effects_count(), 1);

    let service = asked(|_| Reply::new(404, "none"));
    let gateway = configured(&service, TOML);
    become_unknown(&gateway, "none");
    settled(&gateway, "none", "released");
    assert_eq!(gateway.call(&call("none")).status, 201);
}

#[test]
fn g5_the_answer_says_it_itself_and_anything_else_leaves_it_unknown() {
    for (reply, state) in [
        (Reply::new(500, "x").header("Semel-Outcome", "keep"), "completed"),
        (Reply::new(200, "x").header("Semel-Outcome", "release"), "released"),
        (Reply::new(200, "x").header("Semel-Outcome", "unknown"), "unknown"),
        (Reply::new(500, "x"), "unknown"),
        (Reply::new(302, "x").header("Location", "/elsewhere"), "unknown"),
    ] {
        let shown = format!("{reply:?}");
        let service = asked(move |_| reply.clone());
        let gateway = configured(&service, TOML);
        become_unknown(&gateway, "k");
        until("a question", || {
            service.ledger().received().iter().any(|request| request.method == "GET").then_some(())
        });
        settled(&gateway, "k", state);
        let targets: Vec<_> = service.ledger().received().into_iter().map(|request| request.target).collect();
        assert!(!targets.iter().any(|target| target == "/elsewhere"), "{shown}");
    }
}

/// Not before its time, and by the retry itself when it is.
#[test]
fn g5_nothing_is_asked_before_probe_after() {
    let service = asked(|_| Reply::new(404, "none"));
    let gateway = configured(&service, &TOML.replace("1ms", "1h"));
    become_unknown(&gateway, "k");
    unknown(&gateway.call(&call("k")));
    assert!(service.ledger().received().iter().all(|request| request.method != "GET"));
}

#[test]
fn g5_what_an_earlier_process_left_open_is_asked_about_after_a_restart() {
    let service = asked(|_| Reply::new(200, "found"));
    let launch = launch(service.address(), "");
    let gateway = launch.start();
    become_unknown(&gateway, "k");
    std::fs::write(launch.directory().join("semel.toml"), TOML).unwrap();
    let gateway = gateway.restart();
    settled(&gateway, "k", "completed");
    assert_eq!(gateway.call(&call("k")).text(), "found");
}

/// A question at another place, by a variable of the path, with a token that stands nowhere else.
#[test]
fn g5_a_question_can_go_elsewhere_with_a_token_of_its_own() {
    let ledger = asked(|_| Reply::new(200, "found"));
    let service = Service::plain();
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    let launch = launch(service.address(), "");
    let token = launch.directory().join("token");
    std::fs::write(&token, "a-secret-token\n").unwrap();
    let toml = format!(
        "[[route]]\nmatch = \"/shops/{{shop}}/charges\"\non_unknown = \"probe\"\nprobe_after = \"1ms\"\n\
         probe = \"http://{}/find?shop={{shop}}&key={{key}}\"\nprobe_keep = 200\nprobe_token_file = {token:?}\n",
        ledger.address()
    );
    std::fs::write(launch.directory().join("semel.toml"), toml).unwrap();
    let gateway = launch.start();
    let call = Call::post("/shops/a%20b/charges", "k").body("x");
    refused(&gateway.call(&call), 502, "outcome-unknown", true, "unknown");
    settled(&gateway, "k", "completed");
    let question = ledger.ledger().last();
    assert_eq!(question.target, "/find?shop=a%20b&key=k");
    assert_eq!(question.header("authorization"), Some("Bearer a-secret-token"));
    assert_eq!(question.header("host"), Some(ledger.address().to_string().as_str()));
    assert!(!gateway.log().contains("a-secret-token"));
}
