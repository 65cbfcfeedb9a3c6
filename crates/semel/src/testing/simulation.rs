//! A seeded simulation in virtual time: several processes, each with an engine of its own, over one store.
//!
//! Everything that a network and an operating system may do to them is drawn from the seed: answers that are
//! lost, calls that fail, hang, or are carried out again much later; processes that die, sleep for longer than a
//! lease, or are stopped; callers that hang up, and callers that wait for others; a clock that steps; sweeps;
//! operators who resolve what is unknown; probes that find out the truth, or do not. A ledger watches what really
//! happened and checks it ([`Check`]).
//!
//! ```text
//!  callers ──> process (engine) ──> link: gate, delay, faults ──> witness ──> store (or a mutant of it)
//!                  ├──> effects ────────────────> ledger <────────────┘
//!                  └──> probe <─── the truth ────────┘
//! ```
//!
//! Two runs of one seed do the same, to the last line of their traces: there is one thread, paused time, and no
//! iteration over anything unordered.
//!
//! After a time the faults stop. Then everything must end, and what is unknown must be resolvable.

mod callers;
mod chaos;
mod ledger;
mod oracle;
mod process;
mod witness;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::clock::VirtualClock;
use super::mutant::{Mutant, MutantStore};
use super::random::Random;
use crate::memory::MemoryStore;
use crate::policy::{OnUnknown, Policy};

pub use ledger::{Check, Violation};

use world::World;

/// What happens to the network between a process and the store.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// How many calls in a hundred meet with a fault.
    pub faults_percent: u64,
    /// Whether a call may be carried out again, or only, long after its caller has stopped waiting.
    pub delays: bool,
    /// The longest way to the store, or back.
    pub delay_millis_max: u64,
}

/// What a run may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// Each takes effect and is kept.
    AllKept,
    /// Some are kept, some released without effect.
    Certain,
    /// Also unsure, buried, panicking.
    Any,
}

/// What is simulated. The fields are switches, so that a failure can be narrowed down.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// For the messages.
    pub name: &'static str,
    /// The policy's choice.
    pub on_unknown: OnUnknown,
    /// The network.
    pub weather: Weather,
    /// What runs do.
    pub runs: Runs,
    /// The longest run.
    pub run_millis_max: u64,
    /// How many requests in a hundred ask for something else under the same key.
    pub others_percent: u64,
    /// How many callers in a hundred hang up.
    pub hang_ups_percent: u64,
    /// How many callers in a hundred wait for another attempt.
    pub waits_percent: u64,
    /// The policy's `probe_after`. The truth is that nothing happened *yet*: this is what makes it a lasting one.
    pub probe_after: Duration,
    /// Processes die, and are stopped, and start anew.
    pub crashes: bool,
    /// Processes sleep for longer than a lease.
    pub sleepers: bool,
    /// The store's clock is set back and forth.
    pub clock_steps: bool,
    /// Somebody resolves what is unknown.
    pub operators: bool,
    /// Space is freed now and then.
    pub sweeps: bool,
    /// Outcomes and keys are forgotten while callers still retry.
    pub brief_retention: bool,
    /// How often a key may be tried.
    pub attempts_max: u32,
}

/// How long a lease lasts here.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// Longer than any effect may come after its lease has lapsed. A process that sleeps may sleep twice during a run,
/// for 21 s each time, and a run takes effect within half of `run_millis_max`, 15 s; half a lease for the claim.
const PROBE_AFTER: Duration = Duration::from_secs(60);
/// The same where no process sleeps.
const PROBE_AFTER_AWAKE: Duration = Duration::from_secs(12);

impl Scenario {
    /// Nothing fails, but runs are longer than leases and callers hang up. Reruns are allowed, so that a lease that
    /// is lost for no reason shows as a second effect.
    #[must_use]
    pub fn calm() -> Scenario {
        Scenario {
            name: "calm",
            on_unknown: OnUnknown::Rerun,
            weather: Weather { faults_percent: 0, delays: false, delay_millis_max: 20 },
            runs: Runs::Certain,
            run_millis_max: 20_000,
            others_percent: 10,
            hang_ups_percent: 30,
            waits_percent: 20,
            probe_after: PROBE_AFTER,
            crashes: false,
            sleepers: false,
            clock_steps: false,
            operators: false,
            sweeps: false,
            brief_retention: false,
            attempts_max: 100,
        }
    }

    /// Answers are lost, calls fail and hang; nothing dies. So nothing may end unknown.
    #[must_use]
    pub fn lossy() -> Scenario {
        let weather = Weather { faults_percent: 30, delays: false, delay_millis_max: 50 };
        Scenario {
            name: "lossy",
            on_unknown: OnUnknown::Park,
            weather,
            run_millis_max: 2_000,
            ..Scenario::calm()
        }
    }

    /// Outcomes and keys are forgotten soon; the network is good.
    #[must_use]
    pub fn forgetful() -> Scenario {
        Scenario {
            name: "forgetful",
            on_unknown: OnUnknown::Park,
            run_millis_max: 2_000,
            brief_retention: true,
            ..Scenario::calm()
        }
    }

    /// Everything at once, and what is unknown waits for an operator.
    #[must_use]
    pub fn stormy() -> Scenario {
        Scenario {
            name: "stormy",
            on_unknown: OnUnknown::Park,
            weather: Weather { faults_percent: 20, delays: true, delay_millis_max: 300 },
            runs: Runs::Any,
            run_millis_max: 12_000,
            others_percent: 8,
            hang_ups_percent: 25,
            waits_percent: 20,
            probe_after: PROBE_AFTER,
            crashes: true,
            sleepers: true,
            clock_steps: true,
            operators: true,
            sweeps: true,
            brief_retention: false,
            attempts_max: 5,
        }
    }

