//! Several gateways on one store (G3), as far as today's stores go: one SQLite file on one machine.
//!
//! A store that gateways on several machines share (PostgreSQL, MySQL, Redis) has to keep the same, with its own URL in
//! the place of the file; those stores, and these tests on them, come with later issues.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::assert::{in_flight, lasting, unknown};
use crate::support::{
    Answer, Call, Client, Gate, Gateway, Launch, Plan, Random, Received, Service, note, until,
};

const PAIRS: usize = 4;

const KEYS_OF_EACH: usize = 40;

const KILLS: usize = 8;

/// Short, so that what a dead gateway leaves behind is soon known to be unknown.
const LEASE: [&str; 2] = ["--lease", "500ms"];

fn call(key: &str) -> Call {
    Call::post("/charges", key).body(format!("amount of {key}"))
}

/// Long enough for the same key to come by the other way meanwhile.
fn slow(received: &Received) -> Plan {
    let seed = received.key().bytes().fold(7, |sum, byte| sum * 31 % 1_000_000_007 + u64::from(byte));
    let mut random = Random::new(seed);
    Plan { delay: random.millis(1, 12), delay_answer: random.millis(0, 8), ..Plan::default() }
}

/// The same request by two connections at the same instant; nothing where one of them breaks.
fn at_once(clients: &mut [Client; 2], call: &Call) -> [Option<Answer>; 2] {
    let sent = clients.each_mut().map(|client| client.send(&call.bytes()).is_ok());
    let mut received =
        clients.iter_mut().zip(sent).map(|(client, sent)| client.receive().ok().filter(|_| sent));
    [received.next().flatten(), received.next().flatten()]
}

/// What it says when the store has answered in time. A busy machine may take longer.
fn said(client: &mut Client, call: &Call) -> Answer {
    until("the store answers", || {
        Some(client.call(call).unwrap()).filter(|answer| answer.code() != "store-unavailable")
    })
}

