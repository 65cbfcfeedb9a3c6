//! `docs/operating.md` and `deploy/` say what is so: the table has the metrics that `/metrics` shows, and no others; the
//! rules and the dashboard ask for metrics that exist; each alert has its section.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::Parser;
use serde_json::Value;

use support::{Call, Gateway, Launch, Plan, Service, until};

const PAGE: &str = include_str!("../../../docs/operating.md");
const RULES: &str = include_str!("../../../deploy/semel.rules.yml");
const RULES_TEST: &str = include_str!("../../../deploy/semel.rules.test.yml");
const DASHBOARD: &str = include_str!("../../../deploy/semel.dashboard.json");

/// A metric's kind and labels.
type Metrics = BTreeMap<String, (String, BTreeSet<String>)>;

/// The table of the page.
fn documented() -> Metrics {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `semel_"));
    let rows = rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, ..] = &cells[..] else { panic!("no row: {row}") };
        let labels =
            labels.split(", ").filter(|label| !label.is_empty()).map(|label| unquoted(label).to_owned());
        (unquoted(name).to_owned(), ((*kind).to_owned(), labels.collect()))
    });
    rows.collect()
}

fn unquoted(cell: &str) -> &str {
    cell.strip_prefix('`')
        .and_then(|cell| cell.strip_suffix('`'))
        .unwrap_or_else(|| panic!("no code: {cell}"))
}

/// What the gateway shows. A histogram's own suffixes, and `le`, are not names and labels of ours.
fn shown(gateway: &Gateway) -> Metrics {
    let text = gateway.admin("/metrics").text();
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut metrics: Metrics =
        kinds.map(|(name, kind)| (name.to_owned(), (kind.to_owned(), BTreeSet::new()))).collect();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let names = labels
            .split("\",")
            .filter_map(|label| label.split('=').next())
            .map(|name| name.trim_matches('}'));
        let names = names.filter(|name| !name.is_empty() && *name != "le").map(str::to_owned);
        metrics.get_mut(base(name)).unwrap_or_else(|| panic!("no type of {name}")).1.extend(names);
    }
    metrics
}

fn base(name: &str) -> &str {
    let suffix = ["_bucket", "_sum", "_count"].into_iter().find(|suffix| name.ends_with(suffix));
    suffix.and_then(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

/// Everything that can be counted, once.
fn small_run() -> Gateway {
    let service = Service::plain();
    let toml = "[[route]]\nmatch = \"/watched\"\nobserve = true\n[[route]]\nmatch = \"/charges\"\n";
    let launch = Launch::new(service.address());
    let file = launch.directory().join("semel.toml");
    std::fs::write(&file, toml).unwrap();
    let gateway = launch.args(["--config", file.to_str().unwrap(), "--log", "info"]).start();
    let call = Call::post("/charges", "key-1").body("a");
    gateway.call(&call);
    gateway.call(&call);
    gateway.call(&call.body("b"));
    gateway.call(&Call::post("/charges", "\"broken").body("a"));
    gateway.call(&Call::new("POST", "/charges"));
    gateway.call(&Call::post("/watched", "key-1"));
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    gateway.call(&Call::post("/charges", "key-2").body("a"));
    until("what is watched is counted", || {
        gateway.admin("/metrics").text().contains("semel_observed_total{").then_some(())
    });
    gateway
}

#[test]
fn v1_the_table_has_what_is_shown_and_what_is_shown_is_in_the_table() {
    let gateway = small_run();
    let (documented, shown) = (documented(), shown(&gateway));
    assert!(documented.len() > 20);
    for (name, found) in &shown {
        assert_eq!(documented.get(name), Some(found), "{name} in docs/operating.md");
    }
    for name in documented.keys() {
        assert!(shown.contains_key(name), "{name} is in docs/operating.md, and nowhere else");
    }
}

/// Before anything has happened, so that the first event is a rise.
#[test]
fn v1_what_alerts_look_at_is_there_from_the_start() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let text = until("the first look", || {
        Some(gateway.admin("/metrics").text()).filter(|text| text.contains("semel_open_more"))
    });
    for name in names(RULES).into_iter().filter(|name| name.starts_with("semel_")) {
        // A histogram without samples has nothing to say.
        if name != "semel_store_seconds" {
            assert!(text.contains(&format!("\n{name}")), "{name} in\n{text}");
        }
    }
    assert!(text.contains("semel_ready 1"), "{text}");
    assert!(text.contains("semel_claims_total{result=\"bypass\",surface=\"gateway\",route=\"otherwise\"} 0"));
}

/// V1: what is unknown is counted by cause, with its age, and goes back to nought when it is resolved.
#[test]
fn v1_what_waits_is_shown_until_it_is_resolved() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    service.next(Plan { cut_after: Some(0), ..Plan::default() });
    gateway.call(&Call::post("/charges", "key-1").body("a"));
    let line = |value: u32| format!("semel_open{{state=\"unknown\",cause=\"cut\"}} {value}");
    // The first look may come in the same instant; then its age is nought until the next one.
    let oldest = |text: &str| {
        let mut lines = text.lines();
        let age = lines.find_map(|line| line.strip_prefix("semel_open_oldest_seconds{state=\"unknown\"} "));
        age.and_then(|age| age.parse::<f64>().ok()).unwrap_or_default()
    };
    until("it is counted, and grows older", || {
        Some(gateway.admin("/metrics").text()).filter(|text| text.contains(&line(1)) && oldest(text) > 0.0)
    });
    gateway.operator().resolve_rerun("key-1");
    let text =
        until("it is gone", || Some(gateway.admin("/metrics").text()).filter(|text| text.contains(&line(0))));
    assert!(text.contains("semel_open_oldest_seconds{state=\"unknown\"} 0\n"), "{text}");
}

