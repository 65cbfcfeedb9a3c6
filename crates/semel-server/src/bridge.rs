//! `semel bridge`: messages of a broker become HTTP requests of a service in any language (M11).
//!
//! 1. **The consumer decides nothing about HTTP, and this decides nothing about messages.** Names, lanes, attempts, pauses
//!    and dead letters are those of [`semel_messaging::Consumer`]; what is here is a handler that sends a message as one
//!    request and says what its answer means (`bridge/service.rs`).
//! 2. **The message's id travels as `Idempotency-Key`**, the same on every attempt, with `Semel-Fence` and `Semel-Attempt`
//!    beside it (G2).
//! 3. **An answer means what it means behind the gateway** (H11): the same lists of statuses, `Semel-Outcome` over them.
//!    Whether a byte was sent is known by the same connections. A message whose service cannot be reached waits, and that
//!    is no attempt.
//! 4. **What is unknown** is parked by default: the message goes among the dead letters, reason `outcome-unknown`, and its
//!    key waits for a person. `probe` asks the service first (`bridge/question.rs`), `rerun` sends it again.
//! 5. Start: settings, store, migration, broker, then "ready"; a wrong password or a queue that is not there ends it with
//!    the broker's words. Stop (SIGTERM or SIGINT): nothing more is received, what runs is waited for up to `drain_for`
//!    and then parked.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use semel::observe::Metric;
use semel::{Engine, Entropy, Instance};
use semel_messaging::{Consumer, SourceError};
use semel_store::Connected;
use tokio_util::sync::CancellationToken;

use crate::Failure;
use crate::admin::{self, Admin, Token};
use crate::cli;
use crate::gateway::{self, telemetry};

mod broker;
mod config;
mod question;
mod service;
mod settings;
mod statement;
mod words;

pub use config::{Config, RabbitMqAt};
pub use settings::Settings;
pub use words::FieldWord;

use broker::Watched;
use question::Question;
use service::Service;
use statement::Statement;

/// What a bridge counts beside the consumer, the engine and what it has in common with the gateway.
pub const METRICS: &[Metric] =
    &[Metric::gauge("semel_broker_connected", "Whether there is a connection to the broker: 1 or 0.")];

/// `semel bridge`.
pub fn run(args: cli::Bridge) -> Result<(), Failure> {
    let file = args.config.clone();
    let config = config::read(args.settings, file.as_deref())?;
    let parts = Parts::new(&config).map_err(Failure::Usage)?;
    if args.check {
        return checked(&config, file.as_deref());
    }
    let _log = crate::log::start(config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("no runtime: {error}")))?;
    runtime.block_on(serve(config, parts))
}

/// What the settings name, read: before anything is opened.
struct Parts {
    service: Service,
    question: Option<Arc<Question>>,
    token: Option<Token>,
}

impl Parts {
    fn new(config: &Config) -> Result<Parts, String> {
        Ok(Parts {
            service: Service::new(config)?,
            question: Question::new(config)?.map(Arc::new),
            token: config.admin_token_file.as_deref().map(Token::read).transpose()?,
        })
    }
}

fn checked(config: &Config, file: Option<&std::path::Path>) -> Result<(), Failure> {
    let name = file.map_or_else(|| "what was given".to_owned(), |file| file.display().to_string());
    // The consumer's own conditions, on a store that is not opened.
    let nowhere = Arc::new(semel::MemoryStore::new());
    let source = config.source().map_err(|error| Failure::Usage(error.to_string()))?;
    let idle = |_: semel_messaging::Work| async { Ok::<(), semel_messaging::Failure>(()) };
    let builder = match Question::new(config).map_err(Failure::Usage)? {
        Some(question) => config.builder(Some(Arc::new(question))),
        None => config.builder(None),
    };
    builder.build(nowhere, Arc::new(source), idle).map_err(|unfit| Failure::Usage(unfit.to_string()))?;
    semel_store::migrations(&config.store)?;
    let said = Statement::new(config, None);
    writeln!(io::stdout(), "{name} is fine\n\n{}", said.text().trim_end()).map_err(crate::terminal::unwritten)
}

async fn serve(config: Config, parts: Parts) -> Result<(), Failure> {
    let Parts { service, question, token } = parts;
    let metrics = telemetry::install().map_err(|error| Failure::Failed(format!("metrics: {error}")))?;
    let store = open(&config).await?;
    let instance = config.instance.clone().unwrap_or_else(gateway::host_and_process);
    let engine = Engine::new(store.store.clone(), Entropy::system())
        .with_instance(Instance::named(&instance))
        .with_history(store.history.clone());
    engine.register_metrics();
    let statement = Statement::new(&config, Some(&store));
    let source = config.source().map_err(|error| Failure::Usage(error.to_string()))?;
    let source = Arc::new(Watched::new(source));
    let builder = config.builder(question.map(|question| question as Arc<dyn semel::Probe>));
    let builder = builder.instance(Instance::named(&instance)).history(store.history.clone());
    let consumer = builder.build(store.store.clone(), source.clone(), service);
    let consumer = consumer.map_err(|unfit| Failure::Usage(unfit.to_string()))?;

    let listener = gateway::listen(config.admin.0, "--admin")?;
    let admin_address = listener.local_addr().unwrap_or(config.admin.0);
    let listener = tokio::net::TcpListener::from_std(listener).map_err(gateway::no_listener)?;
    let (stopping, watched) = (CancellationToken::new(), source.clone());
    let admin = Admin {
        engine: engine.clone(),
        statement: ("bridge", Arc::new(statement.json())),
        metrics,
        token,
        waits_for: Arc::new(move || {
            (!watched.is_connected()).then_some("there is no connection to the broker")
        }),
        stopping: stopping.clone(),
    };
    tokio::spawn(admin::serve(listener, admin.clone()));
    tokio::spawn(telemetry::watch_for_ever(admin));
    tokio::spawn(gateway::sweep_for_ever(engine));
    tokio::spawn(source.clone().show_for_ever());
    let opened = source.clone();
    tokio::spawn(async move {
        opened.opened().await;
        announce(&statement, admin_address);
    });
    consume(consumer, stopping).await
}

/// Until a signal says to stop, or the broker says that it will never give anything.
async fn consume(consumer: Consumer, stopping: CancellationToken) -> Result<(), Failure> {
    let stop = async {
        gateway::wait_for_signal().await;
        tracing::info!("stopping");
        stopping.cancel();
    };
    let drained = consumer.run(stop).await.map_err(|error| Failure::Failed(said(&error)))?;
    tracing::info!(parked = drained.parked, "stopped");
    Ok(())
}

/// What a broker says, and what to do about it.
pub fn said(error: &SourceError) -> String {
    match error {
        SourceError::Unreachable { .. } => format!("--broker: {error}"),
        _ => error.to_string(),
    }
}

/// Opens the store, and brings its schema up to date unless told not to.
async fn open(config: &Config) -> Result<Connected, Failure> {
    let options = semel_store::Options { migrate: !config.no_migrate, ..semel_store::Options::default() };
    semel_store::connect(&config.store, &options).await.map_err(Failure::from)
}

fn announce(statement: &Statement, admin: SocketAddr) {
    let said = statement.json().to_string();
    tracing::info!(%admin, bridge = said, "ready");
    if io::stderr().is_terminal() {
        eprintln!("semel: {}, admin on http://{admin}\n\n{}", statement.title(), statement.text());
    }
}
