//! A mistake is exit code 2 and one line with the nearest valid spelling; what goes wrong otherwise is 1.

use std::net::TcpListener;

use crate::{run, said, semel};

const UPSTREAM: [&str; 3] = ["gateway", "--upstream", "http://127.0.0.1:9000"];

#[track_caller]
fn mistake(args: &[&str], wants: &str) {
    let said = run(args);
    let line = said.error(2);
    assert!(line.contains(wants), "{args:?}: {line}");
}

/// `semel gateway --upstream … FLAG VALUE`
#[track_caller]
fn setting(flag: &str, value: &str, wants: &str) {
    mistake(&[&UPSTREAM[..], &[flag, value]].concat(), wants);
    let line = run(&[&UPSTREAM[..], &[flag, value]].concat()).err;
    assert!(line.contains(flag.trim_start_matches('-')), "which one: {line}");
}

#[test]
fn commands_and_options_are_named_by_their_nearest() {
    mistake(&["gatway"], "did you mean 'gateway'?");
    mistake(&["key"], "did you mean 'keys'?");
    mistake(&["resolv", "k"], "did you mean 'resolve'?");
    mistake(&["gateway", "--upstrem", "x"], "did you mean '--upstream'?");
    mistake(&["gateway", "--kept-byte-max", "1"], "did you mean '--kept-bytes-max'?");
    mistake(&["resolve", "k", "--completd"], "did you mean '--completed'?");
    mistake(&["gateway", "surplus"], "'surplus'");
    mistake(&["gateway", "--lease"], "--lease");
    mistake(&["gateway", "--lease", "1s", "--lease", "2s"], "--lease");
}

#[test]
fn words_are_named_by_their_nearest() {
    setting("--key", "requird", "did you mean 'required'?");
    setting("--key-syntax", "stict", "did you mean 'strict'?");
    setting("--on-unknown", "parc", "did you mean 'park'?");
    setting("--log", "debugg", "did you mean 'debug'?");
    mistake(&["keys", "--state", "unkown"], "did you mean 'unknown'?");
    mistake(&["keys", "--state", "x"], "running, released, unknown, completed");
}

#[test]
fn durations_and_sizes_are_named_by_their_nearest() {
    for flag in [
        "--lease",
        "--replay-for",
        "--remember-for",
        "--upstream-timeout",
        "--late-answer-for",
        "--drain-for",
    ] {
        setting(flag, "30sec", "'30s'");
        setting(flag, "30", "'30s'");
        setting(flag, "2hours", "'2h'");
        setting(flag, "soon", "30s");
        mistake(&[&UPSTREAM[..], &[&format!("{flag}=-5s")]].concat(), "30s");
        setting(flag, "1.5h", "30s");
    }
    for flag in ["--body-bytes-max", "--kept-bytes-max"] {
        setting(flag, "1MB", "'1MiB'");
        setting(flag, "64k", "'64KiB'");
        setting(flag, "big", "1MiB");
    }
    setting("--replay-for", "foreverr", "'forever'");
    setting("--remember-for", "2w", "'14d'");
    setting("--remember-for", "1 month", "'30d'");
    setting("--remember-for", "1year", "'365d'");
    setting("--workers", "many", "--workers");
    setting("--workers", "0", "at least 1");
}

#[test]
fn addresses_and_urls_are_named_by_their_nearest() {
    let upstream = |value, wants| mistake(&["gateway", "--upstream", value], wants);
    upstream("127.0.0.1:9000", "'http://127.0.0.1:9000'");
    upstream("localhost:9000", "'http://localhost:9000'");
    upstream("htp://127.0.0.1:9000", "'http://127.0.0.1:9000'");
    upstream("http:/127.0.0.1:9000", "'http://127.0.0.1:9000'");
    upstream("http://127.0.0.1:9000/base", "without a path");
    upstream("http://127.0.0.1:99999", "http://127.0.0.1:9000");
    upstream("", "http://127.0.0.1:9000");
    for flag in ["--listen", "--admin"] {
        setting(flag, "8080", "'127.0.0.1:8080'");
        setting(flag, ":8080", "'127.0.0.1:8080'");
        setting(flag, "127.0.0.1", "127.0.0.1:8080");
        setting(flag, "127.0.0.1:70000", "127.0.0.1:8080");
    }
    setting("--store", "semel.db", "sqlite://semel.db");
    setting("--store", "sqlit://semel.db", "sqlite://");
    setting("--store", "sqlite:semel.db", "sqlite://semel.db");
    setting("--service", "a:b", "letters");
    setting("--cors-origin", "https://shop.example/", "'https://shop.example'");
    setting("--cors-origin", "https://shop.example,Https://desk.example", "'https://desk.example'");
    setting("--cors-origin", "null", "sandboxed");
}

