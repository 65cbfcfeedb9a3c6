//! What is large.

use std::sync::Arc;

use semel::testing::sample::{REMEMBER, REPLAY, run};
use semel::{Claim, Outcome, Settlement, Store, StoreError};
use semel_testbed::{Mariadb, Settings};

use super::{acquire, open, open_within};

fn complete_with(bytes: usize) -> Settlement {
    let outcome = Outcome { format: 0, bytes: vec![0x27; bytes].into() };
    Settlement::Complete { outcome, replay_for: REPLAY, remember_for: REMEMBER }
}

async fn server(packet: &str) -> Mariadb {
    Mariadb::start_with(Settings::fast().set("max-allowed-packet", packet)).await
}

#[tokio::test]
async fn large_outcomes_that_come_together_fit_into_the_servers_packet() {
    let server = server("4M").await;
    let store = Arc::new(open(&format!("{}?pool=2", server.url())).await);
    let mut leases = Vec::new();
    for number in 0..24u64 {
        leases.push(acquire(&store, &run(&format!("{number}"), number)).await);
    }
    let ends: Vec<_> = leases
        .into_iter()
        .enumerate()
        .map(|(number, lease)| {
            let store = Arc::clone(&store);
            let bytes = if number % 3 == 0 { 100 } else { 1 << 20 };
            tokio::spawn(async move { (bytes, store.settle(&lease, &complete_with(bytes)).await, lease) })
        })
        .collect();
    for end in ends {
        let (bytes, ended, lease) = end.await.expect("an end");
        ended.expect("it fits");
        match store.claim(&run(lease.key.as_str(), 99)).await.expect("a claim is answered") {
            Claim::Completed { outcome, .. } => assert_eq!(outcome.bytes.len(), bytes),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_outcome_that_the_server_cannot_take_is_refused_and_hurts_no_other() {
    let server = server("4M").await;
    let store = open(&format!("{}?pool=2", server.url())).await;
    let (large, small) = (acquire(&store, &run("large", 1)).await, acquire(&store, &run("small", 2)).await);
    let (too_large, done) = (complete_with(5 << 20), complete_with(5));
    let (refused, ended) = tokio::join!(store.settle(&large, &too_large), store.settle(&small, &done));
    match refused {
        Err(StoreError::Refused(cause)) => {
            assert!(cause.to_string().contains("max_allowed_packet"), "{cause}")
        }
        other => panic!("{other:?}"),
    }
    ended.expect("the other one ends");
    // It still runs, and may end otherwise.
    store.settle(&large, &complete_with(1)).await.expect("an end");
}

#[tokio::test]
async fn a_server_that_takes_too_little_is_not_opened() {
    let server = server("1M").await;
    let error = open_within(&server.url(), super::PATIENT).await.expect_err("it is too little");
    assert!(error.contains("max_allowed_packet"), "{error}");
}
