//! `semel resolve` for many keys: what is shown before, what is asked, what is left alone, and what is said at the end.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::operator::{done, on};
use crate::records::{listed, open_keys};
use crate::semel;
use crate::support::{Call, Gate, Gateway, Plan, Service, WriteLock};

#[test]
fn k7_many_are_released_by_cause_and_route_and_others_are_left() {
    let (service, gateway) = open_keys(&[]);
    let args = ["resolve", "--match", "POST /charges/{id}", "--cause", "cut", "--rerun"];
    let dry = done(&gateway, &[&args[..], &["--dry-run"]].concat());
    assert!(dry.contains("charge-1") && dry.contains("charge-2") && !dry.contains("order"), "{dry}");
    assert!(dry.ends_with("2 keys would be released, to run at the next retry\n"), "{dry}");
    assert_eq!(listed(&gateway, &["--state", "unknown"]).len(), 4, "a dry run does nothing");
    let said = done(&gateway, &[&args[..], &["--yes"]].concat());
    assert_eq!(
        said,
        "charge-1: released, to run at the next retry\ncharge-2: released, to run at the next retry\n\
         2 keys released, to run at the next retry, 0 had changed and were left alone, 0 failed\n",
        "plain lines where nobody sees a bar"
    );
    assert_eq!(listed(&gateway, &["--state", "unknown"]), ["order-1", "order-2"]);
    assert_eq!(gateway.call(&Call::post("/charges/1", "charge-1").body("a")).status, 201);
    assert_eq!(service.ledger().effects("charge-1"), 2, "the operator's word was that it had none");
}

#[test]
fn k7_many_are_completed_with_one_answer() {
    let (service, gateway) = open_keys(&[]);
    let file = gateway.launch().directory().join("answer.json");
    std::fs::write(&file, "{\"by\":\"hand\"}").unwrap();
    let how = ["--completed", "--status", "200", "--body-file", file.to_str().unwrap(), "--yes"];
    done(&gateway, &[&["resolve", "--cause", "cut"], &how[..]].concat());
    for (path, key) in [("/charges/1", "charge-1"), ("/orders", "order-1")] {
        let answer = gateway.call(&Call::post(path, key).body("a"));
        assert_eq!(
            (answer.status, answer.text().as_str(), answer.is_replay()),
            (200, "{\"by\":\"hand\"}", true)
        );
    }
    assert_eq!(service.ledger().effects("charge-1"), 1);
    assert_eq!(listed(&gateway, &["--state", "unknown"]), ["order-2"]);
}

#[test]
fn many_need_a_yes_where_nobody_can_be_asked_and_one_key_never_does() {
    let (_service, gateway) = open_keys(&[]);
    let said = on(&gateway, &["resolve", "--cause", "cut", "--rerun"]);
    let line = said.error(2);
    assert!(line.contains("3 keys") && line.contains("--yes"), "{line}");
    assert_eq!(listed(&gateway, &["--state", "unknown"]).len(), 4);
    assert_eq!(
        done(&gateway, &["resolve", "order-1", "--rerun", "--dry-run"]),
        "order-1 would be released, to run at the next retry\n"
    );
    done(&gateway, &["resolve", "order-1", "--rerun"]);
    for args in [&["--rerun"][..], &["k", "--rerun", "--cause", "cut"], &["--rerun", "--match", "orders"]] {
        assert_eq!(on(&gateway, &[&["resolve"], args].concat()).code, Some(2), "{args:?}");
    }
    let none = done(&gateway, &["resolve", "--cause", "cutt", "--rerun"]);
    assert_eq!(none, "no unknown or dead key fits; did you mean --cause cut?\n");
    assert_eq!(
        done(&gateway, &["resolve", "--older-than", "1h", "--rerun"]),
        "no unknown or dead key fits\n"
    );
}

#[test]
fn k3_what_runs_is_left_alone_and_taken_only_by_force() {
    let service = Service::plain();
    let gate = Gate::new();
    service.next(Plan::behind(&gate));
    let gateway = Gateway::start(service.address(), &[]);
    let first = gateway.call_aside(&Call::post("/charges", "runs").body("a"));
    service.ledger().wait_received(1);
    let args = ["resolve", "--match", "/charges", "--completed", "--status", "200", "--yes"];
    let said = done(&gateway, &args);
    assert!(said.contains("still running, and left alone: 1 key"), "{said}");
    assert_eq!(gateway.operator().show("runs").unwrap().state, "running");
    done(&gateway, &[&args[..], &["--force"]].concat());
    gate.open();
    first.join().unwrap();
    let again = gateway.call(&Call::post("/charges", "runs").body("a"));
    assert_eq!((again.status, again.is_replay()), (200, true), "the operator's word stands");
}

