//! A question with each of its store calls failed in every way, and with its process dying.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use semel::testing::fault::at_every_call;
use semel::testing::{Fault, FaultyStore, Harness};
use semel::{Answer, Asked, Cause, Outcome, Store, View};
use tokio::time::sleep;

use super::support::*;

struct Memory;

#[async_trait]
impl Harness for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        memory()
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        panic!("nothing here asks for a second handle")
    }

    async fn advance(&self, by: Duration) {
        tokio::time::advance(by).await;
    }
}

/// A gateway over the failing store and a record that is due.
async fn due(store: FaultyStore, says: Says) -> Gateway {
    let gateway = Gateway::over(store, Oracle::new(says));
    parked(&gateway.store).await;
    sleep(DUE).await;
    gateway
}

#[tokio::test(start_paused = true)]
async fn the_background_finds_that_it_took_effect() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let gateway = due(store, completed()).await;
        // A page that cannot be read is asked for again by whoever asks.
        let (oracle, policy) = (gateway.oracle.clone(), Arc::new(gateway.policy.clone()));
        let choose = |_: &semel::Entry| Some((oracle.clone() as Arc<dyn semel::Probe>, policy.clone()));
        if gateway.engine.probe_unsettled(None, 10, choose).await.is_err() {
            gateway.probe().await;
        }
        settle_down().await;
        assert_eq!(gateway.entry().await.view, View::Completed { outcome: Outcome::value("found out") });
        assert_eq!(gateway.oracle.asked(), 1);
    })
    .await;
    assert_eq!(calls, ["unsettled", "claim", "settle"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_finds_that_it_took_effect() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let gateway = due(store, completed()).await;
        match gateway.once().await {
            Answer::Replay { outcome, .. } => assert_eq!(outcome, Outcome::value("found out")),
            // The settlement did not get through in the time that a caller is held.
            Answer::Unknown { .. } => {}
            other => panic!("{other:?}"),
        }
        settle_down().await;
        assert!(matches!(gateway.once().await, Answer::Replay { .. }));
        assert_eq!((gateway.oracle.asked(), gateway.effects()), (1, 0));
    })
    .await;
    assert_eq!(calls, ["claim", "find", "claim", "settle", "claim", "claim"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_finds_that_it_took_no_effect_and_runs() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let gateway = due(store, no_effect()).await;
        let mut answer = gateway.once().await;
        if matches!(answer, Answer::Unknown { .. }) {
            settle_down().await;
            answer = gateway.once().await;
        }
        assert!(matches!(answer, Answer::Ran { .. }), "{answer:?}");
        settle_down().await;
        gateway.reads("completed").await;
        assert_eq!((gateway.oracle.asked(), gateway.effects()), (1, 1));
        assert_eq!(gateway.entry().await.attempts, 2);
    })
    .await;
    assert_eq!(calls, ["claim", "find", "claim", "settle", "claim", "settle"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_knows_and_nothing_changes() {
    let calls = at_every_call(&Memory, &Fault::ALL, async |store| {
        let gateway = due(store, still_unknown()).await;
        let answer = gateway.once().await;
        assert!(matches!(&answer, Answer::Unknown { cause, .. } if *cause == Cause::CUT), "{answer:?}");
        settle_down().await;
        gateway.is_unknown(Cause::CUT).await;
        assert_eq!((gateway.effects(), gateway.entry().await.attempts), (0, 1));
    })
    .await;
    assert_eq!(calls, ["claim", "find", "claim", "settle"]);
}

/// No claim of the question's is answered for longer than it is repeated: what it may have got is given back, with
/// the cause that it had, and nobody was asked.
#[tokio::test(start_paused = true)]
async fn a_question_whose_claim_is_never_answered_gives_back_what_it_may_have_got() {
    let gateway = due(FaultyStore::new(memory()), completed()).await;
    for number in 2..40 {
        gateway.store.fail(number, Fault::After);
    }
    assert_eq!(gateway.probe().await, Asked { failed: 1, ..Asked::default() });
    gateway.reads("running").await;
    sleep(60 * SECOND).await;
    gateway.is_unknown(Cause::CUT).await;
    assert_eq!(gateway.oracle.asked(), 0);
}

/// A settlement that does not get through while a caller can be held is repeated behind it.
#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_written_at_once_is_written_later() {
    let gateway = due(FaultyStore::new(memory()), completed()).await;
    for number in 4..30 {
        gateway.store.fail(number, Fault::Before);
    }
    let answer = gateway.once().await;
    assert!(matches!(answer, Answer::Unknown { .. }), "{answer:?}");
    sleep(60 * SECOND).await;
    gateway.reads("completed").await;
    assert_eq!(gateway.oracle.asked(), 1);
}

/// Its lease lapses: unknown again, from then on, and asked about again `probe_after` later. The cause is now that,
/// since a record keeps one.
#[tokio::test(start_paused = true)]
async fn a_process_that_dies_while_it_asks_leaves_the_key_unknown() {
    let is_dead = Arc::new(AtomicBool::new(false));
    let dead = is_dead.clone();
    let store =
        FaultyStore::deciding(memory(), move |_| dead.load(Ordering::SeqCst).then_some(Fault::HangBefore));
    let gateway = due(store, no_effect()).await;
    let other = gateway.another();
    let asking = {
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.once().await })
    };
    sleep(SECOND / 2).await;
    is_dead.store(true, Ordering::SeqCst);
    sleep(5 * SECOND).await;
    assert!(matches!(other.once().await, Answer::InFlight { .. }));
    sleep(5 * SECOND).await;
    let answer = other.once().await;
    assert!(matches!(&answer, Answer::Unknown { cause, .. } if *cause == Cause::LAPSED), "{answer:?}");
    sleep(20 * SECOND).await;
    assert!(matches!(other.once().await, Answer::Unknown { .. }), "not yet: counted from the lapse");
    assert_eq!(gateway.oracle.asked(), 1);
    sleep(20 * SECOND).await;
    assert!(matches!(other.once().await, Answer::Ran { .. }));
    assert_eq!((gateway.oracle.asked(), gateway.effects()), (2, 1));
    asking.abort();
}

/// The one that slept while it asked wakes when somebody else has found out, and run: its answer is refused.
#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_another_question_is_refused() {
    let sleeps = Arc::new(AtomicBool::new(false));
    let asleep = sleeps.clone();
    let store =
        FaultyStore::deciding(memory(), move |_| asleep.load(Ordering::SeqCst).then_some(Fault::Before));
    let gateway = due(store, no_effect()).await;
    let other = gateway.another();
    let asking = {
        let gateway = gateway.clone();
        tokio::spawn(async move { gateway.once().await })
    };
    sleep(SECOND / 2).await;
    sleeps.store(true, Ordering::SeqCst);
    sleep(60 * SECOND).await;
    assert!(matches!(other.once().await, Answer::Ran { .. }));
    sleeps.store(false, Ordering::SeqCst);
    settle_down().await;
    gateway.reads("completed").await;
    assert_eq!((gateway.oracle.asked(), gateway.effects()), (2, 1));
    assert!(matches!(asking.await.unwrap(), Answer::Unknown { .. }));
}
