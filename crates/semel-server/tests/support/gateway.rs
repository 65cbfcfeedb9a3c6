//! The real program as a child process.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

use super::{Answer, Call, Client, DEADLINE, Operator, Random, WriteLock, until};

/// How to start a gateway: again and again on the same store and the same address.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    upstream: String,
    listen: Option<SocketAddr>,
    store: PathBuf,
    /// In place of the file.
    store_url: Option<String>,
    args: Vec<OsString>,
    environment: Vec<(String, String)>,
    open_files: Option<u32>,
    /// Goes away with the last launch.
    directory: Arc<TempDir>,
}

/// A running gateway. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Gateway {
    launch: Launch,
    child: Child,
    log: Arc<Log>,
    pub(crate) listen: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// What the child has written to its standard error.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<Lines>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

impl Launch {
    pub(crate) fn new(upstream: SocketAddr) -> Launch {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let store = directory.path().join("semel.db");
        let directory = Arc::new(directory);
        Launch {
            upstream: format!("http://{upstream}"),
            listen: None,
            store,
            store_url: None,
            args: Vec::new(),
            environment: Vec::new(),
            open_files: None,
            directory,
        }
    }

    pub(crate) fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Launch {
        self.args.extend(args.into_iter().map(OsString::from));
        self
    }

    /// With the service at this URL instead.
    pub(crate) fn upstream(self, url: &str) -> Launch {
        Launch { upstream: url.to_owned(), ..self }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Launch {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With an address that is chosen now instead of at the start.
    pub(crate) fn fixed(self) -> Launch {
        Launch { listen: Some(free_address()), ..self }
    }

    /// # Panics
    ///
    /// When it is not chosen yet.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listen.expect("a fixed address")
    }

    /// With so many files that it may have open, connections included.
    pub(crate) fn open_files(self, most: u32) -> Launch {
        Launch { open_files: Some(most), ..self }
    }

    /// With the store at this URL.
    pub(crate) fn store_at(self, url: &str) -> Launch {
        Launch { store_url: Some(url.to_owned()), ..self }
    }

    /// With the other one's store.
    pub(crate) fn on_store_of(self, other: &Launch) -> Launch {
        Launch { store: other.store.clone(), directory: other.directory.clone(), ..self }
    }

    /// Another gateway on the same store.
    pub(crate) fn beside(&self) -> Launch {
        Launch { listen: None, ..self.clone() }
    }

    /// A directory for whatever else the test needs.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn store_file(&self) -> &Path {
        &self.store
    }

    pub(crate) fn store(&self) -> String {
        self.store_url.clone().unwrap_or_else(|| format!("sqlite://{}", self.store.display()))
    }

