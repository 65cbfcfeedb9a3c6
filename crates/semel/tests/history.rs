//! What the engine writes into a key's timeline, and that nobody waits for it; in virtual time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel::testing::{VirtualClock, sample};
use semel::{
    Answer, Cause, Claim, ClaimRequest, Cursor, Engine, Entropy, Entry, Event, History, Instance, Key, Lease,
    MemoryStore, OnUnknown, Operation, Outcome, Past, Policy, Probe, Probed, Probing, Resolved, Scope,
    Settlement, Store, StoreError, Swept, Through, Verdict, What, Word,
};
use tokio::time::{Instant, sleep};

fn operation(key: &str) -> Operation {
    let policy = Arc::new(Policy { lease_for: sample::LEASE, ..Policy::new(OnUnknown::Park) });
    Operation::new(sample::scope(), sample::key(key), sample::fingerprint("what"), policy)
}

fn engine(store: &Arc<impl History>) -> Engine {
    let engine = Engine::new(store.clone(), Entropy::system()).with_history(store.clone());
    engine.with_instance(Instance::named("one"))
}

async fn ended(engine: &Engine, key: &str, verdict: Verdict) -> Answer<()> {
    engine.once(operation(key), |_| async { (verdict, ()) }).await
}

async fn told(store: &MemoryStore, key: &str) -> Vec<Event> {
    // The tasks that write have nothing to wait for.
    sleep(Duration::from_millis(1)).await;
    let past = store.history(&sample::scope(), &sample::key(key)).await.unwrap();
    past.into_iter().map(|past| past.event).collect()
}

fn keep() -> Verdict {
    Verdict::Keep(Outcome::value("done"))
}

#[tokio::test(start_paused = true)]
async fn v2_each_end_that_is_not_plain_is_told_and_a_plain_one_is_not() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store);
    ended(&engine, "plain", keep()).await;
    ended(&engine, "plain", keep()).await;
    ended(&engine, "not run", Verdict::NotRun).await;
    assert!(told(&store, "plain").await.is_empty());
    assert!(told(&store, "not run").await.is_empty(), "nothing happened");
    let busy = Some(Cause::new("status-503"));
    ended(&engine, "again", Verdict::Release { not_before: None, unbind: false, cause: busy.clone() }).await;
    ended(&engine, "again", keep()).await;
    let events = told(&store, "again").await;
    assert_eq!(events.iter().map(|event| event.what).collect::<Vec<_>>(), [What::Released, What::Completed]);
    assert!(events.iter().all(|event| event.attempt.instance() == Instance::named("one")));
    assert_eq!((&events[0].cause, &events[1].cause), (&busy, &None), "what released it, and only that");
    for (key, verdict, what, cause) in [
        ("parked", Verdict::Unknown(Cause::CUT), What::Parked, Cause::CUT),
        ("buried", Verdict::Bury(Cause::new("no")), What::Buried, Cause::new("no")),
    ] {
        ended(&engine, key, verdict).await;
        let events = told(&store, key).await;
        assert_eq!((events.len(), events[0].what, events[0].cause.as_ref()), (1, what, Some(&cause)));
        assert!(events[0].ran_for.is_some() && events[0].through == Through::Run);
    }
}

#[tokio::test(start_paused = true)]
async fn v2_an_operators_word_is_cut_and_what_moved_is_not_told() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store);
    ended(&engine, "k", Verdict::Unknown(Cause::CUT)).await;
    assert_eq!(told(&store, "k").await.len(), 1, "before the operator has looked");
    let seen = store.find(&sample::scope(), &sample::key("k")).await.unwrap().unwrap();
    let word = Word { by: Some("ann".into()), reason: Some("é".repeat(Event::BYTES_MAX)) };
    for expected in [Resolved::Done, Resolved::Moved] {
        let resolved = engine.resolve_by(&seen, &sample::complete("done"), false, &word).await.unwrap();
        assert_eq!(resolved, expected);
    }
    let events = told(&store, "k").await;
    assert_eq!(
        (events.len(), events[1].through, events[1].by.as_deref()),
        (2, Through::Operator, Some("ann"))
    );
    assert_eq!(events[1].reason.as_deref(), Some("é".repeat(Event::BYTES_MAX / 2).as_str()));
}

/// A question in vain is asked again and again, and would drive out what happened.
#[tokio::test(start_paused = true)]
async fn v2_what_a_probe_found_out_is_told_and_that_it_found_nothing_is_not() {
    for (says, what) in [
        (Probed::Completed(Outcome::value("done")), Some(What::Completed)),
        (Probed::NoEffect, Some(What::Released)),
        (Probed::StillUnknown, None),
    ] {
        let store = Arc::new(MemoryStore::with_clock(Arc::new(VirtualClock::new())));
        let engine = engine(&store);
        ended(&engine, "k", Verdict::Unknown(Cause::CUT)).await;
        let policy = Arc::new(Policy::new(OnUnknown::Probe));
        sleep(policy.probe_after).await;
        let probe = Arc::new(Says(says)) as Arc<dyn Probe>;
        let choose = move |_: &Entry| Some((probe.clone(), policy.clone()));
        engine.probe_unsettled(None, 10, choose).await.unwrap();
        let events = told(&store, "k").await;
        let found = events.iter().skip(1).map(|event| (event.what, event.through)).collect::<Vec<_>>();
        assert_eq!(found, what.map(|what| (what, Through::Probe)).into_iter().collect::<Vec<_>>());
    }
}

#[derive(Debug)]
struct Says(Probed);

#[async_trait]
impl Probe for Says {
    async fn ask(&self, _: &Probing) -> Probed {
        self.0.clone()
    }
}

/// Neither a caller nor an operator is kept by a timeline that cannot be written, and what they did stands.
#[tokio::test(start_paused = true)]
async fn v2_a_history_that_hangs_or_fails_changes_nothing() {
    for hangs in [true, false] {
        let store = Arc::new(Broken { inner: MemoryStore::new(), hangs });
        let engine = engine(&store);
        let begun = Instant::now();
        let answer = ended(&engine, "k", Verdict::Unknown(Cause::CUT)).await;
        assert!(matches!(answer, Answer::Ran { recorded: true, .. }), "{answer:?}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let seen = store.find(&sample::scope(), &sample::key("k")).await.unwrap().unwrap();
        let resolved = engine.resolve(&seen, &sample::complete("done"), false).await.unwrap();
        assert_eq!(resolved, Resolved::Done);
        assert!(begun.elapsed() < Duration::from_secs(10), "bounded, and only for the operator");
        assert!(matches!(ended(&engine, "k", keep()).await, Answer::Replay { .. }));
        assert_eq!(engine.drain(Duration::from_secs(30)).await, 0);
    }
}

/// A store whose timeline cannot be written.
#[derive(Debug)]
struct Broken {
    inner: MemoryStore,
    hangs: bool,
}

#[async_trait]
impl History for Broken {
    async fn append(&self, _: &Scope, _: &Key, _: &Event) -> Result<(), StoreError> {
        if self.hangs {
            return std::future::pending().await;
        }
        Err(StoreError::Unavailable("no room".into()))
    }

    async fn history(&self, scope: &Scope, key: &Key) -> Result<Vec<Past>, StoreError> {
        self.inner.history(scope, key).await
    }
}

#[async_trait]
impl Store for Broken {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.inner.claim(request).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        self.inner.renew(lease, lease_for).await
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        self.inner.settle(lease, settlement).await
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.inner.find(scope, key).await
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.inner.unsettled(after, limit).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        self.inner.sweep(limit).await
    }
}
