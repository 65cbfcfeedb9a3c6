//! Records that explain themselves: which there are, what happened to one, what to do, and which gateway it was.

use serde_json::Value;

use crate::operator::{done, on};
use crate::support::{Call, Gate, Gateway, Launch, Plan, Reply, Service, until};

/// Unknown by cut connections and by a status, on two routes; and one that is done.
pub(crate) fn open_keys(args: &[&str]) -> (Service, Gateway) {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), args);
    let cut = || Plan { cut_after: Some(0), ..Plan::default() };
    let status = || Plan { reply: Reply::new(502, "{}"), ..Plan::default() };
    for (path, key, plan) in [
        ("/charges/1", "charge-1", cut()),
        ("/charges/2", "charge-2", cut()),
        ("/orders", "order-1", cut()),
        ("/orders", "order-2", status()),
        ("/orders", "done-1", Plan::default()),
    ] {
        service.next(plan);
        gateway.call(&Call::post(path, key).body("a"));
    }
    (service, gateway)
}

/// The keys of a listing.
pub(crate) fn listed(gateway: &Gateway, args: &[&str]) -> Vec<String> {
    let rows = done(gateway, &[&["keys", "--json"], args].concat());
    let key = |line: &str| serde_json::from_str::<Value>(line).unwrap()["key"].as_str().unwrap().to_owned();
    rows.lines().map(key).collect()
}

#[test]
fn v4_keys_are_found_by_cause_route_age_and_all_of_them_together() {
    let (_service, gateway) = open_keys(&[]);
    assert_eq!(listed(&gateway, &["--cause", "cut"]), ["charge-1", "charge-2", "order-1"]);
    assert_eq!(listed(&gateway, &["--cause", "status-502"]), ["order-2"]);
    assert_eq!(listed(&gateway, &["--route", "POST /charges/{id}"]), ["charge-1", "charge-2"]);
    assert_eq!(listed(&gateway, &["--route", "/orders"]), ["done-1", "order-1", "order-2"]);
    assert!(listed(&gateway, &["--route", "PATCH /orders"]).is_empty());
    assert_eq!(listed(&gateway, &["--route", "/orders", "--cause", "cut", "--prefix", "o"]), ["order-1"]);
    assert!(listed(&gateway, &["--older-than", "1h"]).is_empty());
    let all = until("they are old enough", || {
        Some(listed(&gateway, &["--older-than", "50ms", "--state", "unknown"])).filter(|keys| keys.len() == 4)
    });
    assert_eq!(all, ["charge-1", "charge-2", "order-1", "order-2"]);
    assert_eq!(listed(&gateway, &["--cause", "cut", "--limit", "2"]).len(), 2);
}

#[test]
fn v4_keys_are_counted_by_state_and_cause() {
    let (_service, gateway) = open_keys(&[]);
    let counts: Value = serde_json::from_str(&done(&gateway, &["keys", "--count", "--json"])).unwrap();
    assert_eq!(counts["total"], 5);
    let by = counts["by"].as_array().unwrap();
    let of = |state: &str, cause: Option<&str>| {
        let group = by.iter().find(|group| group["state"] == state && group["cause"] == Value::from(cause));
        group.map(|group| group["count"].as_u64().unwrap())
    };
    assert_eq!(
        (of("unknown", Some("cut")), of("unknown", Some("status-502")), of("completed", None)),
        (Some(3), Some(1), Some(1))
    );
    let text = done(&gateway, &["keys", "--count", "--route", "/charges/*", "--limit", "1"]);
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1..], [vec!["unknown", "cut", "2"], vec!["all", "2"]], "whatever the limit");
}

#[test]
fn a_mistyped_cause_or_route_is_said() {
    let (_service, gateway) = open_keys(&[]);
    assert!(done(&gateway, &["keys", "--cause", "cutt"]).contains("did you mean --cause cut?"));
    assert!(on(&gateway, &["keys", "--route", "post /orders"]).error(2).contains("'POST /orders'"));
    assert!(on(&gateway, &["keys", "--route", "orders"]).error(2).contains("'/orders'"));
    assert!(on(&gateway, &["keys", "--older-than", "10min"]).error(2).contains("'10m'"));
}

