//! Threads that serve connections, and the task that accepts them.
//!
//! 1. Each worker has a runtime of its own thread: no request crosses a thread, and the workers share nothing but the
//!    engine and its store.
//! 2. One task accepts, and hands each connection to the worker that has the fewest. If every worker accepted for
//!    itself, the first one to wake would take all that came at once, and keep them.
//! 3. There are only so many connections, and [`connection`](super::connection) bounds what each of them may do.
//! 4. What was accepted is served, also when the gateway is told to stop just then.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use semel_http::Semel;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection;
use super::cors::Cors;
use super::forward::Forward;
use super::page::Page;
use super::telemetry::Connected;
use super::tls::Acceptor;
use super::traces::Traces;

/// Connections of all workers together.
const CONNECTIONS_MAX: usize = 8192;

/// Nearer than any timer that each request sets.
const TICK: Duration = Duration::from_secs(1);

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
    pub traces: Traces,
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

/// A connection that was accepted, and its place.
#[derive(Debug)]
struct Accepted {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    room: OwnedSemaphorePermit,
}

/// A running worker. It ends at [`Stop::stopped`], once nobody can hand it anything more.
#[derive(Debug)]
pub struct Worker {
    /// Bounded by [`Shared::room`].
    handed: mpsc::UnboundedSender<Accepted>,
    /// Connections that it has.
    open: Arc<AtomicUsize>,
}

impl Worker {
    /// Starts its thread.
    ///
    /// # Errors
    ///
    /// When the system has no thread to give.
    pub fn start(number: usize, shared: Shared) -> io::Result<(Worker, JoinHandle<()>)> {
        let (handed, receiver) = mpsc::unbounded_channel();
        let open = Arc::new(AtomicUsize::new(0));
        let counted = open.clone();
        let serve = move || {
            if let Err(error) = run(receiver, &counted, &shared) {
                tracing::error!(%error, "a worker could not start");
            }
        };
        let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(serve)?;
        Ok((Worker { handed, open }, thread))
    }
}

fn run(
    mut handed: mpsc::UnboundedReceiver<Accepted>,
    open: &Arc<AtomicUsize>,
    shared: &Shared,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::spawn(tick());
        while let Some(Accepted { stream, peer, room }) = handed.recv().await {
            let (shared, open) = (shared.clone(), open.clone());
            let connections = shared.stop.connections.clone();
            connections.spawn(async move {
                let _connected = Connected::begin();
                match TcpStream::from_std(stream) {
                    Ok(stream) => connection::serve(stream, peer.ip(), shared).await,
                    Err(error) => tracing::warn!(%error, "a connection could not be served"),
                }
                open.fetch_sub(1, Ordering::Relaxed);
                drop(room);
            });
        }
        shared.stop.stopped.cancelled().await;
        Ok(())
    })
}

/// Lets no request's timer be the nearest one: tokio wakes the thread by two system calls for each timer that is nearer
/// than what the thread last went to sleep for, and a call of the store sets one that is 2 s ahead.
async fn tick() {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
    }
}

/// Accepts until [`Stop::stopping`]. Then the socket is gone, and a caller is refused instead of waiting in its queue
/// for a gateway that is going.
pub async fn accept(listener: TcpListener, workers: Vec<Worker>, room: Arc<Semaphore>, stop: Stop) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.stopping.cancelled() => return,
            accepted = accept_one(&listener, &room) => accepted,
        };
        match accepted {
            Ok(accepted) => {
                let Some(worker) = workers.iter().min_by_key(|worker| worker.open.load(Ordering::Relaxed))
                else {
                    return;
                };
                worker.open.fetch_add(1, Ordering::Relaxed);
                // Refused only by a worker that could not start, which has said so.
                let _ = worker.handed.send(accepted);
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
async fn accept_one(listener: &TcpListener, room: &Arc<Semaphore>) -> io::Result<Accepted> {
    let room = room.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(Accepted { stream: stream.into_std()?, peer, room })
}
