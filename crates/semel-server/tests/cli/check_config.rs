//! `semel check-config`: what a file comes to, in the gateway's own words.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Said, run, said, semel};

/// A configuration file in a directory that goes away with it.
struct File {
    path: PathBuf,
    _directory: TempDir,
}

const SHOP: &str = r#"
upstream = "http://127.0.0.1:9000"
key = "required"

[[route]]
match = "/charges"
methods = ["POST"]
remember_for = "forever"
preset = "cautious"

[[route]]
match = "/charges/{id}"
host = "pay.example"
upstream = "http://127.0.0.1:9001"
key = "optional"
"#;

impl File {
    fn new(text: &str) -> File {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("semel.toml");
        std::fs::write(&path, text).unwrap();
        File { path, _directory: directory }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn check(&self, args: &[&str]) -> Said {
        run(&[&["check-config", self.path()], args].concat())
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let said = self.check(&[args, &["--json"]].concat());
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
        serde_json::from_str(&said.out).unwrap()
    }
}

#[test]
fn a_fine_file_is_said_to_be_fine_and_its_routes_are_listed_in_their_order() {
    let file = File::new(SHOP);
    let said = file.check(&[]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = said.out.lines().map(words).collect();
    assert!(lines[0].contains("semel.toml is fine"), "{}", said.out);
    assert_eq!(
        lines[2..],
        [
            "HOST PATH METHODS KEY UPSTREAM",
            "any /charges POST required http://127.0.0.1:9000",
            "pay.example /charges/{id} POST,PATCH optional http://127.0.0.1:9001",
            "any everything else POST,PATCH required http://127.0.0.1:9000",
        ]
    );
    let whole = file.json(&[]);
    assert_eq!(whole["routes"][1]["match"], "/charges/{id}");
    assert_eq!(whole["otherwise"]["key"], "required");
    assert_eq!(whole["settings"]["listen"], "127.0.0.1:8080");
}

#[test]
fn a_request_has_its_route_and_each_setting_says_where_it_comes_from() {
    let file = File::new(SHOP);
    let said = file.check(&["POST", "/charges?a=1"]);
    let first = said.out.lines().next().unwrap();
    assert_eq!(first, "# POST /charges?a=1: guarded. Its route is POST /charges", "{}", said.err);
    for (start, end) in [
        ("match = \"/charges\"", "# this route"),
        ("remember_for = \"forever\"", "# this route"),
        ("key = \"required\"", "# the file"),
        ("lease = \"30s\"", "# the default"),
        ("released = [401", "# this route's preset"),
    ] {
        let found = said.out.lines().any(|line| line.starts_with(start) && line.ends_with(end));
        assert!(found, "{start} … {end}\n{}", said.out);
    }
    let found = file.json(&["POST", "/charges"]);
    assert_eq!((&found["route"], &found["guarded"]), (&json!("POST /charges"), &json!(true)));
    assert_eq!(found["from"]["preset"], "this route");
    assert_eq!(found["settings"]["released"], json!([401, 403, 407, 408, 409, 421, 423, 425, 429]));
}

#[test]
fn h2_what_passes_by_says_why() {
    let file = File::new(
        "upstream = 'http://127.0.0.1:9000'\nkey = 'required'\n[[route]]\nmatch = '/a/status'\nkey = 'natural'\n\
         [[route]]\nmatch = '/a/*'\nobserve = true\n",
    );
    for (method, path, why) in [
        (
            "POST",
            "/a/status",
            "passes by, with a key too, since its key is 'natural'. Its route is POST,PATCH /a/status",
        ),
        ("POST", "/a/b", "is watched and passes by, since 'observe' is set."),
        ("DELETE", "/b", "passes by, since its method is not guarded."),
        ("POST", "/b", "guarded."),
    ] {
        let said = file.check(&[method, path]);
        let first = said.out.lines().next().unwrap();
        assert!(first.starts_with(&format!("# {method} {path}: {why}")), "{first}");
        assert_eq!(file.json(&[method, path])["guarded"], json!(why == "guarded."), "{method} {path}");
    }
}

/// H3: never let by.
#[test]
fn h3_what_matches_no_route_as_written_has_the_settings_for_everything_else_and_is_guarded() {
    let file = File::new(SHOP);
    for path in ["//charges", "/%63harges", "/charges/", "/Charges"] {
        let said = file.check(&["POST", path]);
        assert!(
            said.out.contains(&format!("# POST {path}: guarded. No route matches it as written")),
            "{path}"
        );
        assert!(!said.out.contains("[[route]]"), "{path}");
        assert_eq!(file.json(&["POST", path])["route"], Value::Null);
    }
    let said = file.check(&["GET", "/charges"]);
    assert!(said.out.starts_with("# GET /charges: passes by"), "{}", said.out);
    assert_eq!(file.json(&["GET", "/charges"])["guarded"], false);
}

#[test]
fn a_route_with_a_host_is_asked_with_the_host_and_pointed_at_without() {
    let file = File::new(SHOP);
    let without = file.check(&["POST", "/charges/7"]);
    assert!(without.out.contains("No route matches"), "{}", without.out);
    assert!(without.out.contains("With --host another route may hold: POST,PATCH pay.example/charges/{id}"));
    for host in ["pay.example", "PAY.example:8443"] {
        let found = file.json(&["POST", "/charges/7", "--host", host]);
        assert_eq!(found["route"], "POST,PATCH pay.example/charges/{id}");
        assert_eq!(found["settings"]["upstream"], "http://127.0.0.1:9001");
    }
    let other = file.check(&["POST", "/charges/7", "--host", "shop.example"]);
    assert!(other.out.contains("No route matches") && !other.out.contains("--host"), "{}", other.out);
}

/// What it prints can be pasted back, and comes to the same.
#[test]
fn what_it_prints_is_toml_that_comes_to_the_same_settings() {
    let file = File::new(SHOP);
    for (request, host) in
        [(["POST", "/charges"], None), (["POST", "/charges/7"], Some("pay.example")), (["POST", "/x"], None)]
    {
        let args = [&request[..], &host.map_or_else(Vec::new, |host| vec!["--host", host])].concat();
        let printed = file.check(&args).out;
        let top = if printed.contains("[[route]]") { "upstream = \"http://127.0.0.1:1\"\n" } else { "" };
        let pasted = File::new(&format!("{top}{printed}"));
        assert_eq!(pasted.json(&args)["settings"], file.json(&args)["settings"], "{printed}");
        assert_eq!(pasted.json(&args)["route"], file.json(&args)["route"], "{printed}");
    }
}

#[test]
fn flags_and_variables_stand_over_the_file_as_for_the_gateway() {
    let file = File::new("key = \"required\"");
    let line = file.check(&[]);
    assert!(line.error(2).contains("--upstream is missing"));
    let by_flag = file.json(&["POST", "/", "--upstream", "http://127.0.0.1:9000", "--key", "optional"]);
    assert_eq!(by_flag["settings"]["key"], "optional");
    assert_eq!(by_flag["from"]["key"], "a flag or a variable");
    let args = ["check-config", file.path(), "POST", "/", "--json"];
    let by_variable = said(semel(&args).env("SEMEL_UPSTREAM", "http://127.0.0.1:9000"));
    let by_variable: Value = serde_json::from_str(&by_variable.out).unwrap();
    assert_eq!(by_variable["from"]["upstream"], "a flag or a variable");
    assert_eq!(by_variable["from"]["key"], "the file");
}

#[test]
fn a_mistake_in_the_request_names_the_nearest() {
    let file = File::new(SHOP);
    for (args, wants) in [
        (&["PSOT", "/charges"][..], "unknown method 'PSOT'; did you mean 'POST'?"),
        (&["get", "/charges"], "did you mean 'GET'?"),
        (&["POST", "charges"], "did you mean '/charges'?"),
        (&["POST", "https://pay.example/charges"], "did you mean '/charges' with --host pay.example?"),
        (&["POST", "/a#b"], "'#'"),
        (&["POST", "/ä b"], "percent-encoded"),
        (&["POST", "/charges", "--host", "a b"], "--host 'a b'"),
        (&["POST"], "<PATH>"),
        (&["--host", "pay.example"], "<PATH>"),
        (&["POST", "/charges", "--jsn"], "did you mean '--json'?"),
    ] {
        let said = file.check(args);
        assert!(said.error(2).contains(wants), "{args:?}: {}", said.err);
    }
    let absent = run(&["check-config", "missing.toml"]);
    assert!(absent.error(2).contains("missing.toml"), "{}", absent.err);
}

/// What a start refuses is refused here, in the same words.
#[test]
fn a_file_that_no_gateway_starts_with_is_refused_in_the_gateways_words() {
    const UPSTREAM: &str = "upstream = \"http://127.0.0.1:9000\"\n";
    for (text, wants) in [
        (
            "upstrem = \"http://127.0.0.1:9000\"".to_owned(),
            "line 1: unknown key 'upstrem'; did you mean 'upstream'?",
        ),
        (format!("{UPSTREAM}lease = \"30sec\""), "line 2: a duration is written"),
        (format!("{UPSTREAM}[[route]]\nkey = \"required\""), "needs 'match'"),
        (
            format!("{UPSTREAM}[[route]]\nmatch = \"/a\"\nlisten = \"127.0.0.1:1\""),
            "'listen' is one for the whole",
        ),
        (format!("{UPSTREAM}[[route]]\nmatch = \"/a\"\nreplay_for = \"40d\""), "route /a: remember-for"),
        (format!("{UPSTREAM}mismatch_status = 200"), "a mismatch can be"),
        (
            format!("{UPSTREAM}[[route]]\nmatch = \"/a\"\nin_flight_status = 200"),
            "route /a: in-flight can be",
        ),
        (format!("{UPSTREAM}store = \"semel.db\""), "--store"),
        (format!("{UPSTREAM}store = \"postgres://127.0.0.1/x?functionss=off\""), "functions"),
    ] {
        let file = File::new(&text);
        let checked = file.check(&[]);
        assert!(checked.error(2).contains(wants), "{text}: {}", checked.err);
        let started = run(&["gateway", "--config", file.path()]);
        assert_eq!(started.error(2), checked.error(2), "{text}");
        assert_eq!(file.check(&["POST", "/a"]).error(2), checked.error(2), "{text}");
    }
}

/// The example's own settings are checked beside the code; here it is read by the program.
#[test]
fn the_example_is_fine() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../semel.example.toml");
    let said = run(&["check-config", example]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let charge = run(&["check-config", example, "POST", "/v1/charges"]);
    assert!(
        charge.out.starts_with("# POST /v1/charges: guarded. Its route is"),
        "{}{}",
        charge.out,
        charge.err
    );
}
