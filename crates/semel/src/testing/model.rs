//! Random histories, executed on a store and on the memory store, compared answer by answer.
//!
//! The memory store runs the rules of [`record`](crate::record); so this is the comparison of a store with the
//! specification. A store fails with a seed and the history up to the difference.
//!
//! Times are multiples of ten seconds, so that a store on a clock that runs by itself meets the same borders as
//! the model, whose clock stands still between two steps.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Random;
use super::clock::ManualClock;
use super::contract::Harness;
use super::sample;
use crate::key::{Key, Scope};
use crate::memory::MemoryStore;
use crate::store::{
    AttemptId, Cause, Claim, ClaimRequest, Cursor, Entry, Fence, Label, Lease, Outcome, Purpose, Settlement,
    Store, StoreError, View,
};

/// The unit of all times.
const TICK: Duration = Duration::from_secs(10);

/// How long histories are.
const STEPS_MAX: u64 = 60;

/// Executes the history of one seed on a fresh store of the harness.
///
/// # Panics
///
/// When the store answers otherwise than the memory store; with the seed and the history.
pub async fn compare(harness: &dyn Harness, seed: u64) {
    let clock = ManualClock::new();
    let model: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let store = harness.open().await;
    let mut history = History::new(Random::new(seed), harness.tolerance());
    for _ in 0..1 + history.random.below(STEPS_MAX) {
        let step = history.next_step();
        history.done.push(format!("{step:?}"));
        if let Step::Wait(time) = step {
            clock.advance(time);
            harness.advance(time).await;
            continue;
        }
        let (expected, actual) = (answer(&model, &step).await, answer(&store, &step).await);
        history.check(seed, &expected, &actual);
        if let Answer::Claim(Claim::Acquired(lease)) = &expected {
            history.leases.push(lease.clone());
        }
    }
    let (expected, actual) = (everything(&model).await, everything(&store).await);
    history.done.push("everything at the end".to_owned());
    history.check(seed, &expected, &actual);
}

#[derive(Debug, Clone)]
enum Step {
    Claim(ClaimRequest),
    Renew(Lease, Duration),
    Settle(Lease, Settlement),
    Find(Scope, Key),
    /// In pages of so many.
    Unsettled(u32),
    Sweep,
    Wait(Duration),
}

#[derive(Debug)]
enum Answer {
    Claim(Claim),
    Unit(Result<(), &'static str>),
    Entries(Vec<Entry>),
}

struct History {
    random: Random,
    tolerance: Duration,
    leases: Vec<Lease>,
    done: Vec<String>,
}

impl History {
    fn new(random: Random, tolerance: Duration) -> History {
        History { random, tolerance, leases: Vec::new(), done: Vec::new() }
    }

    fn next_step(&self) -> Step {
        match self.random.below(100) {
            0..38 => Step::Claim(self.claim()),
            38..46 => self.with_lease(|lease| Step::Renew(lease, self.ticks(8))),
            46..74 => self.with_lease(|lease| Step::Settle(lease, self.settlement())),
            74..80 => Step::Find(self.scope(), self.key()),
            80..84 => Step::Unsettled(u32::try_from(1 + self.random.below(4)).expect("a small number")),
            84..88 => Step::Sweep,
            _ => Step::Wait(self.ticks(14)),
        }
    }

    fn claim(&self) -> ClaimRequest {
        let random = &self.random;
        // Few attempts, so that repetitions and attempts that are over come back.
        let number = random.below(8);
        let purpose = match random.below(10) {
            // Attempts that settle have numbers of their own: an attempt has one purpose.
            0..2 => Purpose::Settle { seen: Fence(random.below(5)), force: random.chance(30) },
            _ => Purpose::Run {
                fingerprint: sample::fingerprint(if random.chance(12) { "other" } else { "same" }),
                rerun: random.chance(40),
                attempts_max: if random.chance(15) {
                    1 + u32::try_from(random.below(3)).expect("small")
                } else {
                    100
                },
            },
        };
        let settles = matches!(purpose, Purpose::Settle { .. });
        ClaimRequest {
            scope: self.scope(),
            key: self.key(),
            attempt: sample::attempt(number + if settles { 100 } else { 0 }),
            purpose,
            lease_for: self.ticks(8),
            label: Label::new(format!("POST /{number}")),
            input: random.chance(50).then(|| Bytes::from(vec![u8::try_from(number).expect("small"); 3])),
        }
    }

