//! PostgreSQL.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use rustix::process::Signal;

use crate::database::Database;
use crate::home::Home;
use crate::program::{command_as, find, run};
use crate::server::{Kind, Knock, Server, Settings, own_server};

/// The one user, a superuser; also the name of the first database.
pub(crate) const USER: &str = "semel";
pub(crate) const PASSWORD: &str = "semel-test";

const PACKAGE: &str = "postgresql";

/// Protocol 3.0, `user=semel database=semel`. A server that still starts says E; a ready one asks for the password.
pub(crate) const KNOCK: Knock = Knock {
    say: b"\0\0\0\x23\0\x03\0\0user\0semel\0database\0semel\0\0",
    hear: |heard| heard.first() == Some(&b'R'),
};

// Fast shutdown, and immediate shutdown: killed, the postmaster would leave a segment of shared memory behind.
const KIND: Kind = Kind {
    name: "PostgreSQL",
    user: Some("postgres"),
    stop: Signal::INT,
    end: (Signal::QUIT, "QUIT"),
    knock: KNOCK,
};

/// A PostgreSQL server of one's own.
#[derive(Debug, Clone)]
pub struct Postgres {
    pub(crate) server: Arc<Server>,
}

own_server!(Postgres);

impl Postgres {
    /// Starts one that does not sync.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn start() -> Postgres {
        Postgres::start_with(Settings::fast()).await
    }

    /// Starts one. Settings are those of postgresql.conf.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn start_with(settings: Settings) -> Postgres {
        crate::blocking(move || Postgres::start_blocking(&settings)).await
    }

    pub(crate) fn start_blocking(settings: &Settings) -> Postgres {
        let server = Server::start(KIND, settings, |home, address| prepare(home, address, settings));
        let postgres = Postgres { server: Arc::new(server) };
        psql(&crate::database::with_name(&postgres.url(), "postgres"), &format!("CREATE DATABASE {USER}"));
        postgres
    }

    /// The URL of its first database, for a superuser.
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@{}/{USER}", self.addr())
    }

    /// A new database on it.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub async fn database(&self) -> Database {
        let postgres = self.clone();
        crate::blocking(move || Database::postgres_on(&postgres.url())).await
    }
}

fn prepare(home: &Home, address: SocketAddr, settings: &Settings) -> Command {
    let (data, password) = (home.join("data"), home.write("password", PASSWORD));
    let mut init = command_as(KIND.user, &find("initdb", PACKAGE));
    init.args(["--username", USER, "--auth=scram-sha-256", "--no-locale", "--encoding=UTF8", "--no-sync"])
        .arg("--pwfile")
        .arg(password)
        .arg("--pgdata")
        .arg(&data);
    run(&mut init);
    let mut command = command_as(KIND.user, &find("postgres", PACKAGE));
    command.arg("-D").arg(&data);
    let mut set = |name: &str, value: &str| {
        command.arg("-c").arg(format!("{name}={value}"));
    };
    set("listen_addresses", "127.0.0.1");
    set("port", &address.port().to_string());
    set("unix_socket_directories", "");
    // In its own folder, so that a killed server leaves nothing behind.
    set("dynamic_shared_memory_type", "mmap");
    if !settings.durable {
        set("fsync", "off");
        set("full_page_writes", "off");
    }
    // Many test processes, and two cores: few background writers.
    set("max_connections", "300");
    set("autovacuum_naptime", "5min");
    for (name, value) in &settings.lines {
        set(name, value);
    }
    command
}

/// Runs a statement at a URL; gives the rows, their columns parted by `|`.
pub(crate) fn psql(url: &str, statement: &str) -> String {
    run(client(url).args(["--command", statement]))
}

pub(crate) fn client(url: &str) -> Command {
    let mut command = Command::new(find("psql", "postgresql-client"));
    command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
    command.args(["--dbname", url]);
    command
}