    /// The operator's commands on the same store.
    pub(crate) fn operator(&self) -> Operator {
        Operator::new(&self.store())
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    ///
    /// When it does not become ready.
    pub(crate) fn start(&self) -> Gateway {
        self.try_start().unwrap_or_else(|reason| panic!("the gateway is not ready: {reason}"))
    }

    /// Starts it as a supervisor does: once more when it ended because its store did not answer in time.
    ///
    /// # Panics
    ///
    /// When it does not become ready for another reason, or not in ten attempts.
    pub(crate) fn start_supervised(&self) -> Gateway {
        let mut last = String::new();
        for _ in 0..10 {
            match self.try_start() {
                Ok(gateway) => return gateway,
                Err(reason) if reason.contains("the store cannot be opened") => last = reason,
                Err(reason) => panic!("the gateway is not ready: {reason}"),
            }
        }
        panic!("the gateway is not ready after ten attempts: {last}")
    }

    fn try_start(&self) -> Result<Gateway, String> {
        let listen = self.listen.unwrap_or_else(free_address);
        let mut gateway = Launch { listen: Some(listen), ..self.clone() }.spawn();
        match gateway.wait_ready() {
            Ok(()) => Ok(gateway),
            // Somebody else took the address after it was tried.
            Err(reason) if self.listen.is_none() && reason.contains("is taken by another process") => {
                self.try_start()
            }
            Err(reason) => Err(reason),
        }
    }

    /// The command line, without a setting from the environment of the tests.
    pub(crate) fn command(&self, listen: SocketAddr) -> Command {
        let mut command = self.open_files.map_or_else(semel, limited);
        command.arg("gateway").arg("--upstream").arg(&self.upstream);
        command.arg("--listen").arg(listen.to_string()).args(["--admin", "127.0.0.1:0"]);
        command.arg("--store").arg(self.store()).args(&self.args);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts it at its fixed address and does not wait: it may die before it is ready.
    pub(crate) fn spawn(&self) -> Gateway {
        let listen = self.address();
        let mut child = self.command(listen).spawn().expect("the program starts");
        let log = Arc::new(Log::default());
        let (lines, stderr) = (log.clone(), child.stderr.take().expect("a pipe"));
        std::thread::spawn(move || lines.fill(stderr));
        Gateway { launch: self.clone(), child, log, listen, admin: ([127, 0, 0, 1], 0).into() }
    }
}

impl Gateway {
    /// A gateway with a store of its own.
    pub(crate) fn start(upstream: SocketAddr, args: &[&str]) -> Gateway {
        Launch::new(upstream).args(args.iter().copied()).start()
    }

    /// How this one was started, its address included.
    pub(crate) fn launch(&self) -> &Launch {
        &self.launch
    }

    /// The operator's commands beside it.
    pub(crate) fn operator(&self) -> Operator {
        self.launch.operator()
    }

    /// Ends it as `kill -9` does, and starts it again on the same store and address.
    pub(crate) fn restart(mut self) -> Gateway {
        self.kill();
        self.launch.start()
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let ready = self.log.wait(|line| line.contains("\"ready\"") && line.contains("\"admin\""));
        let line = ready.ok_or_else(|| self.log())?;
        let line: serde_json::Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        let address = |name: &str| line[name].as_str().and_then(|address| address.parse().ok());
        self.listen = address("listen").ok_or("no listen in it")?;
        self.admin = address("admin").ok_or("no admin in it")?;
        Ok(())
    }

    /// Its resident memory.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        resident.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Its command line, as every user of the machine can read it.
    pub(crate) fn arguments(&self) -> String {
        let line = std::fs::read(format!("/proc/{}/cmdline", self.child.id())).expect("its command line");
        String::from_utf8_lossy(&line).replace('\0', " ")
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.listen).expect("the gateway accepts")
    }

    /// A request on a connection of its own.
    pub(crate) fn call(&self, call: &Call) -> Answer {
        self.connect().call(call).expect("the gateway answers")
    }

    /// A GET on the admin address.
    pub(crate) fn admin(&self, path: &str) -> Answer {
        let mut client = Client::connect(self.admin).expect("the admin address accepts");
        client.call(&Call::new("GET", path)).expect("the admin address answers")
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the child is there");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// A request on a connection of its own, whose answer is waited for elsewhere.
    pub(crate) fn call_aside(&self, call: &Call) -> JoinHandle<Answer> {
        let (mut client, call) = (self.connect(), call.clone());
        std::thread::spawn(move || client.call(&call).expect("the gateway answers"))
    }

    /// Stops it where it stands (SIGSTOP), and returns when it has stopped. While the store's write lock is held
    /// here the gateway does not have it, so it does not take it to sleep with it.
    pub(crate) fn freeze(&self) {
        let _lock = WriteLock::take(self.launch.store_file());
        self.send(Signal::STOP);
        let stopped = waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("it is a child");
        assert!(stopped.is_some_and(|(_, status)| status.stopped()), "it ended instead of stopping");
    }

    /// Lets it go on (SIGCONT).
    pub(crate) fn thaw(&self) {
        self.send(Signal::CONT);
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        let _ = self.child.kill();
        self.child.wait().expect("it is a child")
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("the gateway ends", || self.child.try_wait().expect("it is a child"))
    }

    /// Whether it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is a child")
    }

    /// Waits for a line of its log. `None`: it has ended without one.
    pub(crate) fn wait_for_log(&self, fits: impl Fn(&str) -> bool) -> Option<String> {
        self.log.wait(fits)
    }

    /// What it has said so far.
    pub(crate) fn log(&self) -> String {
        self.log.lines.lock().unwrap().lines.join("\n")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let lines = self.log.lines.lock().unwrap();
            let start = lines.lines.len().saturating_sub(100);
            eprintln!("--- the end of the gateway's log\n{}\n---", lines.lines[start..].join("\n"));
        }
    }
}

impl Log {
    fn fill(&self, stderr: ChildStderr) {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            self.lines.lock().unwrap().lines.push(line);
            self.more.notify_all();
        }
        self.lines.lock().unwrap().ended = true;
        self.more.notify_all();
    }

    fn wait(&self, fits: impl Fn(&str) -> bool) -> Option<String> {
        let end = Instant::now() + DEADLINE;
        let mut lines = self.lines.lock().unwrap();
        let mut seen = 0;
        loop {
            if let Some(line) = lines.lines[seen..].iter().find(|line| fits(line)) {
                return Some(line.clone());
            }
            seen = lines.lines.len();
            let left = end.saturating_duration_since(Instant::now());
            if lines.ended || left.is_zero() {
                return None;
            }
            lines = self.more.wait_timeout(lines, left).unwrap().0;
        }
    }
}

/// The program, without a setting from the environment of the tests.
pub(crate) fn semel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command
}

/// The program, with so many files that it may have open.
fn limited(most: u32) -> Command {
    let program = semel();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\"")]).arg(program.get_program());
    for (name, _) in program.get_envs() {
        command.env_remove(name);
    }
    command
}

/// An address that nobody listens on, and that the system gives to nobody who asks for any port: below the range
/// that outgoing connections get theirs from. Otherwise, while a gateway is down, another process could take its
/// port, or a client that connects to it could be given that very port and be connected to itself.
pub(crate) fn free_address() -> SocketAddr {
    let mut random = Random::new(Random::seed_of_now() ^ u64::from(std::process::id()).rotate_left(32));
    until("a free port", || {
        let port = 10_000 + random.below(22_000) as u16;
        TcpListener::bind(("127.0.0.1", port)).ok().and_then(|listener| listener.local_addr().ok())
    })
}