    fn settlement(&self) -> Settlement {
        let random = &self.random;
        match random.below(10) {
            0..4 => Settlement::Complete {
                outcome: Outcome {
                    format: u8::from(random.chance(20)),
                    bytes: if random.chance(50) { "done".into() } else { Bytes::new() },
                },
                replay_for: self.ticks(10),
                remember_for: self.ticks(20),
            },
            4..7 => Settlement::Release {
                not_before: random.chance(30).then(|| self.ticks(5)),
                unbind: random.chance(40),
                ran: random.chance(70),
                remember_for: self.ticks(20),
            },
            7..9 => Settlement::Park { cause: Cause::CUT },
            _ => Settlement::Bury { cause: Cause::new("rejected") },
        }
    }

    /// One of the leases that were given so far; now and then one that nobody was given.
    fn with_lease(&self, step: impl FnOnce(Lease) -> Step) -> Step {
        if self.leases.is_empty() {
            return Step::Sweep;
        }
        // Mostly a recent one: the old ones are zombies' and answered alike.
        let back = self.random.below(self.random.below(self.leases.len() as u64) + 1);
        let mut lease = self.leases[self.leases.len() - 1 - usize::try_from(back).expect("an index")].clone();
        match self.random.below(20) {
            0 => lease.fence = Fence(lease.fence.0 + 1),
            1 => lease.attempt = AttemptId([7; 16]),
            _ => {}
        }
        step(lease)
    }

    fn scope(&self) -> Scope {
        Scope::new(*self.random.pick(&["a", "a", "b"])).expect("a scope")
    }

    fn key(&self) -> Key {
        Key::new(*self.random.pick(&["k", "k", "K"])).expect("a key")
    }

    fn ticks(&self, below: u64) -> Duration {
        TICK * u32::try_from(self.random.below(below)).expect("a small number")
    }

    fn check(&self, seed: u64, expected: &Answer, actual: &Answer) {
        assert!(
            self.is_same(expected, actual),
            "seed {seed}: after\n  {}\nthe model says\n  {expected:?}\nand the store\n  {actual:?}",
            self.done.join("\n  "),
        );
    }

    fn is_same(&self, expected: &Answer, actual: &Answer) -> bool {
        match (expected, actual) {
            (Answer::Claim(expected), Answer::Claim(actual)) => self.is_same_claim(expected, actual),
            (Answer::Unit(expected), Answer::Unit(actual)) => expected == actual,
            (Answer::Entries(expected), Answer::Entries(actual)) => {
                expected.len() == actual.len()
                    && expected
                        .iter()
                        .zip(actual)
                        .all(|(expected, actual)| self.is_same_entry(expected, actual))
            }
            _ => false,
        }
    }

    /// Equal, but for times, which may differ by what the store's clock ran.
    fn is_same_claim(&self, expected: &Claim, actual: &Claim) -> bool {
        let timeless = |claim: &Claim| {
            let mut claim = claim.clone();
            match &mut claim {
                Claim::InFlight { retry_after, age } => (*retry_after, *age) = Default::default(),
                Claim::Completed { age, .. }
                | Claim::Unknown { age, .. }
                | Claim::Dead { age, .. }
                | Claim::Forgotten { age } => *age = Duration::ZERO,
                Claim::Acquired(_) | Claim::Mismatch { .. } | Claim::Moved => {}
            }
            claim
        };
        let times = |claim: &Claim| match claim {
            Claim::InFlight { retry_after, age } => [*retry_after, *age],
            Claim::Completed { age, .. }
            | Claim::Unknown { age, .. }
            | Claim::Dead { age, .. }
            | Claim::Forgotten { age } => [*age, Duration::ZERO],
            Claim::Acquired(_) | Claim::Mismatch { .. } | Claim::Moved => [Duration::ZERO; 2],
        };
        timeless(expected) == timeless(actual) && self.are_close(times(expected), times(actual))
    }

