//! PgBouncer in transaction pooling: what stands before many a PostgreSQL.

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::process::Signal;

use crate::home::Home;
use crate::postgres::{KNOCK, PASSWORD, Postgres, USER};
use crate::program::{command_as, find};
use crate::server::{Kind, Server, Settings, own_server};

const KIND: Kind = Kind {
    name: "PgBouncer",
    user: Some("postgres"),
    stop: Signal::INT,
    end: (Signal::KILL, "KILL"),
    knock: KNOCK,
};

/// A PgBouncer before a PostgreSQL of one's own.
#[derive(Debug, Clone)]
pub struct Pgbouncer {
    server: Arc<Server>,
}

own_server!(Pgbouncer);

impl Pgbouncer {
    /// Starts one: transaction pooling, 20 connections to each database.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn before(postgres: &Postgres) -> Pgbouncer {
        Pgbouncer::before_with(postgres, Settings::fast()).await
    }

    /// Starts one, with lines of its section `pgbouncer`.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn before_with(postgres: &Postgres, settings: Settings) -> Pgbouncer {
        let upstream = postgres.addr();
        let start = move || {
            let prepare = |home: &Home, address: SocketAddr| {
                let mut command = command_as(KIND.user, &find("pgbouncer", "pgbouncer"));
                command.arg(home.write("pgbouncer.ini", &configuration(home, upstream, address, &settings)));
                command
            };
            Pgbouncer { server: Arc::new(Server::start(KIND, &settings, prepare)) }
        };
        crate::blocking(start).await
    }

    /// The URL of the first database, through it.
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@{}/{USER}", self.addr())
    }
}

fn configuration(home: &Home, upstream: SocketAddr, address: SocketAddr, settings: &Settings) -> String {
    let users = home.write("users", &format!("\"{USER}\" \"{PASSWORD}\"\n"));
    let own: String = settings.lines.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    format!(
        "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
         unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
         max_client_conn = 1000\ndefault_pool_size = 20\nignore_startup_parameters = extra_float_digits\n{own}",
        upstream.ip(),
        upstream.port(),
        address.port(),
        users.display(),
    )
}
