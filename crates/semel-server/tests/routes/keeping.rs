//! What is kept of an answer, and of a key: C08.

use crate::assert::{refused, replayed};
use crate::support::{Call, Plan, Reply, Service};
use crate::{configured, launch};

const SECRET: &str = "sk_test_zzz";

fn minting() -> Service {
    let body = format!("{{\"id\":1,\"secret\":\"{SECRET}\"}}");
    let reply =
        Reply::new(201, body).header("Content-Type", "application/json").header("Location", "/keys/1");
    Service::doing(Plan { reply, ..Plan::default() })
}

/// Every byte of the store, its WAL included.
fn stored(launch: &crate::support::Launch) -> Vec<u8> {
    let directory = std::fs::read_dir(launch.directory()).unwrap();
    let files =
        directory.map(|file| file.unwrap().path()).filter(|file| file.to_string_lossy().contains("semel.db"));
    files.flat_map(|file| std::fs::read(file).unwrap()).collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn c08_a_redacted_member_is_in_no_store_and_no_log_and_no_replay() {
    let service = minting();
    let launch =
        launch(service.address(), "log = \"debug\"\n[[route]]\nmatch = \"/keys\"\nredact = [\"/secret\"]\n");
    let gateway = launch.start();
    let call = Call::post("/keys", "k").body("{}");
    let first = gateway.call(&call);
    assert!(first.text().contains(SECRET), "the first caller gets it");
    let again = gateway.call(&call);
    assert_eq!((again.status, again.is_replay(), again.text().as_str()), (201, true, "{\"id\":1}"));
    let bytes = stored(&launch);
    assert!(holds(&bytes, "POST /keys") && !holds(&bytes, SECRET));
    assert!(!gateway.log().contains(SECRET));
    // Without the choice it would be there: the look finds what there is to find.
    gateway.call(&Call::post("/else", "l").body("{}"));
    assert!(holds(&stored(&launch), SECRET));
}

#[test]
fn c08_a_route_can_keep_nothing_of_a_body_and_its_key_never_runs_again() {
    let service = minting();
    let gateway = configured(&service, "[[route]]\nmatch = \"/keys\"\nkeep_no_body = true\n");
    let call = Call::post("/keys", "k").body("{}");
    assert!(gateway.call(&call).text().contains(SECRET));
    let again = gateway.call(&call);
    refused(&again, 410, "response-not-kept", false, "done");
    assert_eq!(
        (again.header("semel-original-status"), again.header("location")),
        (Some("201"), Some("/keys/1"))
    );
    assert_eq!(service.ledger().effects_count(), 1);
}

#[test]
fn c08_an_answer_that_cannot_be_redacted_is_not_kept() {
    let service =
        Service::doing(Plan { reply: Reply::new(201, format!("secret={SECRET}")), ..Plan::default() });
    let gateway = configured(&service, "[[route]]\nmatch = \"/keys\"\nredact = [\"/secret\"]\n");
    let call = Call::post("/keys", "k").body("{}");
    assert!(gateway.call(&call).text().contains(SECRET));
    refused(&gateway.call(&call), 410, "response-not-kept", false, "done");
}

#[test]
fn c08_retention_is_chosen_by_route() {
    let service = Service::plain();
    let toml = "[[route]]\nmatch = \"/short\"\nreplay_for = \"1ms\"\nremember_for = \"30d\"\n";
    let gateway = configured(&service, toml);
    let short = Call::post("/short", "k").body("x");
    gateway.call(&short);
    let late = crate::support::until("the outcome is forgotten", || {
        let answer = gateway.call(&short);
        (answer.status == 410).then_some(answer)
    });
    refused(&late, 410, "key-expired", false, "done");
    replayed(&gateway, &Call::post("/long", "l").body("x"));
}
