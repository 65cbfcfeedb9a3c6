//! The way to the server: a few connections that all calls share, or a cluster's client.
//!
//! 1. **Few connections.** Calls that come together go out together. A server reads 16 KiB of each connection, some
//!    twenty calls, before it syncs its log once for all of them: so more of them share one sync over several
//!    connections ([`LANES`]) than over one. A call that comes alone takes the first.
//! 2. **A caller may go away** at any point: redis-rs keeps replies and calls together by itself, and what was not yet
//!    sent is not sent. So a call needs no task of its own; that a verb runs to its end is the engine's care.
//! 3. **Bounded**: so many calls at once ([`ROOM`]), so long for room, so long for a connection, so long for an answer
//!    ([`Options::busy_for`](crate::Options::busy_for) each).
//! 4. **A connection that broke is made anew by the next call**, not before; so is one that fell silent, or leads to a
//!    server that has become a replica. Those who wait share one attempt, and its failure.
//! 5. **Nothing is repeated here** but a script that the server did not know, which it refused before anything ran. A
//!    cluster's client repeats commands by itself, over a broken connection too; the scripts bear that.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{AsyncConnectionConfig, Cmd, RedisError, TlsCertificates, Value};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::address::Address;
use super::error::{Failure, is_spoilt, is_unknown_script, said};
use super::scripts::Call;

/// Connections to one server.
const LANES: usize = 8;

/// So many calls are under way before the next connection is taken: fewer go out together over one.
const LANE_CALLS: usize = 4;

/// Calls that are under way at once.
const ROOM: usize = 1024;

/// A cluster's client repeats a command so often, at different nodes or over another connection.
const CLUSTER_RETRIES: u32 = 4;

/// How long replicas have to confirm a write.
const WAIT_FOR: Duration = Duration::from_secs(1);

/// The way to the server.
pub(super) struct Link {
    target: Target,
    room: Semaphore,
    turn: AtomicUsize,
    busy_for: Duration,
    wait: u32,
}

enum Target {
    /// Its connections.
    Server(Vec<Server>),
    Cluster(ClusterConnection),
}

/// One way to the server, connected or not.
struct Server {
    client: redis::Client,
    config: AsyncConnectionConfig,
    current: Mutex<Current>,
    connecting: tokio::sync::Mutex<Option<(Instant, String)>>,
}

