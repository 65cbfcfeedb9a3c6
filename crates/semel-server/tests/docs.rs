//! What stands in `docs/` is so: its files of settings are fine, its commands run, its statements do what they say, its
//! links lead somewhere, and the tests that it names exist.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;

use support::{Call, Launch, Plan, Service, semel};

const GATEWAY: &str = include_str!("../../../docs/gateway.md");
const SECURITY: &str = include_str!("../../../docs/security.md");
const OPERATING: &str = include_str!("../../../docs/operating.md");
const NONE: &str = include_str!("../../../docs/when-you-need-none-of-this.md");
const CHOOSING: &str = include_str!("../../../docs/choosing-on-unknown.md");
const GLOSSARY: &str = include_str!("../../../docs/glossary.md");
const UNIT: &str = include_str!("../../../deploy/semel.service");
const CONTAINERFILE: &str = include_str!("../../../deploy/Containerfile");

const IGNORED: &str = include_str!("../../../deploy/Containerfile.dockerignore");

/// The blocks of a page in that language.
fn blocks(page: &'static str, language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = page.split(fence.as_str()).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

fn lines_of(page: &'static str, start: &str) -> Vec<&'static str> {
    let lines = blocks(page, "sh").into_iter().flat_map(str::lines).filter(|line| line.starts_with(start));
    let lines: Vec<_> = lines.collect();
    assert!(!lines.is_empty(), "no line begins with {start}");
    lines
}

/// What it says, if it succeeds.
#[track_caller]
fn checked(file: &Path, args: &[&str]) -> String {
    let output = semel().arg("check-config").arg(file).args(args).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn each_file_of_settings_is_fine() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("semel.toml");
    let files = [blocks(GATEWAY, "toml"), blocks(CHOOSING, "toml")].concat();
    assert!(files.len() >= 5);
    for text in files {
        std::fs::write(&file, text).unwrap();
        let upstream: &[&str] =
            if text.contains("upstream =") { &[] } else { &["--upstream", "http://127.0.0.1:9000"] };
        let is_built_in = (cfg!(feature = "jwt") || !text.contains("jwt"))
            && (cfg!(feature = "postgres") || !text.contains("postgres://"));
        if is_built_in {
            assert!(checked(&file, upstream).contains("is fine"), "{text}");
        }
    }
}

#[test]
fn the_commands_that_check_say_what_the_page_says() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("semel.toml");
    std::fs::write(&file, blocks(GATEWAY, "toml")[0]).unwrap();
    let lines = lines_of(GATEWAY, "semel check-config semel.toml");
    let said: Vec<String> = lines
        .iter()
        .map(|line| {
            let args: Vec<_> = line.split(' ').skip(3).collect();
            checked(&file, &args)
        })
        .collect();
    let [list, charge, otherwise] = &said[..] else { panic!("three commands: {lines:?}") };
    let at = |path: &str| list.find(path).unwrap_or_else(|| panic!("{path} in\n{list}"));
    assert!(at("/v1/charges ") < at("/v1/charges/{id}/refunds"));
    assert!(at("/v1/charges/{id}/refunds") < at("/v1/notifications"));
    assert!(at("/v1/notifications") < at("everything else"));
    assert!(charge.contains("guarded. Its route is POST /v1/charges\n"), "{charge}");
    assert!(charge.contains("remember_for = \"forever\""));
    assert!(otherwise.contains("guarded. No route matches"), "{otherwise}");
}

#[test]
fn the_commands_that_start_are_taken_as_they_stand() {
    let lines = lines_of(GATEWAY, "semel gateway").into_iter().chain(lines_of(SECURITY, "semel gateway"));
    for line in lines.filter(|line| cfg!(feature = "tls") || !line.contains("--tls")) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("semel.toml");
        std::fs::write(&file, blocks(GATEWAY, "toml")[0]).unwrap();
        std::fs::write(directory.path().join("admin-token"), "0123456789abcdef\n").unwrap();
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(directory.path().join("certificate.pem"), own.cert.pem()).unwrap();
        std::fs::write(directory.path().join("key.pem"), own.signing_key.serialize_pem()).unwrap();
        // What would start, checked and not started.
        let args = line.split(' ').skip(2).filter(|arg| !["--config", "semel.toml"].contains(arg));
        let mut command = semel();
        command.args(["check-config", "semel.toml"]).args(args).current_dir(directory.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_admin_token_is_made_and_used_as_the_page_says() {
    let service = Service::plain();
    let launch = Launch::new(service.address());
    let directory = launch.directory().to_owned();
    let shell = |line: &str| {
        let output = Command::new("sh").args(["-c", line]).current_dir(&directory).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    shell(lines_of(SECURITY, "head")[0]);
    let token = directory.join("admin-token");
    let gateway = launch.args(["--admin-token-file", token.to_str().unwrap()]).start();
    let curl = lines_of(SECURITY, "curl")[0].replace("127.0.0.1:9901", &gateway.admin.to_string());
    assert!(shell(&format!("{curl} --silent --show-error")).contains("\"ready\":true"));
}

/// At three in the morning nobody mends a command: each works as it stands, beside a running gateway.
#[test]
fn the_operators_commands_work_as_they_stand() {
    let program = Path::new(env!("CARGO_BIN_EXE_semel")).parent().expect("its directory");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let lines = lines_of(OPERATING, "semel ");
    // Without --yes it asks, and there is nobody here to answer.
    let lines = lines.into_iter().filter(|line| !line.contains("--match") || line.contains("--dry-run"));
    let mut count = 0;
    for line in lines {
        let service = Service::plain();
        let launch = Launch::new(service.address());
        let directory = launch.directory().to_owned();
        let file = "upstream = \"http://127.0.0.1:9000\"\n[[route]]\nmatch = \"/charges/{id}\"\n";
        std::fs::write(directory.join("semel.toml"), file).unwrap();
        std::fs::write(directory.join("answer.json"), "{}").unwrap();
        let gateway = launch.start();
        service.next(Plan { cut_after: Some(0), ..Plan::default() });
        assert_eq!(gateway.call(&Call::post("/charges/7", "KEY").body("a")).code(), "outcome-unknown");
        let line = line.split("   #").next().unwrap_or_default();
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(&directory)
            .env("PATH", &path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        count += 1;
    }
    assert!(count >= 7, "{count}");
}

/// A promise without a test is none.
#[test]
fn each_test_that_the_threat_model_names_exists() {
    let mut sources = String::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut sources);
    let rows = SECURITY.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let names: Vec<_> = names.filter(|name| name.matches('_').count() > 2).collect();
    assert!(names.len() > 60, "{}", names.len());
    for name in names {
        assert!(sources.contains(&format!("fn {name}(")), "{name}");
    }
}

fn collect(directory: &Path, sources: &mut String) {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let entries: Vec<PathBuf> = entries.collect();
    for path in entries {
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *sources += &std::fs::read_to_string(path).unwrap();
        }
    }
}

/// Each choice stands in the file, on a route of its own, and is what holds there.
#[test]
fn the_file_of_choices_chooses_as_the_page_says() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("semel.toml");
    let [text] = blocks(CHOOSING, "toml")[..] else { panic!("one file") };
    std::fs::write(&file, text).unwrap();
    for (path, choice, preset) in [
        ("/v1/charges", "probe", "cautious"),
        ("/v1/bank-transfers", "park", "cautious"),
        ("/v1/mails", "rerun", "default"),
    ] {
        let said = checked(&file, &["POST", path, "--json"]);
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let value = |name: &str| said["settings"][name].clone();
        assert_eq!((value("on_unknown"), value("preset")), (choice.into(), preset.into()), "{said:#}");
    }
}

/// Everything that is in a database, as text.
fn contents(database: &Connection) -> String {
    let rows = ["orders", "charges", "accounts", "done"].map(|table| {
        let mut all = database.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
        let columns = all.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            (0..columns).map(|at| row.get::<_, rusqlite::types::Value>(at)).collect::<Result<Vec<_>, _>>()
        };
        format!("{table}: {:?}", all.query_map([], row).unwrap().collect::<Result<Vec<_>, _>>().unwrap())
    });
    rows.join("\n")
}

/// Runs a block of statements as the page says: where nothing was inserted, the transaction is rolled back.
fn run_statements(database: &Connection, block: &str) {
    let code = block.lines().map(|line| line.split(" -- ").next().unwrap_or_default());
    for statement in
        code.collect::<Vec<_>>().join("\n").split(';').map(str::trim).filter(|one| !one.is_empty())
    {
        let changed = database.execute(statement, []).unwrap_or_else(|error| panic!("{statement}: {error}"));
        if statement.contains("INTO done") && changed == 0 {
            database.execute_batch("ROLLBACK").unwrap();
            return;
        }
    }
}

/// The page's whole claim: done twice, it is as if it had been done once.
#[test]
fn the_statements_that_need_no_key_take_effect_once() {
    let blocks = blocks(NONE, "sql");
    let (tables, statements) = blocks.split_first().expect("the tables come first");
    assert!(statements.len() >= 5);
    for block in statements {
        let database = Connection::open_in_memory().unwrap();
        database.execute_batch(tables).unwrap();
        let before = contents(&database);
        run_statements(&database, block);
        let once = contents(&database);
        run_statements(&database, block);
        assert_ne!(before, once, "{block}");
        assert_eq!(contents(&database), once, "{block}");
    }
    // What the page warns of is not so.
    let database = Connection::open_in_memory().unwrap();
    database.execute_batch(tables).unwrap();
    let relative = "UPDATE accounts SET cents = cents - 400 WHERE id = 7";
    run_statements(&database, relative);
    let once = contents(&database);
    run_statements(&database, relative);
    assert_ne!(contents(&database), once);
}

/// The unit and the image start the program with what it takes, and wait for it longer than it drains.
#[test]
fn what_deploy_starts_can_be_started() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("semel.toml"), "upstream = \"http://127.0.0.1:9000\"").unwrap();
    let start = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    assert_eq!(start, "/usr/local/bin/semel gateway --config /etc/semel/semel.toml");
    for path in ["/usr/local/bin/semel", "/etc/semel/semel.toml", "/etc/systemd/system/semel.service"] {
        assert!(GATEWAY.contains(path) && UNIT.contains(path), "{path}");
    }
    let seconds = UNIT.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")?.strip_suffix('s'));
    assert!(seconds.and_then(|seconds| seconds.parse::<u32>().ok()).expect("seconds") > 25 + 2);
    assert!(CONTAINERFILE.contains("--stop-timeout 40") && GATEWAY.contains("--stop-timeout 40"));

    let variables = CONTAINERFILE.lines().find_map(|line| line.strip_prefix("ENV ")).expect("variables");
    let mut command = semel();
    command.args(["check-config", "semel.toml"]).current_dir(directory.path());
    for variable in variables.split(' ') {
        let (name, value) = variable.split_once('=').expect("a variable");
        command.env(name, value);
        assert!(name.starts_with("SEMEL_"));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Cargo reads no member of a workspace where another one is missing.
#[test]
fn the_image_is_built_of_every_member_of_the_workspace() {
    let manifest: toml::Table = include_str!("../../../Cargo.toml").parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().expect("members");
    let kept: Vec<_> = IGNORED.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for member in members.iter().filter_map(toml::Value::as_str) {
        let directory = member.split('/').next().unwrap_or_default();
        assert!(kept.contains(&directory), "{member} is left out of the image's context");
    }
    assert!(kept.contains(&"Cargo.lock") && kept.contains(&"Cargo.toml"));
}

/// The words of the contract, each explained once.
#[test]
fn the_glossary_has_every_word() {
    let rows: Vec<&str> = GLOSSARY.lines().filter_map(|line| line.strip_prefix("| **")).collect();
    let words: BTreeSet<_> = rows.iter().filter_map(|row| row.split("**").next()).collect();
    assert_eq!(words.len(), rows.len(), "a word stands twice");
    for word in [
        "key",
        "scope",
        "fingerprint",
        "record",
        "claim",
        "lease",
        "fence",
        "outcome",
        "settle",
        "replay",
        "unknown",
        "lane",
        "tombstone",
        "complete",
        "release",
        "park",
        "bury",
    ] {
        assert!(words.contains(word), "{word}");
    }
    for row in rows {
        assert!(row.contains("]("), "{row} leads nowhere");
    }
}

/// As GitHub makes an anchor of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.map(|char| if char == ' ' { '-' } else { char }).collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let mut code = false;
    let headings = page.lines().filter(|line| {
        code ^= line.starts_with("```");
        !code && line.starts_with('#')
    });
    headings.map(anchor).collect()
}

/// The targets of a page's links, without those in its blocks of code.
fn links(page: &str) -> Vec<&str> {
    let prose = page.split("\n```").step_by(2);
    let targets = prose.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("http")).collect()
}

#[test]
fn each_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let own = ["README.md", "ARCHITECTURE.md", "DESIGN.md", "CHANGELOG.md"].map(|name| root.join(name));
    let mut count = 0;
    for page in pages.chain(own) {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
            if !heading.is_empty() {
                let there = anchors(&std::fs::read_to_string(&target).unwrap());
                assert!(there.contains(heading), "{}: {link}: no such heading in {there:?}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}
