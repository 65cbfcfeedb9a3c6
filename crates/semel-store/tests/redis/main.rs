//! What is Redis's own: what it is opened on, and what happens when it does not answer.

#![cfg(feature = "redis")]

mod cluster;
mod exact;
mod faults;
mod full;
mod opening;
mod replicas;

use std::time::Duration;

use semel::testing::sample;
use semel::{ClaimRequest, Lease, Store};
use semel_store::Options;
use semel_store::redis::RedisStore;

/// Long enough for a machine that does much else, where a test does not wait for it to pass.
const PATIENT: Duration = Duration::from_secs(60);

/// Short, where a test waits for it to pass.
const HASTY: Duration = Duration::from_millis(300);

async fn open_within(url: &str, busy_for: Duration) -> Result<RedisStore, String> {
    let options = Options { busy_for, ..Options::default() };
    RedisStore::open(url, &options).await.map_err(|error| error.to_string())
}

async fn open(url: &str) -> RedisStore {
    open_within(url, PATIENT).await.expect("a store")
}

async fn acquire(store: &RedisStore, request: &ClaimRequest) -> Lease {
    sample::lease(store.claim(request).await.expect("a claim is answered"))
}

/// A connection beside the store's.
fn control(url: &str) -> ::redis::Connection {
    ::redis::Client::open(url).and_then(|client| client.get_connection()).expect("a connection")
}

/// One command of plain words.
#[track_caller]
fn tell<T: ::redis::FromRedisValue>(control: &mut ::redis::Connection, words: &str) -> T {
    let mut words = words.split_whitespace();
    let mut command = ::redis::cmd(words.next().expect("a word"));
    words.for_each(|word| {
        command.arg(word);
    });
    command.query(control).expect("the server does as it is told")
}
