//! What stands around the clients: a directory, free ports, child processes, the gateway's file.
//!
//! A child is killed by its own id and waited for when it is dropped: at the end, at an error, a signal and a panic. On
//! Linux it also ends with this process, however that ends. The directory goes after the children, unless it is kept.

use std::cell::Cell;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::failed;
use super::ledger::{self, Ledger};
use super::story::{Random, Story, seed_of_now};
use super::wire::{self, Call};
use crate::Failure;

/// How long a child may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// How often another port is tried when somebody else took the one that was free.
const TRIES: usize = 5;

/// The gateway's file, in the directory.
pub const CONFIG: &str = "semel.toml";

/// A directory of this run.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    goes: bool,
}

/// The directory, the story and what is started.
#[derive(Debug)]
pub struct Stage {
    story: Story,
    /// Where the gateway listens, for its second life.
    gateway: Cell<Option<(SocketAddr, SocketAddr)>>,
    directory: Directory,
}

/// A child that is ready, and where.
#[derive(Debug)]
pub struct Started {
    pub child: Child,
    pub address: SocketAddr,
}

/// A child process. Dropping it kills it.
#[derive(Debug)]
pub struct Child {
    name: &'static str,
    log: PathBuf,
    process: std::process::Child,
}

impl Directory {
    /// A new one among the system's temporary ones, or the given one, which must be empty or absent.
    pub fn new(keep: Option<&Path>) -> Result<Directory, Failure> {
        match keep {
            Some(path) => Directory::kept(path).map_err(|error| match error.kind() {
                io::ErrorKind::DirectoryNotEmpty => {
                    Failure::Usage(format!("--keep {}: the directory is not empty", path.display()))
                }
                _ => Failure::Failed(format!("--keep {}: {error}", path.display())),
            }),
            None => Directory::temporary().map_err(failed("no temporary directory")),
        }
    }

    fn kept(path: &Path) -> io::Result<Directory> {
        fs::create_dir_all(path)?;
        let path = path.canonicalize()?;
        match fs::read_dir(&path)?.next() {
            None => Ok(Directory { path, goes: false }),
            Some(_) => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        }
    }

