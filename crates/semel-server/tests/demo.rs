//! `semel demo` from outside: it comes out exact, its table is its ledgers', and it leaves nothing behind.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use support::{note, semel, until};

/// A variable that a demo's children inherit: by it they are found.
const MARK: &str = "DEMO_OF_THIS_TEST";

/// A demo, and the directory that takes the place of the system's temporary one.
struct Demo {
    temporary: TempDir,
    command: Command,
}

/// Killed by its own id when the test ends early.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// To its process group, as a terminal does.
    fn send(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.0), signal).expect("it is there");
    }

    /// What it has said on standard error, once it has ended.
    fn err(&mut self) -> String {
        std::io::read_to_string(self.0.stderr.take().expect("a pipe")).expect("text")
    }

    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        until("the demo ends", || self.0.try_wait().expect("it is a child"))
    }
}

impl Demo {
    fn new(args: &[&str]) -> Demo {
        let temporary = tempfile::tempdir().expect("a directory for the test");
        let mut command = semel();
        command.args(["demo", "--orders", "40"]).args(args);
        command.env("TMPDIR", temporary.path()).env(MARK, temporary.path()).stdin(Stdio::null());
        Demo { temporary, command }
    }

    /// To its end, which is a good one; gives its standard output.
    #[track_caller]
    fn done(&mut self) -> String {
        let output = self.command.output().expect("the program starts");
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
        out
    }

    fn start(&mut self) -> Running {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Running(self.command.spawn().expect("the program starts"))
    }

    /// The processes of this demo that are still there, zombies aside.
    fn processes(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.temporary.path().display());
        let all = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
        let marked = all.filter(|process| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        });
        marked.map(|process| process.path().display().to_string()).collect()
    }

    fn files(&self) -> Vec<String> {
        let all = fs::read_dir(self.temporary.path()).expect("a directory").filter_map(Result::ok);
        all.map(|file| file.path().display().to_string()).collect()
    }

    #[track_caller]
    fn left_nothing_behind(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
        assert_eq!(self.files(), Vec::<String>::new());
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

/// What a ledger comes to: requests, charges, double charges, orders that were asked about and charged, and not.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    orders: BTreeMap<String, usize>,
    requests: usize,
    charges: usize,
    doubles: usize,
    asked: [usize; 2],
}

fn counted(directory: &Path, run: &str) -> Counted {
    let file = fs::read(directory.join(format!("ledger-{run}.json"))).expect("a ledger");
    let ledger: Value = serde_json::from_slice(&file).expect("JSON");
    let list = |name: &str| ledger[name].as_array().expect("a list").clone();
    let order = |entry: &Value| entry["order"].as_str().expect("an order").to_owned();
    let mut orders = BTreeMap::new();
    list("charges").iter().for_each(|charge| *orders.entry(order(charge)).or_insert(0) += 1);
    let asked = [true, false].map(|charged| {
        let questions = list("questions").into_iter().filter(|question| question["charged"] == charged);
        questions.map(|question| order(&question)).collect::<BTreeSet<_>>().len()
    });
    Counted {
        requests: list("requests").len(),
        charges: list("charges").len(),
        doubles: orders.values().map(|count| count - 1).sum(),
        orders,
        asked,
    }
}

/// A row of the table.
#[track_caller]
fn row(said: &str, name: &str) -> (String, String) {
    let line = said
        .lines()
        .find(|line| line.trim_start().starts_with(name))
        .unwrap_or_else(|| panic!("{name}\n{said}"));
    let mut words = line.split_whitespace().rev().map(str::to_owned);
    let (guarded, straight) = (words.next().expect("a figure"), words.next().expect("a figure"));
    (straight, guarded)
}

#[test]
fn each_order_is_charged_once_through_the_gateway_and_the_table_is_the_ledgers() {
    let kept = tempfile::tempdir().expect("a directory");
    let mut demo = Demo::new(&["--keep", kept.path().to_str().expect("text")]);
    let said = demo.done();
    note(said.lines().find(|line| line.starts_with("Seed")).expect("the seed is printed"));
    demo.left_nothing_behind();

    let (straight, guarded) = (counted(kept.path(), "straight"), counted(kept.path(), "semel"));
    assert_eq!((guarded.orders.len(), guarded.charges, guarded.doubles), (40, 40, 0), "{said}");
    assert!(straight.orders.len() == 40 && straight.doubles > 0, "{said}");
    assert!(guarded.asked.iter().all(|count| *count > 0), "{said}");
    assert_eq!(straight.asked, [0, 0], "without a gateway nobody asks");

    let both = |one: usize, other: usize| (one.to_string(), other.to_string());
    assert_eq!(row(&said, "orders "), both(40, 40));
    assert_eq!(row(&said, "requests that reached"), both(straight.requests, guarded.requests));
    assert_eq!(row(&said, "charges "), both(straight.charges, guarded.charges));
    assert_eq!(row(&said, "double charges"), both(straight.doubles, 0));
    let unknown = guarded.asked.iter().sum::<usize>().to_string();
    assert_eq!(row(&said, "unknown, resolved"), ("-".to_owned(), unknown));

    let plain = said.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte));
    assert!(plain, "piped, it is plain lines: {said:?}");
    let long: Vec<_> = said.lines().filter(|line| line.len() > 80 && !line.contains(" in /")).collect();
    assert!(long.iter().all(|line| line.contains(kept.path().to_str().unwrap())), "{long:?}");
    for name in ["semel.toml", "semel.db", "gateway.log", "service-straight.log", "service-semel.log"] {
        assert!(kept.path().join(name).exists(), "{name}");
    }
    let states =
        semel().args(["keys", "--json", "--config", "semel.toml"]).current_dir(kept.path()).output().unwrap();
    let completed = text(states.stdout).lines().filter(|line| line.contains("\"completed\"")).count();
    assert_eq!(completed, 40, "what is kept can be looked at");
}