#[derive(Default)]
struct Current {
    /// Counts the connections, so that a failure ends its own only.
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl Link {
    /// Connects.
    pub(super) async fn open(address: &Address, busy_for: Duration) -> Result<Link, Failure> {
        let certificates = certificates(address)?;
        let target = if address.is_cluster {
            let client = cluster(address, certificates, busy_for).map_err(Failure::SentToSome)?;
            let connected = within(busy_for, client.get_async_connection()).await?;
            Target::Cluster(connected.map_err(Failure::SentToSome)?)
        } else {
            let lane = |_| Server::new(address, certificates.clone(), busy_for);
            let lanes: Vec<Server> = (0..LANES).map(lane).collect::<Result<_, _>>().map_err(Failure::Sent)?;
            lanes[0].connection(busy_for).await?;
            Target::Server(lanes)
        };
        let (room, turn) = (Semaphore::new(ROOM), AtomicUsize::new(0));
        Ok(Link { target, room, turn, busy_for, wait: address.parameters.wait })
    }

    /// A script that writes: answered once as many replicas have it as were asked for.
    pub(super) async fn write(&self, call: &Call) -> Result<Value, Failure> {
        self.script(call, self.wait).await
    }

    /// A script that writes nothing that must be kept.
    pub(super) async fn read(&self, call: &Call) -> Result<Value, Failure> {
        self.script(call, 0).await
    }

    /// A plain command that reads.
    pub(super) async fn command(&self, command: Cmd) -> Result<Value, Failure> {
        let _room = self.room().await?;
        self.send(&command, 0).await
    }

    /// A plain command to every node that takes writes.
    pub(super) async fn everywhere(&self, command: Cmd) -> Result<Vec<Value>, Failure> {
        match &self.target {
            Target::Server(_) => Ok(vec![self.command(command).await?]),
            Target::Cluster(connection) => {
                let primaries = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let answers = connection.clone().route_command(command, primaries).await;
                Ok(each(answers.map_err(Failure::SentToSome)?))
            }
        }
    }

    pub(super) fn is_waiting_for_replicas(&self) -> bool {
        self.wait > 0
    }

    async fn script(&self, call: &Call, wait: u32) -> Result<Value, Failure> {
        let _room = self.room().await?;
        match self.send(&call.by_hash(), wait).await {
            Err(Failure::Sent(error) | Failure::SentToSome(error)) if is_unknown_script(&error) => {
                self.send(&call.in_full(), wait).await
            }
            answered => answered,
        }
    }

    async fn send(&self, command: &Cmd, wait: u32) -> Result<Value, Failure> {
        match &self.target {
            Target::Server(lanes) => {
                let server = &lanes[self.lane()];
                let (number, mut connection) = server.connection(self.busy_for).await?;
                let answered = match wait {
                    0 => answered(&mut connection, command).await,
                    wait => replicated(&mut connection, command, wait).await,
                };
                answered.map_err(|failure| server.failed(number, failure, self.busy_for))
            }
            Target::Cluster(connection) => {
                let answered = connection.clone().req_packed_command(command).await;
                answered
                    .and_then(Value::extract_error)
                    .map_err(|error| silent(error, self.busy_for, Failure::SentToSome))
            }
        }
    }

    /// The first for whoever comes alone; as many as it takes where many come. Any lane is right.
    fn lane(&self) -> usize {
        let under_way = ROOM - self.room.available_permits();
        match under_way.div_ceil(LANE_CALLS) {
            0 | 1 => 0,
            busy => self.turn.fetch_add(1, Ordering::Relaxed) % busy.min(LANES),
        }
    }

    async fn room(&self) -> Result<SemaphorePermit<'_>, Failure> {
        if let Ok(room) = self.room.try_acquire() {
            return Ok(room);
        }
        match tokio::time::timeout(self.busy_for, self.room.acquire()).await {
            Ok(Ok(room)) => Ok(room),
            _ => Err(Failure::NotSent(format!(
                "{ROOM} calls are under way, and none ended within {:?}",
                self.busy_for
            ))),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("free", &self.room.available_permits()).finish_non_exhaustive()
    }
}

impl Server {
    fn new(
        address: &Address,
        certificates: Option<TlsCertificates>,
        busy_for: Duration,
    ) -> Result<Server, RedisError> {
        let url = address.nodes[0].as_str();
        let client = match certificates {
            Some(certificates) => redis::Client::build_with_tls(url, certificates)?,
            None => redis::Client::open(url)?,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(busy_for))
            .set_response_timeout(Some(busy_for))
            .set_pipeline_buffer_size(ROOM);
        Ok(Server { client, config, current: Mutex::default(), connecting: tokio::sync::Mutex::new(None) })
    }

    /// The connection, and its number.
    async fn connection(&self, busy_for: Duration) -> Result<(u64, MultiplexedConnection), Failure> {
        if let Some(connected) = self.connected() {
            return Ok(connected);
        }
        within(busy_for, self.connect(Instant::now())).await?
    }

    fn connected(&self) -> Option<(u64, MultiplexedConnection)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.connection.clone().map(|connection| (current.number, connection))
    }

    /// Whoever comes second waits for the first, and takes what came of it.
    async fn connect(&self, asked_at: Instant) -> Result<(u64, MultiplexedConnection), Failure> {
        let mut failed = self.connecting.lock().await;
        if let Some(connected) = self.connected() {
            return Ok(connected);
        }
        if let Some((_, why)) = failed.as_ref().filter(|(at, _)| *at >= asked_at) {
            return Err(Failure::NotSent(why.clone()));
        }
        match self.connect_once().await {
            Ok(connection) => {
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                current.number += 1;
                current.connection = Some(connection.clone());
                Ok((current.number, connection))
            }
            Err(error) => {
                let why = said(&error);
                *failed = Some((Instant::now(), why.clone()));
                Err(Failure::NotSent(why))
            }
        }
    }