    fn temporary() -> io::Result<Directory> {
        let within = std::env::temp_dir().canonicalize()?;
        let mut random = Random::new(seed_of_now());
        loop {
            let path =
                within.join(format!("semel-demo-{}-{:08x}", std::process::id(), random.below(1 << 32)));
            // For this user only; one that is there already is somebody else's.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Directory { path, goes: true }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.goes {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

impl Stage {
    pub fn new(directory: Directory, story: Story) -> Stage {
        Stage { story, gateway: Cell::new(None), directory }
    }

    /// What happens to the orders.
    pub fn story(&self) -> &Story {
        &self.story
    }

    /// A payment service with an empty ledger; its log is named after the run.
    pub async fn service(&self, run: &str) -> Result<Started, Failure> {
        let log = self.path(&format!("service-{run}.log"));
        let mut tries = TRIES;
        loop {
            let address = free_address()?;
            let mut command = self.command()?;
            command.args(["demo-child", "service", "--listen", &address.to_string()]);
            command.args(["--seed", &self.story.seed.to_string()]);
            command.args(["--orders", &self.story.orders.len().to_string()]);
            let mut child = Child::start("the payment service", command, &log)?;
            tries -= 1;
            match child.ready(address, "/ledger/summary").await {
                Ok(()) => return Ok(Started { child, address }),
                Err(failure) if tries == 0 => return Err(failure),
                Err(_) => {}
            }
        }
    }

    /// A gateway in front of the service, with a file and a store of its own.
    pub async fn gateway(&self, service: SocketAddr) -> Result<Started, Failure> {
        let mut tries = TRIES;
        loop {
            let (listen, admin) = (free_address()?, free_address()?);
            let file = config(listen, admin, service);
            fs::write(self.path(CONFIG), file).map_err(failed("the gateway's file"))?;
            self.gateway.set(Some((listen, admin)));
            tries -= 1;
            match self.gateway_again().await {
                Err(_) if tries > 0 => {}
                started => return started,
            }
        }
    }

    /// The gateway once more, on the same file, store and address.
    pub async fn gateway_again(&self) -> Result<Started, Failure> {
        let never = || Failure::Failed("there was no gateway yet".into());
        let (address, admin) = self.gateway.get().ok_or_else(never)?;
        let mut command = self.command()?;
        command.args(["demo-child", "gateway", "--config", CONFIG]);
        let mut child = Child::start("the gateway", command, &self.path("gateway.log"))?;
        child.ready(admin, "/readyz").await?;
        Ok(Started { child, address })
    }

    /// What a service has counted. Kept as it was read.
    pub async fn ledger(&self, run: &str, service: SocketAddr) -> Result<Ledger, Failure> {
        let silent = || Failure::Failed("the payment service does not show its ledger".into());
        let text = ledger::whole(service).await.ok_or_else(silent)?;
        let file = self.path(&format!("ledger-{run}.json"));
        fs::write(file, &text).map_err(failed("the ledger's copy"))?;
        serde_json::from_slice(&text).map_err(|error| Failure::Failed(format!("the ledger: {error}")))
    }

    /// The gateway's records and their states, by `semel keys`: as soon as all are settled, and at the latest `within`.
    pub async fn keys(&self, within: Duration) -> Result<Vec<(String, String)>, Failure> {
        let end = Instant::now() + within;
        loop {
            let keys = self.keys_now()?;
            if keys.iter().all(|(_, state)| state == "completed") || Instant::now() > end {
                return Ok(keys);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn keys_now(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut command = self.command()?;
        command.args(["keys", "--config", CONFIG, "--json", "--limit", "1000000"]);
        let output = command.output().map_err(failed("semel keys"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Failure::Failed(format!("semel keys: {}", said.trim_end())));
        }
        let records = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pair = |record: Value| (word(&record["key"]), word(&record["state"]));
        let read = |error| Failure::Failed(format!("semel keys: {error}"));
        records.map(|record| record.map(pair).map_err(read)).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path.join(name)
    }

    /// This program in the directory, without a setting from the environment.
    fn command(&self) -> Result<Command, Failure> {
        let mut command = program().map_err(failed("this program"))?;
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_"))
        {
            command.env_remove(name);
        }
        command.current_dir(&self.directory.path).stdin(Stdio::null());
        Ok(command)
    }
}

impl Child {
    fn start(name: &'static str, mut command: Command, log: &Path) -> Result<Child, Failure> {
        let file = OpenOptions::new().create(true).append(true).open(log);
        let file: File = file.map_err(failed("a child's log"))?;
        // Ctrl-C is for whoever started it, and not at the same instant for its children.
        command.process_group(0);
        let process = command.stdout(Stdio::null()).stderr(file).spawn().map_err(failed(name))?;
        Ok(Child { name, log: log.to_owned(), process })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it answers.
    async fn ready(&mut self, address: SocketAddr, path: &str) -> Result<(), Failure> {
        let end = Instant::now() + READY_WITHIN;
        while Instant::now() < end {
            let call = Call { method: Method::GET, path, key: None, body: String::new() };
            let reply = timeout(Duration::from_secs(2), wire::call(address, &call)).await;
            let answers = matches!(reply, Ok(Ok(reply)) if reply.head.status == http::StatusCode::OK);
            // Looked at behind the answer: where this one has ended, it was somebody else's.
            if let Some(failure) = self.ended() {
                return Err(failure);
            }
            if answers {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Err(Failure::Failed(format!("{} is not ready within {READY_WITHIN:?}", self.name)))
    }

    /// What to say when it has ended by itself.
    pub fn ended(&mut self) -> Option<Failure> {
        let status = self.process.try_wait().ok()??;
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().last().unwrap_or("it said nothing");
        Some(Failure::Failed(format!("{} ended by itself ({status}): {last}", self.name)))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // One that has ended is waited for at once; its id is its own until then.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The file that this process runs, also when another one has taken its place meanwhile.
fn program() -> io::Result<Command> {
    let file = Path::new("/proc/self/exe");
    let file = if file.exists() { file.to_owned() } else { std::env::current_exe()? };
    let mut command = Command::new(file);
    command.arg0("semel");
    Ok(command)
}

/// In a child: end when whoever started it does, however that ends.
pub fn end_with_parent() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // Kept through `exec`. Refused, it only leaves what SIGKILL on the demo leaves elsewhere.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

/// In a child: from here on it is `semel gateway`.
pub fn become_gateway(config: &Path) -> Result<(), Failure> {
    let mut command = program().map_err(failed("this program"))?;
    let error = command.args(["gateway", "--config"]).arg(config).exec();
    Err(failed("semel gateway")(error))
}

/// An address that nobody listens on, below the range that outgoing connections get their ports from: while the gateway
/// is down, a client could otherwise be given its port and be connected to itself.
fn free_address() -> Result<SocketAddr, Failure> {
    let mut random = Random::new(ledger::now() ^ u64::from(std::process::id()).rotate_left(32));
    let mut last = None;
    for _ in 0..100 {
        let port = 10_000 + u16::try_from(random.below(22_000)).unwrap_or_default();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok((Ipv4Addr::LOCALHOST, port).into()),
            Err(error) => last = Some(error),
        }
    }
    Err(failed("no free port on 127.0.0.1")(last.unwrap_or(io::ErrorKind::AddrInUse.into())))
}

/// The gateway's file.
fn config(listen: SocketAddr, admin: SocketAddr, service: SocketAddr) -> String {
    format!(
        r#"# What `semel demo` ran: a gateway in front of a payment service that knows no keys.

upstream = "http://{service}"
listen = "{listen}"
admin = "{admin}"
store = "sqlite://semel.db"

# Short, so that the demo is: how soon the runs of a gateway that died are known to be unknown (usually 30s), and how
# long a caller waits for the service (usually 30s).
lease = "2s"
upstream_timeout = "1s"

[[route]]
match = "/charges"
key = "required"

# When nobody knows whether an order was charged, the service is asked: 200, it was; 404, it was not. Not before a charge
# can no longer be under way, which here takes 60 ms (usually 30s).
on_unknown = "probe"
probe = "/charges/{{key}}"
probe_keep = [200]
probe_release = [404]
probe_after = "1s"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeping(log: &Path) -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000");
        Child::start("a sleeper", command, log).unwrap()
    }

    #[test]
    fn a_child_and_the_directory_go_also_with_a_panic() {
        let directory = Directory::new(None).unwrap();
        let path = directory.path.clone();
        let child = sleeping(&path.join("log"));
        let process = format!("/proc/{}", child.id());
        assert!(path.exists() && Path::new(&process).exists());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let (_directory, _child) = (directory, child);
            panic!("on purpose");
        }));
        assert!(panicked.is_err() && !path.exists() && !Path::new(&process).exists());
    }

    #[test]
    fn a_child_that_ended_by_itself_is_said_so_with_its_last_words() {
        let directory = Directory::new(None).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo first >&2; echo last words >&2; exit 3"]);
        let mut child = Child::start("a child", command, &directory.path.join("log")).unwrap();
        let failure = loop {
            if let Some(failure) = child.ended() {
                break failure;
            }
            std::thread::yield_now();
        };
        let Failure::Failed(text) = failure else { panic!("{failure:?}") };
        assert_eq!(text, "a child ended by itself (exit status: 3): last words");
    }

    #[test]
    fn a_directory_that_holds_something_is_not_taken() {
        let directory = Directory::new(None).unwrap();
        fs::write(directory.path.join("semel.db"), "mine").unwrap();
        let Err(Failure::Usage(text)) = Directory::new(Some(&directory.path)) else { panic!("it was taken") };
        assert!(text.ends_with("the directory is not empty"), "{text}");
        assert!(directory.path.join("semel.db").exists());
    }

    #[test]
    fn the_file_is_one_that_a_gateway_takes() {
        let address: SocketAddr = ([127, 0, 0, 1], 9000).into();
        let text = config(address, address, address);
        let settings: crate::config::Settings = toml::from_str(&text).unwrap();
        let config = settings.resolve().unwrap();
        assert_eq!(config.routes.len(), 1);
        assert_eq!(config.routes[0].contract.policy.on_unknown, semel::OnUnknown::Probe);
    }
}
