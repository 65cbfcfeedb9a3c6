//! One server per test process, and a place on it for each caller.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::any::Kind;
use crate::held::Held;
use crate::mariadb::{Mariadb, mariadb_client};
use crate::postgres::{Postgres, psql};
use crate::rabbitmq::Rabbitmq;
use crate::redis::{Redis, redis_cli};
use crate::server::Settings;

/// A database that nobody else has.
#[derive(Debug)]
pub struct Database {
    url: String,
    kind: Kind,
    /// On a server that outlives this process: removed when this is dropped.
    lent: bool,
}

/// A new database on the PostgreSQL of this process, or on that of `SEMEL_TEST_POSTGRES`.
///
/// # Panics
///
/// When there is no server to be had: says what to install.
pub async fn postgres() -> Database {
    static OWN: OnceLock<Postgres> = OnceLock::new();
    crate::blocking(|| match lent("SEMEL_TEST_POSTGRES") {
        Some(url) => Database::postgres_on(&url).lent(),
        None => Database::postgres_on(&OWN.get_or_init(|| Postgres::start_blocking(&Settings::fast())).url()),
    })
    .await
}

/// A new database on the MariaDB of this process, or on the server of `SEMEL_TEST_MARIADB`.
///
/// # Panics
///
/// When there is no server to be had: says what to install.
pub async fn mariadb() -> Database {
    static OWN: OnceLock<Mariadb> = OnceLock::new();
    crate::blocking(|| match lent("SEMEL_TEST_MARIADB") {
        Some(url) => Database::mariadb_on(&url).lent(),
        None => Database::mariadb_on(&OWN.get_or_init(|| Mariadb::start_blocking(&Settings::fast())).url()),
    })
    .await
}

/// A number on the Redis of this process, or an empty one on the server of `SEMEL_TEST_REDIS`.
///
/// # Panics
///
/// When there is no server to be had: says what to install.
pub async fn redis() -> Database {
    static OWN: OnceLock<Redis> = OnceLock::new();
    crate::blocking(|| match lent("SEMEL_TEST_REDIS") {
        Some(url) => Database::redis_lent(&url),
        None => OWN.get_or_init(|| Redis::start_blocking(&Settings::fast())).next_number(),
    })
    .await
}

/// A broker, and a prefix that nobody else has for the names of queues and exchanges.
#[derive(Debug)]
pub struct Broker {
    url: String,
    prefix: String,
}

impl Broker {
    /// The broker's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name with this caller's prefix.
    pub fn name(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }
}

/// The RabbitMQ of this process, or the broker of `SEMEL_TEST_RABBITMQ`; there, what is declared stays.
///
/// # Panics
///
/// When there is no server to be had: says what to install.
pub async fn rabbitmq() -> Broker {
    static OWN: OnceLock<Rabbitmq> = OnceLock::new();
    crate::blocking(|| {
        let own = || OWN.get_or_init(|| Rabbitmq::start_blocking(&Settings::fast())).url();
        Broker { url: lent("SEMEL_TEST_RABBITMQ").unwrap_or_else(own), prefix: new_name() }
    })
    .await
}

fn lent(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|url| !url.is_empty())
}

impl Database {
    pub(crate) fn postgres_on(server: &str) -> Database {
        let name = new_name();
        psql(server, &format!("CREATE DATABASE {name}"));
        Database { url: with_name(server, &name), kind: Kind::Postgres, lent: false }
    }

    pub(crate) fn mariadb_on(server: &str) -> Database {
        let name = new_name();
        mariadb_client(server, &format!("CREATE DATABASE {name}"));
        Database { url: with_name(server, &name), kind: Kind::Mariadb, lent: false }
    }

    pub(crate) fn redis_number(server: &str, number: u32, lent: bool) -> Database {
        Database { url: with_name(server, &number.to_string()), kind: Kind::Redis, lent }
    }

    fn lent(mut self) -> Database {
        self.lent = true;
        self
    }

