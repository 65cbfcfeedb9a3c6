//! What is PostgreSQL's own: opening, text that is compared byte for byte, faults of the connection, other transactions, a
//! pooler, and the functions as any language calls them.

#![cfg(feature = "postgres")]

mod exact;
mod faults;
mod fit;
mod functions;
mod harness;
mod opening;
mod others;
mod pooler;

use std::time::Duration;

use semel::testing::sample;
use semel::{Claim, ClaimRequest, Lease, Store, StoreError};
use semel_store::Options;
use semel_store::postgres::PostgresStore;
use semel_testbed::DEADLINE;
use tokio_postgres::Client;

/// For calls that are to fail soon.
const HASTY: Duration = Duration::from_millis(700);

async fn open_within(url: &str, busy_for: Duration) -> Result<PostgresStore, String> {
    let options = Options { migrate: true, busy_for, ..Options::default() };
    PostgresStore::open(url, &options).await.map_err(|error| error.to_string())
}

async fn acquire(store: &dyn Store, request: &ClaimRequest) -> Lease {
    sample::lease(store.claim(request).await.expect("a claim is answered"))
}

async fn answer(store: &dyn Store, request: &ClaimRequest) -> &'static str {
    sample::name(&store.claim(request).await.expect("a claim is answered"))
}

/// Asks again while the answer is not known, as the engine does.
async fn claim_until_known(store: &dyn Store, request: &ClaimRequest) -> Claim {
    loop {
        match store.claim(request).await {
            Ok(claim) => return claim,
            Err(StoreError::Indeterminate(_) | StoreError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until so many sessions of the database wait for a lock of that kind.
async fn blocked(control: &Client, sessions: i64, event: &str) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
               AND wait_event_type = 'Lock' AND wait_event = $1";
    let seen = async {
        while control.query_one(sql, &[&event]).await.expect("the sessions").get::<_, i64>(0) < sessions {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, seen).await.expect("the sessions wait for a lock");
}
