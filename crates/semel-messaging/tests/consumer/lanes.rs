//! Order within a lane, and nothing else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::testing::Random;
use semel::testing::random::each_seed;
use semel_messaging::Failure;

use crate::support::{World, in_lane, order, text};

#[tokio::test(start_paused = true)]
async fn m7_a_lane_runs_one_after_the_other_and_lanes_run_beside_each_other() {
    let world = World::new();
    let journal = world.journal.clone();
    let process = world.start(world.builder(), move |work| {
        let (journal, text) = (journal.clone(), text(&work));
        async move {
            journal.write(format!("begin {text}"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            journal.write(format!("end {text}"));
            Ok(())
        }
    });
    let begun = tokio::time::Instant::now();
    for number in 0..3 {
        for lane in ["x", "y", "z"] {
            world.send(in_lane(lane, &format!("{lane}{number}"))).await;
        }
    }
    world.empty().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "three lanes of three seconds: {:?}", begun.elapsed());
    process.stop().await;
    for lane in ["x", "y", "z"] {
        let of_lane: Vec<String> =
            world.journal.lines().into_iter().filter(|line| line.contains(lane)).collect();
        let expected: Vec<String> =
            (0..3).flat_map(|n| [format!("begin {lane}{n}"), format!("end {lane}{n}")]).collect();
        assert_eq!(of_lane, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn m7_no_more_run_at_once_than_is_said() {
    let world = World::new();
    let now = Arc::new(Mutex::new((0, 0)));
    let counted = now.clone();
    let process = world.start(world.builder().in_flight_max(3), move |_| {
        let counted = counted.clone();
        async move {
            let begin = |by: i32| {
                let mut counted = counted.lock().unwrap();
                counted.0 += by;
                counted.1 = counted.1.max(counted.0);
            };
            begin(1);
            tokio::time::sleep(Duration::from_secs(1)).await;
            begin(-1);
            Ok(())
        }
    });
    for number in 0..30 {
        world.send(order(&number.to_string())).await;
    }
    world.empty().await;
    process.stop().await;
    assert_eq!(*now.lock().unwrap(), (0, 3));
}

/// Failures, duplicates and kills, by a seed: the last time that each message ran, its lane was in order.
#[test]
fn m7_a_lane_keeps_its_order_through_failures_and_kills() {
    each_seed(30, |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(disorder(seed));
    });
}

async fn disorder(seed: u64) {
    let (world, random) = (World::new(), Random::new(seed));
    for number in 0..60 {
        let lane = random.below(5);
        let message = in_lane(&lane.to_string(), &format!("{lane}-{number}"));
        world.send(message.clone()).await;
        if random.chance(30) {
            world.send(message).await;
        }
    }
    let start = || {
        let (journal, random) = (world.journal.clone(), random.fork());
        world.start(world.builder().in_flight_max(3).attempts_max(50), move |work| {
            let (journal, text, random) = (journal.clone(), text(&work), random.clone());
            async move {
                tokio::time::sleep(Duration::from_millis(random.below(400))).await;
                if random.chance(30) {
                    return Err(Failure::transient("no"));
                }
                journal.write(text);
                Ok(())
            }
        })
    };
    for _ in 0..3 {
        let process = start();
        tokio::time::sleep(Duration::from_millis(random.below(20_000))).await;
        process.kill().await;
    }
    let last = start();
    world.empty().await;
    last.stop().await;
    assert!(world.broker.dead().is_empty());
    let mut lanes: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in world.journal.lines() {
        let (lane, number) = line.split_once('-').unwrap();
        lanes.entry(lane.to_owned()).or_default().push(number.parse().unwrap());
    }
    for (lane, mut numbers) in lanes {
        // Killed between its effect and its settlement, a message runs again, and it does so before the next one.
        numbers.dedup();
        assert!(numbers.is_sorted_by(|one, other| one < other), "seed {seed}, lane {lane}: {numbers:?}");
    }
}
