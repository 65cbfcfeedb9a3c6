//! The server is gone, hangs, or has no connection to spare.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use semel::testing::Random;
use semel::testing::sample::{complete, fingerprint, key, lease, name, run, scope};
use semel::{
    Answer, Claim, ClaimRequest, Engine, OnUnknown, Operation, Outcome, Policy, Store, Verdict, View,
};
use semel_testbed::{Fault, Kind, Plan};
use tokio::sync::oneshot;

use crate::place::{BOUNDED, Place, acquire, bounded, claim, find, patiently, until};

/// The half a minute with `SEMEL_LONG`; else longer than the engine waits for a claim.
fn gone_for() -> Duration {
    Duration::from_secs(if std::env::var_os("SEMEL_LONG").is_some() { 30 } else { 4 })
}

fn engine(store: &Arc<dyn Store>) -> Engine {
    Engine::new(Arc::clone(store), Random::new(u64::from(std::process::id())).entropy())
}

/// Leases are short, so that whatever is left behind is soon unknown.
fn operation(text: &str) -> Operation {
    let policy = Policy { lease_for: Duration::from_secs(1), ..Policy::new(OnUnknown::Park) };
    Operation::new(scope(), key(text), fingerprint("same"), Arc::new(policy))
}

async fn once(engine: &Engine, text: &str, runs: &Arc<AtomicU32>) -> Answer<()> {
    let runs = Arc::clone(runs);
    let run = move |_| async move {
        runs.fetch_add(1, Ordering::SeqCst);
        (Verdict::Keep(Outcome::value("done")), ())
    };
    engine.once(operation(text), run).await
}

/// Asks until the operation has run or is replayed. Nothing else but "later" is right meanwhile: never "unknown".
async fn carried_out(engine: &Engine, text: &str, runs: &Arc<AtomicU32>) {
    until("it is carried out", async || match once(engine, text, runs).await {
        Answer::Ran { .. } | Answer::Replay { .. } => true,
        Answer::Unavailable(_) | Answer::InFlight { .. } => false,
        other => panic!("{text}: {other:?}"),
    })
    .await;
}

fn lose(place: &Place) {
    place.proxy.refuse();
    place.proxy.cut_all();
}

pub(crate) async fn k10_while_the_primary_is_gone_nothing_runs_and_nothing_becomes_unknown(kind: Kind) {
    let place = Place::shared(kind).await;
    let (store, beside) = (place.open().await, place.beside().await);
    let (engine, runs) = (engine(&store), Arc::new(AtomicU32::new(0)));
    carried_out(&engine, "before", &runs).await;
    lose(&place);
    let gone = Instant::now();
    for number in 0.. {
        let asked = Instant::now();
        let answer = once(&engine, &format!("gone-{number}"), &runs).await;
        assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
        bounded(asked);
        if number >= 2 && gone.elapsed() > gone_for() {
            place.proxy.accept();
            assert_eq!(runs.load(Ordering::SeqCst), 1, "nothing ran but what ran before");
            for number in 0..=number {
                // A call that was given up may have been on its way: then it is given back now.
                let found = find(&beside, &format!("gone-{number}")).await.map(|entry| entry.view);
                let view = found.as_ref();
                assert!(view.is_none_or(|view| !matches!(view, View::Unknown { .. })), "{found:?}");
                carried_out(&engine, &format!("gone-{number}"), &runs).await;
            }
            assert_eq!(runs.load(Ordering::SeqCst), 2 + number);
            return;
        }
    }
}

pub(crate) async fn k10_a_run_that_ends_while_the_primary_is_gone_is_told_and_settled_later(kind: Kind) {
    let place = Place::shared(kind).await;
    let (store, beside) = (place.open().await, place.beside().await);
    let engine = engine(&store);
    let (begun, begins) = oneshot::channel();
    let (go, told_to_go) = oneshot::channel::<()>();
    let caller = tokio::spawn({
        let engine = engine.clone();
        async move {
            let run = move |_| async move {
                begun.send(()).expect("somebody waits");
                told_to_go.await.expect("it is told");
                (Verdict::Keep(Outcome::value("done")), ())
            };
            engine.once(operation("running"), run).await
        }
    });
    begins.await.expect("it begins");
    lose(&place);
    go.send(()).expect("it waits");
    let asked = Instant::now();
    let answer = caller.await.expect("an answer");
    assert!(matches!(answer, Answer::Ran { recorded: false, .. }), "{answer:?}");
    bounded(asked);
    tokio::time::sleep(gone_for()).await;
    place.proxy.accept();
    // The lease has lapsed meanwhile: the owner's late settlement counts all the same (K7).
    until("it is settled", async || {
        matches!(find(&beside, "running").await.expect("a record").view, View::Completed { .. })
    })
    .await;
    let replay = once(&engine, "running", &Arc::default()).await;
    assert!(matches!(replay, Answer::Replay { attempts: 1, .. }), "{replay:?}");
}

