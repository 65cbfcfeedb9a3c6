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

use semel::{Engine, Entropy, Instance, Swept};
use semel_http::{Routes, SemelLayer};
use semel_store::Connected;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_layer::Layer;

use crate::Failure;
use crate::admin::{self, Admin, Token};
use crate::cli;
use crate::config::{Config, Settings, layered};

mod answer;
mod auth_check;
mod connection;
mod contract;
mod cors;
mod forward;
mod framing;
mod front;
mod jwks;
mod opening;
mod page;
pub(crate) mod place;
mod policy;
pub(crate) mod probe;
mod stall;
mod statement;
mod streams;
mod switch;
mod tap;
pub(crate) mod telemetry;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
#[cfg_attr(not(feature = "otel"), path = "no_traces.rs")]
mod traces;
mod tunnel;
pub(crate) mod upstream;
mod worker;

use cors::Cors;
use forward::{Connectors, Forward};
use jwks::Fetching;
use page::Page;
use probe::Questions;
use statement::Statement;
use tls::Acceptor;
use traces::Exporting;
use worker::Worker;

/// How often space is freed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// How long the answers of runs that ended at the limit may take to be written.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Records freed in one go; between two of them the live path has its turn.
const SWEEP_LIMIT: u32 = 1_000;

/// `semel gateway`.
pub fn run(args: cli::Gateway) -> Result<(), Failure> {
    let settings = layered(args.settings, args.config.as_ref()).map_err(Failure::Usage)?;
    let checked = checked(settings)?;
    let _log = crate::log::start(checked.config.log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("no runtime: {error}")))?;
    runtime.block_on(serve(checked))
}

/// Settings that a gateway can be started with, and the files that they name, read.
pub struct Checked {
    pub config: Config,
    pub routes: Routes,
    connectors: Connectors,
    questions: Questions,
    tls: Option<Acceptor>,
    admin_token: Option<Token>,
    exporting: Exporting,
}

/// Whatever a gateway would refuse of its settings at its start, before anything is opened: `semel check-config`
/// refuses the same, in the same words.
///
/// # Errors
///
/// One line that says what does not fit.
pub fn checked(settings: Settings) -> Result<Checked, Failure> {
    let config = settings.resolve().map_err(Failure::Usage)?;
    let tls = config.tls.clone().map(Acceptor::load).transpose().map_err(Failure::Usage)?;
    let connectors = Connectors::load(&config).map_err(Failure::Usage)?;
    let questions = Questions::new(&config, &connectors);
    let routes = contract::routes(&config, &questions).map_err(Failure::Usage)?;
    let admin_token = config.admin_token_file.as_deref().map(Token::read).transpose();
    let admin_token = admin_token.map_err(Failure::Usage)?;
    let exporting = Exporting::new(&config).map_err(Failure::Usage)?;
    // Reads the URL, and opens nothing.
    semel_store::migrations(&config.store)?;
    Ok(Checked { config, routes, connectors, questions, tls, admin_token, exporting })
}