    /// Only what is empty is taken, since it is emptied afterwards.
    fn redis_lent(server: &str) -> Database {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let url = with_name(server, &number.to_string());
            if redis_cli(&url, &["DBSIZE"]).trim() == "0" {
                return Database::redis_number(server, number, true);
            }
        }
    }

    /// Its URL, with user and password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL with another address in it: that of a [`Proxy`](crate::Proxy) before the server.
    pub fn url_at(&self, address: SocketAddr) -> String {
        at_address(&self.url, address)
    }

    /// Where the server listens.
    ///
    /// # Panics
    ///
    /// When the host of a user's own server has no address.
    pub fn addr(&self) -> SocketAddr {
        let place = Place::of(&self.url);
        let port = match self.kind {
            Kind::Postgres => 5432,
            Kind::Mariadb => 3306,
            Kind::Redis => 6379,
        };
        let port = place.port(port);
        let mut found = (place.host.as_str(), port).to_socket_addrs().expect("the host's address");
        found.next().expect("the host has an address")
    }

    /// Runs a statement with the server's own client, `psql`, `mariadb`, or `redis-cli` for one command of plain
    /// words; gives what it prints: rows as lines, columns parted by `|` (PostgreSQL) or tabs (MariaDB).
    ///
    /// # Panics
    ///
    /// When the statement fails: shows what the client said.
    pub async fn run(&self, statement: &str) -> String {
        let (kind, url, statement) = (self.kind, self.url.clone(), statement.to_owned());
        crate::blocking(move || match kind {
            Kind::Postgres => psql(&url, &statement),
            Kind::Mariadb => mariadb_client(&url, &statement),
            Kind::Redis => redis_cli(&url, &statement.split_whitespace().collect::<Vec<_>>()),
        })
        .await
    }

    /// A connection that does nothing, until it is dropped; nothing when the server refuses it, having too many.
    ///
    /// # Panics
    ///
    /// When the server's client is not installed.
    pub async fn hold(&self) -> Option<Held> {
        let (kind, url, address) = (self.kind, self.url.clone(), self.addr());
        crate::blocking(move || match kind {
            Kind::Postgres => Held::by(crate::postgres::client(&url), "SELECT 1;"),
            Kind::Mariadb => Held::by(crate::mariadb::client(&url), "SELECT 1;"),
            Kind::Redis => Held::by_ping(address),
        })
        .await
    }

    fn remove(&self) {
        let name = Place::of(&self.url).name;
        match self.kind {
            Kind::Postgres => {
                psql(&with_name(&self.url, "postgres"), &format!("DROP DATABASE {name} WITH (FORCE)"))
            }
            Kind::Mariadb => mariadb_client(&self.url, &format!("DROP DATABASE {name}")),
            Kind::Redis => redis_cli(&self.url, &["FLUSHDB"]),
        };
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.lent && !std::thread::panicking() {
            self.remove();
        }
    }
}

/// Lower case, as PostgreSQL reads names that are not quoted.
fn new_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("semel_{}_{number}_{}", std::process::id(), started.subsec_nanos())
}

/// A server's URL with another address in it.
///
/// # Panics
///
/// When it is no URL.
pub fn at_address(url: &str, address: SocketAddr) -> String {
    let (scheme, authority, rest) = parts(url);
    let user = authority.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
    format!("{scheme}://{user}{address}{rest}")
}

/// A server's URL with another database in it; what follows a `?` stays.
pub(crate) fn with_name(url: &str, name: &str) -> String {
    let (scheme, authority, rest) = parts(url);
    let parameters = rest.split_once('?').map_or(String::new(), |(_, parameters)| format!("?{parameters}"));
    format!("{scheme}://{authority}/{name}{parameters}")
}

fn parts(url: &str) -> (&str, &str, &str) {
    let (scheme, rest) = url.split_once("://").unwrap_or_else(|| panic!("{url:?} is no server's URL"));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    (scheme, &rest[..end], &rest[end..])
}

/// The parts of a URL that a client's command line takes.
pub(crate) struct Place {
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) host: String,
    port: Option<u16>,
    pub(crate) name: String,
}

impl Place {
    pub(crate) fn of(url: &str) -> Place {
        let (_, authority, rest) = parts(url);
        let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() => (host, port.parse().ok()),
            _ => (host, None),
        };
        let name = rest.trim_start_matches('/').split(['?', '#']).next().unwrap_or_default();
        let [user, password, host, name] = [user, password, host, name].map(str::to_owned);
        Place { user, password, host, port, name }
    }

    pub(crate) fn port(&self, usual: u16) -> u16 {
        self.port.unwrap_or(usual)
    }
}
