//! The operator's commands, as processes of their own.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use super::gateway::semel;

/// `semel keys`, `show`, `resolve` and so on, on one store.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    store: String,
}

/// A record as `--json` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: String,
    pub(crate) scope: String,
    pub(crate) state: String,
    pub(crate) cause: String,
    pub(crate) fence: u64,
    pub(crate) attempts: u64,
}

impl Operator {
    pub(crate) fn new(store: &str) -> Operator {
        Operator { store: store.to_owned() }
    }

    /// Any command, with the store added.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        semel().args(args).arg("--store").arg(&self.store).output().expect("the program starts")
    }

    /// The same, for what must succeed; gives its standard output.
    #[track_caller]
    pub(crate) fn done(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "semel {}: {}\n{said}", args.join(" "), output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// All records.
    #[track_caller]
    pub(crate) fn keys(&self) -> Vec<Record> {
        self.done(&["keys", "--json", "--limit", "10000000"]).lines().map(Record::parse).collect()
    }

    /// One record; `None` where there is none.
    #[track_caller]
    pub(crate) fn show(&self, key: &str) -> Option<Record> {
        let output = self.run(&["show", key, "--json"]);
        if output.status.success() {
            return Some(Record::parse(&String::from_utf8_lossy(&output.stdout)));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("no record"), "semel show {key}: {said}");
        None
    }

    /// It took effect: retries get this body.
    #[track_caller]
    pub(crate) fn resolve_completed(&self, key: &str, status: u16, body: &Path) {
        let (status, body) = (status.to_string(), body.to_str().expect("a plain path"));
        self.done(&["resolve", key, "--completed", "--status", &status, "--body-file", body]);
    }

    /// It took no effect: the next retry runs.
    #[track_caller]
    pub(crate) fn resolve_rerun(&self, key: &str) {
        self.done(&["resolve", key, "--rerun"]);
    }
}

impl Record {
    fn parse(text: &str) -> Record {
        let record: Value = serde_json::from_str(text).expect("a record in JSON");
        let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| record[name].as_u64().unwrap_or_default();
        Record {
            key: text("key"),
            scope: text("scope"),
            state: text("state"),
            cause: text("cause"),
            fence: number("fence"),
            attempts: number("attempts"),
        }
    }
}