    /// Everything at once, and what is unknown is run again.
    #[must_use]
    pub fn stormy_rerun() -> Scenario {
        Scenario { name: "stormy, rerun", on_unknown: OnUnknown::Rerun, ..Scenario::stormy() }
    }

    /// Everything but sleeping processes and people, and what is unknown is asked about, soon.
    #[must_use]
    pub fn probing() -> Scenario {
        Scenario {
            name: "probing",
            on_unknown: OnUnknown::Probe,
            sleepers: false,
            clock_steps: false,
            operators: false,
            probe_after: PROBE_AFTER_AWAKE,
            ..Scenario::stormy()
        }
    }

    /// Processes sleep in the middle of runs, of questions and of settlements, and what is unknown is asked about when
    /// nobody can be on the way any more.
    #[must_use]
    pub fn probing_sleepers() -> Scenario {
        Scenario {
            name: "probing, sleepers",
            sleepers: true,
            probe_after: PROBE_AFTER,
            ..Scenario::probing()
        }
    }

    /// Some of the storm, drawn from the seed: a fault that hides behind another one shows when that is switched
    /// off.
    #[must_use]
    pub fn mixed(seed: u64) -> Scenario {
        let random = Random::new(seed ^ 0x006d_6978_6564);
        let all = Scenario::stormy();
        let weather = Weather {
            faults_percent: *random.pick(&[0, 5, 20, 40]),
            delays: random.chance(50),
            delay_millis_max: *random.pick(&[0, 30, 1_000]),
        };
        let clock_steps = random.chance(30);
        let on_unknown = match random.below(100) {
            0..40 => OnUnknown::Park,
            40..70 => OnUnknown::Rerun,
            // A clock that steps forward ends `probe_after` early: that is a limit, not a fault.
            _ if clock_steps => OnUnknown::Park,
            _ => OnUnknown::Probe,
        };
        Scenario {
            name: "mixed",
            on_unknown,
            weather,
            runs: *random.pick(&[Runs::AllKept, Runs::Certain, Runs::Any]),
            run_millis_max: *random.pick(&[100, 3_000, 15_000]),
            crashes: random.chance(50),
            sleepers: random.chance(50),
            clock_steps,
            operators: random.chance(60),
            sweeps: random.chance(50),
            brief_retention: random.chance(30),
            attempts_max: *random.pick(&[1, 3, 100]),
            ..all
        }
    }

    /// Whether every process ends what it began, and nobody says that an end is unknown.
    fn is_steady(&self) -> bool {
        let steps = self.crashes || self.sleepers || self.clock_steps || self.weather.delays;
        !steps && !self.operators && self.runs != Runs::Any
    }

    /// Whether nothing goes wrong at all.
    fn is_calm(&self) -> bool {
        self.is_steady() && self.weather.faults_percent == 0
    }

    fn policy(&self, random: &Random) -> Policy {
        let (replay_for, remember_for) = if self.brief_retention { (12, 40) } else { (7_200, 86_400) };
        Policy {
            lease_for: LEASE,
            answer_within: random.chance(50).then_some(Duration::from_secs(5)),
            late_answer_for: Duration::from_secs(60),
            replay_for: Duration::from_secs(replay_for),
            remember_for: Duration::from_secs(remember_for),
            attempts_max: self.attempts_max,
            probe_after: self.probe_after,
            ..Policy::new(self.on_unknown)
        }
    }
}

/// What came of a seed.
#[derive(Debug, Clone)]
pub struct Report {
    /// The checks that failed; none, if all is well.
    pub violations: Vec<Violation>,
    /// What happened, line by line, each with its virtual milliseconds.
    pub trace: Vec<String>,
    /// How many effects took place.
    pub effects: u64,
    /// How often what happened.
    pub counts: BTreeMap<String, u64>,
}

impl Report {
    /// A number for the whole trace: two runs of one seed have the same.
    #[must_use]
    pub fn hash(&self) -> u64 {
        // FNV-1a: the standard library's hasher may change between versions.
        let bytes = self.trace.iter().flat_map(|line| line.bytes().chain([b'\n']));
        bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// # Panics
    ///
    /// When a check failed; with what led to the first failure.
    pub fn assert_clean(&self, scenario: &Scenario, seed: u64) {
        let Some(first) = self.violations.first() else { return };
        let line = self.trace.iter().position(|line| line.contains("VIOLATED")).unwrap_or(self.trace.len());
        let story = self.trace[line.saturating_sub(80)..self.trace.len().min(line + 1)].join("\n");
        panic!("{story}\n{}, seed {seed}: {:?}: {}", scenario.name, first.check, first.text);
    }
}

/// Plays the seed's story on the memory store.
#[must_use]
pub fn simulate(scenario: &Scenario, seed: u64) -> Report {
    play(scenario, seed, None)
}

/// Plays the seed's story on a mutant of the memory store.
#[must_use]
pub fn simulate_mutant(scenario: &Scenario, seed: u64, mutant: Mutant) -> Report {
    play(scenario, seed, Some(mutant))
}

fn play(scenario: &Scenario, seed: u64, mutant: Option<Mutant>) -> Report {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime without I/O");
    let scenario = *scenario;
    runtime.block_on(async move {
        let clock = VirtualClock::new();
        let memory = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
        let world = match mutant {
            None => World::new(scenario, seed, clock, memory, None),
            Some(mutant) => {
                let mutant = Arc::new(MutantStore::new(mutant, memory));
                World::new(scenario, seed, clock, mutant.clone(), Some(mutant))
            }
        };
        world.play().await
    })
}