/// The claim is in the store, its caller was told that nothing ran, and its lease lapses while the primary is gone.
pub(crate) async fn k10_a_claim_whose_answer_was_lost_with_the_primary_is_given_back(kind: Kind) {
    let place = Place::shared(kind).await;
    let (store, beside) = (place.open().await, place.beside().await);
    let (engine, runs) = (engine(&store), Arc::new(AtomicU32::new(0)));
    carried_out(&engine, "before", &runs).await;
    place.proxy.refuse();
    // Whatever connection it comes by: the others are of no use any more.
    let armed = place.proxy.arm_plan(Plan::of(Fault::CutAfterAnswer).on("given-back").always());
    let asked = Instant::now();
    let answer = once(&engine, "given-back", &runs).await;
    assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
    bounded(asked);
    armed.happened().await;
    assert!(find(&beside, "given-back").await.is_some(), "it was claimed");
    tokio::time::sleep(gone_for()).await;
    place.proxy.disarm();
    place.proxy.cut_all();
    place.proxy.accept();
    until("it is given back", async || {
        matches!(find(&beside, "given-back").await.expect("a record").view, View::Released { .. })
    })
    .await;
    assert_eq!(runs.load(Ordering::SeqCst), 1, "it did not run");
    carried_out(&engine, "given-back", &runs).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// Killed once, and stopped in order once, while claims and settlements are on their way.
pub(crate) async fn a_server_that_is_killed_and_restarted_under_load_keeps_what_it_acknowledged(kind: Kind) {
    let place = Place::own(kind).await;
    let store = place.open().await;
    let stopping = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..8_u64 {
        let (store, stopping) = (Arc::clone(&store), Arc::clone(&stopping));
        callers.spawn(async move {
            let mut settled = Vec::new();
            for turn in 0.. {
                if stopping.load(Ordering::SeqCst) {
                    break;
                }
                let text = format!("load-{caller}-{turn}");
                let lease = acquire(&store, &run(&text, 1)).await;
                patiently!(store.settle(&lease, &complete(&text)));
                settled.push(text);
            }
            settled
        });
    }
    let busy = async |number: u32| {
        let text = format!("load-0-{number}");
        let beside = place.beside().await;
        until("there is load", async || find(&beside, &text).await.is_some()).await;
    };
    busy(20).await;
    place.server().kill().await;
    place.server().restart().await;
    busy(60).await;
    place.server().restart().await;
    busy(100).await;
    stopping.store(true, Ordering::SeqCst);
    let settled: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    for text in &settled {
        let Claim::Completed { outcome, attempts, .. } = claim(&store, &run(text, 2)).await else {
            panic!("{text} was settled");
        };
        assert_eq!((outcome, attempts), (Outcome::value(text.clone()), 1));
    }
    assert!(settled.len() > 100, "{} operations", settled.len());
}

pub(crate) async fn a_network_that_swallows_everything_is_bounded_and_gets_better(kind: Kind) {
    let place = Place::shared(kind).await;
    let store = place.open().await;
    let (engine, runs) = (engine(&store), Arc::new(AtomicU32::new(0)));
    carried_out(&engine, "before", &runs).await;
    let armed = place.proxy.arm_plan(Plan::of(Fault::Blackhole).always());
    let asked = Instant::now();
    let answer = once(&engine, "swallowed", &runs).await;
    assert!(matches!(answer, Answer::Unavailable(_)), "{answer:?}");
    bounded(asked);
    armed.happened().await;
    // Connections that were swallowed stay so: the store must find out by itself and make others.
    place.proxy.disarm();
    let better = Instant::now();
    carried_out(&engine, "swallowed", &runs).await;
    assert!(better.elapsed() < BOUNDED * 2, "{:?}", better.elapsed());
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// Nobody can tell whether what was sent to it will happen: it happens when it goes on, once.
pub(crate) async fn a_server_that_stands_still_is_waited_for_and_decides_once(kind: Kind) {
    let place = Place::own(kind).await;
    let store = place.open().await;
    acquire(&store, &run("warm", 1)).await;
    place.server().pause();
    let mut callers = tokio::task::JoinSet::new();
    for number in 1..=8 {
        let store = Arc::clone(&store);
        callers.spawn(async move { claim(&store, &run("still", number)).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(callers.len(), 8);
    place.server().resume();
    let told = callers.join_all().await;
    let acquired: Vec<_> = told.iter().filter(|claim| matches!(claim, Claim::Acquired(_))).collect();
    assert_eq!(acquired.len(), 1, "{told:?}");
    assert!(told.iter().all(|claim| matches!(name(claim), "acquired" | "in-flight")), "{told:?}");
}

/// Many more callers than connections: nobody is refused, nobody waits for ever.
pub(crate) async fn a_pool_that_is_exhausted_serves_everybody_in_turn(kind: Kind) {
    let place = Place::with(kind, Place::narrow(kind)).await;
    let store = place.open().await;
    // Each trip takes a while, so that all connections are taken for long.
    place.proxy.arm_plan(Plan::of(Fault::Delay(Duration::from_millis(15))).on("crowd-").always());
    let started = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..128_u64 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            let request: ClaimRequest = run(&format!("crowd-{caller}"), 1);
            let held = lease(patiently!(store.claim(&request)));
            patiently!(store.settle(&held, &complete("done")));
        });
    }
    callers.join_all().await;
    bounded(started);
    assert!(place.proxy.open_connections() <= 12, "{}", place.proxy.open_connections());
}
