//! The way to the server: a few connections that all calls share, or a cluster's client.
//!
//! 1. **A verb** on one server goes with those that come together with it ([`lanes`](super::lanes)); on a cluster, whose
//!    buckets lie on several nodes, by itself. Everything else is a command of its own.
//! 2. **A caller may go away** at any point: a call needs no task of its own, and that a verb runs to its end is the
//!    engine's care.
//! 3. **Bounded**: so many calls at once ([`ROOM`]), so long for room, so long for a connection, so long for an answer
//!    ([`Options::busy_for`](crate::Options::busy_for) each).
//! 4. **Nothing is repeated here** but a script that the server did not know, which it refused before anything ran. A
//!    cluster's client repeats commands by itself, over a broken connection too; the scripts bear that.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{Cmd, RedisError, TlsCertificates, Value};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::address::Address;
use super::connection::{Connection, within};
use super::error::{Failure, is_unknown_script, silent};
use super::lanes::{self, Lanes};
use super::scripts::{self, Call};

/// Connections to one server: while one's batch is at the server, the other's is made.
const LANES: usize = 2;

/// Calls that are under way at once, or wait for their turn.
const ROOM: usize = 1024;

/// A cluster's client repeats a command so often, at different nodes or over another connection.
const CLUSTER_RETRIES: u32 = 4;

/// The way to the server.
pub(super) struct Link {
    target: Target,
    room: Semaphore,
    busy_for: Duration,
    wait: u32,
}

enum Target {
    Server(Arc<Lanes>),
    Cluster(ClusterConnection),
}

impl Link {
    /// Connects.
    pub(super) async fn open(address: &Address, busy_for: Duration) -> Result<Link, Failure> {
        let certificates = certificates(address)?;
        let wait = address.parameters.wait;
        let target = if address.is_cluster {
            let client = cluster(address, certificates, busy_for).map_err(Failure::SentToSome)?;
            let connected = within(busy_for, client.get_async_connection()).await?;
            Target::Cluster(connected.map_err(Failure::SentToSome)?)
        } else {
            let connection = |_| Connection::new(address, certificates.clone(), busy_for);
            let connections: Vec<_> =
                (0..LANES).map(connection).collect::<Result<_, _>>().map_err(Failure::Sent)?;
            let lanes = Lanes::new(connections, busy_for, wait);
            lanes.first().connection().await?;
            Target::Server(lanes)
        };
        Ok(Link { target, room: Semaphore::new(ROOM), busy_for, wait })
    }

    /// A call of a verb, which writes: answered once as many replicas have it as were asked for.
    pub(super) async fn verb(&self, call: Call) -> Result<Value, Failure> {
        let _room = self.room().await?;
        match &self.target {
            Target::Server(lanes) => lanes.ask(call).await,
            Target::Cluster(_) => {
                let answer = self.script(&call, 0).await;
                let part = lanes::parts(answer, 1).pop().unwrap_or(Err(Failure::Unread))?;
                part.extract_error().map_err(Failure::SentToSome)
            }
        }
    }

    /// Any other script, answered as a verb is.
    pub(super) async fn write(&self, call: &Call) -> Result<Value, Failure> {
        let _room = self.room().await?;
        self.script(call, self.wait).await
    }

    /// A script that writes nothing that must be kept.
    pub(super) async fn read(&self, call: &Call) -> Result<Value, Failure> {
        let _room = self.room().await?;
        self.script(call, 0).await
    }

    /// A plain command that reads.
    pub(super) async fn command(&self, command: Cmd) -> Result<Value, Failure> {
        let _room = self.room().await?;
        self.send(command, 0).await
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
        match self.send(scripts::by_hash(&[call]), wait).await {
            Err(Failure::Sent(error) | Failure::SentToSome(error)) if is_unknown_script(&error) => {
                self.send(scripts::in_full(&[call]), wait).await
            }
            answered => answered,
        }
    }

    async fn send(&self, command: Cmd, wait: u32) -> Result<Value, Failure> {
        match &self.target {
            Target::Server(lanes) => {
                let mut answered = lanes.first().run(vec![command], wait).await?;
                answered.answers.pop().unwrap_or(Err(Failure::Unread))
            }
            Target::Cluster(connection) => {
                let answered = connection.clone().req_packed_command(&command).await;
                let read = |answer| match answer {
                    Value::ServerError(error) => Err(error.into()),
                    answer => Ok(answer),
                };
                answered.and_then(read).map_err(|error| silent(error, self.busy_for, Failure::SentToSome))
            }
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
