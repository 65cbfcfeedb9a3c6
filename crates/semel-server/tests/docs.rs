//! What stands in `docs/` is so: its files of settings are fine, its commands run, and the tests that it names exist.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Launch, Service, semel};

const GATEWAY: &str = include_str!("../../../docs/gateway.md");
const SECURITY: &str = include_str!("../../../docs/security.md");

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
    let files = blocks(GATEWAY, "toml");
    assert!(files.len() >= 2);
    for text in files {
        std::fs::write(&file, text).unwrap();
        let upstream: &[&str] =
            if text.contains("upstream =") { &[] } else { &["--upstream", "http://127.0.0.1:9000"] };
        if cfg!(feature = "jwt") || !text.contains("jwt") {
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
