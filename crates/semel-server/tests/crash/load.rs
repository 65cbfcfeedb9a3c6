//! Clients that retry as clients do: the same key, until there is an answer that ends it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Answer, Call, Client, Plan, Random, Received, Reply};

/// How long one operation is tried for. Longer than any gateway is down, with its lease.
const PATIENCE: Duration = Duration::from_secs(20);

/// All clients together.
pub(crate) struct Load {
    /// Of the gateways: each connection goes to any of them.
    addresses: Vec<SocketAddr>,
    stopping: AtomicBool,
    /// Every operation that was begun, and the answer that its client took for final.
    pub(crate) operations: Mutex<BTreeMap<Operation, Option<Answer>>>,
    /// What no client should ever be told.
    pub(crate) surprises: Mutex<Vec<String>>,
    pub(crate) counts: Counts,
}

/// What happened to the clients.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) tries: AtomicU64,
    /// Final answers, replayed ones among them.
    pub(crate) answers: AtomicU64,
    pub(crate) replays: AtomicU64,
    pub(crate) not_recorded: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) broken: AtomicU64,
    pub(crate) unknown: AtomicU64,
}

/// One operation: its key says what the service does with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Operation {
    pub(crate) key: String,
    pub(crate) kind: Kind,
}

/// What the service does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Takes effect, answers 201.
    Plain,
    /// Answers 402, without an effect; final all the same.
    Refused,
    /// Fails without an effect the first time (500, 503 or 429), then as plain.
    FailsFirst,
    /// Takes effect, and cuts the connection within the answer.
    Cut,
    /// The first time it cuts the connection without an effect, then as plain.
    Lost,
}

/// What an answer means to a client.
enum Step {
    Final,
    GiveUp,
    Again,
}

impl Load {
    pub(crate) fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Load {
        Load {
            addresses: addresses.into_iter().collect(),
            stopping: AtomicBool::new(false),
            operations: Mutex::default(),
            surprises: Mutex::default(),
            counts: Counts::default(),
        }
    }

    /// Stops the clients when it is dropped, also by a panic: nobody else would.
    pub(crate) fn stop_at_end(&self) -> impl Drop + '_ {
        struct Stop<'a>(&'a Load);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stopping.store(true, Ordering::SeqCst);
            }
        }
        Stop(self)
    }

    /// One client, until it is stopped. It ends the operation that it has begun.
    pub(crate) fn run(&self, number: usize, mut random: Random) {
        let mut client = None;
        for turn in 0_u64.. {
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let operation = Operation { key: format!("c{number}-{turn}"), kind: Kind::drawn(&mut random) };
            self.operations.lock().unwrap().insert(operation.clone(), None);
            let answer = self.carry_through(&operation, &mut client, &mut random);
            self.operations.lock().unwrap().insert(operation, answer);
        }
    }

    /// Tries until there is an end: the answer, or nothing where it gave up.
    fn carry_through(
        &self,
        operation: &Operation,
        client: &mut Option<Client>,
        random: &mut Random,
    ) -> Option<Answer> {
        let end = Instant::now() + PATIENCE;
        let call = operation.call();
        loop {
            if random.below(8) == 0 {
                self.send_and_hang_up(&call, random);
            }
            match self.try_once(&call, client, random) {
                Some(answer) => match self.judge(operation, &answer) {
                    Step::Final => return Some(answer),
                    Step::GiveUp => return None,
                    Step::Again => {}
                },
                None => *client = None,
            }
            if Instant::now() > end {
                self.surprises.lock().unwrap().push(format!("{operation:?} has no end"));
                return None;
            }
            std::thread::sleep(random.millis(2, 30));
        }
    }

    /// A twin that does not wait for its answer. Whether it or the other one runs, one does.
    fn send_and_hang_up(&self, call: &Call, random: &mut Random) {
        if let Ok(mut twin) = Client::connect(self.any_gateway(random)) {
            let _ = twin.send(&call.bytes());
        }
    }

    fn try_once(&self, call: &Call, client: &mut Option<Client>, random: &mut Random) -> Option<Answer> {
        count(&self.counts.tries);
        let answer = match client {
            Some(client) => client.call(call),
            None => Client::connect(self.any_gateway(random)).and_then(|new| client.insert(new).call(call)),
        };
        if answer.is_err() {
            count(&self.counts.broken);
        }
        answer.ok()
    }

    fn any_gateway(&self, random: &mut Random) -> SocketAddr {
        self.addresses[random.below(self.addresses.len() as u64) as usize]
    }

    fn judge(&self, operation: &Operation, answer: &Answer) -> Step {
        let counts = &self.counts;
        match (answer.status, answer.code().as_str()) {
            (201 | 402, "") if answer.header("semel-recorded").is_some() => {
                // True, but a kill may come before it is written: to be sure, the client asks again.
                count(&counts.not_recorded);
                Step::Again
            }
            (201 | 402, "") => {
                count(&counts.answers);
                if answer.is_replay() {
                    count(&counts.replays);
                }
                Step::Final
            }
            (409 | 502, "outcome-unknown") => {
                count(&counts.unknown);
                Step::GiveUp
            }
            (409, "in-flight") | (503, "store-unavailable") => {
                count(&counts.in_flight);
                Step::Again
            }
            (500 | 503 | 429, "") if operation.kind == Kind::FailsFirst => {
                count(&counts.released);
                // Some clients do not try again: their keys stay released.
                if operation.key.ends_with('3') { Step::GiveUp } else { Step::Again }
            }
            _ => {
                self.surprises.lock().unwrap().push(format!("{operation:?} was told {answer:?}"));
                Step::GiveUp
            }
        }
    }
}

