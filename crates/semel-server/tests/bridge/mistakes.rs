//! What is wrong is said in one line, before anything is consumed.

use std::process::Output;

use crate::bench::Bench;
use crate::support::semel;

const SERVICE: ([u8; 4], u16) = ([127, 0, 0, 1], 9);

#[track_caller]
fn refused(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    let line = said.lines().last().unwrap_or_default();
    for part in parts {
        assert!(line.contains(part), "{part} in: {said}");
    }
    assert!(!said.contains("guest:guest") && !said.contains("wrong-secret"), "{said}");
}

fn run(bench: &Bench, more: &[&str]) -> Output {
    let file = bench.directory.path().join("bridge.toml");
    semel().args(["bridge", "--config"]).arg(file).args(more).output().expect("the program starts")
}

#[test]
fn a_wrong_password_and_an_unknown_queue_end_the_bridge_with_the_brokers_words() {
    let bench = Bench::new();
    bench.write(SERVICE.into(), "");
    let wrong = bench.url().replace("guest:guest", "guest:wrong-secret");
    refused(&run(&bench, &["--broker", &wrong]), 1, &["ACCESS_REFUSED", "check user, password"]);
    refused(&run(&bench, &["--queue", "ordres"]), 1, &["no queue 'ordres'", "check its name"]);
    assert_eq!(bench.count("ordres.dead"), 0, "nothing was made for a name that is none");
    refused(
        &run(&bench, &["--broker", "amqp://guest:guest@127.0.0.1:9/%2f"]),
        1,
        &["--broker", "127.0.0.1:9"],
    );
}

#[test]
fn a_typo_in_the_file_names_its_line_and_the_nearest_word() {
    let bench = Bench::new();
    for (more, parts) in [
        ("lnae = \"message-id\"", &["line 7", "unknown key 'lnae'", "did you mean 'lane'?"][..]),
        ("lane = \"headr:account\"", &["line 7", "did you mean 'header:account'?"]),
        ("on_unknown = \"parc\"", &["line 7", "did you mean 'park'?"]),
        ("timeout = \"30sec\"", &["line 7", "did you mean '30s'?"]),
        ("declare = \"qeue\"", &["line 7", "did you mean 'queue'?"]),
        ("remember_for = \"1d\"", &["raise remember-for"]),
        ("held_max = 1", &["held-max"]),
    ] {
        bench.write(SERVICE.into(), more);
        refused(&run(&bench, &["--check"]), 2, parts);
        refused(&run(&bench, &[]), 2, parts);
    }
}

#[test]
fn a_file_that_is_fine_says_what_it_comes_to() {
    let bench = Bench::new();
    bench.write(SERVICE.into(), "lane = \"json:/account\"");
    let output = run(&bench, &["--check"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("bridge.toml is fine"), "{said}");
    for part in ["json:/account", "park", "orders.dead", "Where the guarantees end"] {
        assert!(said.contains(part), "{part} in: {said}");
    }
    assert!(!said.contains("guest:guest"), "{said}");
    assert!(!bench.directory.path().join("semel.db").exists(), "nothing was opened");
}

#[test]
fn dlq_says_which_queue_is_not_there_and_which_was_meant() {
    let bench = Bench::new();
    bench.write(SERVICE.into(), "");
    let typo = bench.queue.replace("orders", "ordres");
    refused(
        &bench.dlq(&["list", "--queue", &typo]),
        1,
        &["there is no queue", &typo, "did you mean", &bench.queue],
    );
    let wrong = bench.url().replace("guest:guest", "guest:wrong-secret");
    refused(&bench.dlq(&["list", "--broker", &wrong]), 1, &["ACCESS_REFUSED"]);
    refused(&bench.dlq(&["list", "--match", "reson=x"]), 2, &["did you mean 'reason'?"]);
    refused(&bench.dlq(&["redrive"]), 2, &["--all"]);
    let output = semel().args(["dlq", "redriv"]).output().expect("the program starts");
    refused(&output, 2, &["unknown command 'redriv'", "did you mean 'redrive'?"]);
    let empty = bench.done(&["list"]);
    assert!(empty.starts_with("no dead letter"), "{empty}");
}