#[test]
fn g3_the_same_keys_at_two_gateways_at_once_run_once_each() {
    let service = Service::start(slow);
    let one = Launch::new(service.address()).start();
    let other = one.launch().beside().start();
    let flying = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for pair in 0..PAIRS {
            let (one, other, flying) = (&one, &other, &flying);
            scope.spawn(move || {
                // Each of them is asked first by half of the clients.
                let (first, second) = if pair % 2 == 0 { (one, other) } else { (other, one) };
                let mut clients = [first.connect(), second.connect()];
                for number in 0..KEYS_OF_EACH {
                    let told = runs_once(&mut clients, &call(&format!("both-{pair}-{number}")));
                    flying.fetch_add(told, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(flying.into_inner() > 0, "no two of them met");
    assert_eq!(service.ledger().twice(), Vec::new());
    assert_eq!(service.ledger().effects_count(), PAIRS * KEYS_OF_EACH);
    assert_eq!(service.ledger().received_count(), PAIRS * KEYS_OF_EACH);
}

/// One answer is the run's own, and all others are its replay, or say that it runs. Gives how many say that at first.
fn runs_once(clients: &mut [Client; 2], call: &Call) -> usize {
    let mut answers = Vec::from(at_once(clients, call).map(|answer| answer.expect("both answer")));
    let told = answers.iter().filter(|answer| answer.code() == "in-flight").count();
    for client in clients {
        until("its replay", || {
            answers.push(said(client, call));
            answers.last().is_some_and(Answer::is_replay).then_some(())
        });
    }
    answers.retain(|answer| answer.code() != "store-unavailable");
    let (kept, told_later): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    told_later.into_iter().for_each(in_flight);
    let own: Vec<_> = kept.iter().filter(|answer| !answer.is_replay()).collect();
    let [own] = own[..] else { panic!("{call:?} was answered by {kept:?}") };
    for answer in &kept {
        assert_eq!((&answer.body, charge(answer)), (&own.body, charge(own)));
    }
    told
}

/// Its lasting lines. That it was not recorded yet is true of the moment.
fn charge(answer: &Answer) -> Vec<(String, String)> {
    let lines = lasting(answer).into_iter();
    lines.filter(|(name, _)| name != "semel-recorded").collect()
}

/// Clients that send each key to both gateways at once, and then to either until there is an end.
struct Load {
    /// The one that dies, and the one that stays.
    addresses: [SocketAddr; 2],
    stopping: AtomicBool,
    /// Each key, with every answer of the service that its client saw.
    seen: Mutex<BTreeMap<String, Vec<Answer>>>,
    surprises: Mutex<Vec<String>>,
    broken: AtomicUsize,
}

impl Load {
    fn run(&self, number: usize, mut random: Random) {
        for turn in 0.. {
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let key = format!("c{number}-{turn}");
            self.seen.lock().unwrap().entry(key.clone()).or_default();
            let mut ended = self.at_both(&key);
            while !ended {
                std::thread::sleep(random.millis(1, 10));
                ended = self.at(&key, random.below(2) as usize);
            }
        }
    }

    /// Whether there is an end.
    fn at_both(&self, key: &str) -> bool {
        let [Ok(mortal), Ok(steady)] = self.addresses.map(Client::connect) else { return false };
        let answers = at_once(&mut [mortal, steady], &call(key));
        answers.into_iter().map(|answer| self.judged(key, answer)).fold(false, |ended, ends| ended | ends)
    }

    fn at(&self, key: &str, which: usize) -> bool {
        let answer = Client::connect(self.addresses[which]).and_then(|mut client| client.call(&call(key)));
        self.judged(key, answer.ok())
    }

    /// Whether the client has its answer, or is told that nobody knows.
    fn judged(&self, key: &str, answer: Option<Answer>) -> bool {
        let Some(answer) = answer else {
            self.broken.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        match (answer.status, answer.code().as_str()) {
            // True, but the gateway may be killed before it is written: the client asks again.
            (201, _) if answer.header("semel-recorded").is_some() => false,
            (201, _) => {
                self.seen.lock().unwrap().entry(key.to_owned()).or_default().push(answer);
                true
            }
            (409, "outcome-unknown") => true,
            (409, "in-flight") | (503, "store-unavailable") => false,
            _ => {
                self.surprises.lock().unwrap().push(format!("{key} was told {answer:?}"));
                true
            }
        }
    }

    /// Stops the clients when it is dropped, also by a panic: nobody else would.
    fn stop_at_end(&self) -> impl Drop + '_ {
        struct Stop<'a>(&'a Load);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stopping.store(true, Ordering::SeqCst);
            }
        }
        Stop(self)
    }
}

#[test]
fn g3_one_of_two_is_killed_again_and_again_and_what_was_promised_holds_at_both() {
    let seed = Random::seed();
    note(&format!("SEMEL_SEED={seed}"));
    let mut random = Random::new(seed);
    let service = Service::start(slow);
    let mortal = Launch::new(service.address()).fixed().args(LEASE);
    let steady = mortal.beside().start();
    let load = Load {
        addresses: [mortal.address(), steady.listen],
        stopping: AtomicBool::new(false),
        seen: Mutex::default(),
        surprises: Mutex::default(),
        broken: AtomicUsize::new(0),
    };
    let mortal = std::thread::scope(|scope| {
        let _stop = load.stop_at_end();
        for number in 0..2 * PAIRS {
            let (load, random) = (&load, random.split());
            scope.spawn(move || load.run(number, random));
        }
        for _ in 0..KILLS {
            let mut gateway = mortal.start();
            let received = service.ledger().received_count();
            // In the middle of its work, wherever that is.
            service.ledger().wait_received(received + 10 + random.below(60) as usize);
            gateway.kill();
        }
        mortal.start()
    });
    assert_eq!(load.surprises.into_inner().unwrap(), Vec::<String>::new());
    assert!(load.broken.into_inner() >= KILLS, "nobody saw it die");
    audit(&service, [&mortal, &steady], &load.seen.into_inner().unwrap());
}

fn audit(service: &Service, gateways: [&Gateway; 2], seen: &BTreeMap<String, Vec<Answer>>) {
    let operator = gateways[0].operator();
    // Leases that nobody renews lapse.
    let records = until("nothing runs", || {
        let records = operator.keys();
        records.iter().all(|record| record.state != "running").then_some(records)
    });
    service.ledger().wait_idle();
    assert_eq!(service.ledger().twice(), Vec::new());

    let mut clients = gateways.map(Gateway::connect);
    for (key, answers) in seen.iter().filter(|(_, answers)| !answers.is_empty()) {
        for client in &mut clients {
            let again = said(client, &call(key));
            assert!(again.is_replay(), "{key} was answered with {answers:?}, and now with {again:?}");
            for answer in answers {
                assert_eq!((again.status, &again.body), (answer.status, &answer.body), "{key}");
                assert_eq!(lasting(&again), lasting(answer), "{key}");
            }
        }
    }
    let left: Vec<_> = records.iter().filter(|record| record.state == "unknown").collect();
    let answered = seen.values().filter(|answers| !answers.is_empty()).count();
    note(&format!("{} keys: {answered} answered, {} left unknown by {KILLS} kills", seen.len(), left.len()));
    assert!(answered > 0 && seen.len() >= records.len());
    for record in left {
        settled(service, gateways, &record.key);
    }
    assert_eq!(service.ledger().twice(), Vec::new());
}

/// An operator's command, beside both gateways, by what the ledger says; and then both tell the same.
fn settled(service: &Service, gateways: [&Gateway; 2], key: &str) {
    let operator = gateways[0].operator();
    if service.ledger().effects(key) == 0 {
        operator.resolve_rerun(key);
        let run = said(&mut gateways[1].connect(), &call(key));
        assert_eq!((run.status, run.is_replay()), (201, false), "{key}");
    } else {
        let body = gateways[0].launch().directory().join(format!("{key}.json"));
        std::fs::write(&body, format!("{{\"found\":\"{key}\"}}")).unwrap();
        operator.resolve_completed(key, 201, &body);
    }
    let [one, other] = gateways
        .map(|gateway| until("its replay", || Some(gateway.call(&call(key))).filter(Answer::is_replay)));
    assert_eq!((one.status, &one.body, lasting(&one)), (201, &other.body, lasting(&other)), "{key}");
    assert_eq!(service.ledger().effects(key), 1, "{key}");
}

#[test]
fn g3_what_a_killed_one_left_running_is_unknown_at_the_other_and_settled_beside_both() {
    let (before, after) = (Gate::new(), Gate::new());
    let service = Service::plain();
    // Long enough to be renewed on a busy machine.
    let mut mortal = Launch::new(service.address()).fixed().args(["--lease", "2s"]).start();
    let steady = mortal.launch().beside().start();
    // One takes effect after its gateway is gone, the other never does.
    service.next(Plan::behind(&after));
    service.next(Plan { effect: false, ..Plan::behind(&before) });
    let mut clients = [mortal.connect(), mortal.connect()];
    for (number, (client, key)) in clients.iter_mut().zip(["done", "not-done"]).enumerate() {
        client.send(&call(key).bytes()).unwrap();
        service.ledger().wait_received(number + 1);
        in_flight(&said(&mut steady.connect(), &call(key)));
    }
    mortal.kill();
    after.open();
    before.open();
    service.ledger().wait_effects(1);
    service.ledger().wait_idle();
    for key in ["done", "not-done"] {
        let told = until("the lease is over", || {
            Some(said(&mut steady.connect(), &call(key))).filter(|answer| answer.code() != "in-flight")
        });
        unknown(&told);
        assert_eq!(steady.operator().show(key).unwrap().cause, "lapsed");
    }
    let mortal = mortal.restart();
    for key in ["done", "not-done"] {
        unknown(&said(&mut mortal.connect(), &call(key)));
        settled(&service, [&mortal, &steady], key);
    }
    assert_eq!(
        service.ledger().received_count(),
        3,
        "the one that had not taken effect ran again, and no other"
    );
}
