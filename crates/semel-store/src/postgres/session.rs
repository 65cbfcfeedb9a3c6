//! A connection, and whether statements may be prepared on it.
//!
//! 1. **Prepared is cheaper**: a third of the server's time for a call alone is reading and planning its statement.
//! 2. **Behind a pooler in transaction mode it is wrong**: the next transaction may be another session's, where the name is
//!    unknown, or is another client's statement. So `prepare=auto` prepares only where nobody can stand between: where the
//!    server names the very socket that is ours, both ends of it. A pooler has a socket of its own. So has a translation
//!    of addresses; there, and over Unix sockets and with several hosts, `prepare=on` says that there is no pooler.
//! 3. **A prepared statement that the server does not take** (it was dropped, or its columns have changed) is an error
//!    before anything is written; the call is made once more, unprepared.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Connection, Row, Statement};

use super::address::{Address, Prepare};
use super::error::{Failure, Kind};

/// Longer than connecting to a host, looking who it is included, and to another one if it is not the primary.
const CONNECT_FOR: Duration = Duration::from_secs(15);

/// How the driver keeps idle connections alive unless it is told otherwise, and Linux too.
const KEEPALIVES_IDLE: Duration = Duration::from_secs(2 * 60 * 60);

/// What the server knows of the connection, and whether it may be written.
const ENDS: &str = "SELECT host(inet_client_addr()), inet_client_port(), host(inet_server_addr()), inet_server_port(), \
     current_setting('transaction_read_only') = 'on'";

/// A parameter and its type.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A connection.
pub(super) struct Session {
    client: Client,
    /// The statements by their texts, where they may be prepared.
    prepared: Option<Mutex<HashMap<&'static str, Statement>>>,
}

impl Session {
    fn new(client: Client, may_prepare: bool) -> Session {
        Session { client, prepared: may_prepare.then(Mutex::default) }
    }

    /// One statement. Prepared at its first use, where that is safe.
    pub(super) async fn query(
        &self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let Some(prepared) = &self.prepared else {
            return self.client.query_typed(sql, parameters).await;
        };
        let known = prepared.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let types: Vec<Type> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
                let statement = self.client.prepare_typed(sql, &types).await?;
                prepared.lock().unwrap_or_else(PoisonError::into_inner).insert(sql, statement.clone());
                statement
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
        match self.client.query(&statement, &values).await {
            // An error rolls back what its statement wrote, so it may be sent again.
            Err(error) if error.code().is_some_and(|code| is_of_preparing(code.code())) => {
                prepared.lock().unwrap_or_else(PoisonError::into_inner).remove(sql);
                self.client.query_typed(sql, parameters).await
            }
            rows => rows,
        }
    }

    #[cfg(test)]
    pub(super) fn is_prepared(&self) -> bool {
        self.prepared.is_some()
    }
}

/// No such statement, one of that name with other columns or parameters.
fn is_of_preparing(code: &str) -> bool {
    matches!(code, "26000" | "0A000" | "08P01")
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The statements that schema changes need a transaction for.
impl std::ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// Connects once. The connection's own task ends with the client.
pub(super) async fn connect(address: &Address) -> Result<Session, Failure> {
    let late = |_| Failure::said(Kind::Unavailable, "the server does not answer");
    let connecting = async {
        match only_host(address) {
            Some((host, port)) => connect_and_look(address, host, port).await,
            None => {
                let connected = address.config.connect(address.tls.clone()).await;
                let (client, connection) = connected.map_err(Failure::connect)?;
                serve(connection);
                Ok(Session::new(client, address.prepare == Prepare::On))
            }
        }
    };
    timeout(CONNECT_FOR, connecting).await.map_err(late)?
}

/// The host to connect to by a socket of our own, if it is to be found out whether somebody stands between. Where the
/// driver has more to do, several hosts or a socket with settings, it does all of it.
fn only_host(address: &Address) -> Option<(&str, u16)> {
    let config = &address.config;
    let is_plain = config.get_hostaddrs().is_empty()
        && config.get_tcp_user_timeout().is_none()
        && config.get_keepalives()
        && config.get_keepalives_idle() == KEEPALIVES_IDLE;
    match (address.prepare, config.get_hosts(), config.get_ports()) {
        (Prepare::Auto, [Host::Tcp(host)], []) if is_plain => Some((host, 5432)),
        (Prepare::Auto, [Host::Tcp(host)], [port]) if is_plain => Some((host, *port)),
        _ => None,
    }
}

async fn connect_and_look(address: &Address, host: &str, port: u16) -> Result<Session, Failure> {
    let stream = dial(address, host, port).await.map_err(Failure::socket)?;
    let (here, there) =
        (stream.local_addr().map_err(Failure::socket)?, stream.peer_addr().map_err(Failure::socket)?);
    let tls = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut address.tls.clone(), host);
    let tls =
        tls.map_err(|_| Failure::said(Kind::Unavailable, "the host's name is none that TLS can check"))?;
    let (client, connection) = address.config.connect_raw(stream, tls).await.map_err(Failure::connect)?;
    serve(connection);
    let row = client.query_typed_one(ENDS, &[]).await.map_err(Failure::connect)?;
    if row.get(4) && address.config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite {
        return Err(Failure::said(
            Kind::Unavailable,
            "the server does not allow writes: a standby, or no longer the primary",
        ));
    }
    let is_ours = end(&row, 0) == Some(plain(here)) && end(&row, 2) == Some(plain(there));
    Ok(Session::new(client, is_ours))
}

