//! Another process: this test's own program, started again to do one thing.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use semel::testing::{Random, run, sample};
use semel::{Claim, Store};

use super::*;

/// What it does, and on which file.
const ACT: &str = "SEMEL_TEST_CHILD";
const FILE: &str = "SEMEL_TEST_FILE";

/// Lines of the child's begin so; the others are the test runner's.
const MARK: &str = "child: ";

/// Prepares a process that does `act`.
pub(super) fn command(act: &str, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child::acts", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(ACT, act).env(FILE, file).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A process that was started.
pub(super) struct Process {
    child: Child,
    lines: Box<dyn Iterator<Item = String> + Send>,
}

impl Process {
    pub(super) fn start(mut command: Command) -> Process {
        let mut child = command.spawn().expect("a process");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let told = |line: std::io::Result<String>| {
            let line = line.ok()?;
            line.find(MARK).map(|at| line[at + MARK.len()..].to_owned())
        };
        Process { child, lines: Box::new(output.lines().filter_map(told)) }
    }

    /// What it says next; `None` when it has ended.
    pub(super) fn says(&mut self) -> Option<String> {
        self.lines.next()
    }

    /// Lets it go on.
    pub(super) fn go(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"go\n").expect("it listens");
    }

    /// `SIGKILL`, at once.
    pub(super) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    pub(super) fn ends_well(mut self) {
        drop(self.child.stdin.take());
        while self.says().is_some() {}
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// Not a test of its own: what the other process does.
#[test]
#[ignore = "only the other tests start it, in a process of its own"]
fn acts() {
    let Ok(act) = std::env::var(ACT) else { return };
    let file = PathBuf::from(std::env::var_os(FILE).expect("a file"));
    match act.as_str() {
        "migrate" => migrate(&file),
        "contend" => contend(&file),
        "complete" => run(complete_for_ever(&file)),
        "open" => say(&open(&file).map_or_else(|error| error.to_string(), |_| "opened".to_owned())),
        "fill" => run(fill(&file)),
        other => panic!("{other}?"),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush()).expect("somebody listens");
}

fn wait() {
    say("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("it is told");
}

fn migrate(file: &Path) {
    wait();
    let schema = semel_store::migrations(&format!("sqlite://{}", file.display())).expect("a schema");
    let applied = run(schema.migrate()).expect("it migrates");
    say(&applied.len().to_string());
}

fn contend(file: &Path) {
    let store = std::sync::Arc::new(open_as_it_is(file).expect("a store"));
    wait();
    let executed = run(processes::executions(store, 1, 400, 1_000_000));
    say(&executed.to_string());
}

/// Says each key after it was completed, until somebody kills it.
async fn complete_for_ever(file: &Path) {
    let store = std::sync::Arc::new(open(file).expect("a store"));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..4u64 {
        let (store, random) = (store.clone(), Random::new(u64::from(std::process::id()) * 4 + caller));
        callers.spawn(async move {
            loop {
                let number = random.next();
                let key = format!("{caller}-{number:x}");
                complete(store.as_ref(), &key, number).await;
                say(&key);
            }
        });
    }
    callers.join_next().await;
}

/// Completes keys until one cannot be written, and says how that was told. Then that what was written is there.
async fn fill(file: &Path) {
    let store = open(file).expect("a store");
    let mut kept = Vec::new();
    let failed = loop {
        let key = format!("k{}", kept.len());
        let done = async {
            match store.claim(&sample::run(&key, 1)).await? {
                Claim::Acquired(lease) => store.settle(&lease, &sample::complete(&"x".repeat(50_000))).await,
                other => panic!("{other:?}"),
            }
        };
        match done.await {
            Ok(()) => kept.push(key),
            Err(error) => break error,
        }
    };
    for key in &kept {
        assert!(matches!(replay(&store, key).await, Claim::Completed { .. }));
    }
    say(&format!("{} {failed}", kept.len()));
    say(&format!("{failed:?}"));
}
