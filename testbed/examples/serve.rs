//! Starts a server for a measurement, durable and empty, and keeps it until standard input ends.
//!
//! `cargo run -p semel-testbed --example serve -- postgres|mariadb|redis|rabbitmq`
//!
//! Its first line is the URL. The data lies in the system's folder for temporary files: set `TMPDIR` to measure another
//! disk.

use std::io::{Read, Write};

use semel_testbed::{Mariadb, Postgres, Rabbitmq, Redis, Settings};

#[tokio::main]
async fn main() {
    let kind = std::env::args().nth(1).unwrap_or_default();
    match kind.as_str() {
        "postgres" => {
            let settings = Settings::durable().set("shared_buffers", "1GB").set("max_wal_size", "8GB");
            let server = Postgres::start_with(settings).await;
            until_told(&server.url());
        }
        "mariadb" => {
            let settings =
                Settings::durable().set("innodb_buffer_pool_size", "1G").set("innodb_log_file_size", "1G");
            let server = Mariadb::start_with(settings).await;
            until_told(&server.url());
        }
        "redis" => {
            let server = Redis::start_with(Settings::durable()).await;
            until_told(&server.url());
        }
        "redis-everysec" => {
            let server = Redis::start().await;
            until_told(&server.url());
        }
        "rabbitmq" => {
            let server = Rabbitmq::start().await;
            until_told(&server.url());
        }
        other => {
            eprintln!(
                "serve: {other:?} is no server; there are postgres, mariadb, redis, redis-everysec and rabbitmq"
            );
            std::process::exit(2);
        }
    }
}

/// Blocks this thread: nothing else is to be done.
fn until_told(url: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{url}").and_then(|()| out.flush()).expect("somebody listens");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