    /// A name may lead to a replica after a fail-over: its answers are old ones.
    async fn connect_once(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&self.config).await?;
        let role: Value = redis::cmd("ROLE").query_async(&mut connection).await?;
        match role {
            Value::Array(parts)
                if parts.first().is_some_and(|role| *role != Value::BulkString(b"master".to_vec())) =>
            {
                Err(redis::make_extension_error("READONLY".to_owned(), Some("it is a replica".to_owned())))
            }
            _ => Ok(connection),
        }
    }

    /// Leaves the connection if it is of no more use.
    fn failed(&self, number: u64, failure: Failure, busy_for: Duration) -> Failure {
        let Failure::Sent(error) = failure else { return failure };
        if is_spoilt(&error) {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            if current.number == number {
                current.connection = None;
            }
        }
        silent(error, busy_for, Failure::Sent)
    }
}

async fn answered(connection: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, Failure> {
    let answered = connection.req_packed_command(command).await;
    answered.and_then(Value::extract_error).map_err(Failure::Sent)
}

/// The command, and behind it on the same connection the wait for the replicas: that counts what this connection wrote.
async fn replicated(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    wait: u32,
) -> Result<Value, Failure> {
    let millis = u64::try_from(WAIT_FOR.as_millis()).unwrap_or(u64::MAX);
    let mut both = redis::pipe();
    both.add_command(command.clone()).cmd("WAIT").arg(wait).arg(millis);
    let answers = connection.req_packed_commands(&both, 0, 2).await.map_err(Failure::Sent)?;
    let mut answers = answers.into_iter().map(Value::extract_error);
    let answer = answers.next().ok_or(Failure::Unread)?.map_err(Failure::Sent)?;
    match answers.next() {
        Some(Ok(Value::Int(replicas))) if replicas >= i64::from(wait) => Ok(answer),
        Some(Ok(Value::Int(replicas))) => {
            Err(Failure::NotReplicated { replicas: u64::try_from(replicas).unwrap_or(0), wanted: wait })
        }
        Some(Err(error)) => Err(Failure::SentToSome(error)),
        _ => Err(Failure::Unread),
    }
}

fn cluster(
    address: &Address,
    certificates: Option<TlsCertificates>,
    busy_for: Duration,
) -> Result<ClusterClient, RedisError> {
    let builder = ClusterClient::builder(address.nodes.iter().map(String::as_str))
        .retries(CLUSTER_RETRIES)
        .connection_timeout(busy_for)
        .response_timeout(busy_for);
    match certificates {
        Some(certificates) => builder.certs(certificates).build(),
        None => builder.build(),
    }
}

fn certificates(address: &Address) -> Result<Option<TlsCertificates>, Failure> {
    let Some(file) = &address.parameters.ca else { return Ok(None) };
    let read = std::fs::read(file);
    let pem = read.map_err(|error| Failure::NotSent(format!("ca: {}: {error}", file.display())))?;
    Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(pem) }))
}

async fn within<T>(busy_for: Duration, work: impl Future<Output = T>) -> Result<T, Failure> {
    let elapsed = |_| Failure::NotSent(format!("no connection within {busy_for:?}"));
    tokio::time::timeout(busy_for, work).await.map_err(elapsed)
}

fn silent(error: RedisError, busy_for: Duration, otherwise: impl FnOnce(RedisError) -> Failure) -> Failure {
    if error.is_timeout() { Failure::Silent(busy_for) } else { otherwise(error) }
}

/// The answers of several nodes, each under its address.
fn each(answers: Value) -> Vec<Value> {
    match answers {
        Value::Map(nodes) => nodes.into_iter().map(|(_, answer)| answer).collect(),
        Value::Array(nodes) => nodes.into_iter().flat_map(last).collect(),
        one => vec![one],
    }
}

fn last(node: Value) -> Option<Value> {
    match node {
        Value::Array(mut pair) => pair.pop(),
        other => Some(other),
    }
}
