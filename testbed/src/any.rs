//! A database server of any kind, for a test that every store has to pass.

use std::net::SocketAddr;

use crate::{Database, Mariadb, Postgres, Redis, Settings};

/// Which database server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
    /// Redis.
    Redis,
}

/// A server of one's own.
#[derive(Debug, Clone)]
pub enum AnyServer {
    /// PostgreSQL.
    Postgres(Postgres),
    /// MariaDB.
    Mariadb(Mariadb),
    /// Redis.
    Redis(Redis),
}

impl Kind {
    /// Starts a server of one's own.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed.
    pub async fn start(self, settings: Settings) -> AnyServer {
        match self {
            Kind::Postgres => AnyServer::Postgres(Postgres::start_with(settings).await),
            Kind::Mariadb => AnyServer::Mariadb(Mariadb::start_with(settings).await),
            Kind::Redis => AnyServer::Redis(Redis::start_with(settings).await),
        }
    }

    /// A new database on the server that this process shares.
    ///
    /// # Panics
    ///
    /// When there is no server to be had.
    pub async fn database(self) -> Database {
        match self {
            Kind::Postgres => crate::postgres().await,
            Kind::Mariadb => crate::mariadb().await,
            Kind::Redis => crate::redis().await,
        }
    }
}

macro_rules! of_any {
    ($self:ident, $server:ident => $act:expr) => {
        match $self {
            AnyServer::Postgres($server) => $act,
            AnyServer::Mariadb($server) => $act,
            AnyServer::Redis($server) => $act,
        }
    };
}

impl AnyServer {
    /// The URL of its first database.
    pub fn url(&self) -> String {
        of_any!(self, server => server.url())
    }

    /// Where it listens. The same after a restart.
    pub fn addr(&self) -> SocketAddr {
        of_any!(self, server => server.addr())
    }

    /// A new database on it.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub async fn database(&self) -> Database {
        of_any!(self, server => server.database().await)
    }

    /// Ends it in order.
    pub async fn stop(&self) {
        of_any!(self, server => server.stop().await);
    }

    /// Kills all its processes at once.
    pub async fn kill(&self) {
        of_any!(self, server => server.kill().await);
    }

    /// Starts it again, after an end in order when it runs.
    ///
    /// # Panics
    ///
    /// When it does not start: shows what it said.
    pub async fn restart(&self) {
        of_any!(self, server => server.restart().await);
    }

    /// Starts it again if it has ended, by itself or by us.
    ///
    /// # Panics
    ///
    /// When it does not start: shows what it said.
    pub async fn revive(&self) {
        if of_any!(self, server => !server.is_running()) {
            self.restart().await;
        }
    }

    /// Stops all its processes where they are (SIGSTOP).
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn pause(&self) {
        of_any!(self, server => server.pause());
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn resume(&self) {
        of_any!(self, server => server.resume());
    }

    /// The end of what it wrote to its log.
    pub fn log_tail(&self) -> String {
        of_any!(self, server => server.log_tail())
    }
}
