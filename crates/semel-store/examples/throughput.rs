//! Claims and settlements per second on a SQLite file.
//!
//! `cargo run --release -p semel-store --example throughput [SECONDS] [DIRECTORY]`
//!
//! Each caller claims a fresh key, settles it with an outcome of 320 bytes, and goes on to the next. Printed for
//! each number of callers: pairs a second, the latency of one pair, and the processor time of the whole process.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::{
    Algorithm, AttemptId, BoxError, Claim, ClaimRequest, Entropy, Fingerprint, Key, Label, Outcome, Purpose,
    Scope, Settlement, Store,
};
use semel_store::{Options, connect};

const CALLERS: [usize; 4] = [1, 8, 32, 128];
const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let directory = arguments.next().unwrap_or_else(|| ".".to_owned());
    let mut out = std::io::stdout().lock();
    writeln!(out, "callers   pairs/s   p50 µs   p99 µs   max µs   processor s/s")?;
    for callers in CALLERS {
        let directory = tempfile::tempdir_in(&directory)?;
        let run = run(directory.path(), callers, Duration::from_secs(seconds)).await?;
        writeln!(out, "{callers:7} {run}")?;
    }
    replays(&mut out, Duration::from_secs(seconds), &directory).await
}

async fn run(directory: &Path, callers: usize, time: Duration) -> Result<String, BoxError> {
    let url = format!("sqlite://{}/semel.db", directory.display());
    let store = connect(&url, &Options { migrate: true, ..Options::default() }).await?.store;
    let (begun, before) = (Instant::now(), processor_seconds());
    let tasks: Vec<_> = (0..callers).map(|_| tokio::spawn(pairs(Arc::clone(&store), begun + time))).collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    let elapsed = begun.elapsed().as_secs_f64();
    Ok(line(took, elapsed, processor_seconds() - before))
}

fn line(mut took: Vec<Duration>, elapsed: f64, processor: f64) -> String {
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_micros();
    format!(
        "{:9.0} {:8} {:8} {:8} {:15.2}",
        took.len() as f64 / elapsed,
        at(0.5),
        at(0.99),
        at(1.0),
        processor / elapsed
    )
}

async fn pairs(store: Arc<dyn Store>, until: Instant) -> Result<Vec<Duration>, BoxError> {
    let entropy = Entropy::system();
    let mut took = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        let request = request(&entropy);
        let Claim::Acquired(lease) = store.claim(&request).await? else {
            return Err("a fresh key was taken".into());
        };
        store.settle(&lease, &complete()).await?;
        took.push(begun.elapsed());
    }
    Ok(took)
}

/// One completed key, asked for again and again.
async fn replays(out: &mut impl Write, time: Duration, directory: &str) -> Result<(), BoxError> {
    let directory = tempfile::tempdir_in(directory)?;
    let url = format!("sqlite://{}/semel.db", directory.path().display());
    let store = connect(&url, &Options { migrate: true, ..Options::default() }).await?.store;
    let first = request(&Entropy::system());
    let Claim::Acquired(lease) = store.claim(&first).await? else {
        return Err("a fresh key was taken".into());
    };
    store.settle(&lease, &complete()).await?;
    let (begun, before) = (Instant::now(), processor_seconds());
    let again = ClaimRequest { attempt: AttemptId::random(&Entropy::system()), ..first };
    let mut took = Vec::new();
    while begun.elapsed() < time {
        let begun = Instant::now();
        let Claim::Completed { .. } = store.claim(&again).await? else { return Err("no replay".into()) };
        took.push(begun.elapsed());
    }
    let elapsed = begun.elapsed().as_secs_f64();
    writeln!(out, "replays {}", line(took, elapsed, processor_seconds() - before))?;
    Ok(())
}

fn request(entropy: &Entropy) -> ClaimRequest {
    let attempt = AttemptId::random(entropy);
    let key: String = attempt.0.iter().map(|byte| format!("{byte:02x}")).collect();
    ClaimRequest {
        scope: Scope::new("http:default:anonymous").expect("a scope"),
        key: Key::new(key).expect("a key"),
        attempt,
        purpose: Purpose::Run {
            fingerprint: Fingerprint { algorithm: Algorithm::EXACT, digest: [7; 32] },
            rerun: false,
            attempts_max: 10,
        },
        lease_for: Duration::from_secs(30),
        label: Label::new("POST /charges"),
        input: None,
    }
}

fn complete() -> Settlement {
    Settlement::Complete { outcome: Outcome::value(vec![b'x'; 320]), replay_for: DAY, remember_for: 30 * DAY }
}

/// User and system time of this process, where the system tells.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}
