//! `keys`, `show`, `resolve`, `sweep` and `migrate`, beside a running gateway.

use serde_json::Value;

use crate::support::{Call, Gate, Gateway, Plan, Service, until};
use crate::{Said, run};

/// Runs a command on the gateway's store.
pub(crate) fn on(gateway: &Gateway, args: &[&str]) -> Said {
    run(&[args, &["--store", &gateway.launch().store()]].concat())
}

#[track_caller]
pub(crate) fn done(gateway: &Gateway, args: &[&str]) -> String {
    let said = on(gateway, args);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{args:?}");
    said.out
}

fn call(key: &str) -> Call {
    Call::post("/charges", key).body("amount=1")
}

/// A completed, a released, an unknown and a running key.
fn one_of_each() -> (Gate, Service, Gateway) {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    assert_eq!(gateway.call(&call("done")).status, 201);
    service.next(Plan::without_effect(503));
    assert_eq!(gateway.call(&call("released")).status, 503);
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    assert_eq!(gateway.call(&call("unknown")).status, 502);
    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let mut client = gateway.connect();
    client.send(&call("running").bytes()).unwrap();
    service.ledger().wait_received(4);
    (gate, service, gateway)
}

#[test]
fn keys_lists_by_state_scope_prefix_and_number() {
    let (_gate, _service, gateway) = one_of_each();
    let all = done(&gateway, &["keys"]);
    assert_eq!(all.lines().count(), 5, "a head and four rows:\n{all}");
    assert!(
        all.starts_with("STATE") && all.contains("POST /charges") && all.contains("http:default:anonymous")
    );
    for state in ["completed", "released", "unknown", "running"] {
        let rows = done(&gateway, &["keys", "--state", state, "--json"]);
        let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((rows.len(), &rows[0]["state"]), (1, &Value::from(state)));
    }
    assert_eq!(done(&gateway, &["keys", "--json", "--limit", "2"]).lines().count(), 2);
    assert_eq!(done(&gateway, &["keys", "--json", "--prefix", "r"]).lines().count(), 2);
    assert_eq!(done(&gateway, &["keys", "--json", "--scope", "http:default:anonymous"]).lines().count(), 4);
    assert_eq!(done(&gateway, &["keys", "--json", "--scope", "http:other:anonymous"]), "");
    assert!(done(&gateway, &["keys", "--state", "unknown"]).contains("cut"), "why it waits");
    let none = done(&gateway, &["keys", "--state", "dead"]);
    assert_eq!(none, format!("no such keys in {}\n", gateway.launch().store()), "it may be the wrong store");
}

