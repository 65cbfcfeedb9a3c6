//! A call whose answer nobody hears: it happened. And one that did not arrive: it did not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use semel::testing::Random;
use semel::testing::sample::{LEASE, complete, key, name, park, release, run, scope};
use semel::{Claim, Fence, StoreError, View};
use semel_testbed::{Fault, Kind, Plan};

use crate::place::{Place, acquire, claim, find, patiently};

/// K2. A store may ask again by itself; if it does not, it must not say that nothing was written.
pub(crate) async fn the_answer_of_a_claim_is_lost_and_the_repetition_gets_the_same_lease(kind: Kind) {
    let place = Place::shared(kind).await;
    let (store, beside) = (place.open().await, place.beside().await);
    acquire(&store, &run("warm", 1)).await;
    let armed = place.proxy.arm_on(Fault::CutAfterAnswer, "lost-claim");
    let told = store.claim(&run("lost-claim", 1)).await;
    armed.happened().await;
    let entry = find(&beside, "lost-claim").await.expect("it was claimed");
    assert!(matches!(entry.view, View::Running { .. }), "{:?}", entry.view);
    match told {
        Ok(Claim::Acquired(lease)) => assert_eq!(lease.fence, entry.fence),
        Err(StoreError::Indeterminate(_)) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(name(&claim(&store, &run("lost-claim", 2)).await), "in-flight");
    let again = acquire(&store, &run("lost-claim", 1)).await;
    assert_eq!((again.fence, again.attempts), (entry.fence, 1));
    patiently!(store.settle(&again, &complete("done")));
    assert_eq!(name(&claim(&beside, &run("lost-claim", 3)).await), "completed");
}

/// K2: repeated with the same outcome it succeeds, with another one it is refused.
pub(crate) async fn the_answer_of_a_settlement_is_lost_and_the_repetition_succeeds(kind: Kind) {
    let place = Place::shared(kind).await;
    let (store, beside) = (place.open().await, place.beside().await);
    let ends = [("completed", complete("done")), ("unknown", park()), ("acquired", release())];
    for (reads, end) in ends {
        let text = format!("lost-settle-{reads}");
        let lease = acquire(&store, &run(&text, 1)).await;
        let armed = place.proxy.arm_on(Fault::CutAfterAnswer, &text);
        let told = store.settle(&lease, &end).await;
        armed.happened().await;
        assert!(matches!(told, Ok(()) | Err(StoreError::Indeterminate(_))), "{reads}: {told:?}");
        patiently!(store.settle(&lease, &end));
        if reads == "completed" {
            let other = store.settle(&lease, &complete("other")).await;
            assert!(matches!(other, Err(StoreError::Refused(_))), "{other:?}");
        }
        assert_eq!(name(&claim(&beside, &run(&text, 2)).await), reads);
    }
}

pub(crate) async fn the_answer_of_a_renewal_is_lost_and_the_repetition_succeeds(kind: Kind) {
    let place = Place::shared(kind).await;
    let store = place.open().await;
    let lease = acquire(&store, &run("lost-renewal", 1)).await;
    let armed = place.proxy.arm_on(Fault::CutAfterAnswer, "lost-renewal");
    let told = store.renew(&lease, LEASE * 2).await;
    armed.happened().await;
    assert!(matches!(told, Ok(()) | Err(StoreError::Indeterminate(_))), "{told:?}");
    patiently!(store.renew(&lease, LEASE * 2));
    let View::Running { lease_left } = find(&store, "lost-renewal").await.expect("it runs").view else {
        panic!("it does not run");
    };
    assert!(lease_left > LEASE, "{lease_left:?}");
}

pub(crate) async fn a_call_that_did_not_arrive_wrote_nothing(kind: Kind) {
    let place = Place::shared(kind).await;
    let (store, beside) = (place.open().await, place.beside().await);
    acquire(&store, &run("warm", 1)).await;
    // Each time that it is tried: a store may ask again by itself.
    let armed = place.proxy.arm_plan(Plan::of(Fault::CutBeforeRequest).on("no-claim").always());
    let told = store.claim(&run("no-claim", 1)).await;
    armed.happened().await;
    assert!(told.as_ref().is_err_and(StoreError::is_transient), "{told:?}");
    assert_eq!(find(&beside, "no-claim").await, None);
    armed.disarm();
    let lease = acquire(&store, &run("no-claim", 1)).await;
    assert_eq!((lease.fence, lease.attempts), (Fence(1), 1));

    let armed = place.proxy.arm_plan(Plan::of(Fault::CutBeforeRequest).on("no-claim").always());
    let told = store.settle(&lease, &complete("done")).await;
    armed.happened().await;
    assert!(told.as_ref().is_err_and(StoreError::is_transient), "{told:?}");
    assert!(matches!(find(&beside, "no-claim").await.expect("a record").view, View::Running { .. }));
    armed.disarm();
    patiently!(store.settle(&lease, &complete("done")));
}

/// Many callers on one store, whose calls share connections, and a cut at any of their requests.
pub(crate) async fn answers_are_lost_at_random_and_no_key_has_two_owners(kind: Kind) {
    let seed = std::env::var("SEMEL_SEED")
        .map_or(u64::from(std::process::id()), |seed| seed.parse().expect("a seed"));
    eprintln!("SEMEL_SEED={seed}");
    let random = Random::new(seed);
    let place = Place::shared(kind).await;
    let stores = [place.open().await, place.open().await];
    let beside = place.beside().await;
    let keys: Vec<_> = (0..40).map(|number| format!("contended-{number}-")).collect();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..16_u64 {
        let (store, keys) = (Arc::clone(&stores[(caller % 2) as usize]), keys.clone());
        callers.spawn(async move {
            let mut owned = Vec::new();
            for (number, text) in keys.iter().enumerate() {
                let request = run(text, caller * 1000 + number as u64 + 1);
                if let Claim::Acquired(lease) = claim(&store, &request).await {
                    let end = complete(&caller.to_string());
                    patiently!(store.settle(&lease, &end));
                    owned.push((text.clone(), caller));
                }
            }
            owned
        });
    }
    let mut cuts = 0;
    // Until the callers are done, or have had enough of it.
    while cuts < 60 {
        let fault = *random.pick(&[Fault::CutAfterAnswer, Fault::CutBeforeRequest, Fault::ResetAfter(3)]);
        let armed = place.proxy.arm_on(fault, "contended-");
        let struck = tokio::time::timeout(Duration::from_secs(1), armed.happened()).await.is_ok();
        armed.disarm();
        if !struck {
            break;
        }
        cuts += 1;
    }
    let mut owners: HashMap<String, u64> = HashMap::new();
    for (text, caller) in callers.join_all().await.into_iter().flatten() {
        assert_eq!(owners.insert(text.clone(), caller), None, "{text} has two owners");
    }
    assert!(cuts > 3, "{cuts} cuts");
    assert_eq!(owners.len(), keys.len(), "every key has its owner");
    for (text, owner) in owners {
        let found = beside.find(&scope(), &key(&text)).await.expect("a record is read").expect("it is there");
        let View::Completed { outcome } = found.view else { panic!("{text}: {:?}", found.view) };
        assert_eq!((outcome.bytes.as_ref(), found.attempts), (owner.to_string().as_bytes(), 1), "{text}");
    }
}
