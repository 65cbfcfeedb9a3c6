//! Three gateways, one database, many clients; and everything that can happen to them, in rounds.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use semel_testbed::{Armed, Fault, Proxy};

use crate::audit::Audit;
use crate::load::{self, Load};
use crate::server::Server;
use crate::support::{Gateway, Launch, Random, Service, note};

const GATEWAYS: usize = 3;
const CLIENTS: usize = 9;

/// Short, so that what a dead gateway leaves behind is soon known to be unknown.
const LEASE: &str = "1s";

/// With `SEMEL_LONG`.
const LONG: Duration = Duration::from_secs(600);

/// How long a cut may wait for a request to strike: its client's gateway may be down, or the database.
const CUT_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// `kill -9`, and a new one in its place.
    GatewayKilled(usize),
    /// The database dies with what it was doing, and comes back.
    DatabaseKilled,
    /// It ends in order, and comes back.
    DatabaseRestarted,
    /// The database has answered a request for a key of this client's, and nobody hears it.
    CutAfterAnswer(usize),
    /// Every connection to the database is reset.
    AllCut,
}

/// What every round has, in an order of its own.
const ROUND: [Event; 18] = [
    Event::GatewayKilled(0),
    Event::GatewayKilled(1),
    Event::GatewayKilled(2),
    Event::GatewayKilled(0),
    Event::GatewayKilled(1),
    Event::GatewayKilled(2),
    Event::DatabaseKilled,
    Event::DatabaseRestarted,
    Event::AllCut,
    Event::CutAfterAnswer(0),
    Event::CutAfterAnswer(1),
    Event::CutAfterAnswer(2),
    Event::CutAfterAnswer(3),
    Event::CutAfterAnswer(4),
    Event::CutAfterAnswer(5),
    Event::CutAfterAnswer(6),
    Event::CutAfterAnswer(7),
    Event::CutAfterAnswer(8),
];

pub(crate) struct Campaign {
    server: Server,
    proxy: Proxy,
    service: Service,
    launches: Vec<Launch>,
    random: Random,
}

impl Campaign {
    pub(crate) fn on(server: Server) -> Campaign {
        let seed = Random::seed();
        note(&format!("{}: SEMEL_SEED={seed}", server.name()));
        let proxy = Proxy::before(server.addr());
        let service = Service::start(load::plan);
        let url = semel_testbed::at_address(&server.url(), proxy.addr());
        let launch = Launch::new(service.address()).args(["--lease", LEASE]).store_at(&url);
        let launches = (0..GATEWAYS).map(|_| launch.clone().fixed()).collect();
        Campaign { server, proxy, service, launches, random: Random::new(seed) }
    }

    pub(crate) fn run(mut self) {
        let load = Load::new(self.launches.iter().map(Launch::address));
        // All at once: each of them finds an empty database, and makes the schema or waits for it.
        let mut gateways: Vec<_> = std::thread::scope(|scope| {
            let starting: Vec<_> =
                self.launches.iter().map(|launch| scope.spawn(|| launch.start_supervised())).collect();
            starting.into_iter().map(|gateway| gateway.join().expect("a gateway")).collect()
        });
        let mut happened = BTreeMap::new();
        std::thread::scope(|scope| {
            let _stop = load.stop_at_end();
            for number in 0..CLIENTS {
                let (load, random) = (&load, self.random.split());
                scope.spawn(move || load.run(number, random));
            }
            let started = Instant::now();
            loop {
                self.round(&mut gateways, &mut happened);
                if std::env::var_os("SEMEL_LONG").is_none() || started.elapsed() > LONG {
                    break;
                }
            }
        });
        self.end(&gateways, &load, &happened);
    }

    fn round(&mut self, gateways: &mut [Gateway], happened: &mut BTreeMap<&'static str, u32>) {
        let mut events = ROUND;
        self.random.shuffle(&mut events);
        for event in events {
            std::thread::sleep(self.random.millis(20, 250));
            let name = match event {
                Event::GatewayKilled(number) => {
                    assert_eq!(gateways[number].kill().signal(), Some(9), "it ended by itself");
                    gateways[number] = self.launches[number].start_supervised();
                    "gateways killed"
                }
                Event::DatabaseKilled => {
                    self.server.kill();
                    self.server.restart();
                    "database killed"
                }
                Event::DatabaseRestarted => {
                    self.server.restart();
                    "database restarted"
                }
                Event::CutAfterAnswer(client) => {
                    let armed = self.proxy.arm_on(Fault::CutAfterAnswer, format!("c{client}-"));
                    if struck(&armed) { "cut after the answer" } else { "nothing to cut" }
                }
                Event::AllCut => {
                    self.proxy.cut_all();
                    "all connections reset"
                }
            };
            *happened.entry(name).or_insert(0) += 1;
        }
    }

    fn end(&self, gateways: &[Gateway], load: &Load, happened: &BTreeMap<&'static str, u32>) {
        let name = self.server.name();
        note(&format!("{name}: {happened:?}"));
        note(&format!("{name}: {}", load.counts));
        let cuts = happened.get("cut after the answer").copied().unwrap_or(0);
        assert!(cuts > 3, "{name}: no connection was cut after its answer: {happened:?}");
        assert_eq!(*load.surprises.lock().unwrap(), Vec::<String>::new(), "{name}");
        assert!(
            load.counts.answers.load(Ordering::Relaxed) > 0,
            "a campaign without an answer shows nothing"
        );
        Audit::new(&gateways[0], &self.service, load).run();
    }
}

/// Waits for the strike; a plan that found nothing strikes nobody later.
fn struck(armed: &Armed) -> bool {
    let end = Instant::now() + CUT_WITHIN;
    while armed.count() == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
    armed.disarm();
    armed.count() > 0
}
