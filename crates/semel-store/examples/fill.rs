//! Fills a SQLite file with completed keys, to see what a large one costs.
//!
//! `cargo run --release -p semel-store --example fill FILE COUNT`
//!
//! The store completes one key; the others are copies of its row under random keys, so that this program knows nothing
//! of what a row holds. Some minutes and 6 GB for ten million.

use std::io::Write;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use semel::{
    Algorithm, AttemptId, BoxError, Claim, ClaimRequest, Entropy, Fingerprint, Key, Label, Outcome, Purpose,
    Scope, Settlement,
};
use semel_store::{Options, connect};

const DAY: Duration = Duration::from_secs(86_400);

/// Rows in one transaction.
const PORTION: u32 = 200_000;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let (Some(file), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("fill FILE COUNT".into());
    };
    let mut count: u32 = count.parse()?;
    let mut out = std::io::stdout().lock();
    let begun = Instant::now();
    complete_one(&file).await?;
    let connection = Connection::open(&file)?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000")?;
    let copy = copy(&connection)?;
    while count > 0 {
        let portion = count.min(PORTION);
        connection.execute(&copy, [portion])?;
        count -= portion;
        writeln!(out, "{:6.1} s, {count} to go", begun.elapsed().as_secs_f64())?;
    }
    connection.execute(
        "INSERT INTO due SELECT id >> 6, min(sweep_at) FROM settled WHERE sweep_at IS NOT NULL GROUP BY id >> 6
         ON CONFLICT DO NOTHING",
        [],
    )?;
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    writeln!(out, "{:6.1} s in all", begun.elapsed().as_secs_f64())?;
    Ok(())
}

/// What one key is made of, under the names that [`copy`] changes.
async fn complete_one(file: &str) -> Result<(), BoxError> {
    let options = Options { migrate: true, ..Options::default() };
    let store = connect(&format!("sqlite://{file}"), &options).await?.store;
    let request = ClaimRequest {
        scope: Scope::new("http:default:anonymous")?,
        key: Key::new("template")?,
        attempt: AttemptId::random(&Entropy::system()),
        purpose: Purpose::Run {
            fingerprint: Fingerprint { algorithm: Algorithm::EXACT, digest: [7; 32] },
            rerun: false,
            attempts_max: 10,
        },
        lease_for: Duration::from_secs(30),
        label: Label::new("POST /charges"),
        input: None,
    };
    if let Claim::Acquired(lease) = store.claim(&request).await? {
        let outcome = Outcome::value(vec![b'x'; 320]);
        let settlement = Settlement::Complete { outcome, replay_for: DAY, remember_for: 30 * DAY };
        store.settle(&lease, &settlement).await?;
    }
    Ok(())
}

/// The statement that makes so many copies under random keys. The columns are the table's, whatever they are.
fn copy(connection: &Connection) -> rusqlite::Result<String> {
    let mut names = connection
        .prepare("SELECT name FROM pragma_table_info('settled') WHERE name NOT IN ('id', 'key')")?;
    let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let names = names.join(", ");
    Ok(format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO settled (key, {names}) SELECT lower(hex(randomblob(16))), {names} FROM n, settled WHERE key = 'template'"
    ))
}
