//! Claims and settlements per second on a store.
//!
//! `cargo run --release -p semel-store --features full --example throughput [SECONDS] [PLACE] [CALLERS]`
//!
//! Each caller claims a fresh key, settles it with an outcome of 320 bytes, and goes on to the next. Printed for
//! each number of callers: pairs a second, the latency of one pair, and the processor time of the whole process. With
//! `CALLERS`, for that number only, and no replays.
//! `PLACE` is a store's URL; or a directory, in which a new SQLite file is made for each line; or a SQLite file that the
//! example `fill` has filled.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::{
    Algorithm, AttemptId, BoxError, Claim, ClaimRequest, Entropy, Fingerprint, Key, Label, Outcome, Purpose,
    Scope, Settlement, Store,
};
use semel_store::{Options, connect};
use tempfile::TempDir;

const CALLERS: [usize; 4] = [1, 8, 32, 128];
const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let time = Duration::from_secs(arguments.next().map_or(Ok(3), |text| text.parse())?);
    let place = arguments.next().unwrap_or_else(|| ".".to_owned());
    let callers = arguments.next().map(|text| text.parse()).transpose()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "callers   pairs/s   p50 µs   p99 µs   max µs   processor s/s   µs/pair")?;
    for callers in callers.map_or(CALLERS.to_vec(), |callers| vec![callers]) {
        let (store, _directory) = open(&place).await?;
        writeln!(out, "{callers:7} {}", run(&store, callers, time).await?)?;
    }
    if callers.is_none() {
        let (store, _directory) = open(&place).await?;
        writeln!(out, "replays {}", replays(store.as_ref(), time).await?)?;
    }
    Ok(())
}

/// What the URL or the file names, or a new file in the directory, which lasts as long as what is given with it.
async fn open(place: &str) -> Result<(Arc<dyn Store>, Option<TempDir>), BoxError> {
    let options = Options { migrate: true, ..Options::default() };
    if place.contains("://") {
        return Ok((connect(place, &options).await?.store, None));
    }
    let place = Path::new(place);
    let directory = place.is_dir().then(|| tempfile::tempdir_in(place)).transpose()?;
    let file = directory.as_ref().map_or(place.to_owned(), |directory| directory.path().join("semel.db"));
    let url = format!("sqlite://{}", file.display());
    Ok((connect(&url, &options).await?.store, directory))
}

async fn run(store: &Arc<dyn Store>, callers: usize, time: Duration) -> Result<String, BoxError> {
    let (begun, before) = (Instant::now(), processor_seconds());
    let tasks: Vec<_> = (0..callers).map(|_| tokio::spawn(pairs(Arc::clone(store), begun + time))).collect();
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
        "{:9.0} {:8} {:8} {:8} {:15.2} {:9.1}",
        took.len() as f64 / elapsed,
        at(0.5),
        at(0.99),
        at(1.0),
        processor / elapsed,
        processor / took.len() as f64 * 1e6
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
async fn replays(store: &dyn Store, time: Duration) -> Result<String, BoxError> {
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
    Ok(line(took, begun.elapsed().as_secs_f64(), processor_seconds() - before))
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