#[test]
fn show_tells_what_is_kept_and_why_it_waits() {
    let (_gate, _service, gateway) = one_of_each();
    let shown = done(&gateway, &["show", "done"]);
    for part in ["completed", "POST /charges", "201", "content-type: application/json", "12 bytes"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let shown = done(&gateway, &["show", "unknown"]);
    assert!(shown.contains("unknown") && shown.contains("cut"), "{shown}");
    assert!(done(&gateway, &["show", "running"]).contains("lease left"));
    let json: Value = serde_json::from_str(&done(&gateway, &["show", "done", "--json"])).unwrap();
    assert_eq!(
        (&json["state"], &json["status"], &json["attempts"]),
        (&"completed".into(), &201.into(), &1.into())
    );
    let digest = json["digest"].as_str().unwrap();
    until("the log has it", || gateway.log().contains(digest).then_some(()));
    assert!(done(&gateway, &["show", "done"]).contains(digest), "from a line of the log to its key");
    assert_eq!(on(&gateway, &["show", "nobodys"]).error(1), "no record of key nobodys");
    assert!(on(&gateway, &["show", "\"done\""]).error(1).contains("without the quotes"));
}

#[test]
fn resolve_takes_what_is_open_and_nothing_else() {
    let (gate, service, gateway) = one_of_each();
    for key in ["done", "released", "running"] {
        for how in [&["--rerun"][..], &["--completed", "--status", "200"]] {
            let said = on(&gateway, &[&["resolve", key], how].concat());
            assert!(said.error(1).contains(key), "{}", said.err);
        }
    }
    assert!(gateway.call(&call("done")).is_replay(), "a completed outcome never changes");
    gate.open();
    until("the run ends", || gateway.call(&call("running")).is_replay().then_some(()));
    done(&gateway, &["resolve", "unknown", "--rerun"]);
    assert_eq!(gateway.call(&call("unknown")).status, 201);
    assert_eq!(service.ledger().effects("unknown"), 2, "the operator's word was that it had none");
    assert!(on(&gateway, &["resolve", "nobodys", "--rerun"]).error(1).contains("no record"));
}

#[test]
fn resolve_completed_gives_the_response_as_it_was_told() {
    let (_gate, _service, gateway) = one_of_each();
    let file = gateway.launch().directory().join("answer.bin");
    std::fs::write(&file, b"\x00\x01not json").unwrap();
    let file = file.to_str().unwrap();
    let how = ["--completed", "--status", "202", "--body-file", file, "--content-type", "application/x-own"];
    done(&gateway, &[&["resolve", "unknown"], &how[..]].concat());
    let answer = gateway.call(&call("unknown"));
    assert_eq!((answer.status, answer.is_replay()), (202, true));
    assert_eq!(
        (answer.body.as_slice(), answer.header("content-type")),
        (&b"\x00\x01not json"[..], Some("application/x-own"))
    );
    assert!(on(&gateway, &["resolve", "unknown", "--rerun"]).error(1).contains("completed"));
}

#[test]
fn resolve_without_enough_said_changes_nothing() {
    let (_gate, _service, gateway) = one_of_each();
    for how in [
        &[][..],
        &["--completed"],
        &["--completed", "--rerun", "--status", "200"],
        &["--rerun", "--status", "200"],
        &["--rerun", "--body-file", "x"],
        &["--completed", "--status", "99"],
        &["--completed", "--status", "600"],
        &["--completed", "--status", "abc"],
        &["--completed", "--status", "200", "--body-file", "missing.json"],
        &["--completed", "--status", "200", "--replay-for", "40d"],
    ] {
        let said = on(&gateway, &[&["resolve", "unknown"], how].concat());
        said.error(2);
    }
    assert!(done(&gateway, &["show", "unknown"]).contains("cut"));
}

#[test]
fn several_scopes_are_listed_and_one_has_to_be_named() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    for who in [None, Some("Bearer a")] {
        service.next(Plan { cut_after: Some(0), ..Plan::default() });
        let call = who.into_iter().fold(call("shared"), |call, who| call.header("Authorization", who));
        assert_eq!(gateway.call(&call).status, 502);
    }
    let scopes: Vec<_> = gateway.operator().keys().into_iter().map(|record| record.scope).collect();
    for args in [&["show", "shared"][..], &["resolve", "shared", "--rerun"]] {
        let said = on(&gateway, args);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
        assert!(scopes.iter().all(|scope| said.err.contains(scope)), "{}", said.err);
    }
    done(&gateway, &["resolve", "shared", "--rerun", "--scope", "http:default:anonymous"]);
    assert_eq!(gateway.call(&call("shared")).status, 201);
    assert_eq!(gateway.call(&call("shared").header("Authorization", "Bearer a")).code(), "outcome-unknown");
    assert_eq!(on(&gateway, &["show", "shared", "--scope", "http:default:nobody"]).code, Some(1));
}

