//! The engine and the memory store, simulated.

use semel::testing::random::each_seed;
use semel::testing::simulation::{Report, Scenario, simulate};

fn clean(scenario: impl Fn(u64) -> Scenario, count: u64) {
    each_seed(count, |seed| {
        let scenario = scenario(seed);
        simulate(&scenario, seed).assert_clean(&scenario, seed);
    });
}

#[test]
fn calm() {
    clean(|_| Scenario::calm(), 100);
}

#[test]
fn lossy() {
    clean(|_| Scenario::lossy(), 100);
}

#[test]
fn forgetful() {
    clean(|_| Scenario::forgetful(), 60);
}

#[test]
fn stormy() {
    clean(|_| Scenario::stormy(), 150);
}

#[test]
fn stormy_rerun() {
    clean(|_| Scenario::stormy_rerun(), 80);
}

#[test]
fn probing() {
    clean(|_| Scenario::probing(), 150);
}

#[test]
fn probing_sleepers() {
    clean(|_| Scenario::probing_sleepers(), 80);
}

#[test]
fn mixed() {
    clean(Scenario::mixed, 150);
}

#[test]
fn two_runs_of_one_seed_do_the_same() {
    for seed in 0..10 {
        let play = || simulate(&Scenario::stormy(), seed);
        let (one, other) = (play(), play());
        let differs = one.trace.iter().zip(&other.trace).find(|(one, other)| one != other);
        assert_eq!(differs, None);
        assert_eq!(one.hash(), other.hash());
        assert!(one.trace.len() > 100, "{}", one.trace.len());
        assert_ne!(one.hash(), simulate(&Scenario::stormy(), seed + 1).hash());
    }
}

/// A simulation in which something never happens says nothing about it.
#[test]
fn everything_happens() {
    let reports: Vec<Report> = (0..60).map(|seed| simulate(&Scenario::stormy(), seed)).collect();
    let count = |what: &str| reports.iter().filter_map(|report| report.counts.get(what)).sum::<u64>();
    let answers = [
        "ran",
        "ran, not recorded",
        "broke",
        "late",
        "replay",
        "in flight",
        "mismatch",
        "unknown",
        "dead",
        "unavailable",
        "stopping",
    ];
    for answer in answers {
        assert!(
            count(&format!("answer {answer}")) >= 5,
            "answer {answer}: {}",
            count(&format!("answer {answer}"))
        );
    }
    for claim in ["acquired", "in-flight", "completed", "mismatch", "unknown", "dead", "moved"] {
        assert!(count(&format!("claim {claim}")) >= 5, "claim {claim}: {}", count(&format!("claim {claim}")));
    }
    for end in ["complete", "release", "park", "bury"] {
        assert!(count(&format!("{end} done")) >= 5, "{end}: {}", count(&format!("{end} done")));
    }
    assert!(count("lease lost") >= 5, "no run was stopped");
    assert!(count("complete refused") + count("release refused") >= 5, "no zombie settled");
}

#[test]
fn everything_happens_to_those_who_ask() {
    let reports: Vec<Report> = (0..60).map(|seed| simulate(&Scenario::probing(), seed)).collect();
    let count = |what: &str| reports.iter().filter_map(|report| report.counts.get(what)).sum::<u64>();
    let told = ["told that it took effect", "told that it took none", "told that nobody knows"];
    let asked = ["asked by a request", "asked by the background"];
    for what in told.iter().chain(&asked) {
        assert!(count(what) >= 20, "{what}: {}", count(what));
    }
    for what in ["claim moved", "answer replay", "answer ran", "answer unknown", "answer in flight"] {
        assert!(count(what) >= 5, "{what}: {}", count(what));
    }
    let (asked, told) = (asked.map(count), told.map(count));
    let (asked, told) = (asked.iter().sum::<u64>(), told.iter().sum::<u64>());
    assert!(asked >= told + 20, "{asked} questions, {told} answers: hardly one broke");
}
