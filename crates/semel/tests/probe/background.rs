//! Asking about what was left open, page by page.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use semel::testing::{FaultyStore, sample};
use semel::{Answer, Asked, Cause, Cursor, Entry, Policy, Probe, Probed, Resolved, View};
use tokio::time::sleep;

use super::support::*;

async fn page(gateway: &Gateway, after: Option<&Cursor>, limit: u32) -> Asked {
    let (oracle, policy) = (gateway.oracle.clone(), Arc::new(gateway.policy.clone()));
    let choose = move |_: &Entry| Some((oracle.clone() as Arc<dyn Probe>, policy.clone()));
    gateway.engine.probe_unsettled(after, limit, choose).await.expect("the store answers")
}

async fn view(store: &FaultyStore, key: &str) -> View {
    store.inner().find(&sample::scope(), &sample::key(key)).await.unwrap().expect("a record").view
}

#[tokio::test(start_paused = true)]
async fn g5_after_a_restart_what_was_left_open_is_asked_about() {
    let gateway = Gateway::new(completed());
    running(&gateway.store, "lapsed").await;
    sleep(sample::LEASE).await;
    parked_as(&gateway.store, "parked").await;
    sleep(DUE).await;
    running(&gateway.store, "runs").await;
    let restarted = gateway.another();
    assert_eq!(restarted.probe().await, Asked { completed: 2, ..Asked::default() });
    for key in ["lapsed", "parked"] {
        assert_eq!(view(&gateway.store, key).await.name(), "completed");
    }
    assert_eq!(view(&gateway.store, "runs").await.name(), "running");
    assert_eq!(restarted.probe().await, Asked::default(), "nothing is open any more");
}

#[tokio::test(start_paused = true)]
async fn each_answer_settles_and_is_counted() {
    for (says, asked, name) in [
        (completed(), Asked { completed: 1, ..Asked::default() }, "completed"),
        (no_effect(), Asked { released: 1, ..Asked::default() }, "released"),
        (still_unknown(), Asked { unknown: 1, ..Asked::default() }, "unknown"),
        (Says::Nothing, Asked { unknown: 1, ..Asked::default() }, "unknown"),
        (Says::Panics, Asked { unknown: 1, ..Asked::default() }, "unknown"),
    ] {
        let gateway = Gateway::new(says);
        parked(&gateway.store).await;
        sleep(DUE).await;
        assert_eq!(gateway.probe().await, asked);
        gateway.reads(name).await;
        assert_eq!(gateway.probe().await, Asked::default(), "and not asked again at once");
    }
}

/// Only what is unknown, what an adapter knows, and what is due.
#[tokio::test(start_paused = true)]
async fn what_is_dead_or_nobodys_or_not_due_is_left() {
    let gateway = Gateway::new(completed());
    let dead = running(&gateway.store, "dead").await;
    gateway.store.inner().settle(&dead, &sample::bury()).await.unwrap();
    parked_as(&gateway.store, "nobody's").await;
    parked_as(&gateway.store, "patient").await;
    parked_as(&gateway.store, "mine").await;
    sleep(DUE).await;
    parked_as(&gateway.store, "young").await;
    let oracle = gateway.oracle.clone();
    let policy = |probe_after| Arc::new(Policy { probe_after, ..gateway.policy.clone() });
    let choose = |entry: &Entry| match entry.key.as_str() {
        "dead" => panic!("it is not unknown"),
        "nobody's" => None,
        "patient" => Some((oracle.clone() as Arc<dyn Probe>, policy(2 * DUE))),
        _ => Some((oracle.clone() as Arc<dyn Probe>, policy(DUE))),
    };
    let asked = gateway.engine.probe_unsettled(None, 100, choose).await.unwrap();
    assert_eq!(asked, Asked { completed: 1, ..Asked::default() });
    assert_eq!(view(&gateway.store, "mine").await.name(), "completed");
}

#[tokio::test(start_paused = true)]
async fn the_pages_go_through_all_that_is_open_oldest_first_and_a_few_are_asked_about_at_once() {
    let gateway = Gateway::new(completed());
    for number in 0..50 {
        parked_as(&gateway.store, &format!("k{number}")).await;
        sleep(SECOND / 10).await;
    }
    sleep(DUE).await;
    let first = page(&gateway, None, 20).await;
    assert_eq!(first.completed, 20);
    let keys: Vec<_> = {
        let heard = gateway.oracle.heard.lock().unwrap();
        heard.iter().map(|probing| probing.entry.key.as_str().to_owned()).collect()
    };
    let expected: Vec<_> = (0..20).map(|number| format!("k{number}")).collect();
    assert_eq!(keys, expected);
    let (mut next, mut completed, mut pages) = (first.next, 0, 0);
    while let Some(after) = next {
        let asked = page(&gateway, Some(&after), 20).await;
        (completed, pages, next) = (completed + asked.completed, pages + 1, asked.next);
    }
    assert_eq!((completed, pages), (30, 2));
    assert_eq!(gateway.oracle.at_once_max.load(Ordering::SeqCst), 8);
}