#[test]
fn what_does_not_fit_together_is_said() {
    setting("--lease", "1ms", "lease");
    setting("--replay-for", "0s", "replay");
    setting("--replay-for", "31d", "remember-for");
    setting("--remember-for", "1h", "remember-for");
    mistake(&["gateway"], "--upstream");
    setting("--cors-origin", "*,https://shop.example", "every origin");
    for others in [&[][..], &["--cors-origin", "*"]] {
        mistake(&[&UPSTREAM[..], &["--cors-credentials"], others].concat(), "--cors-credentials");
    }
}

#[test]
fn a_probe_is_one_only_with_the_choice_and_the_template() {
    setting("--on-unknown", "probe", "needs --probe, such as /charges?key={key}");
    let by_variable = said(semel(&UPSTREAM).env("SEMEL_ON_UNKNOWN", "probe"));
    assert!(by_variable.error(2).contains("needs --probe"));
    setting("--probe", "/charges?key={key}", "--on-unknown probe");
    setting("--probe", "/charges", "needs a variable");
    setting("--probe", "http://{key}/charges", "host is fixed");
    let probing = |template, wants| {
        mistake(&[&UPSTREAM[..], &["--on-unknown", "probe", "--probe", template]].concat(), wants);
    };
    probing("/charges/{id}", "no variable {id}");
}

#[test]
fn a_store_that_is_not_built_in_is_named() {
    let built = [
        ("postgres", cfg!(feature = "postgres")),
        ("mysql", cfg!(feature = "mysql")),
        ("redis", cfg!(feature = "redis")),
    ];
    for (scheme, is_built) in built {
        // One that is built in reads its URL before it asks for the server.
        let wants = if is_built { "nonsense" } else { scheme };
        mistake(
            &[&UPSTREAM[..], &["--store", &format!("{scheme}://127.0.0.1/0?nonsense=1")]].concat(),
            wants,
        );
    }
}

#[test]
fn toml_mistakes_name_the_file_the_line_and_the_nearest() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("semel.toml");
    let file = file.to_str().unwrap();
    for (text, wants) in [
        ("upstrem = \"http://127.0.0.1:9000\"", "line 1: unknown key 'upstrem'; did you mean 'upstream'?"),
        ("\n\non-unknown = \"park\"", "line 3: unknown key 'on-unknown'; did you mean 'on_unknown'?"),
        ("[routes]", "unknown key 'routes'"),
        ("lease = \"30sec\"", "line 1: a duration is written"),
        ("lease = 30", "'30s'"),
        ("body_bytes_max = \"1MB\"", "'1MiB'"),
        ("on_unknown = \"parc\"", "did you mean 'park'?"),
        ("upstream = \"localhost:9000\"", "'http://localhost:9000'"),
        ("no_migrate = \"yes\"", "boolean"),
        ("lease = \"5s\"\nlease = \"6s\"", "line 2"),
        ("lease = ", "line 1"),
        ("on_unknown = \"probe\"", "needs --probe"),
    ] {
        std::fs::write(file, text).unwrap();
        mistake(&[&UPSTREAM[..], &["--config", file]].concat(), wants);
        if wants.starts_with("line") {
            mistake(&[&UPSTREAM[..], &["--config", file]].concat(), file);
        }
    }
    mistake(&[&UPSTREAM[..], &["--config", "missing.toml"]].concat(), "missing.toml");
}

#[test]
fn a_taken_port_is_named_and_is_no_mistake_of_spelling() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (flag, other) in [("--listen", "--admin"), ("--admin", "--listen")] {
        let said =
            run(&[&UPSTREAM[..], &["--store", "memory:", flag, &taken, other, "127.0.0.1:0"]].concat());
        let line = said.error(1);
        assert!(line.contains(flag) && line.contains(&taken), "{line}");
    }
}

#[test]
fn help_and_version_are_no_mistake() {
    for args in [&["--help"][..], &["gateway", "--help"], &["help", "resolve"], &["--version"]] {
        let said = run(args);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{args:?}");
        assert!(said.out.contains("semel"), "{}", said.out);
    }
    let nothing = run(&[]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(2), ""));
    assert!(nothing.err.contains("gateway") && nothing.err.contains("resolve"));
}

#[test]
fn a_reader_that_stops_is_no_failure_and_a_full_disk_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", directory.path().join("semel.db").display());
    assert_eq!(run(&["migrate", "--store", &store]).code, Some(0));
    for args in
        [&["gateway", "--help"][..], &["--version"], &["keys", "--store", &store], &["migrate", "--print"]]
    {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let unread = said(semel(args).stdout(writer));
        assert_eq!((unread.code, unread.err.as_str()), (Some(0), ""), "{args:?}");
        let full = std::fs::File::create("/dev/full").expect("the device");
        let full = said(semel(args).stdout(full));
        assert!(full.error(1).contains("No space left"), "{args:?}: {}", full.err);
    }
}
