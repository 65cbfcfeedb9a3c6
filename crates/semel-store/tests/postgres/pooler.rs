//! Behind a pooler in transaction mode, where two statements of one client may go to two sessions.

use std::sync::Arc;

use semel::testing::sample::{complete, run};
use semel::{Claim, Store};
use semel_testbed::{Pgbouncer, Postgres, Settings};

use super::acquire;
use super::harness::{Mode, open, with_mode};

/// Eight clients on three sessions; each must hear what it asked for, and nobody else's answer.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_the_callers_own() {
    let server = Postgres::start().await;
    let settings = Settings::fast().set("default_pool_size", "3");
    let pooler = Pgbouncer::before_with(&server, settings).await;
    for mode in [Mode::Functions, Mode::Tables] {
        let mut clients = Vec::new();
        for client in 0..8_u64 {
            let store = open(&with_mode(&pooler.url(), mode)).await;
            for caller in 0..4 {
                let store = Arc::clone(&store);
                clients.push(tokio::spawn(async move {
                    for round in 0..25 {
                        let name = format!("{mode:?}-{client}-{caller}-{round}");
                        let lease = acquire(store.as_ref(), &run(&name, client)).await;
                        assert_eq!((lease.key.as_str(), lease.fence.0), (name.as_str(), 1));
                        store.settle(&lease, &complete(&name)).await.expect("it settles");
                        match store.claim(&run(&name, 99)).await.expect("an answer") {
                            Claim::Completed { outcome, .. } => assert_eq!(outcome.bytes, name),
                            other => panic!("{name}: {other:?}"),
                        }
                        let found =
                            store.find(&lease.scope, &lease.key).await.expect("a look").expect("a record");
                        assert_eq!(found.key.as_str(), name);
                    }
                }));
            }
        }
        for client in clients {
            client.await.expect("no wrong answer");
        }
    }
}