/// A page that is full and has nothing to ask about does not end the listing.
#[tokio::test(start_paused = true)]
async fn records_that_nobody_can_ask_about_do_not_hide_the_others() {
    let gateway = Gateway::new(completed());
    for number in 0..10 {
        parked_as(&gateway.store, &format!("nobody's {number}")).await;
        sleep(SECOND).await;
    }
    parked(&gateway.store).await;
    sleep(DUE).await;
    let oracle = gateway.oracle.clone();
    let policy = Arc::new(gateway.policy.clone());
    let choose = |entry: &Entry| {
        (entry.key.as_str() == "k").then(|| (oracle.clone() as Arc<dyn Probe>, policy.clone()))
    };
    let mut next = None;
    for _ in 0..3 {
        next = gateway.engine.probe_unsettled(next.as_ref(), 5, choose).await.unwrap().next;
    }
    assert_eq!(next, None);
    gateway.reads("completed").await;
}

#[tokio::test(start_paused = true)]
async fn g5_two_gateways_at_one_instant_ask_once() {
    for says in [completed(), no_effect(), still_unknown()] {
        let one = Gateway::new(says);
        let other = one.another();
        for number in 0..20 {
            parked_as(&one.store, &format!("k{number}")).await;
        }
        sleep(DUE).await;
        let (first, second) = futures_util::join!(one.probe(), other.probe());
        assert_eq!(one.oracle.asked(), 20);
        assert_eq!(first.moved + second.moved, 20, "{first:?} {second:?}");
        sleep(SECOND).await;
        let (first, second) = futures_util::join!(one.probe(), other.probe());
        assert_eq!((first, second, one.oracle.asked()), (Asked::default(), Asked::default(), 20));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_and_the_background_at_one_instant_ask_once() {
    let gateway = Gateway::new(completed());
    let other = gateway.another();
    parked(&gateway.store).await;
    sleep(DUE).await;
    let (answer, _) = futures_util::join!(gateway.once(), other.probe());
    assert!(matches!(answer, Answer::Replay { .. } | Answer::InFlight { .. }), "{answer:?}");
    assert_eq!(gateway.oracle.asked(), 1);
    gateway.reads("completed").await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_breaks_off_no_question() {
    let gateway = Gateway::new(completed());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let page = tokio::time::timeout(SECOND / 2, gateway.probe()).await;
    assert!(page.is_err(), "{page:?}");
    sleep(SECOND).await;
    gateway.reads("completed").await;
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_the_asking() {
    let gateway = Gateway::new(Says::This(Probed::StillUnknown, 2 * SECOND));
    for number in 0..50 {
        parked_as(&gateway.store, &format!("k{number}")).await;
    }
    sleep(DUE).await;
    let stop = async {
        sleep(SECOND).await;
        gateway.engine.drain(10 * SECOND).await
    };
    let (_, parked) = futures_util::join!(gateway.probe(), stop);
    assert_eq!((parked, gateway.oracle.asked()), (0, 8));
    assert_eq!(gateway.probe().await, Asked::default());
    assert_eq!(view(&gateway.store, "k0").await, View::Unknown { cause: Cause::CUT });
}

/// The operator was faster than the page: what was seen is no longer so.
#[tokio::test(start_paused = true)]
async fn what_an_operator_has_resolved_is_not_asked_about() {
    let gateway = Gateway::new(no_effect());
    parked(&gateway.store).await;
    sleep(DUE).await;
    let seen = gateway.entry().await;
    gateway.store.fail(2, semel::testing::Fault::HangBefore);
    let resolve = async {
        sleep(SECOND).await;
        gateway.another().engine.resolve(&seen, &sample::complete("the operator's"), false).await.unwrap()
    };
    let (asked, resolved) = futures_util::join!(gateway.probe(), resolve);
    assert_eq!((asked, resolved), (Asked { moved: 1, ..Asked::default() }, Resolved::Done));
    assert_eq!(gateway.oracle.asked(), 0);
    gateway.reads("completed").await;
}

/// Its lease had lapsed when the page was read; the owner's renewal was faster than the question, and keeps the record.
#[tokio::test(start_paused = true)]
async fn k7_an_owner_that_renews_before_the_question_begins_is_not_asked_about() {
    let gateway = Gateway::new(no_effect());
    let owner = running(&gateway.store, "k").await;
    sleep(sample::LEASE + DUE).await;
    gateway.store.fail(2, semel::testing::Fault::HangBefore);
    let renew = async {
        sleep(SECOND).await;
        gateway.store.inner().renew(&owner, sample::LEASE).await.unwrap();
    };
    let (asked, ()) = futures_util::join!(gateway.probe(), renew);
    assert_eq!((asked, gateway.oracle.asked()), (Asked { moved: 1, ..Asked::default() }, 0));
    gateway.store.inner().settle(&owner, &sample::complete("the owner's")).await.unwrap();
}

/// A redrive that died reads as unknown. Nobody redrives but a person, so it is dead again, and not asked about.
#[tokio::test(start_paused = true)]
async fn a_dead_key_whose_redrive_died_is_not_released_by_a_probe() {
    let gateway = Gateway::new(no_effect());
    let owner = running(&gateway.store, "k").await;
    let store = gateway.store.inner();
    store.settle(&owner, &sample::bury()).await.unwrap();
    let _ = sample::lease(store.claim(&sample::settling("k", 2, owner.fence)).await.unwrap());
    sleep(sample::LEASE + 2 * DUE).await;
    gateway.is_unknown(Cause::LAPSED).await;
    assert_eq!(gateway.probe().await, Asked { moved: 1, ..Asked::default() });
    gateway.reads("dead").await;
    assert!(matches!(gateway.once().await, Answer::Dead { .. }));
    assert_eq!((gateway.oracle.asked(), gateway.effects()), (0, 0));
}
