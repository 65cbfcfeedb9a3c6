//! What the README says is what the program does: its commands run, its table is `--help`'s.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{Call, Gateway, Launch, Plan, Service, semel};

const README: &str = include_str!("../../../README.md");

/// The commands in its shell blocks, without their comments.
fn commands() -> Vec<&'static str> {
    let blocks = README.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let lines = blocks.flat_map(str::lines).map(|line| line.split("   #").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).collect()
}

fn commands_of(program: &str) -> Vec<&'static str> {
    let found: Vec<_> =
        commands().into_iter().filter(|line| line.split(' ').next() == Some(program)).collect();
    assert!(!found.is_empty(), "the README has no command of {program}");
    found
}

/// The flags of its table, with their defaults.
fn table() -> BTreeMap<&'static str, &'static str> {
    let rows = README.lines().filter(|line| line.starts_with("| `--"));
    let pairs = rows.flat_map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        // Two flags may share a row, and then their defaults stand in the same order.
        let of = |cell: &'static str| cell.split(", ").map(|part| part.trim_matches('`'));
        of(cells[1]).zip(of(cells[2])).collect::<Vec<_>>()
    });
    pairs.collect()
}

/// The flags of `semel gateway --help`, with their defaults.
fn help() -> BTreeMap<String, String> {
    let help = semel().args(["gateway", "-h"]).output().expect("the program starts").stdout;
    let help = String::from_utf8(help).expect("text");
    let mut flags: BTreeMap<String, String> = BTreeMap::new();
    let mut flag = String::new();
    for line in help.lines() {
        if let Some(word) =
            line.split_whitespace().find(|word| word.starts_with("--")).filter(|_| is_flag(line))
        {
            flag = word.to_owned();
            flags.insert(flag.clone(), String::new());
        }
        if let Some((_, rest)) = line.split_once("[default: ") {
            flags.insert(flag.clone(), rest.split(']').next().unwrap_or_default().to_owned());
        }
    }
    flags.retain(|flag, _| flag != "--help" && flag != "--config");
    flags
}

fn is_flag(line: &str) -> bool {
    line.trim_start().starts_with('-')
}

/// All of them stand in the example file, which has a test of its own.
#[test]
fn the_table_has_each_flag_with_its_default() {
    let (table, help) = (table(), help());
    assert!(table.len() >= 10, "{table:?}");
    for (flag, default) in table {
        let said = help.get(flag).unwrap_or_else(|| panic!("{flag} is no flag"));
        let same = said == default || (said == "as many as there are cores" && default == "as many as cores");
        assert!(same, "{flag}: the README says {default:?}, --help {said:?}");
    }
}

/// And what `--help` says are the defaults are those of a gateway that is told nothing.
#[test]
fn the_defaults_are_those_of_a_running_gateway() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let statement = &gateway.admin("/readyz").json()["gateway"];
    let table = table();
    for (flag, name) in [
        ("--key", "key"),
        ("--on-unknown", "on_unknown"),
        ("--remember-for", "remember_for"),
        ("--body-bytes-max", "body_bytes_max"),
        ("--kept-bytes-max", "kept_bytes_max"),
    ] {
        assert_eq!(statement[name], table[flag], "{flag}");
    }
    assert!([statement["replay_for"].as_str(), Some("24h")].contains(&Some(table["--replay-for"])));
}

#[test]
fn the_flags_in_its_text_exist() {
    let flags = help();
    let words = README.split(|char: char| !char.is_ascii_alphanumeric() && char != '-');
    let operators = [
        "--state",
        "--completed",
        "--status",
        "--body-file",
        "--rerun",
        "--match",
        "--cause",
        "--dry-run",
        "--release",
        "--features",
        "--config",
        "--help",
    ];
    for word in words.filter(|word| word.starts_with("--") && word.len() > 2 && !word.ends_with('-')) {
        assert!(flags.contains_key(word) || operators.contains(&word), "{word}");
    }
}

#[test]
fn the_first_command_starts_a_gateway() {
    let command = commands_of("cargo")[0];
    let args = command.strip_prefix("cargo run --release -- ").expect("it runs the program");
    let service = Service::plain();
    let upstream = format!("http://{}", service.address());
    let args = args.replace("http://127.0.0.1:9000", &upstream);
    assert_eq!(args, format!("gateway --upstream {upstream}"), "one flag is enough");
}

#[test]
fn the_two_curl_commands_do_what_it_says() {
    let curls = commands_of("curl");
    assert_eq!((curls.len(), curls[0]), (2, curls[1]), "the same request twice");
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let directory = gateway.launch().directory().to_owned();
    let [first, second] = [curls[0], curls[1]].map(|line| {
        let line = line.replace("127.0.0.1:8080", &gateway.listen.to_string());
        shell(&format!("{line} --silent --show-error"), &directory)
    });
    let body = |answer: &str| answer.split("\r\n\r\n").nth(1).map(str::to_owned);
    assert!(
        first.starts_with("HTTP/1.1 201") && !first.to_lowercase().contains("idempotent-replayed"),
        "{first}"
    );
    assert!(second.starts_with("HTTP/1.1 201"), "{second}");
    assert!(second.to_lowercase().contains("\r\nidempotent-replayed: true\r\n"), "{second}");
    assert_eq!(body(&first), body(&second));
    assert_eq!(service.ledger().received_count(), 1, "the service sees one request");
}

#[test]
fn the_commands_for_what_nobody_knows_work_as_they_stand() {
    let lines = commands_of("semel").into_iter().filter(|line| !line.contains("check-config"));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    for line in lines {
        let (_service, gateway) = unknown("order-77");
        let directory = gateway.launch().directory();
        std::fs::write(directory.join("charge.json"), "{\"id\":\"ch_1\"}").unwrap();
        let said = shell(line, directory);
        let retry = gateway.call(&call("order-77"));
        if line.contains("--completed") {
            assert_eq!(
                (retry.status, retry.text().as_str(), retry.is_replay()),
                (201, "{\"id\":\"ch_1\"}", true)
            );
        } else if line.contains("--rerun") && !line.contains("--dry-run") {
            assert_eq!((retry.status, retry.is_replay()), (201, false));
        } else {
            assert!(said.contains("order-77") && said.contains("unknown"), "{line}\n{said}");
            assert_eq!(retry.code(), "outcome-unknown");
        }
    }
}

#[test]
fn a_file_is_checked_as_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let example = include_str!("../../../semel.example.toml");
    std::fs::write(directory.path().join("semel.toml"), example).unwrap();
    let lines = commands_of("semel").into_iter().filter(|line| line.contains("check-config"));
    let [whole, charge] = &lines.collect::<Vec<_>>()[..] else { panic!("two commands") };
    assert!(shell(whole, directory.path()).contains("semel.toml is fine"));
    let charge = shell(charge, directory.path());
    assert!(charge.contains("Its route is POST /v1/charges") && charge.contains("# this route"), "{charge}");
}

/// The rows that it shows of the demo's table are rows of that table.
#[test]
fn the_demos_figures_are_rows_of_its_table() {
    let shown = README.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("figures");
    let report = include_str!("../src/demo/report.rs");
    let names: Vec<_> = shown.lines().skip(1).filter_map(|row| row.split("   ").next()).collect();
    assert!(names.len() >= 4, "{shown}");
    for name in names {
        assert!(report.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn every_command_in_it_is_known_here() {
    for line in commands() {
        let program = line.split(' ').next().unwrap_or_default();
        assert!(["cargo", "curl", "semel", "./test"].contains(&program), "{line}: say here what it does");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert!(root.join("test").is_file());
}

fn call(key: &str) -> Call {
    Call::post("/charges", key).body("amount=1200")
}

/// A key that nobody knows about, in the store that commands use where none is named.
fn unknown(key: &str) -> (Service, Gateway) {
    let service = Service::plain();
    let launch = Launch::new(service.address());
    assert!(launch.store().ends_with("/semel.db"));
    let gateway = launch.start();
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    assert_eq!(gateway.call(&call(key)).code(), "outcome-unknown");
    (service, gateway)
}

/// Runs a line as a person would, in that directory, with the program in the path.
fn shell(line: &str, directory: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_semel")).parent().expect("its directory");
    let others = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths(std::iter::once(program.to_owned()).chain(std::env::split_paths(&others)));
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(directory).env("PATH", path.expect("a path")).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    let output = command.output().expect("a shell");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{line}: {}\n{out}{err}", output.status);
    out.into_owned()
}
