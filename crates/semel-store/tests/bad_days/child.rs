//! Another process: this test's own program, started again to do one thing.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use semel::testing::sample::{complete, run};
use semel::{ClaimRequest, View};

use crate::place::{acquire, find, opened};

/// What it does, and on which store.
const ACT: &str = "SEMEL_TEST_CHILD";
const URL: &str = "SEMEL_TEST_URL";

/// The child's lines begin so; the others are the test runner's.
const MARK: &str = "child: ";

/// A process that was started. Killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    lines: Box<dyn Iterator<Item = String> + Send>,
}

impl Process {
    /// Starts one that does `act`.
    pub(crate) fn start(act: &str, url: &str) -> Process {
        Process::by(Command::new(std::env::current_exe().expect("this program")), act, url)
    }

    /// The same by another program, which is given this one: one that changes the clock.
    pub(crate) fn start_under(mut wrapper: Command, act: &str, url: &str) -> Process {
        wrapper.arg(std::env::current_exe().expect("this program"));
        Process::by(wrapper, act, url)
    }

    fn by(mut command: Command, act: &str, url: &str) -> Process {
        command.args(["--exact", "child::a_child_does_what_it_is_told", "--nocapture", "--test-threads=1"]);
        command.env(ACT, act).env(URL, url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().unwrap_or_else(|error| {
            panic!("{name}: {error}; if it is missing, Debian's package of that name has it")
        });
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let told = |line: std::io::Result<String>| {
            let line = line.ok()?;
            line.find(MARK).map(|at| line[at + MARK.len()..].to_owned())
        };
        Process { child, lines: Box::new(output.lines().filter_map(told)) }
    }

    /// What it says next.
    pub(crate) fn says(&mut self) -> String {
        self.lines.next().expect("it says something before it ends")
    }

    /// Lets it go on.
    pub(crate) fn go(&mut self) {
        self.child.stdin.as_mut().expect("its input").write_all(b"go\n").expect("it listens");
    }

    /// Waits for its end.
    pub(crate) fn ends(mut self) {
        while self.lines.next().is_some() {}
        assert!(self.child.wait().expect("it is a child").success());
    }

    /// Stops it where it is, or lets it run again.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status();
        assert!(status.expect("kill is there").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where every child begins. Started by nobody it starts one itself, which must wait until it is told to go on.
#[test]
fn a_child_does_what_it_is_told() {
    let Ok(act) = std::env::var(ACT) else { return speaks_when_it_is_told() };
    let url = std::env::var(URL).expect("a URL");
    match act.as_str() {
        "migrate" => semel::testing::run(migrate(&url)),
        "sleep" => semel::testing::run(claim_and_settle(&url)),
        "claim" => semel::testing::run(claim_and_tell(&url)),
        "speak" => {
            wait(&url);
            say("went on");
        }
        other => panic!("{other}?"),
    }
}

fn speaks_when_it_is_told() {
    let mut child = Process::start("speak", "memory:");
    assert_eq!(child.says(), "memory:");
    child.go();
    assert_eq!(child.says(), "went on");
    child.ends();
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").and_then(|()| out.flush()).expect("somebody listens");
}

fn wait(line: &str) {
    say(line);
    std::io::stdin().read_line(&mut String::new()).expect("it is told");
}

async fn migrate(url: &str) {
    let schema = semel_store::migrations(url).expect("a schema");
    wait("ready");
    match schema.migrate().await {
        Ok(applied) => say(&applied.len().to_string()),
        Err(error) => say(&error.to_string()),
    }
}

/// Claims for a moment, and settles when it is told to.
async fn claim_and_settle(url: &str) {
    let store = opened(url).await;
    let request = ClaimRequest { lease_for: Duration::from_millis(300), ..run("slept", 1) };
    let lease = acquire(&store, &request).await;
    wait("claimed");
    match store.settle(&lease, &complete("by the sleeper")).await {
        Ok(()) => say("accepted"),
        Err(error) => say(&error.to_string()),
    }
}

/// Tells what it makes of a key that another one holds, and claims one of its own.
async fn claim_and_tell(url: &str) {
    let store = opened(url).await;
    say(&std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a time")
        .as_secs()
        .to_string());
    say(semel::testing::sample::name(&store.claim(&run("held", 2)).await.expect("an answer")));
    acquire(&store, &run("by another clock", 1)).await;
    let entry = find(&store, "held").await.expect("it is there");
    let View::Running { lease_left } = entry.view else { panic!("{:?}", entry.view) };
    say(&lease_left.as_secs().to_string());
    wait("claimed");
}
