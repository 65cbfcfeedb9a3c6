//! MariaDB.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use rustix::process::Signal;

use crate::database::Database;
use crate::home::Home;
use crate::program::{command_as, find, run};
use crate::server::{Kind, Knock, Server, Settings, own_server};

const USER: &str = "semel";
const PASSWORD: &str = "semel-test";
const PACKAGE: &str = "mariadb-server";

// The server speaks first: a packet's length and number, then the protocol's version, 10. An error has 255 there.
const KIND: Kind = Kind {
    name: "MariaDB",
    user: Some("mysql"),
    stop: Signal::TERM,
    end: (Signal::KILL, "KILL"),
    knock: Knock { say: b"", hear: |heard| heard.get(4) == Some(&10) },
};

/// A MariaDB server of one's own.
#[derive(Debug, Clone)]
pub struct Mariadb {
    pub(crate) server: Arc<Server>,
}

own_server!(Mariadb);

impl Mariadb {
    /// Starts one that does not sync at every commit.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn start() -> Mariadb {
        Mariadb::start_with(Settings::fast()).await
    }

    /// Starts one. Settings are those of my.cnf.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn start_with(settings: Settings) -> Mariadb {
        crate::blocking(move || Mariadb::start_blocking(&settings)).await
    }

    pub(crate) fn start_blocking(settings: &Settings) -> Mariadb {
        let server = Server::start(KIND, settings, |home, address| prepare(home, address, settings));
        Mariadb { server: Arc::new(server) }
    }

    /// The URL of its first database, for a user who may do everything.
    pub fn url(&self) -> String {
        format!("mysql://{USER}:{PASSWORD}@{}/{USER}", self.addr())
    }

    /// A new database on it.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub async fn database(&self) -> Database {
        let mariadb = self.clone();
        crate::blocking(move || Database::mariadb_on(&mariadb.url())).await
    }
}

fn prepare(home: &Home, address: SocketAddr, settings: &Settings) -> Command {
    let data = home.join("data");
    let mut install = command_as(KIND.user, &find("mariadb-install-db", PACKAGE));
    install
        .args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"])
        .arg(format!("--datadir={}", data.display()));
    // A server that starts removes what it takes for leftovers of its own from its folder for temporary files.
    run(install.env("TMPDIR", home.path()));
    // Run at each start, before the port is open.
    let users = home.write(
        "users.sql",
        &format!(
            "CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n\
             GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n\
             CREATE DATABASE IF NOT EXISTS {USER};\n"
        ),
    );
    let mut command = command_as(KIND.user, &find("mariadbd", PACKAGE));
    command.arg("--no-defaults").env("TMPDIR", home.path());
    let mut set = |name: &str, value: &str| {
        command.arg(format!("--{name}={value}"));
    };
    set("datadir", &data.display().to_string());
    set("socket", &home.join("socket").display().to_string());
    set("pid-file", &home.join("pid").display().to_string());
    set("init-file", &users.display().to_string());
    set("bind-address", "127.0.0.1");
    set("port", &address.port().to_string());
    set("skip-name-resolve", "ON");
    set("max-connections", "300");
    // 2: written at each commit, synced once a second.
    set("innodb-flush-log-at-trx-commit", if settings.durable { "1" } else { "2" });
    for (name, value) in &settings.lines {
        set(name, value);
    }
    command
}

/// Runs statements at a URL; gives the rows, their columns parted by tabs.
pub(crate) fn mariadb_client(url: &str, statement: &str) -> String {
    run(client(url).arg(format!("--execute={statement}")))
}

pub(crate) fn client(url: &str) -> Command {
    let place = crate::database::Place::of(url);
    let mut command = Command::new(find("mariadb", "mariadb-client"));
    command.args(["--no-defaults", "--protocol=tcp", "--batch", "--unbuffered", "--skip-column-names"]);
    command.arg(format!("--host={}", place.host)).arg(format!("--port={}", place.port(3306)));
    command.arg(format!("--user={}", place.user)).env("MYSQL_PWD", &place.password);
    command.arg(format!("--database={}", place.name));
    command
}
