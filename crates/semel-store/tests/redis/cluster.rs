//! A cluster's client sends a command again by itself.

use semel::testing::sample::{complete, name, run};
use semel::{Fence, Store};
use semel_testbed::{Fault, Proxy, Redis, Settings};

use super::{acquire, control, open, tell};

/// One node with all slots, which tells clients that it is where the proxy is.
async fn behind_a_proxy() -> (Redis, Proxy, String) {
    let node = Redis::start_with(Settings::fast().set("cluster-enabled", "yes")).await;
    let proxy = Proxy::before(node.addr());
    let mut admin = control(&node.url());
    tell::<()>(&mut admin, &format!("CONFIG SET cluster-announce-port {}", proxy.addr().port()));
    tell::<()>(&mut admin, "CONFIG SET cluster-announce-ip 127.0.0.1");
    tell::<()>(&mut admin, "CLUSTER ADDSLOTSRANGE 0 16383");
    let started = std::time::Instant::now();
    while !tell::<String>(&mut admin, "CLUSTER INFO").contains("cluster_state:ok") {
        assert!(started.elapsed() < semel_testbed::DEADLINE, "the cluster does not form");
    }
    let url = format!("redis+cluster://{}", proxy.addr());
    (node, proxy, url)
}

#[tokio::test]
async fn a_command_that_the_client_repeats_has_run_once() {
    let (_node, proxy, url) = behind_a_proxy().await;
    let store = open(&url).await;
    for round in 0..4 {
        let key = format!("k{round}");
        let claim = proxy.arm_on(Fault::CutAfterAnswer, &key);
        let lease = acquire(&store, &run(&key, 1)).await;
        assert_eq!(claim.count(), 1, "the first answer was lost");
        assert_eq!((lease.fence, lease.attempts), (Fence(1), 1), "and the lease is the one that it gave");
        let settle = proxy.arm_on(Fault::CutAfterAnswer, &key);
        store.settle(&lease, &complete("done")).await.expect("the holder settles");
        assert_eq!(settle.count(), 1);
        assert_eq!(name(&store.claim(&run(&key, 2)).await.expect("an answer")), "completed");
    }
}

#[tokio::test]
async fn a_node_that_comes_back_is_found_again() {
    let (node, _proxy, url) = behind_a_proxy().await;
    let store = open(&url).await;
    let lease = acquire(&store, &run("k", 1)).await;
    node.restart().await;
    let started = std::time::Instant::now();
    // The node takes a moment to serve its slots again.
    while let Err(error) = store.settle(&lease, &complete("done")).await {
        assert!(error.is_transient(), "{error}");
        assert!(started.elapsed() < semel_testbed::DEADLINE, "{error}");
    }
    assert_eq!(name(&store.claim(&run("k", 2)).await.expect("an answer")), "completed");
}
