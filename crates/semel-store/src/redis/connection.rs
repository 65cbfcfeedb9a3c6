//! One connection to one server, made anew when it broke.
//!
//! 1. **A caller may go away** at any point: redis-rs keeps replies and commands together by itself, and what was not yet
//!    sent is not sent.
//! 2. **A connection that broke is made anew by the next call**, not before; so is one that fell silent, or leads to a
//!    server that has become a replica. Those who wait share one attempt, and its failure.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, RedisError, RedisResult, TlsCertificates, Value};

use super::address::Address;
use super::error::{Failure, is_spoilt, said, silent};

/// Commands that may be under way on one.
const COMMANDS: usize = 64;

/// How long replicas have to confirm a write.
const WAIT_FOR: Duration = Duration::from_secs(1);

/// One way to the server, connected or not.
pub(super) struct Connection {
    client: redis::Client,
    config: AsyncConnectionConfig,
    busy_for: Duration,
    current: Mutex<Current>,
    connecting: tokio::sync::Mutex<Option<(Instant, String)>>,
}

#[derive(Default)]
struct Current {
    /// Counts the connections, so that a failure ends its own only.
    number: u64,
    connection: Option<MultiplexedConnection>,
}

/// What some commands were answered, each by itself.
pub(super) struct Answered {
    pub(super) answers: Vec<Result<Value, Failure>>,
    /// Of the connection that answered.
    pub(super) number: u64,
}

impl Connection {
    pub(super) fn new(
        address: &Address,
        certificates: Option<TlsCertificates>,
        busy_for: Duration,
    ) -> Result<Connection, RedisError> {
        let url = address.nodes[0].as_str();
        let client = match certificates {
            Some(certificates) => redis::Client::build_with_tls(url, certificates)?,
            None => redis::Client::open(url)?,
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(busy_for))
            .set_response_timeout(Some(busy_for))
            .set_pipeline_buffer_size(COMMANDS);
        let (current, connecting) = (Mutex::default(), tokio::sync::Mutex::new(None));
        Ok(Connection { client, config, busy_for, current, connecting })
    }

    /// Sends commands together. With `wait`, those that wrote are answered once so many replicas have it.
    pub(super) async fn run(&self, commands: Vec<Cmd>, wait: u32) -> Result<Answered, Failure> {
        let (number, mut connection) = self.connection().await?;
        let answered = match (commands.as_slice(), wait) {
            ([command], 0) => connection.req_packed_command(command).await.map(|answer| vec![Ok(answer)]),
            (commands, 0) => pipeline(&mut connection, commands, None).await,
            (commands, wait) => pipeline(&mut connection, commands, Some(wait)).await,
        };
        let answers = answered.map_err(|error| self.failed(number, error))?;
        let answers = answers.into_iter().map(|answer| self.read(number, answer?)).collect();
        Ok(Answered { answers, number })
    }

    /// One command's answer, or one of its parts: an error of the server's is a failure.
    pub(super) fn read(&self, number: u64, answer: Value) -> Result<Value, Failure> {
        match answer {
            Value::ServerError(error) => Err(self.failed(number, error.into())),
            answer => Ok(answer),
        }
    }

    /// Connects, if it is not connected.
    pub(super) async fn connection(&self) -> Result<(u64, MultiplexedConnection), Failure> {
        if let Some(connected) = self.connected() {
            return Ok(connected);
        }
        let connecting = tokio::time::timeout(self.busy_for, self.connect(Instant::now()));
        connecting.await.unwrap_or_else(|_| Err(Failure::NotSent(self.silence())))
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
                let why = self.said(&error);
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

    fn said(&self, error: &RedisError) -> String {
        if error.is_timeout() { self.silence() } else { said(error) }
    }

    /// A server without TLS hears no command in a handshake, and says nothing.
    fn silence(&self) -> String {
        match self.client.get_connection_info().addr() {
            redis::ConnectionAddr::TcpTls { .. } => {
                format!("no TLS within {:?}: does this port speak it?", self.busy_for)
            }
            _ => format!("no connection within {:?}", self.busy_for),
        }
    }

    /// Leaves the connection if it is of no more use.
    fn failed(&self, number: u64, error: RedisError) -> Failure {
        if is_spoilt(&error) {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            if current.number == number {
                current.connection = None;
            }
        }
        silent(error, self.busy_for, Failure::Sent)
    }
}

/// The commands, and behind them on the same connection the wait for the replicas: that counts what this connection
/// wrote.
async fn pipeline(
    connection: &mut MultiplexedConnection,
    commands: &[Cmd],
    wait: Option<u32>,
) -> RedisResult<Vec<Result<Value, Failure>>> {
    let mut all = redis::pipe();
    commands.iter().for_each(|command| {
        all.add_command(command.clone());
    });
    if let Some(wait) = wait {
        let millis = u64::try_from(WAIT_FOR.as_millis()).unwrap_or(u64::MAX);
        all.cmd("WAIT").arg(wait).arg(millis);
    }
    let count = commands.len() + usize::from(wait.is_some());
    let mut answers = connection.req_packed_commands(&all, 0, count).await?;
    if answers.len() != count {
        return Ok(commands.iter().map(|_| Err(Failure::Unread)).collect());
    }
    let waited = wait.map(|wait| replicated(answers.pop(), wait));
    let answer = |answer: Value| match &waited {
        // What was refused was not written, whoever has the rest.
        Some(Err(failure)) if !matches!(answer, Value::ServerError(_)) => Err(failure.clone()),
        _ => Ok(answer),
    };
    Ok(answers.into_iter().map(answer).collect())
}

fn replicated(answer: Option<Value>, wanted: u32) -> Result<(), Failure> {
    match answer {
        Some(Value::Int(replicas)) if replicas >= i64::from(wanted) => Ok(()),
        Some(Value::Int(replicas)) => {
            Err(Failure::NotReplicated { replicas: u64::try_from(replicas).unwrap_or(0), wanted })
        }
        // It is no refusal of what stands before it.
        Some(Value::ServerError(error)) => Err(Failure::SentToSome(error.into())),
        _ => Err(Failure::Unread),
    }
}

pub(super) async fn within<T>(busy_for: Duration, work: impl Future<Output = T>) -> Result<T, Failure> {
    let elapsed = |_| Failure::NotSent(format!("no connection within {busy_for:?}"));
    tokio::time::timeout(busy_for, work).await.map_err(elapsed)
}
