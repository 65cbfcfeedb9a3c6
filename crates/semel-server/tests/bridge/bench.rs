//! A queue of one's own on the shared broker, behind a proxy, and bridges that consume it.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use semel_messaging::amqp::RabbitMq;
use semel_messaging::{Message, Sink, Source};
use semel_testbed::{Broker, Proxy, at_address, rabbitmq};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::support::{Answer, Call, Client, Operator, semel, until};

pub(crate) struct Bench {
    runtime: Runtime,
    url: String,
    pub(crate) proxy: Proxy,
    pub(crate) queue: String,
    pub(crate) directory: TempDir,
    _broker: Option<Broker>,
}

/// A running bridge. Dropping it kills it.
pub(crate) struct Bridge {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    admin: SocketAddr,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let runtime = runtime();
        let broker = runtime.block_on(rabbitmq());
        let (url, queue) = (broker.url().to_owned(), broker.name("orders"));
        Bench { _broker: Some(broker), ..Bench::on(runtime, url, queue) }
    }

    /// On a broker of the test's own.
    pub(crate) fn on(runtime: Runtime, url: String, queue: String) -> Bench {
        let bench = Bench {
            proxy: Proxy::before(address(&url)),
            directory: tempfile::tempdir().expect("a directory"),
            _broker: None,
            runtime,
            url,
            queue,
        };
        bench.runtime.block_on(async {
            let source = bench.rabbit().queue(&bench.queue).expect("a name").declare();
            source.open(1).await.expect("the queue is made");
            source.close().await;
        });
        bench
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Past the proxy.
    pub(crate) fn rabbit(&self) -> RabbitMq {
        RabbitMq::new(&self.url).expect("a URL")
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("{}.dead", self.queue)
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite://{}", self.directory.path().join("semel.db").display())
    }

    pub(crate) fn operator(&self) -> Operator {
        Operator::new(&self.store())
    }

    /// A file for a bridge to this service, with more lines.
    pub(crate) fn write(&self, service: SocketAddr, more: &str) -> PathBuf {
        let file = self.directory.path().join("bridge.toml");
        let text = format!(
            "broker = \"{}\"\nqueue = \"{}\"\ntarget = \"http://{service}/orders\"\nstore = \"{}\"\nname = \"billing\"\n\
             admin = \"127.0.0.1:0\"\n{more}\n",
            at_address(&self.url, self.proxy.addr()),
            self.queue,
            self.store(),
        );
        std::fs::write(&file, text).expect("it is written");
        file
    }

    /// A bridge that is ready.
    pub(crate) fn start(&self, service: SocketAddr, more: &str) -> Bridge {
        let file = self.write(service, more);
        self.start_file(&file)
    }

    pub(crate) fn start_file(&self, file: &std::path::Path) -> Bridge {
        let mut child = semel()
            .args(["bridge", "--config"])
            .arg(file)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (log, stderr) = (Arc::new(Mutex::new(Vec::new())), child.stderr.take().expect("a pipe"));
        let lines = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        let mut bridge = Bridge { child, log, admin: ([127, 0, 0, 1], 0).into() };
        let line = bridge.wait_for_log("\"message\":\"ready\"");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        bridge.admin = line["admin"].as_str().expect("its admin address").parse().expect("an address");
        bridge
    }

    pub(crate) fn send(&self, messages: impl IntoIterator<Item = Message>) {
        self.runtime.block_on(async {
            let sink = self.rabbit().sink("").expect("a name");
            for message in messages {
                sink.send(&message).await.expect("it is sent");
            }
            sink.close().await;
        });
    }

    /// A message whose body is its id.
    pub(crate) fn order(&self, id: &str) -> Message {
        Message::new(self.queue.clone(), id.to_owned()).with_id(id)
    }

    /// How many are in a queue that nobody holds.
    pub(crate) fn count(&self, queue: &str) -> u32 {
        let counted = self.runtime.block_on(self.rabbit().messages_in(queue));
        counted.expect("the broker says").unwrap_or(0)
    }

    #[track_caller]
    pub(crate) fn wait_dead(&self, count: u32) {
        until("dead letters", || (self.count(&self.dead_letters()) == count).then_some(()));
    }

    /// `semel dlq …` with the bridge's file.
    pub(crate) fn dlq(&self, args: &[&str]) -> Output {
        let file = self.directory.path().join("bridge.toml");
        let command = semel().arg("dlq").args(args).arg("--config").arg(file).stdin(Stdio::null()).output();
        command.expect("the program starts")
    }

    /// The same, for what must succeed; gives its standard output.
    #[track_caller]
    pub(crate) fn done(&self, args: &[&str]) -> String {
        let output = self.dlq(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "semel dlq {}: {}\n{said}", args.join(" "), output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Its lines of JSON.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        let printed = self.done(&[args, &["--json"]].concat());
        printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

impl Bridge {
    #[track_caller]
    pub(crate) fn wait_for_log(&mut self, part: &str) -> String {
        until(&format!("{part} in the log"), || {
            let found = self.log.lock().unwrap().iter().find(|line| line.contains(part)).cloned();
            if found.is_none()
                && let Some(status) = self.child.try_wait().expect("a child")
            {
                panic!("the bridge ended, {status}:\n{}", self.log());
            }
            found
        })
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// A GET on the admin address.
    pub(crate) fn admin(&self, path: &str) -> Answer {
        let mut client = Client::connect(self.admin).expect("the admin address accepts");
        client.call(&Call::new("GET", path)).expect("the admin address answers")
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the child is there");
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("the bridge ends", || self.child.try_wait().expect("a child"))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the bridge's log\n{}\n---", self.log());
        }
    }
}

pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("a runtime")
}

fn address(url: &str) -> SocketAddr {
    let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).expect("a URL");
    let host = authority.rsplit('@').next().expect("a host");
    host.to_socket_addrs().expect("host and port").next().expect("the host has an address")
}
