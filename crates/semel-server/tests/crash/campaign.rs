//! `kill -9` under load, at named places and at any time; then the ledger is audited.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::audit::Audit;
use crate::load::{self, Load};
use crate::support::{Launch, Random, Service, note};

const CLIENTS: usize = 16;

/// Places where the process kills itself: after the claim's commit, after the send, after the answer, before and
/// after the settlement's commit.
const POINTS: [&str; 5] = ["claim-committed", "sent", "answered", "settle-begins", "settle-committed"];

const KILLS_AT_EACH_POINT: usize = 5;

const RANDOM_KILLS: usize = 50;

/// Short, so that what a dead gateway leaves behind is soon known to be unknown.
const LEASE: &str = "500ms";

#[derive(Debug, Clone, Copy)]
enum Death {
    /// At the n-th time that it comes there.
    At(&'static str, u64),
    /// So long after it was started, which may be before it is ready.
    After(Duration),
}

/// The campaign: the gateway dies at every place at least five times, and fifty times at any place.
#[test]
fn killed_under_load_no_key_takes_effect_twice_and_no_answer_is_lost() {
    let seed = Random::seed();
    note(&format!("SEMEL_SEED={seed}"));
    let mut random = Random::new(seed);
    let service = Service::start(load::plan);
    let launch = Launch::new(service.address()).fixed().args(["--lease", LEASE]);
    let load = Load::new([launch.address()]);

    let mut kills = BTreeMap::new();
    let gateway = std::thread::scope(|scope| {
        let _stop = load.stop_at_end();
        for number in 0..CLIENTS {
            let (load, random) = (&load, random.split());
            scope.spawn(move || load.run(number, random));
        }
        for death in deaths(&mut random) {
            *kills.entry(die(&launch, death)).or_insert(0) += 1;
        }
        // The clients end what they have begun.
        launch.start()
    });

    for point in POINTS {
        assert!(kills.get(point).is_some_and(|count| *count >= KILLS_AT_EACH_POINT), "{point}: {kills:?}");
    }
    assert!(kills["random"] >= RANDOM_KILLS);
    note(&format!("kills: {kills:?}"));
    note(&load.counts.to_string());
    assert_eq!(*load.surprises.lock().unwrap(), Vec::<String>::new());
    assert!(load.counts.answers.load(Ordering::Relaxed) > 0, "a campaign without an answer shows nothing");
    Audit::new(&gateway, &service, &load).run();
}

fn deaths(random: &mut Random) -> Vec<Death> {
    let times = if std::env::var_os("SEMEL_LONG").is_some() { 10 } else { 1 };
    let mut deaths = Vec::new();
    for point in POINTS {
        for _ in 0..KILLS_AT_EACH_POINT * times {
            deaths.push(Death::At(point, 1 + random.below(40)));
        }
    }
    for _ in 0..RANDOM_KILLS * times {
        deaths.push(Death::After(random.millis(0, 300)));
    }
    random.shuffle(&mut deaths);
    deaths
}

/// One life of a gateway: where it ended.
fn die(launch: &Launch, death: Death) -> &'static str {
    match death {
        Death::At(point, count) => {
            let mut gateway = launch.clone().env("SEMEL_FAILPOINT", &format!("{point}:{count}")).spawn();
            let status = gateway.wait();
            assert_eq!(status.signal(), Some(9), "it was to die at {point}");
            let line = format!("failpoint {point}");
            assert!(gateway.wait_for_log(|said| said == line).is_some(), "it died elsewhere than at {point}");
            point
        }
        Death::After(time) => {
            let mut gateway = launch.spawn();
            std::thread::sleep(time);
            assert_eq!(gateway.kill().signal(), Some(9), "it ended by itself");
            "random"
        }
    }
}
