//! Many messages in one transaction (M9): one bad message does not hurt the others (C103).

use semel_messaging::Failure;

use crate::databases::Books;
use crate::world::{How, World, fine};

/// Ten messages that are there before anybody consumes, so that they are one batch; the third fails twice.
pub(crate) async fn c103_one_bad_message_does_not_take_the_others_with_it<D: Books>(how: How) {
    let world = World::<D>::new().await;
    let ids: Vec<String> = (0..10).map(|number| format!("m-{number}")).collect();
    for id in &ids {
        world.send(id).await;
    }
    let process = world.start(how, |work| match (work.key.as_str(), work.attempt) {
        ("m-2", 1 | 2) => Err(Failure::transient("not yet")),
        _ => Ok(()),
    });
    world.empty().await;
    process.stop().await;
    assert_eq!(world.books.booked().await, ids);
    assert!(world.dead().is_empty());
    assert_eq!(world.attempts("m-2").await, Some(3));
    for id in ids.iter().filter(|id| *id != "m-2") {
        assert_eq!(world.attempts(id).await, None, "{id} needed no second attempt");
    }
    if matches!(how, How::Savepoints) {
        let runs: Vec<usize> = ids.iter().map(|id| world.runs(id)).collect();
        assert_eq!(runs, [1, 1, 3, 1, 1, 1, 1, 1, 1, 1]);
    }
}

pub(crate) async fn the_same_id_twice_in_a_batch_runs_once<D: Books>(how: How) {
    let world = World::<D>::new().await;
    for id in ["a", "b", "a", "a", "c"] {
        world.send(id).await;
    }
    let process = world.start(how, fine);
    world.empty().await;
    process.stop().await;
    assert_eq!(world.books.booked().await, ["a", "b", "c"]);
    assert_eq!([world.runs("a"), world.runs("b"), world.runs("c")], [1, 1, 1]);
}

pub(crate) async fn every_bad_message_of_a_batch_is_found<D: Books>(how: How) {
    let world = World::<D>::new().await;
    for number in 0..10 {
        world.send(&format!("m-{number}")).await;
    }
    let process = world.start(how, |work| match work.key.as_str() {
        "m-0" | "m-5" | "m-9" => Err(Failure::permanent("bad")),
        _ => Ok(()),
    });
    world.empty().await;
    process.stop().await;
    assert_eq!(world.books.booked().await, ["m-1", "m-2", "m-3", "m-4", "m-6", "m-7", "m-8"]);
    let mut dead: Vec<String> = world.dead().into_iter().map(|(id, _)| id).collect();
    dead.sort_unstable();
    assert_eq!(dead, ["m-0", "m-5", "m-9"]);
}
