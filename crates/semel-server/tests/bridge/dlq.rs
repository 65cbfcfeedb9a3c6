//! `semel dlq`, beside a bridge that consumes.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, Bridge};
use crate::support::{Plan, Reply, Service, semel};

/// A service that refuses what begins with `bad`, until it is mended.
fn service() -> (Service, Arc<AtomicBool>) {
    let mended = Arc::new(AtomicBool::new(false));
    let (service, is_mended) = (Service::plain(), mended.clone());
    service.set(move |received| {
        match received.key().starts_with("bad") && !is_mended.load(Ordering::SeqCst) {
            true => Plan { effect: false, reply: Reply::new(422, "no such account"), ..Plan::default() },
            false => Plan::default(),
        }
    });
    (service, mended)
}

fn with_dead(ids: &[&str]) -> (Bench, Service, Arc<AtomicBool>, Bridge) {
    let (bench, (service, mended)) = (Bench::new(), service());
    let bridge = bench.start(service.address(), "");
    // One after the other: messages without a lane are given up in any order.
    for (before, id) in ids.iter().enumerate() {
        bench.send([bench.order(id).with_header("account", "a-7")]);
        bench.wait_dead(u32::try_from(before + 1).unwrap());
    }
    (bench, service, mended, bridge)
}

#[test]
fn m6_dead_letters_are_listed_and_shown() {
    let (bench, _service, _, _bridge) = with_dead(&["bad-1", "bad-2"]);
    let listed = bench.done(&["list"]);
    let lines: Vec<_> = listed.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("ID"), "{listed}");
    assert!(
        lines[1].contains("bad-1") && lines[1].contains("rejected") && lines[1].contains("no such account")
    );
    let listed = bench.done(&["list", "--limit", "1", "--match", "header:account=a-*"]);
    assert!(listed.contains("bad-1") && listed.contains("1 of 2; --limit"), "{listed}");
    assert!(bench.done(&["list", "--match", "reason=key-reused"]).starts_with("no dead letter"));
    let shown = bench.done(&["show", "bad-2", "--body"]);
    for part in [
        "bad-2",
        "record    dead: a redrive sends it again",
        "message:billing",
        "account: a-7",
        "5 bytes",
        "\nbad-2\n",
    ] {
        assert!(shown.contains(part), "{part} in:\n{shown}");
    }
    let shown: Vec<Value> = bench.json(&["show", "bad-2"]);
    assert_eq!((shown[0]["record"].as_str(), shown[0].get("body")), (Some("dead"), None));
    assert_eq!(bench.json(&["list"]).len(), 2, "looking takes nothing");
}

#[test]
fn m6_a_redrive_runs_what_was_given_up_and_says_what_took_effect() {
    let (bench, service, mended, _bridge) = with_dead(&["bad-1", "bad-2", "bad-3"]);
    mended.store(true, Ordering::SeqCst);
    // A person found out that this one was booked by hand.
    bench.operator().done(&[
        "resolve",
        "bad-3",
        "--completed",
        "--status",
        "200",
        "--reason",
        "booked by hand",
    ]);
    let dry = bench.done(&["redrive", "--all", "--dry-run"]);
    assert!(
        dry.contains("bad-1: would be sent back") && dry.contains("bad-3: left: it has taken effect"),
        "{dry}"
    );
    assert_eq!(bench.count(&bench.dead_letters()), 3);

    let asked = bench.dlq(&["redrive", "--all"]);
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.code() == Some(2) && said.contains("3 dead letters would be sent back"), "{said}");

    let reason = ["--reason", "the account was made", "--by", "ann"];
    let done = bench.json(&[&["redrive", "--all", "--yes"][..], &reason].concat());
    let mut fates: Vec<_> =
        done.iter().map(|one| (one["id"].as_str().unwrap(), one["fate"].as_str().unwrap())).collect();
    fates.sort_unstable();
    assert_eq!(fates, [("bad-1", "redriven"), ("bad-2", "redriven"), ("bad-3", "done")]);
    service.ledger().wait_effects(2);
    assert_eq!((service.ledger().effects("bad-1"), service.ledger().effects("bad-3")), (1, 0));
    let history = bench.operator().done(&["show", "bad-1"]);
    assert!(history.contains("the account was made") && history.contains("ann"), "{history}");

    let left = bench.done(&["redrive", "bad-3"]);
    assert!(left.contains("0 dead letters sent back, 1 left that took effect before"), "{left}");
    let gone = bench.done(&["discard", "bad-3", "--reason", "booked by hand"]);
    assert!(gone.contains("bad-3: thrown away") && gone.contains("1 dead letter thrown away"), "{gone}");
    bench.wait_dead(0);
    assert_eq!(service.ledger().effects_count(), 2);
}

#[test]
fn m6_what_nobody_knows_waits_for_a_person_and_what_is_discarded_says_who_did_it() {
    let (bench, service) = (Bench::new(), Service::plain());
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    let _bridge = bench.start(service.address(), "");
    bench.send([bench.order("a")]);
    bench.wait_dead(1);
    let left = bench.done(&["redrive", "--all", "--yes"]);
    assert!(left.contains("a: left: it may have taken effect: resolve its key first"), "{left}");
    bench.operator().resolve_rerun("a");
    bench.done(&["redrive", "a"]);
    service.ledger().wait_effects(2);

    service.next(Plan { effect: false, reply: Reply::new(422, "no"), ..Plan::default() });
    bench.send([bench.order("b")]);
    bench.wait_dead(1);
    bench.done(&["discard", "--match", "id=b", "--yes", "--reason", "a test order", "--by", "ann"]);
    let record = bench.operator().show("b").expect("a record");
    assert_eq!((record.state.as_str(), record.cause.as_str()), ("dead", "discarded"));
    let history = bench.operator().done(&["show", "b"]);
    assert!(history.contains("a test order") && history.contains("ann"), "{history}");
    assert_eq!(bench.count(&bench.dead_letters()), 0);
}

#[test]
fn m6_a_redrive_that_is_killed_loses_nothing_and_runs_nothing_twice() {
    let (bench, (service, mended)) = (Bench::new(), service());
    let _bridge = bench.start(service.address(), "");
    let ids: Vec<String> = (0..120).map(|number| format!("bad-{number}")).collect();
    bench.send(ids.iter().map(|id| bench.order(id)));
    bench.wait_dead(120);
    mended.store(true, Ordering::SeqCst);
    let file = bench.directory.path().join("bridge.toml");
    let mut killed = semel()
        .args(["dlq", "redrive", "--all", "--yes", "--config"])
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    service.ledger().wait_effects(20);
    killed.kill().expect("a child");
    killed.wait().expect("a child");
    assert!(service.ledger().effects_count() < 120, "it was killed in the middle");
    // What it held comes back when the broker has seen the end of its connection. Killed between its claim of a dead
    // record and the release, it leaves that key unknown once the claim has lapsed: then a person's word is needed.
    let end = Instant::now() + Duration::from_secs(120);
    while service.ledger().effects_count() < 120 {
        assert!(Instant::now() < end, "{} of 120, in the end", service.ledger().effects_count());
        let said = bench.done(&["redrive", "--all", "--yes"]);
        let left = said.lines().filter_map(|line| line.split_once(": left: it may have taken effect"));
        left.for_each(|(key, _)| bench.operator().resolve_rerun(key));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(ids.iter().all(|id| service.ledger().effects(id) == 1), "{:?}", service.ledger().twice());
}