/// V3, through real sockets: the line names the scope, and nothing of the key or the token.
#[test]
fn v3_a_spike_is_one_line_that_names_the_scope() {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), &[]);
    let call = |body: &str| {
        Call::post("/charges", "secret-key").header("Authorization", "Bearer secret-token").body(body)
    };
    gateway.call(&call("first"));
    let mut client = gateway.connect();
    for number in 0..60 {
        assert_eq!(client.call(&call(&number.to_string())).unwrap().status, 422);
    }
    let line = gateway.wait_for_log(|line| line.contains("semel::spike")).expect("a line");
    let said: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&said["level"], &said["likely"], &said["duplicates"]),
        (&"WARN".into(), &"key_reused".into(), &50.into())
    );
    assert!(said["scope"].as_str().unwrap().starts_with("http:default:authorization-"), "{line}");
    assert!(!line.contains("secret"), "{line}");
    assert_eq!(gateway.log().matches("semel::spike").count(), 1);
    let text = gateway.admin("/metrics").text();
    assert!(text.contains("semel_duplicate_spikes_total{likely=\"key_reused\"} 1"), "{text}");
}

#[cfg(not(feature = "otel"))]
#[test]
fn spans_are_refused_by_name_where_they_were_not_built_in() {
    let args = ["gateway", "--upstream", "http://127.0.0.1:9000", "--otlp-endpoint", "http://127.0.0.1:4318"];
    let output = support::semel().args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.starts_with("semel: --otlp-endpoint: ") && said.contains("the feature 'otel'"), "{said}");
}

/// Words that could be metrics of ours.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("semel_")).map(|word| base(word).to_owned()).collect()
}

#[test]
fn the_rules_and_the_dashboard_ask_for_metrics_that_exist() {
    let documented = documented();
    for (file, text) in [("rules", RULES), ("rules' tests", RULES_TEST), ("dashboard", DASHBOARD)] {
        let names = names(text);
        assert!(names.len() > 10, "{file}");
        for name in names {
            assert!(documented.contains_key(&name), "{name}, in the {file}");
        }
    }
    // What is measured is on the dashboard: a metric that nobody sees is not worth its cost.
    for name in documented.keys() {
        assert!(names(DASHBOARD).contains(name), "{name} is not on the dashboard");
    }
}

#[test]
fn the_files_parse() {
    for text in [RULES, RULES_TEST] {
        for event in Parser::new_from_str(text) {
            event.expect("YAML");
        }
    }
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        assert!(panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{}", panel["title"]);
    }
}

#[test]
fn each_alert_has_a_section_that_says_what_to_do_and_what_not() {
    let alerts: Vec<&str> = RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 15);
    for alert in &alerts {
        let heading = format!("\n### {alert}\n");
        let section = PAGE.split(heading.as_str()).nth(1).unwrap_or_else(|| panic!("no section for {alert}"));
        let section = section.split("\n#").next().unwrap();
        for part in ["**It means**", "**Look", "**do", "**Do not**"] {
            let there = section.contains(part) || section.contains(&part.replace("**do", "**Do"));
            assert!(there, "{alert}: no {part}");
        }
        assert!(
            RULES.contains(&format!("docs/operating.md#{}", alert.to_lowercase())),
            "{alert} links elsewhere"
        );
        assert!(RULES_TEST.matches(alert).count() >= 2, "{alert} is tested both ways");
    }
    let sections = PAGE.split("\n## Alerts\n").nth(1).unwrap().split("\n## ").next().unwrap();
    assert_eq!(sections.matches("\n### ").count(), alerts.len(), "a section without an alert");
}