    fn is_same_entry(&self, expected: &Entry, actual: &Entry) -> bool {
        // A cursor is the store's own.
        let timeless = |entry: &Entry| {
            let view = match &entry.view {
                View::Running { .. } => View::Running { lease_left: Duration::ZERO },
                View::Released { .. } => View::Released { not_before: Duration::ZERO },
                other => other.clone(),
            };
            Entry {
                view,
                age: Duration::ZERO,
                since: Duration::ZERO,
                cursor: Cursor::default(),
                ..entry.clone()
            }
        };
        let left = |entry: &Entry| match entry.view {
            View::Running { lease_left: left } | View::Released { not_before: left } => left,
            _ => Duration::ZERO,
        };
        let times = |entry: &Entry| [entry.age, entry.since, left(entry)];
        timeless(expected) == timeless(actual) && self.are_close(times(expected), times(actual))
    }

    fn are_close<const N: usize>(&self, expected: [Duration; N], actual: [Duration; N]) -> bool {
        expected.iter().zip(actual).all(|(expected, actual)| expected.abs_diff(actual) <= self.tolerance)
    }
}

async fn answer(store: &Arc<dyn Store>, step: &Step) -> Answer {
    match step {
        Step::Claim(request) => Answer::Claim(store.claim(request).await.expect("a claim is answered")),
        Step::Renew(lease, lease_for) => Answer::Unit(named(store.renew(lease, *lease_for).await)),
        Step::Settle(lease, settlement) => Answer::Unit(named(store.settle(lease, settlement).await)),
        Step::Find(scope, key) => {
            Answer::Entries(store.find(scope, key).await.expect("a record is read").into_iter().collect())
        }
        Step::Unsettled(limit) => Answer::Entries(unsettled(store, *limit).await),
        Step::Sweep => {
            // How much one call frees is the store's affair; the rest of the history shows that nothing changed.
            store.sweep(2).await.expect("a sweep");
            Answer::Unit(Ok(()))
        }
        Step::Wait(_) => unreachable!("waiting is no call"),
    }
}

fn named(result: Result<(), StoreError>) -> Result<(), &'static str> {
    result.map_err(|error| match error {
        StoreError::LeaseLost => "lost",
        StoreError::Refused(_) => "refused",
        other => panic!("the store failed: {other}"),
    })
}

/// All pages. Their order must be that of time; among records of one instant it is the store's own, so they are
/// compared in the order of their names.
async fn unsettled(store: &Arc<dyn Store>, limit: u32) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after = entries.last().map(|entry| entry.cursor.clone());
        let page = store.unsettled(after.as_ref(), limit).await.expect("a list");
        assert!(page.len() <= limit as usize, "a page is longer than its limit");
        if page.is_empty() {
            break;
        }
        entries.extend(page);
    }
    let slack = Duration::from_secs(5);
    assert!(
        entries.windows(2).all(|pair| pair[0].since + slack >= pair[1].since),
        "the oldest is not the first"
    );
    entries.sort_by(|one, other| (&one.scope, &one.key).cmp(&(&other.scope, &other.key)));
    entries
}

/// Every record that a history can have made.
async fn everything(store: &Arc<dyn Store>) -> Answer {
    let mut entries = unsettled(store, 100).await;
    for scope in ["a", "b"] {
        for key in ["k", "K"] {
            let (scope, key) = (Scope::new(scope).expect("a scope"), Key::new(key).expect("a key"));
            entries.extend(store.find(&scope, &key).await.expect("a record is read"));
        }
    }
    Answer::Entries(entries)
}
