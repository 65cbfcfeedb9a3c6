//! The gateway: puts the parts together, starts them, and stops them in order.
//!
//! ```text
//! caller -> worker -> front -> semel-http (name, claim, answer) -> engine (run, settle) -> forward -> service
//!                                                  |                   |
//!                                                  +------ store ------+
//! ```
//!
//! Start: settings, store, migration, addresses, then "ready". Stop (SIGTERM or SIGINT): not ready, no new
//! connections, no new runs; what runs is waited for up to `drain_for`, then parked.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use semel::{Engine, Entropy};
use semel_http::{Routes, Semel, SemelLayer};
use semel_store::Connected;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_layer::Layer;

use crate::Failure;
use crate::admin::{self, Admin};
use crate::cli;
use crate::config::{Config, LogLevel, layered};

mod contract;
mod cors;
mod forward;
mod framing;
mod front;
mod page;
mod stall;
mod statement;
mod upstream;
mod worker;

pub use statement::Statement;

use cors::Cors;
use forward::Forward;
use page::Page;
use upstream::Connections;

/// How often space is freed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// How long the answers of runs that ended at the limit may take to be written.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Records freed in one go; between two of them the live path has its turn.
const SWEEP_LIMIT: u32 = 1_000;

/// `semel gateway`.
pub fn run(args: cli::Gateway) -> Result<(), Failure> {
    let settings = layered(args.settings, args.config.as_ref()).map_err(Failure::Usage)?;
    let level = settings.log.unwrap_or(LogLevel::Info);
    let config = settings.resolve().map_err(Failure::Usage)?;
    let _log = crate::log::start(level);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("no runtime: {error}")))?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<(), Failure> {
    let metrics = PrometheusBuilder::new().install_recorder();
    let metrics = metrics.map_err(|error| Failure::Failed(format!("metrics: {error}")))?;
    describe_metrics();
    let routes = contract::routes(&config).map_err(Failure::Usage)?;
    let store = open(&config).await?;
    let engine = Engine::new(crate::failpoint::around(store.store.clone()), Entropy::system());
    let statement = Arc::new(Statement::new(&config, store.shared));
    let listener = listen(config.listen.0, "--listen")?;
    let admin_listener = listen(config.admin.0, "--admin")?;

    let stopping = CancellationToken::new();
    let admin =
        Admin { engine: engine.clone(), statement: statement.clone(), metrics, stopping: stopping.clone() };
    let admin_address = admin_listener.local_addr().unwrap_or(config.admin.0);
    let admin_listener = tokio::net::TcpListener::from_std(admin_listener).map_err(no_listener)?;
    tokio::spawn(admin::serve(admin_listener, admin));
    let sweeper = tokio::spawn(sweep_for_ever(engine.clone()));

    let address = listener.local_addr().unwrap_or(config.listen.0);
    let room = Arc::new(Semaphore::new(worker::room()));
    let stop = worker::Stop { stopping, stopped: CancellationToken::new(), connections: TaskTracker::new() };
    let page = Arc::new(Page::new(&statement));
    let cors = Arc::new(Cors::new(&config.cors_origins, config.cors_credentials));
    let workers = (0..config.workers)
        .map(|number| {
            // A worker's connections to the service are its own, so no request crosses a thread.
            let guarded = guarded(&config, &engine, &routes);
            let shared = worker::Shared {
                guarded,
                page: page.clone(),
                cors: cors.clone(),
                room: room.clone(),
                stop: stop.clone(),
            };
            let listener = listener.try_clone().map_err(no_listener)?;
            start_worker(number, listener, shared)
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    // The workers' handles are the only ones left: when they stop accepting, a caller is refused, instead of
    // waiting in the socket's queue for a gateway that is going.
    drop(listener);
    announce(&statement, address, admin_address);

    wait_for_signal().await;
    sweeper.abort();
    drain(&config, &engine, &stop).await;
    let _ =
        tokio::task::spawn_blocking(move || workers.into_iter().for_each(|worker| drop(worker.join()))).await;
    Ok(())
}

/// What each metric means, for whoever reads `/metrics`.
fn describe_metrics() {
    for (name, meaning) in semel::observe::METRICS.iter().chain(semel_http::METRICS) {
        if name.ends_with("_total") {
            metrics::describe_counter!(*name, *meaning);
        } else {
            metrics::describe_gauge!(*name, *meaning);
        }
    }
}

/// Opens the store, and brings its schema up to date unless told not to.
async fn open(config: &Config) -> Result<Connected, Failure> {
    let options = semel_store::Options { migrate: !config.no_migrate, ..semel_store::Options::default() };
    semel_store::connect(&config.store, &options).await.map_err(Failure::from)
}

/// A listening socket, bound before anything is announced.
fn listen(address: SocketAddr, flag: &str) -> Result<std::net::TcpListener, Failure> {
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        Failure::Failed(match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("{flag}: {address} is taken by another process; give another address")
            }
            _ => format!("{flag}: cannot listen on {address}: {error}"),
        })
    })
}