/// To the first of the host's addresses that answers, each for as long as the URL allows.
async fn dial(address: &Address, host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for place in lookup_host((host, port)).await? {
        let socket = if place.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_keepalive(true)?;
        socket.set_nodelay(true)?;
        let connecting = socket.connect(place);
        let connected = match address.config.get_connect_timeout() {
            Some(time) => {
                timeout(*time, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            None => connecting.await,
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn serve<S, T>(connection: Connection<S, T>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to PostgreSQL ended");
        }
    });
}

/// An end of the connection as the server has it, in two columns. None over a Unix socket.
fn end(row: &Row, column: usize) -> Option<(IpAddr, u16)> {
    let host: Option<&str> = row.try_get(column).ok()?;
    let port: Option<i32> = row.try_get(column + 1).ok()?;
    Some((host?.parse::<IpAddr>().ok()?.to_canonical(), u16::try_from(port?).ok()?))
}

fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use semel_testbed::{Pgbouncer, Postgres, Proxy};

    use super::*;

    async fn session(url: &str) -> Session {
        let address = Address::parse(url).unwrap_or_else(|error| panic!("{error}"));
        connect(&address).await.unwrap_or_else(|error| panic!("{error}"))
    }

    #[tokio::test]
    async fn statements_are_prepared_where_the_server_names_our_socket_and_not_behind_a_pooler() {
        let server = Postgres::start().await;
        let database = server.database().await;
        assert!(session(database.url()).await.is_prepared(), "nobody stands between");
        let pooler = Pgbouncer::before(&server).await;
        assert!(!session(&pooler.url()).await.is_prepared(), "a pooler");
        let proxy = Proxy::before(database.addr());
        assert!(!session(&database.url_at(proxy.addr())).await.is_prepared(), "a proxy may be a pooler");
    }

    #[tokio::test]
    async fn the_url_says_what_is_prepared() {
        let database = semel_testbed::postgres().await;
        let proxy = Proxy::before(database.addr());
        assert!(!session(&format!("{}?prepare=off", database.url())).await.is_prepared());
        assert!(session(&format!("{}?prepare=on", database.url_at(proxy.addr()))).await.is_prepared());
    }

    #[tokio::test]
    async fn a_prepared_statement_that_is_gone_or_has_changed_is_sent_once_more() {
        let database = semel_testbed::postgres().await;
        database.run("CREATE TABLE changing (one bigint)").await;
        let session = session(database.url()).await;
        let columns = async || session.query("SELECT * FROM changing", &[]).await.map(|rows| rows.len());
        assert_eq!(columns().await.expect("prepared"), 0);
        session.batch_execute("DEALLOCATE ALL").await.expect("dropped");
        assert_eq!(columns().await.expect("sent unprepared"), 0);
        assert_eq!(columns().await.expect("prepared anew"), 0);
        database.run("ALTER TABLE changing ADD COLUMN two text; INSERT INTO changing VALUES (1, 'x')").await;
        assert_eq!(columns().await.expect("other columns"), 1);
    }
}