impl Operation {
    pub(crate) fn call(&self) -> Call {
        Call::post(&format!("/{:?}", self.kind), &self.key).body(format!("amount of {}", self.key))
    }

    /// How often it takes effect in the end.
    pub(crate) fn effects(&self) -> usize {
        usize::from(self.kind != Kind::Refused)
    }
}

impl Kind {
    fn drawn(random: &mut Random) -> Kind {
        match random.below(20) {
            0 => Kind::Refused,
            1 | 2 => Kind::FailsFirst,
            3 => Kind::Cut,
            4 => Kind::Lost,
            _ => Kind::Plain,
        }
    }
}

/// What the service does: by the request's kind, and by how often its key was there before.
pub(crate) fn plan(received: &Received) -> Plan {
    let (plan, mut random) = (honest(received), random_of(received));
    match (received.target.as_str(), received.earlier) {
        ("/FailsFirst", 0) => {
            Plan { effect: false, reply: Reply::new([500, 503, 429][random.below(3) as usize], "no"), ..plan }
        }
        ("/Cut", _) => Plan { cut_after: Some(random.below(200) as usize), ..plan },
        ("/Lost", 0) => Plan { effect: false, cut_after: Some(0), ..plan },
        _ => plan,
    }
}

/// The same on a good day.
pub(crate) fn honest(received: &Received) -> Plan {
    let mut random = random_of(received);
    let plan = Plan {
        delay: random.millis(0, 15),
        delay_answer: random.millis(0, 10),
        reply: Reply::numbered()
            .header("Location", &format!("/charges/{}", received.key()))
            .header("Link", "</terms>; rel=\"terms\"")
            .header("X-Note", "first")
            .header("X-Note", "second"),
        ..Plan::default()
    };
    match received.target.as_str() {
        "/Refused" => Plan { effect: false, reply: Reply::new(402, "no"), ..plan },
        _ => plan,
    }
}

/// From the key: a seed brings it back.
fn random_of(received: &Received) -> Random {
    Random::new(received.key().bytes().fold(7, |sum, byte| sum * 31 % 1_000_000_007 + u64::from(byte)))
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { tries, answers, replays, not_recorded, in_flight, released, broken, unknown } = self;
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        write!(
            f,
            "clients: {} tries, {} final answers ({} of them replays), {} not recorded, {} told in flight, \
             {} told of a failure, {} connections broken, {} told unknown",
            number(tries),
            number(answers),
            number(replays),
            number(not_recorded),
            number(in_flight),
            number(released),
            number(broken),
            number(unknown),
        )
    }
}