/// The sentences, and commands that do what they say when they are pasted.
#[test]
fn k7_show_says_what_happened_and_the_command_that_ends_it() {
    let (service, gateway) = open_keys(&[]);
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    let odd = "it's $(odd)";
    gateway.call(&Call::post("/orders", odd).body("a"));
    for (key, cause) in [(odd, "after the request was sent (cut)"), ("order-2", "the answer was 502")] {
        let shown = done(&gateway, &["show", key]);
        assert!(shown.starts_with(&format!("{key} has been unknown for ")), "{shown}");
        for part in
            [cause, "POST /orders may or may not have taken effect", "Semel-Fence, the last one 1 at most"]
        {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        let rerun = shown.lines().find(|line| line.contains("--rerun")).expect("the command").trim();
        let program = env!("CARGO_BIN_EXE_semel");
        let script = rerun.replacen("semel", &format!("'{program}'"), 1);
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        let shown = done(&gateway, &["show", key]);
        assert!(shown.contains("took no effect. The next retry runs."), "{shown}");
        assert!(shown.contains("(an operator: semel resolve)"), "{shown}");
    }
    let shown = done(&gateway, &["show", "done-1"]);
    assert!(shown.contains("Retries get the same one, and nothing runs.") && shown.ends_with("  Nothing.\n"));
}

#[test]
fn k7_show_says_of_a_gateway_that_was_killed_that_it_died_or_slept() {
    let service = Service::plain();
    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let gateway = Gateway::start(service.address(), &["--lease", "1s"]);
    let mut client = gateway.connect();
    client.send(&Call::post("/charges", "k").body("a").bytes()).unwrap();
    service.ledger().wait_received(1);
    let shown = done(&gateway, &["show", "k"]);
    assert!(shown.contains("k has been running for ") && shown.contains("--rerun --force"), "{shown}");
    let gateway = gateway.restart();
    let lapsed = || Some(done(&gateway, &["show", "k"])).filter(|shown| shown.contains("k has been unknown"));
    let shown = until("the lease is over", lapsed);
    assert!(shown.contains("the process that ran it died or slept (lapsed)"), "{shown}");
}

#[test]
fn v4_show_in_json_has_everything_under_names_that_stay() {
    let (_service, gateway) = open_keys(&[]);
    let show = |key| serde_json::from_str::<Value>(&done(&gateway, &["show", key, "--json"])).unwrap();
    let unknown = show("charge-1");
    let names: Vec<&str> = unknown.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "age_ms",
            "attempt",
            "attempts",
            "body_bytes",
            "cause",
            "digest",
            "fence",
            "fingerprint",
            "fingerprint_algorithm",
            "headers",
            "history",
            "host",
            "instance",
            "key",
            "lease_left_ms",
            "means",
            "method",
            "not_before_ms",
            "path",
            "scope",
            "since_ms",
            "state",
            "status",
            "what",
        ]
    );
    assert_eq!((&unknown["method"], &unknown["path"]), (&"POST".into(), &"/charges/1".into()));
    assert!(unknown["means"].as_str().unwrap().contains("after the request was sent"));
    let attempt = unknown["attempt"].as_str().unwrap();
    assert!(attempt.len() == 32 && attempt.starts_with(unknown["instance"].as_str().unwrap()));
    let completed = show("done-1");
    assert_eq!(completed["headers"][0][0], "content-type");
    assert_eq!(completed["fingerprint"].as_str().unwrap().len(), 64);
}

/// The record says which gateway tried last, in the words of that gateway's readiness.
#[test]
fn v2_a_record_names_the_gateway_that_tried_it_last() {
    let service = Service::plain();
    let launch = Launch::new(service.address());
    let first = launch.clone().args(["--instance", "pay-1"]).start();
    let second = launch.beside().args(["--instance", "pay-2"]).start();
    let tag = |gateway: &Gateway| {
        let ready = gateway.admin("/readyz").json();
        let said = &ready["gateway"];
        assert!(gateway.log().contains(said["instance_tag"].as_str().unwrap()), "the ready line has it too");
        (said["instance"].as_str().unwrap().to_owned(), said["instance_tag"].as_str().unwrap().to_owned())
    };
    let ((one, first_tag), (other, second_tag)) = (tag(&first), tag(&second));
    assert_eq!((one.as_str(), other.as_str()), ("pay-1", "pay-2"));
    for (gateway, key, tag) in [(&first, "a", &first_tag), (&second, "b", &second_tag)] {
        gateway.call(&Call::post("/charges", key).body("a"));
        assert!(done(&first, &["show", key]).contains(&format!("instance     {tag}")), "{key}");
    }
    assert_ne!(first_tag, second_tag);
    assert!(first.call(&Call::post("/charges", "b").body("a")).is_replay(), "by whichever it is asked");
}

#[test]
fn a_gateway_without_a_name_has_its_hosts_and_its_process() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let instance = gateway.admin("/readyz").json()["gateway"]["instance"].as_str().unwrap().to_owned();
    let (host, process) = instance.rsplit_once(':').expect("two parts");
    assert!(!host.is_empty() && process.parse::<u32>().is_ok(), "{instance}");
    for name in ["", "a b", &"x".repeat(65)] {
        let said = crate::run(&["gateway", "--upstream", "http://127.0.0.1:1", "--instance", name]);
        assert!(said.error(2).contains("--instance"), "{}", said.err);
    }
}
