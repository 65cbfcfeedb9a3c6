//! A server that is full.

use semel::testing::sample::{complete, name, run};
use semel::{Store, StoreError};
use semel_testbed::{Redis, Settings};

use super::{acquire, control, open, tell};

/// C34: full and not evicting. New keys are refused with nothing written; what is known is still answered, what runs
/// still ends, and a sweep still makes room.
#[tokio::test]
async fn c34_a_full_server_refuses_new_keys_and_nothing_else() {
    let server = Redis::start_with(Settings::fast().set("maxmemory", "100mb")).await;
    let store = open(&server.url()).await;
    let done = acquire(&store, &run("done", 1)).await;
    store.settle(&done, &complete("done")).await.expect("the holder settles");
    let running = acquire(&store, &run("running", 1)).await;
    let mut admin = control(&server.url());
    tell::<()>(&mut admin, "CONFIG SET maxmemory 1");
    let refused = store.claim(&run("new", 1)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(name(&store.claim(&run("done", 2)).await.expect("a replay")), "completed");
    assert_eq!(name(&store.claim(&run("running", 2)).await.expect("an answer")), "in-flight");
    store.renew(&running, std::time::Duration::from_secs(60)).await.expect("the holder renews");
    store.settle(&running, &complete("done")).await.expect("the holder settles");
    store.sweep(10).await.expect("a sweep");
    assert_eq!(store.unsettled(None, 10).await.expect("a list"), []);
    tell::<()>(&mut admin, "CONFIG SET maxmemory 0");
    let names: Vec<Vec<u8>> = tell(&mut admin, "KEYS *new*");
    assert!(names.is_empty(), "nothing was written");
    let open: usize = tell(&mut admin, "ZCARD {semel:0}:open");
    assert_eq!(open, 0);
    acquire(&store, &run("new", 1)).await;
}
