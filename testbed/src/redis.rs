//! Redis.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;

use crate::database::Database;
use crate::home::Home;
use crate::program::{command_as, find, run};
use crate::server::{Kind, Knock, Server, Settings, own_server};

/// More numbers than a test process has tests.
const DATABASES: u32 = 4096;

// While it reads its log it answers -LOADING.
const KIND: Kind = Kind {
    name: "Redis",
    user: None,
    stop: Signal::TERM,
    end: (Signal::KILL, "KILL"),
    knock: Knock { say: b"PING\r\n", hear: |heard| heard.starts_with(b"+PONG") },
};

/// A Redis server of one's own, with an append-only file.
#[derive(Debug, Clone)]
pub struct Redis {
    pub(crate) server: Arc<Server>,
    used: Arc<AtomicU32>,
}

own_server!(Redis);

impl Redis {
    /// Starts one that syncs its log once a second, as Redis does by default.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn start() -> Redis {
        Redis::start_with(Settings::fast()).await
    }

    /// Starts one. Durable: each write is synced before its answer (`appendfsync always`). Settings are those of
    /// redis.conf.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn start_with(settings: Settings) -> Redis {
        crate::blocking(move || Redis::start_blocking(&settings)).await
    }

    pub(crate) fn start_blocking(settings: &Settings) -> Redis {
        let server = Server::start(KIND, settings, |home, address| prepare(home, address, settings));
        Redis { server: Arc::new(server), used: Arc::default() }
    }

    /// The URL of its database 0.
    pub fn url(&self) -> String {
        format!("redis://{}/0", self.addr())
    }

    /// A number that nobody else has.
    ///
    /// # Panics
    ///
    /// When all are used.
    pub async fn database(&self) -> Database {
        self.next_number()
    }

    pub(crate) fn next_number(&self) -> Database {
        let number = 1 + self.used.fetch_add(1, Ordering::Relaxed);
        assert!(number < DATABASES, "all {DATABASES} numbers are used");
        Database::redis_number(&self.url(), number, false)
    }
}

fn prepare(home: &Home, address: SocketAddr, settings: &Settings) -> Command {
    let mut command = command_as(KIND.user, &find("redis-server", "redis-server"));
    let mut set = |name: &str, value: &str| {
        command.arg(format!("--{name}")).arg(value);
    };
    set("bind", "127.0.0.1");
    set("port", &address.port().to_string());
    set("dir", &home.path().display().to_string());
    set("databases", &DATABASES.to_string());
    set("save", "");
    set("appendonly", "yes");
    set("appendfsync", if settings.durable { "always" } else { "everysec" });
    for (name, value) in &settings.lines {
        set(name, value);
    }
    command
}

/// Runs one command at a URL; gives the answer.
pub(crate) fn redis_cli(url: &str, words: &[&str]) -> String {
    run(client(url).args(words))
}

pub(crate) fn client(url: &str) -> Command {
    let mut command = Command::new(find("redis-cli", "redis-tools"));
    // -e: an error in the answer is one of the program.
    command.args(["--no-auth-warning", "-e", "-u", url]);
    command
}