/// Its answer is asked with the number; what another operator has settled meanwhile is skipped and counted.
#[test]
fn k3_what_moved_while_the_operator_thought_is_left_alone_and_counted() {
    let (_service, gateway) = open_keys(&[]);
    let mut terminal = Terminal::start(&gateway, &["resolve", "--cause", "cut", "--rerun"]);
    terminal.wait_for("3 keys will be released, to run at the next retry. Go on? [y/N] ");
    gateway.operator().done(&["resolve", "charge-2", "--completed", "--status", "201"]);
    terminal.say("y\n");
    let (code, said) = terminal.end();
    assert!(said.contains("2 keys released, to run at the next retry, 1 had changed"), "{said}");
    assert!(said.contains("[####################..........] 2 of 3"), "a bar, on a terminal: {said:?}");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(gateway.operator().show("charge-2").unwrap().state, "completed");
}

#[test]
fn a_no_does_nothing() {
    let (_service, gateway) = open_keys(&[]);
    for answer in ["n\n", "\n", "yess\n"] {
        let mut terminal = Terminal::start(&gateway, &["resolve", "--cause", "cut", "--rerun"]);
        terminal.wait_for("[y/N] ");
        terminal.say(answer);
        let (code, said) = terminal.end();
        assert!(code == Some(1) && said.contains("nothing was done"), "{said}");
    }
    assert_eq!(listed(&gateway, &["--state", "unknown"]).len(), 4);
}

/// With as many attempts behind it as are allowed, its next retry would find it exhausted.
#[test]
fn k8_one_rerun_is_enough_for_a_key_whose_attempts_are_exhausted() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &["--attempts-max", "1"]);
    let file = gateway.launch().directory().join("semel.toml");
    std::fs::write(&file, "attempts_max = 5\n[[route]]\nmatch = \"/charges\"\nattempts_max = 1\n").unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let call = |key| Call::post("/charges", key).body("a");
    for key in ["one", "other"] {
        service.next(Plan { cut_after: Some(0), ..Plan::default() });
        gateway.call(&call(key));
    }
    done(&gateway, &[&["resolve", "one", "--rerun"], &config[..]].concat());
    done(&gateway, &[&["resolve", "--cause", "cut", "--rerun", "--yes"], &config[..]].concat());
    for key in ["one", "other"] {
        assert_eq!(gateway.operator().show(key).unwrap().state, "released");
        assert_eq!(gateway.call(&call(key)).status, 201, "{key}");
    }
}

#[test]
fn a_store_that_is_away_is_not_waited_for_by_each_key() {
    let (_service, gateway) = open_keys(&[]);
    let lock = WriteLock::take(gateway.launch().store_file());
    let said = on(&gateway, &["resolve", "--older-than", "0s", "--rerun", "--yes"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.ends_with("0 had changed and were left alone, 3 failed\n"), "{}", said.out);
    assert!(said.err.contains("1 key left untried"), "{}", said.err);
    drop(lock);
    done(&gateway, &["resolve", "--older-than", "0s", "--rerun", "--yes"]);
    assert!(listed(&gateway, &["--state", "unknown"]).is_empty());
}

/// A command on a terminal of its own.
struct Terminal {
    child: Child,
    master: File,
    said: String,
}

impl Terminal {
    fn start(gateway: &Gateway, args: &[&str]) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::from(open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap());
        let mut command = semel(&[args, &["--store", &gateway.launch().store()]].concat());
        command.env("TERM", "xterm").stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap());
        let child = command.stderr(slave).spawn().expect("the program starts");
        Terminal { child, master: File::from(master), said: String::new() }
    }

    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        while !self.said.contains(text) {
            assert!(self.read(), "it ended with {:?}", self.said);
        }
    }

    fn say(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Everything to its end.
    fn end(mut self) -> (Option<i32>, String) {
        while self.read() {}
        (self.child.wait().unwrap().code(), self.said)
    }

    /// More of what it says; `false` once it has hung up, which Linux reports as an error.
    fn read(&mut self) -> bool {
        let mut piece = [0; 4096];
        let count = self.master.read(&mut piece).unwrap_or(0);
        self.said.push_str(&String::from_utf8_lossy(&piece[..count]));
        count > 0
    }
}