async fn serve(checked: Checked) -> Result<(), Failure> {
    let Checked { config, routes, connectors, questions, tls, admin_token, exporting } = checked;
    let metrics = telemetry::install().map_err(|error| Failure::Failed(format!("metrics: {error}")))?;
    let store = open(&config).await?;
    contract::check_store(&config, store.lossy).map_err(Failure::Usage)?;
    let engine = Engine::new(crate::failpoint::around(store.store.clone()), Entropy::system());
    let instance = config.instance.clone().unwrap_or_else(host_and_process);
    let engine = engine.with_bounds(config.bounds).with_instance(Instance::named(&instance));
    let engine = engine.with_history(store.history.clone());
    let traces = exporting.start().map_err(Failure::Failed)?;
    engine.register_metrics();
    routes.register_metrics();
    telemetry::register_connections();
    let statement = Arc::new(Statement::new(&config, &instance, &store));
    let listener = listen(config.listen.0, "--listen")?;
    let admin_listener = listen(config.admin.0, "--admin")?;

    let stopping = CancellationToken::new();
    let said = serde_json::to_value(&*statement).unwrap_or_default();
    let verifier = config.tokens.as_ref().map(|tokens| tokens.verifier.clone());
    let admin = Admin {
        engine: engine.clone(),
        statement: ("gateway", Arc::new(said)),
        metrics,
        token: admin_token,
        waits_for: Arc::new(move || {
            let has_keys = verifier.as_ref().is_none_or(semel_http::Verifier::has_keys);
            (!has_keys).then_some("the keys of tokens could not be fetched yet (--jwks)")
        }),
        stopping: stopping.clone(),
    };
    let admin_address = admin_listener.local_addr().unwrap_or(config.admin.0);
    let admin_listener = tokio::net::TcpListener::from_std(admin_listener).map_err(no_listener)?;
    tokio::spawn(admin::serve(admin_listener, admin.clone()));
    tokio::spawn(telemetry::watch_for_ever(admin));
    let sweeper = tokio::spawn(sweep_for_ever(engine.clone()));
    if let Some(tokens) = config.tokens.clone() {
        let fetching = Fetching::start(tokens, config.upstream_idle).await.map_err(Failure::Failed)?;
        tokio::spawn(fetching.run());
    }
    let prober = tokio::spawn(questions.ask_for_ever(engine.clone(), config.service.clone()));
    if let Some(tls) = tls.clone() {
        // Before anything is announced: until it is caught, the signal would end the process.
        let hangup =
            signal(SignalKind::hangup()).map_err(|error| Failure::Failed(format!("SIGHUP: {error}")))?;
        tokio::spawn(reload_at(hangup, tls));
    }

    let address = listener.local_addr().unwrap_or(config.listen.0);
    let room = Arc::new(Semaphore::new(worker::room()));
    let stop = worker::Stop { stopping, stopped: CancellationToken::new(), connections: TaskTracker::new() };
    let page = Arc::new(Page::new(&config));
    let cors = Arc::new(Cors::of(&config));
    let mut threads = Vec::new();
    let mut workers = Vec::new();
    for number in 0..config.workers {
        // A worker's connections to the service are its own, so no request crosses a thread.
        let guarded = SemelLayer::new(engine.clone(), routes.clone()).layer(Forward::new(
            &config,
            &connectors,
            traces.clone(),
        ));
        let shared = worker::Shared {
            guarded,
            page: page.clone(),
            cors: cors.clone(),
            traces: traces.clone(),
            tls: tls.clone(),
            room: room.clone(),
            stop: stop.clone(),
        };
        let started = Worker::start(number, shared);
        let (worker, thread) =
            started.map_err(|error| Failure::Failed(format!("no thread for a worker: {error}")))?;
        workers.push(worker);
        threads.push(thread);
    }
    let listener = tokio::net::TcpListener::from_std(listener).map_err(no_listener)?;
    tokio::spawn(worker::accept(listener, workers, room, stop.clone()));
    for limit in statement::of_callers(&config) {
        tracing::warn!("{limit}");
    }
    announce(&statement, address, tls.is_some(), admin_address);

    wait_for_signal().await;
    sweeper.abort();
    prober.abort();
    drain(&config, &engine, &stop).await;
    traces.flush().await;
    let _ =
        tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join()))).await;
    Ok(())
}

/// The name of a gateway that was given none: no other process of this host has it, and the next one has another.
pub(crate) fn host_and_process() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}:{}", std::process::id())
}

/// Opens the store, and brings its schema up to date unless told not to.
async fn open(config: &Config) -> Result<Connected, Failure> {
    let options = semel_store::Options { migrate: !config.no_migrate, ..semel_store::Options::default() };
    semel_store::connect(&config.store, &options).await.map_err(Failure::from)
}

/// A listening socket, bound before anything is announced.
pub(crate) fn listen(address: SocketAddr, flag: &str) -> Result<std::net::TcpListener, Failure> {
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

/// What is guarded, by what, and where it ends: before the first request.
fn announce(statement: &Statement, listen: SocketAddr, secure: bool, admin: SocketAddr) {
    let said = serde_json::to_string(statement).unwrap_or_default();
    tracing::info!(%listen, %admin, gateway = said, "ready");
    if io::IsTerminal::is_terminal(&io::stderr()) {
        let scheme = if secure { "https" } else { "http" };
        eprintln!(
            "semel: {scheme}://{listen} guards {}, admin on http://{admin}\n\n{}\nCallers read it at {}\n",
            statement.upstream,
            statement.text(),
            page::POLICY_PATH
        );
    }
}

pub(crate) async fn wait_for_signal() {
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

/// SIGHUP reads the certificate again, and those of who may sign the callers'.
async fn reload_at(mut hangup: Signal, tls: Acceptor) {
    while hangup.recv().await.is_some() {
        match tls.reload() {
            Ok(()) => tracing::info!("the certificate was read again"),
            Err(error) => tracing::error!(error, "the certificate stays as it was"),
        }
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
pub(crate) async fn sweep_for_ever(engine: Engine) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let mut swept = Swept::default();
        let ended = loop {
            match engine.sweep(SWEEP_LIMIT).await {
                Ok(piece) => {
                    swept.outcomes = swept.outcomes.saturating_add(piece.outcomes);
                    swept.records = swept.records.saturating_add(piece.records);
                    if piece.total() < SWEEP_LIMIT {
                        break true;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "sweep");
                    break false;
                }
            }
        };
        if ended {
            telemetry::swept(swept);
        }
    }
}

pub(crate) fn no_listener(error: io::Error) -> Failure {
    Failure::Failed(format!("cannot listen: {error}"))
}