/// The contract around the way to the service.
fn guarded(config: &Config, engine: &Engine, routes: &Routes) -> Semel<Forward> {
    let layer = SemelLayer::new(engine.clone(), routes.clone());
    let connections = Connections::new(config.otherwise.upstream.clone(), config.upstream_idle);
    layer.layer(Forward::new(connections, config.otherwise.upstream_timeout))
}

fn start_worker(
    number: usize,
    listener: std::net::TcpListener,
    shared: worker::Shared,
) -> Result<std::thread::JoinHandle<()>, Failure> {
    let serve = move || {
        if let Err(error) = worker::run(listener, &shared) {
            tracing::error!(%error, "a worker could not start");
        }
    };
    let started = std::thread::Builder::new().name(format!("worker-{number}")).spawn(serve);
    started.map_err(|error| Failure::Failed(format!("no thread for a worker: {error}")))
}

/// What is guarded, by what, and where it ends: before the first request.
fn announce(statement: &Statement, listen: SocketAddr, admin: SocketAddr) {
    let said = serde_json::to_string(statement).unwrap_or_default();
    tracing::info!(%listen, %admin, gateway = said, "ready");
    tracing::warn!(
        "requests without Authorization share the scope 'anonymous'; a token that changes between a request and its \
         retry makes another operation of it"
    );
    if io::IsTerminal::is_terminal(&io::stderr()) {
        eprintln!(
            "semel: http://{listen} guards {}, admin on http://{admin}\n\n{}",
            statement.upstream,
            statement.page()
        );
    }
}

async fn wait_for_signal() {
    let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
        tracing::error!("no signal can be received: stop with SIGKILL, which loses nothing");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Not ready, no new connections, no new runs; then as long as it takes, up to the limit: runs, and answers that
/// are still on their way.
async fn drain(config: &Config, engine: &Engine, stop: &worker::Stop) {
    tracing::info!(running = stop.connections.len(), "stopping");
    stop.stopping.cancel();
    stop.connections.close();
    let begun = std::time::Instant::now();
    let parked = engine.drain(config.drain_for).await;
    let left = config.drain_for.saturating_sub(begun.elapsed()).max(ANSWER_WITHIN);
    let _ = tokio::time::timeout(left, stop.connections.wait()).await;
    tracing::info!(parked, "stopped");
    stop.stopped.cancel();
}

/// Frees space, in small pieces. Nothing waits for it: expiry is judged when a key is claimed.
async fn sweep_for_ever(engine: Engine) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        loop {
            match engine.sweep(SWEEP_LIMIT).await {
                Ok(swept) if swept.total() >= SWEEP_LIMIT => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "sweep");
                    break;
                }
            }
        }
    }
}

fn no_listener(error: io::Error) -> Failure {
    Failure::Failed(format!("cannot listen: {error}"))
}