#[test]
fn sweep_frees_what_is_past_its_retention_and_nothing_else() {
    let service = Service::plain();
    let times = ["--replay-for", "1500ms", "--remember-for", "4s"];
    let gateway = Gateway::start(service.address(), &times);
    assert_eq!(gateway.call(&call("old")).status, 201);
    assert_eq!(done(&gateway, &["sweep"]), "freed 0 outcomes and 0 records\n");
    let late = until("it is late", || Some(gateway.call(&call("old"))).filter(|answer| !answer.is_replay()));
    assert_eq!((late.status, late.code().as_str()), (410, "key-expired"), "before it was swept");
    assert_eq!(late.json()["effect"], "done");
    assert_eq!(done(&gateway, &["sweep"]), "freed 1 outcomes and 0 records\n");
    assert_eq!(gateway.call(&call("old")).code(), "key-expired", "and after");
    assert_eq!(done(&gateway, &["keys", "--json", "--state", "forgotten"]).lines().count(), 1);
    let freed = || Some(done(&gateway, &["sweep"])).filter(|freed| !freed.contains("0 records"));
    assert_eq!(until("it is forgotten", freed), "freed 0 outcomes and 1 records\n");
    assert_eq!(gateway.call(&call("old")).status, 201, "a key that is no longer remembered is new");
    assert_eq!(service.ledger().effects("old"), 2);
}

#[test]
fn each_command_takes_its_store_from_flag_variable_or_file() {
    let (_gate, _service, gateway) = one_of_each();
    let store = gateway.launch().store();
    let file = gateway.launch().directory().join("semel.toml");
    std::fs::write(&file, format!("upstream = \"http://127.0.0.1:1\"\nstore = \"{store}\"")).unwrap();
    for args in [&["keys"][..], &["show", "done"], &["sweep"], &["migrate"]] {
        let by_flag = run(&[args, &["--store", &store]].concat());
        let by_variable = crate::said(crate::semel(args).env("SEMEL_STORE", &store));
        let by_file = crate::said(crate::semel(args).arg("--config").arg(&file));
        assert_eq!([by_flag.code, by_variable.code, by_file.code], [Some(0); 3], "{args:?}");
    }
}

/// K4: a key that its gateway remembers for ever is not new again a month after it was resolved.
#[test]
fn resolve_keeps_a_key_as_long_as_its_gateway_does() {
    let (_gate, _service, gateway) = one_of_each();
    let file = gateway.launch().directory().join("semel.toml");
    std::fs::write(&file, "replay_for = \"1ms\"\nremember_for = \"forever\"\n").unwrap();
    let config = ["--config", file.to_str().unwrap()];
    done(&gateway, &[&["resolve", "unknown", "--completed", "--status", "200"], &config[..]].concat());
    let late = until("the outcome is forgotten", || {
        Some(gateway.call(&call("unknown"))).filter(|a| a.status == 410)
    });
    assert_eq!(late.code(), "key-expired");
    done(&gateway, &["sweep"]);
    assert_eq!(gateway.call(&call("unknown")).status, 410, "and the key still remembered");
}

/// K4: so it is where only the key's route says so, whatever the gateway's variables say about everything else.
#[test]
fn k4_resolve_keeps_a_key_as_long_as_its_route_does() {
    let (_gate, _service, gateway) = one_of_each();
    let file = gateway.launch().directory().join("semel.toml");
    let route = "[[route]]\nmatch = \"/charges\"\nreplay_for = \"1ms\"\nremember_for = \"forever\"\n";
    std::fs::write(&file, format!("remember_for = \"24h\"\n{route}")).unwrap();
    let mut resolve = crate::semel(&["resolve", "unknown", "--completed", "--status", "200"]);
    resolve.arg("--config").arg(&file).args(["--store", &gateway.launch().store()]);
    let said = crate::said(resolve.env("SEMEL_REMEMBER_FOR", "1ms").env("SEMEL_REPLAY_FOR", "1ms"));
    assert_eq!(said.code, Some(0), "{}", said.err);
    let late = until("the outcome is forgotten", || {
        Some(gateway.call(&call("unknown"))).filter(|a| a.status == 410)
    });
    assert_eq!(late.code(), "key-expired");
    done(&gateway, &["sweep"]);
    assert_eq!(gateway.call(&call("unknown")).status, 410, "and the key still remembered");
}
