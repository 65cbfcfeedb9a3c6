//! `semel demo`: what retries do to a service that charges on every request, and what changes with a gateway in front.
//!
//! What is real:
//!
//! 1. Processes and sockets. The service is a child process, the gateway is `semel gateway` with a TOML file and an
//!    SQLite file, and both listen on free ports of 127.0.0.1. Every request of a client is a connection of its own.
//! 2. The faults. A client that hangs up closes its socket, an answer that is lost is a connection that the service
//!    closes, and the gateway is killed by SIGKILL while a request is with the service, and started again on the same
//!    file. The straight run has one fault less: nothing is killed there.
//! 3. The figures. Requests, charges and questions are counted by the service and read from it over HTTP at the end;
//!    answers are counted where they arrive. Nothing is computed from what should have happened.
//!
//! What is simulated: the service, and the clients' reasons. What happens to an order follows from the seed alone, so it
//! is the same in both runs; when, follows from the machine. The times are short so that the demo is: a real lease is
//! 30 s, not 2 s.
//!
//! What it does not show: how often such faults occur (here in four of ten orders, to be seen in seconds), how fast the
//! gateway is (`./bench gateway`), and a service that cannot be asked whether it charged: there the key waits for a
//! person.
//!
//! In the end every order must be charged exactly once through the gateway, and each of its answers must name that
//! charge; else the exit code is 1, with what is wrong. No process and no file is left behind, whatever ends the demo: a
//! child is killed by its own id when it is dropped, and on Linux also when this process is killed, which alone leaves
//! the directory.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::Failure;
use crate::cli::{Demo, DemoChild, DemoPart};
use crate::terminal::Terminal;

mod audit;
mod client;
mod ledger;
mod picture;
mod report;
mod service;
mod stage;
mod story;
mod wire;

use audit::{Figures, Outcome};
use client::{Carried, Storm};
use ledger::Ledger;
use stage::{Child, Directory, Stage};
use story::Story;

/// The runs, as their progress names them.
const STRAIGHT: &str = "1 straight at the service";
const GUARDED: &str = "2 through the gateway";

/// How long the gateway stays down: long enough to be seen by clients.
const DOWN: Duration = Duration::from_millis(700);

/// How often the progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What keys of finished orders may still be open for: a key whose answer was true before it was written.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// One run of all orders.
#[derive(Debug)]
pub struct Run {
    /// What the clients saw.
    pub carried: Vec<Carried>,
    /// What the service counted.
    pub ledger: Ledger,
    /// When the gateway was killed, and was ready again.
    pub death: Option<(SystemTime, SystemTime)>,
}

/// `semel demo`.
pub fn run(args: Demo) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        // Before the first child: a signal from then on ends this future, and so the children.
        let stopped = stopped()?;
        let terminal = Terminal::new(args.json);
        let within = Duration::from_secs(args.seconds);
        let ended = tokio::select! {
            done = tokio::time::timeout(within, demo(&args, &terminal)) => {
                done.unwrap_or_else(|_| Err(Failure::Failed(format!("the demo did not end within {within:?}"))))
            }
            name = stopped => Err(Failure::Failed(format!("stopped by {name}"))),
        };
        terminal.end_status();
        ended
    })
}

/// `semel demo-child`.
pub fn child(args: DemoChild) -> Result<(), Failure> {
    stage::end_with_parent();
    match args.part {
        DemoPart::Service { listen, seed, orders } => service::serve(listen, &Story::new(seed, orders)),
        DemoPart::Gateway { config } => stage::become_gateway(&config),
    }
}

/// The signal that asks this process to end.
fn stopped() -> Result<impl Future<Output = &'static str>, Failure> {
    let caught = |kind| signal(kind).map_err(|error| Failure::Failed(format!("signals: {error}")));
    let mut interrupt = caught(SignalKind::interrupt())?;
    let mut terminate = caught(SignalKind::terminate())?;
    let mut hangup = caught(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            _ = hangup.recv() => "SIGHUP",
        }
    })
}

async fn demo(args: &Demo, terminal: &Terminal) -> Result<(), Failure> {
    let story = Story::new(args.seed.unwrap_or_else(story::seed_of_now), args.orders);
    let directory = Directory::new(args.keep.as_deref())?;
    let stage = Stage::new(directory, story.clone());
    for line in report::beginning(&story, args.keep.as_deref()) {
        terminal.line(&line)?;
    }
    let begun = std::time::Instant::now();
    let straight = straight(&stage, terminal).await?;
    let guarded = guarded(&stage, terminal).await?;
    let outcome = Outcome {
        seconds: begun.elapsed().as_secs_f64(),
        straight: Figures::of(&straight),
        guarded: Figures::of(&guarded),
        wrong: audit::wrong(&story, &guarded, &stage.keys(SETTLED_WITHIN).await?),
    };
    if args.json {
        report::json(&story, &outcome)?;
    } else {
        terminal.line("")?;
        let mut lines = report::table(&outcome, terminal);
        lines.extend(picture::charges(&story, &straight, &guarded, terminal));
        lines.extend(picture::one_order(&story, &straight, &guarded, terminal));
        lines.extend(report::ending(&story, &outcome, args.keep.as_deref(), terminal));
        lines.iter().try_for_each(|line| terminal.line(line))?;
    }
    match outcome.wrong.as_slice() {
        [] => Ok(()),
        wrong => Err(Failure::Failed(format!("it did not come out right: {}", report::few(wrong)))),
    }
}