#[test]
fn the_figures_are_json_and_nothing_is_left_behind() {
    let mut demo = Demo::new(&["--json", "--seed", "7"]);
    let figures: Value = serde_json::from_str(&demo.done()).expect("JSON");
    demo.left_nothing_behind();
    assert_eq!((&figures["seed"], &figures["wrong"]), (&Value::from(7), &Value::from(Vec::<Value>::new())));
    let number =
        |run: &str, name: &str| figures[run][name].as_u64().unwrap_or_else(|| panic!("{run} {name}"));
    let refused = |run: &str| -> u64 {
        figures[run]["refused"].as_object().expect("by code").values().filter_map(Value::as_u64).sum()
    };
    for run in ["straight", "gateway"] {
        let ends = number(run, "unanswered") + number(run, "answers") + refused(run);
        assert_eq!(number(run, "requests_sent"), ends, "each request has one end: {figures:#}");
        assert_eq!(number(run, "charges"), number(run, "orders") + number(run, "double_charges"));
    }
    assert_eq!(number("gateway", "double_charges"), 0);
    assert!(number("straight", "double_charges") > 0 && number("straight", "replays") == 0);
    assert!(number("gateway", "replays") > 0 && refused("gateway") > 0);
    assert!(number("gateway", "unknown_charged") > 0 && number("gateway", "unknown_not_charged") > 0);
}

/// The demo is a test that can fail: its gateway comes back with a file that runs again what is unknown.
#[test]
fn a_gateway_that_charges_twice_is_found_out() {
    let kept = tempfile::tempdir().expect("a directory");
    let mut demo = Demo::new(&["--keep", kept.path().to_str().expect("text")]);
    let mut running = demo.start();
    let mut lines = BufReader::new(running.0.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("2 through the gateway, 40 orders")), "it has read its file");
    let file = kept.path().join("semel.toml");
    let harmless = fs::read_to_string(&file).unwrap();
    let lines_of = harmless.lines().filter(|line| !line.starts_with("probe"));
    let harmful = lines_of.collect::<Vec<_>>().join("\n").replace("\"probe\"", "\"rerun\"");
    assert_ne!(harmful, harmless);
    fs::write(&file, harmful).unwrap();
    let said: Vec<String> = lines.collect();
    let (status, err) = (running.ended(), running.err());
    assert_eq!(status.code(), Some(1), "{said:?}");
    assert!(
        err.starts_with("semel: it did not come out right: ") && err.contains(" was charged 2 times"),
        "{err}"
    );
    assert!(said.iter().any(|line| line.starts_with("This is not as it must be: ")), "{said:?}");
    demo.left_nothing_behind();
}

/// Starts a demo, and sends it the signal once a line of it says that it is so far.
#[track_caller]
fn stopped_at(line: &str, signal: Signal) -> (Demo, ExitStatus, String) {
    let mut demo = Demo::new(&[]);
    let mut running = demo.start();
    let mut lines = BufReader::new(running.0.stdout.take().expect("a pipe")).lines();
    let found = lines.by_ref().map_while(Result::ok).any(|said| said.contains(line));
    assert!(found, "it ended without {line:?}");
    assert!(demo.processes().len() > 1, "it has children");
    running.send(signal);
    let status = running.ended();
    (demo, status, running.err())
}

#[test]
fn ctrl_c_in_the_middle_leaves_nothing_behind() {
    for (line, signal, name) in [
        ("was killed", Signal::INT, "SIGINT"),
        ("was started again", Signal::INT, "SIGINT"),
        ("1 straight at the service, 40 orders", Signal::TERM, "SIGTERM"),
    ] {
        let (demo, status, err) = stopped_at(line, signal);
        assert_eq!((status.code(), err.as_str()), (Some(1), format!("semel: stopped by {name}\n").as_str()));
        demo.left_nothing_behind();
    }
}

/// Whoever kills the demo itself leaves its directory, and no process.
#[cfg(target_os = "linux")]
#[test]
fn children_end_with_a_demo_that_is_killed() {
    let (demo, status, _) = stopped_at("was started again", Signal::KILL);
    assert!(!status.success());
    until("its children have ended", || demo.processes().is_empty().then_some(()));
}

#[test]
fn a_demo_has_an_end_and_its_time_is_one() {
    let mut demo = Demo::new(&["--seconds", "1"]);
    let output = demo.command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(output.stderr), "semel: the demo did not end within 1s\n");
    demo.left_nothing_behind();
}

/// `semel demo | head -1`.
#[test]
fn whoever_has_read_enough_ends_it() {
    let mut demo = Demo::new(&[]);
    let mut running = demo.start();
    let mut first = String::new();
    BufReader::new(running.0.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
    assert!(first.starts_with("40 orders"), "{first}");
    assert!(running.ended().success());
    demo.left_nothing_behind();
}

#[test]
fn what_cannot_be_is_one_line_and_nothing_starts() {
    let full = tempfile::tempdir().expect("a directory");
    fs::write(full.path().join("mine"), "").unwrap();
    let full = full.path().to_str().unwrap();
    for (args, said) in [
        (["--keep", full], "the directory is not empty"),
        (["--orders", "9"], "--orders '9'"),
        (["--seed", "x"], "--seed 'x'"),
        (["--kep", "x"], "did you mean '--keep'?"),
    ] {
        let mut command = semel();
        let output = command.arg("demo").args(args).output().expect("the program starts");
        let err = text(output.stderr);
        assert_eq!(
            (output.status.code(), err.lines().count(), output.stdout.len()),
            (Some(2), 1, 0),
            "{err}"
        );
        assert!(err.contains(said), "{err}");
    }
}
