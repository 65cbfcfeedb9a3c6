//! A thread that accepts connections and serves them.
//!
//! Each worker has a runtime of its own thread: no request crosses a thread, and the workers share nothing but the
//! listening socket, the engine and its store. There are only so many connections, and [`connection`](super::connection)
//! bounds what each of them may do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use semel_http::Semel;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection;
use super::cors::Cors;
use super::forward::Forward;
use super::page::Page;
use super::tls::Acceptor;

/// Connections of all workers together.
const CONNECTIONS_MAX: usize = 8192;

/// Files that are open beside connections: the store's, the log, the admin address's.
const FILES_KEPT: u64 = 128;

/// How many callers there is room for: each may need a connection to the service too, and one that could not be made
/// for want of a file would be refused as unreachable. The soft limit is raised first, as far as it goes.
pub fn room() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let files = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    let pairs = files.map_or(u64::MAX, |files| files.saturating_sub(FILES_KEPT) / 2);
    usize::try_from(pairs).unwrap_or(usize::MAX).clamp(1, CONNECTIONS_MAX)
}

/// What a worker serves with.
#[derive(Debug, Clone)]
pub struct Shared {
    pub guarded: Semel<Forward>,
    pub page: Arc<Page>,
    pub cors: Arc<Cors>,
    /// Where TLS ends here.
    pub tls: Option<Acceptor>,
    /// A place for each connection, and for each further stream of one.
    pub room: Arc<Semaphore>,
    pub stop: Stop,
}

/// How workers are stopped.
#[derive(Debug, Clone)]
pub struct Stop {
    /// No new connections; those that are open finish what they carry.
    pub stopping: CancellationToken,
    /// The runtime may go.
    pub stopped: CancellationToken,
    /// Those that are open.
    pub connections: TaskTracker,
}

/// Serves until [`Stop::stopped`].
pub fn run(listener: std::net::TcpListener, shared: &Shared) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        accept(&listener, shared).await;
        drop(listener);
        shared.stop.stopped.cancelled().await;
        Ok(())
    })
}

async fn accept(listener: &TcpListener, shared: &Shared) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.stop.stopping.cancelled() => return,
            accepted = accept_one(listener, shared) => accepted,
        };
        match accepted {
            Ok((stream, peer, room)) => {
                let shared = shared.clone();
                let connections = shared.stop.connections.clone();
                connections.spawn(async move {
                    connection::serve(stream, peer.ip(), shared).await;
                    drop(room);
                });
            }
            Err(error) => {
                // Out of file descriptors, most often: some connection has to end first.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Where there is no room, callers wait in the listener's queue.
async fn accept_one(
    listener: &TcpListener,
    shared: &Shared,
) -> std::io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let room = shared.room.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, peer, room))
}
