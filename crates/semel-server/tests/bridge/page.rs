//! What stands in `docs/bridge.md` is so: its files are fine, its commands run, its table has what is shown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::bench::Bench;
use crate::support::{Plan, Reply, Service, semel};

const PAGE: &str = include_str!("../../../../docs/bridge.md");
const RULES: &str = include_str!("../../../../deploy/semel-bridge.rules.yml");
const UNIT: &str = include_str!("../../../../deploy/semel-bridge.service");
const EXAMPLE: &str = include_str!("../../../../bridge.example.toml");
const OF_THE_EXAMPLE: &str = include_str!("../../../../examples/bridge/bridge.toml");

fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = PAGE.match_indices(fence.as_str()).map(|(at, _)| &PAGE[at + fence.len()..]);
    blocks.map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

#[test]
fn each_file_of_settings_is_fine() {
    let directory = tempfile::tempdir().unwrap();
    let files = blocks("toml");
    assert!(files.len() >= 2);
    let is_built_in = |text: &&str| cfg!(feature = "postgres") || !text.contains("store = \"postgres://");
    for text in files.into_iter().chain([EXAMPLE, OF_THE_EXAMPLE]).filter(is_built_in) {
        std::fs::write(directory.path().join("bridge.toml"), text).unwrap();
        let output = semel()
            .args(["bridge", "--config", "bridge.toml", "--check"])
            .current_dir(directory.path())
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Each works as it stands, beside a running bridge.
#[test]
fn the_commands_for_dead_letters_work_as_they_stand() {
    let (bench, service) = (Bench::new(), Service::plain());
    service.set(|_| Plan { effect: false, reply: Reply::new(422, "no such account"), ..Plan::default() });
    let _bridge = bench.start(service.address(), "");
    let program = Path::new(env!("CARGO_BIN_EXE_semel")).parent().expect("its directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    bench.send([
        bench.order("o-3"),
        semel_messaging::Message::new(bench.queue.clone(), "{\"account\":\"a-9\"}").with_id("o-9"),
    ]);
    bench.wait_dead(2);
    let lines = blocks("sh").into_iter().flat_map(str::lines).filter(|line| line.starts_with("semel dlq"));
    let lines: BTreeSet<&str> = lines.collect();
    assert!(lines.len() >= 7, "{lines:?}");
    // What shows and what is dry comes before what takes them away.
    let (last, first): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(|line| line.contains("--reason"));
    for line in first.into_iter().chain(last) {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(bench.directory.path()).env("PATH", &path);
        let output = shell.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains("o-3") || printed.contains("o-9"), "{line}: {printed}");
    }
}

/// A metric's kind and labels, of the table.
fn documented() -> BTreeMap<&'static str, (&'static str, BTreeSet<&'static str>)> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `semel_"));
    let rows = rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let labels =
            cells[3].split(", ").map(|label| label.trim_matches('`')).filter(|label| !label.is_empty());
        (cells[1].trim_matches('`'), (cells[2], labels.collect()))
    });
    rows.collect()
}

#[test]
fn v1_the_table_has_what_is_shown() {
    let (bench, service) = (Bench::new(), Service::plain());
    service.set(|_| Plan { effect: false, reply: Reply::new(422, ""), ..Plan::default() });
    let bridge = bench.start(service.address(), "lane = \"message-id\"");
    bench.send([bench.order("a")]);
    bench.wait_dead(1);
    let text = crate::support::until("the dead letter is counted", || {
        Some(bridge.admin("/metrics").text()).filter(|text| text.contains("semel_dead_letters_total{"))
    });
    let documented = documented();
    assert!(documented.len() >= 8);
    for (name, (kind, labels)) in &documented {
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} in\n{text}");
        let series = text.lines().find(|line| line.starts_with(name)).expect("a series");
        for label in labels {
            assert!(series.contains(&format!("{label}=\"")), "{label} in {series}");
        }
    }
    let own = semel_messaging::observe::METRICS.iter().map(|metric| metric.name);
    for name in own.chain(["semel_broker_connected"]) {
        assert!(documented.contains_key(name), "{name} in docs/bridge.md");
    }
    for name in ["semel_ready", "semel_open_more", "semel_build_info"] {
        assert!(text.contains(&format!("\n{name}")), "{name} in\n{text}");
    }
    assert!(!text.contains("semel_connections"), "a bridge has no callers");
    for name in ["semel_broker_connected", "semel_deliveries_total", "semel_upstream_seconds"] {
        assert!(RULES.contains(name) && text.contains(name), "{name}");
    }
}

#[test]
fn each_alert_has_a_section_that_says_what_to_do_and_what_not() {
    let alerts = RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        let section = PAGE.split(&format!("\n### {alert}\n")).nth(1).unwrap_or_else(|| panic!("no {alert}"));
        let section = section.split("\n#").next().unwrap();
        for part in ["**It means**", "**Look", "**Do**", "**Do not**"] {
            assert!(section.contains(part), "{alert}: no {part}");
        }
        assert!(RULES.contains(&format!("docs/bridge.md#{}", alert.to_lowercase())), "{alert}");
    }
}

/// The example has every setting, and each default that it shows is the real one, by what the help says.
#[test]
fn the_example_has_every_setting_with_its_default() {
    let help = semel().args(["bridge", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let flags = help.lines().filter_map(|line| line.trim().strip_prefix("--")?.split([' ', '[']).next());
    let names: BTreeSet<String> = flags.map(|flag| flag.replace('-', "_")).collect();
    let names: BTreeSet<&str> =
        names.iter().map(String::as_str).filter(|name| !["config", "check"].contains(name)).collect();
    let shown = EXAMPLE.lines().filter_map(|line| line.trim_start_matches('#').split_once(" = "));
    let shown: BTreeSet<&str> = shown.map(|(name, _)| name).filter(|name| !name.contains(' ')).collect();
    assert!(names.len() > 35);
    assert_eq!(shown, names);
}

/// The unit starts the program with what it takes, and waits for it longer than it drains.
#[test]
fn what_deploy_starts_can_be_started() {
    let start = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    assert_eq!(start, "/usr/local/bin/semel bridge --config ${CREDENTIALS_DIRECTORY}/bridge.toml");
    let seconds = UNIT.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")?.strip_suffix('s'));
    assert!(seconds.and_then(|seconds| seconds.parse::<u32>().ok()).expect("seconds") > 25 + 2);
}
