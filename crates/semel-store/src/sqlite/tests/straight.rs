//! Claims that go straight to the writer: the same answers, and what changes nothing waits for no lock there either.

use std::future::Future;
use std::sync::Mutex;
use std::time::Instant;

use semel::testing::{Harness, model, run};
use tokio::task::yield_now;

use super::*;

/// A store whose look-ups have just been in vain, before each claim.
#[derive(Debug)]
struct Straight(SqliteStore);

#[async_trait]
impl Store for Straight {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.0.look_ups.have_been_in_vain();
        self.0.claim(request).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        self.0.renew(lease, lease_for).await
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        self.0.settle(lease, settlement).await
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.0.find(scope, key).await
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.0.unsettled(after, limit).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        self.0.sweep(limit).await
    }
}

struct Files {
    clock: ManualClock,
    directory: TempDir,
    opened: Mutex<u32>,
}

impl Files {
    fn new() -> Files {
        let directory = tempfile::tempdir().expect("a directory");
        Files { clock: ManualClock::new(), directory, opened: Mutex::new(0) }
    }

    fn handle(&self) -> Arc<dyn Store> {
        let options = Options { clock: Arc::new(self.clock.clone()), migrate: true, ..Options::default() };
        let file = self.directory.path().join(format!("{}.db", self.opened.lock().expect("a number")));
        Arc::new(Straight(SqliteStore::open(file, &options).expect("a store")))
    }
}

#[async_trait]
impl Harness for Files {
    async fn open(&self) -> Arc<dyn Store> {
        *self.opened.lock().expect("a number") += 1;
        self.handle()
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        self.handle()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

semel::contract_suite!(Files::new());

#[test]
fn random_histories_answer_as_the_model_does() {
    each_seed(20, |seed| run(model::compare(&Files::new(), seed)));
}

#[tokio::test]
async fn look_ups_end_after_so_many_in_vain_and_begin_again_when_anything_is_found() {
    let fresh = Fresh::new();
    let look_ups = &fresh.store.look_ups;
    for number in 0..32 {
        assert!(look_ups.are_worth_it(), "{number} were in vain");
        took(fresh.store.claim(&sample::run(&format!("k{number}"), number)).await);
    }
    assert!(!look_ups.are_worth_it());
    took(fresh.store.claim(&sample::run("fresh", 99)).await);
    assert!(!look_ups.are_worth_it());
    assert_eq!(sample::name(&fresh.store.claim(&sample::run("k1", 100)).await.unwrap()), "in-flight");
    assert!(look_ups.are_worth_it(), "the writer found something");
}

/// Lets the call reach the queue.
async fn begin<F: Future>(call: std::pin::Pin<&mut F>) {
    let mut call = Some(call);
    let polled = std::future::poll_fn(|context| {
        std::task::Poll::Ready(call.take().is_some_and(|call| call.poll(context).is_ready()))
    });
    assert!(!polled.await, "it waits");
    yield_now().await;
}

/// The first of them is in the batch that meets the lock, the others come while it waits.
#[tokio::test]
async fn what_needs_no_write_is_answered_while_another_process_holds_the_lock() {
    let fresh = Fresh::with(Duration::from_secs(60));
    let lease = sample::lease(fresh.store.claim(&sample::run("done", 1)).await.unwrap());
    fresh.store.settle(&lease, &sample::complete("outcome")).await.unwrap();
    took(fresh.store.claim(&sample::run("running", 2)).await);
    let lock = fresh.other();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let request = sample::run("new", 3);
    let mut writes = std::pin::pin!(fresh.store.claim(&request));
    let begun = Instant::now();
    for round in 0..20 {
        for (key, what, answer) in
            [("done", "same", "completed"), ("done", "else", "mismatch"), ("running", "same", "in-flight")]
        {
            fresh.store.look_ups.have_been_in_vain();
            let claim = fresh.store.claim(&sample::run_for(key, 10 + round, what)).await.unwrap();
            assert_eq!(sample::name(&claim), answer);
        }
        if round == 0 {
            begin(writes.as_mut()).await;
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "none of them waited for the lock");
    lock.execute_batch("COMMIT").unwrap();
    took(writes.await);
}

/// An attempt that was told that another one runs goes away. It must not be given the lease when that one is gone.
#[tokio::test]
async fn whoever_was_answered_without_the_lock_is_given_no_lease_behind_its_back() {
    let fresh = Fresh::new();
    took(fresh.store.claim(&sample::run("k", 1)).await);
    let lock = fresh.other();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    fresh.store.look_ups.have_been_in_vain();
    let told = fresh.store.claim(&sample::run("k", 2)).await.unwrap();
    assert_eq!(sample::name(&told), "in-flight");
    lock.execute_batch("DELETE FROM running; COMMIT").unwrap();
    // Behind it in the queue.
    took(fresh.store.claim(&sample::run("next", 3)).await);
    assert_eq!(fresh.store.find(&sample::scope(), &sample::key("k")).await.unwrap(), None);
}

#[cfg(unix)]
#[tokio::test]
async fn a_claim_that_the_writer_fails_is_looked_up_after_all() {
    let fresh = Fresh::new();
    let lease = sample::lease(fresh.store.claim(&sample::run("done", 1)).await.unwrap());
    fresh.store.settle(&lease, &sample::complete("outcome")).await.unwrap();
    std::fs::rename(fresh.path(), fresh.directory.path().join("away.db")).unwrap();
    fresh.store.look_ups.have_been_in_vain();
    fresh.store.claim(&sample::run("new", 2)).await.expect_err("there is no file to write to");
    assert!(fresh.store.look_ups.are_worth_it(), "it failed");
    fresh.store.look_ups.have_been_in_vain();
    assert_eq!(sample::name(&fresh.store.claim(&sample::run("done", 3)).await.unwrap()), "completed");
}

/// A full queue, or a batch that waits, and claims are looked up first.
#[tokio::test]
async fn a_writer_that_waits_is_not_prompt() {
    let fresh = Fresh::new();
    assert!(fresh.store.writer.is_prompt());
    let lock = fresh.other();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let request = sample::run("k", 1);
    let mut call = std::pin::pin!(fresh.store.claim(&request));
    begin(call.as_mut()).await;
    while fresh.store.writer.is_prompt() {
        yield_now().await;
    }
    lock.execute_batch("COMMIT").unwrap();
    took(call.await);
    while !fresh.store.writer.is_prompt() {
        yield_now().await;
    }
}
