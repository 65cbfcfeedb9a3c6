//! What a plain MariaDB client does without Semel: the floor of `./bench stores`.
//!
//! `cargo run --release -p semel-store --features mysql --example plain URL [SECONDS] [CONNECTIONS]`
//!
//! Each connection inserts a fresh key and then updates it with an outcome of 320 bytes, both prepared and each
//! committed by itself, and goes on to the next. The line printed is that of the example `throughput`.

use std::io::Write;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use semel::{AttemptId, BoxError, Entropy};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS plain (name VARBINARY(255) NOT NULL, scope VARBINARY(255) NOT NULL, \
    state TINYINT NOT NULL, attempt BINARY(16) NOT NULL, digest BINARY(32) NOT NULL, until BIGINT NOT NULL, \
    outcome MEDIUMBLOB, PRIMARY KEY (name, scope)) ENGINE = InnoDB";
const CLAIM: &str =
    "INSERT IGNORE INTO plain (name, scope, state, attempt, digest, until) VALUES (?, ?, 1, ?, ?, ?)";
const SETTLE: &str = "UPDATE plain SET state = 3, outcome = ?, until = ? WHERE name = ? AND scope = ? AND attempt = ? AND state = 1";
const SCOPE: &str = "http:default:anonymous";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("the first argument is a URL")?;
    let time = Duration::from_secs(arguments.next().map_or(Ok(3), |text| text.parse())?);
    let connections: usize = arguments.next().map_or(Ok(16), |text| text.parse())?;
    let options = Opts::from_url(&url)?;
    Conn::new(options.clone()).await?.query_drop(TABLE).await?;
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(Conn::new(options.clone()).await?);
    }
    let begun = Instant::now();
    let tasks: Vec<_> = open.into_iter().map(|conn| tokio::spawn(pairs(conn, begun + time))).collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    took.sort();
    let elapsed = begun.elapsed().as_secs_f64();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_micros();
    let rate = took.len() as f64 / elapsed;
    writeln!(std::io::stdout(), "{connections:7} {rate:9.0} {:8} {:8} {:8}", at(0.5), at(0.99), at(1.0))?;
    Ok(())
}

async fn pairs(mut conn: Conn, until: Instant) -> Result<Vec<Duration>, BoxError> {
    let (claim, settle) = (conn.prep(CLAIM).await?, conn.prep(SETTLE).await?);
    let entropy = Entropy::system();
    let mut took = Vec::new();
    while Instant::now() < until {
        let begun = Instant::now();
        let attempt = AttemptId::random(&entropy);
        let (name, id) = (attempt.to_string(), attempt.0.to_vec());
        conn.exec_drop(&claim, (&name, SCOPE, &id, vec![7_u8; 32], 30_000)).await?;
        conn.exec_drop(&settle, (vec![b'x'; 320], 86_400_000, &name, SCOPE, &id)).await?;
        took.push(begun.elapsed());
    }
    Ok(took)
}