/// The clients straight at the service.
async fn straight(stage: &Stage, terminal: &Terminal) -> Result<Run, Failure> {
    let service = stage.service("straight").await?;
    let children = RefCell::new(vec![service.child]);
    let storm = Storm::new(stage.story(), service.address);
    terminal.begins(&format!("{STRAIGHT}, {} orders", storm.orders()))?;
    let carried = tokio::select! {
        carried = storm.run() => carried,
        failure = watch(STRAIGHT, &storm, service.address, &children, terminal) => return Err(failure),
    };
    let ledger = stage.ledger("straight", service.address).await?;
    terminal.line(&progress(STRAIGHT, &storm, &ledger.summary()))?;
    Ok(Run { carried, ledger, death: None })
}

/// The same clients through the gateway, which dies in the middle.
async fn guarded(stage: &Stage, terminal: &Terminal) -> Result<Run, Failure> {
    let service = stage.service("semel").await?;
    let gateway = stage.gateway(service.address).await?;
    let address = gateway.address;
    let children = RefCell::new(vec![service.child, gateway.child]);
    let storm = Storm::new(stage.story(), address);
    terminal.begins(&format!("{GUARDED}, {} orders", storm.orders()))?;
    let both = async {
        let all_carried = async { Ok(storm.run().await) };
        tokio::try_join!(all_carried, die_and_return(stage, &storm, service.address, &children, terminal))
    };
    let (carried, death) = tokio::select! {
        both = both => both?,
        failure = watch(GUARDED, &storm, service.address, &children, terminal) => return Err(failure),
    };
    let ledger = stage.ledger("semel", service.address).await?;
    terminal.line(&progress(GUARDED, &storm, &ledger.summary()))?;
    Ok(Run { carried, ledger, death: Some(death) })
}

/// Kills the gateway when one order's request is with the service, charged and not yet answered, and its client is
/// gone. Starts it again on the same file and the same address.
async fn die_and_return(
    stage: &Stage,
    storm: &Storm<'_>,
    service: SocketAddr,
    children: &RefCell<Vec<Child>>,
    terminal: &Terminal,
) -> Result<(SystemTime, SystemTime), Failure> {
    storm.witness_hung_up().await;
    while ledger::charge_of(service, &stage.story().witness().key).await.is_none() {
        sleep(Duration::from_millis(5)).await;
    }
    // It is the last one. Dropping it kills it.
    let killed = children.borrow_mut().pop();
    let id = killed.as_ref().map_or(0, Child::id);
    drop(killed);
    let died = SystemTime::now();
    terminal.line(&format!("  the gateway (process {id}) was killed with requests under way: kill -9"))?;
    sleep(DOWN).await;
    let gateway = stage.gateway_again().await?;
    let id = gateway.child.id();
    children.borrow_mut().push(gateway.child);
    terminal.line(&format!("  the gateway (process {id}) was started again on the same file"))?;
    Ok((died, SystemTime::now()))
}

/// Shows how far it is. Ends only when something is wrong: a child that ended by itself, a terminal that is gone.
async fn watch(
    name: &str,
    storm: &Storm<'_>,
    service: SocketAddr,
    children: &RefCell<Vec<Child>>,
    terminal: &Terminal,
) -> Failure {
    loop {
        if let Some(failure) = children.borrow_mut().iter_mut().find_map(Child::ended) {
            return failure;
        }
        if let Some(summary) = ledger::summary(service).await
            && let Err(failure) = terminal.status(&progress(name, storm, &summary))
        {
            return failure;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// `1 straight at the service   [#####     ]  120 of 240 orders, 30 double charges`.
fn progress(name: &str, storm: &Storm<'_>, summary: &ledger::Summary) -> String {
    const WIDTH: usize = 10;
    let (done, all) = (storm.done(), storm.orders());
    let bar = "#".repeat(WIDTH * done / all.max(1));
    format!(
        "{name:<26}[{bar:<WIDTH$}] {done:>4} of {all} orders, {} double charges",
        summary.charges.saturating_sub(summary.orders_charged)
    )
}

/// Where something of this process's own went wrong.
fn failed(what: &str) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| Failure::Failed(format!("{what}: {error}"))
}
