//! Callers, who send few keys often, and the runs that come of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Runs;
use super::ledger::Value;
use super::process::{Gate, Process};
use super::world::World;
use crate::engine::{Answer, Operation, Verdict};
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::store::{Cause, Lease};
use crate::testing::random::Random;
use crate::testing::sample;

const REQUESTS: u64 = 12;
/// Longer than the engine makes anybody wait for a run.
const PATIENCE: Duration = Duration::from_secs(45);

/// What a run will do.
#[derive(Debug, Clone, Copy)]
struct Plan {
    before: Duration,
    after: Duration,
    ending: Ending,
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It takes effect and has an outcome.
    Keep,
    /// It takes no effect.
    Release { unbind: bool, later: bool },
    /// It takes effect, and says that it does not know.
    UnknownDone,
    /// It takes no effect, and says that it does not know.
    UnknownUndone,
    /// It takes no effect and never will.
    Bury,
    /// It panics before its effect.
    PanicUndone,
    /// It panics after its effect.
    PanicDone,
}

impl World {
    /// One caller: its requests, one after the other.
    pub(super) async fn caller(self, random: Random) {
        for _ in 0..REQUESTS {
            sleep(Duration::from_millis(random.below(5_000))).await;
            self.request(&random).await;
        }
    }

    async fn request(&self, random: &Random) {
        let process = random.pick(&self.processes()).clone();
        let key = self.any_key(random);
        let other = random.chance(self.scenario.others_percent);
        let fingerprint = sample::fingerprint(if other { "other" } else { "same" });
        let plan = self.plan(random);
        let hangs_up = random.chance(self.scenario.hang_ups_percent);
        let within = Duration::from_millis(random.below(self.scenario.run_millis_max + 100));
        let patience = if hangs_up { within } else { PATIENCE };
        let held = Arc::new(Mutex::new(None));
        let waits = random.chance(self.scenario.waits_percent);
        let wait = if waits { Duration::from_millis(random.below(15_000)) } else { Duration::ZERO };
        let asked = self.send(&process, &key, fingerprint, plan, wait, held.clone());
        if timeout(patience, asked).await.is_err() {
            self.ledger.note(format!("{} a caller hangs up", key.as_str()));
            let lease = held.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let (Some(mutant), Some(lease)) = (&self.mutant, lease) {
                mutant.hung_up(&lease).await;
            }
        }
    }

    /// One request to a process that is well, by a caller who waits.
    pub(super) async fn ask(
        &self,
        process: &Process,
        key: &Key,
        fingerprint: Fingerprint,
        ending: Ending,
    ) -> Answer<Value> {
        let plan = Plan { before: Duration::ZERO, after: Duration::ZERO, ending };
        self.send(process, key, fingerprint, plan, Duration::ZERO, Arc::default()).await
    }

    async fn send(
        &self,
        process: &Process,
        key: &Key,
        fingerprint: Fingerprint,
        plan: Plan,
        wait: Duration,
        held: Arc<Mutex<Option<Lease>>>,
    ) -> Answer<Value> {
        let run = self.ledger.next_run();
        let request = format!("{} request {run} of {fingerprint:?} to {}", key.as_str(), process.number);
        self.ledger.note(request);
        let operation = Operation::new(sample::scope(), key.clone(), fingerprint, self.policy.clone())
            .probe(self.oracle(process, "a request"))
            .wait(wait);
        let (world, gate) = (self.clone(), process.gate.clone());
        let work = move |lease: Lease| async move {
            *held.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease.clone());
            world.run(gate, plan, run, fingerprint, lease).await
        };
        let answer = process.engine.once(operation, work).await;
        // A process that sleeps or is dead answers nobody.
        process.gate.pass().await;
        self.ledger.answered(run, key, &answer);
        answer
    }

    async fn run(
        self,
        gate: Gate,
        plan: Plan,
        run: u64,
        fingerprint: Fingerprint,
        lease: Lease,
    ) -> (Verdict, Value) {
        gate.pass().await;
        self.ledger.started(run, &lease);
        sleep(plan.before).await;
        gate.pass().await;
        if matches!(plan.ending, Ending::Keep | Ending::UnknownDone | Ending::PanicDone) {
            self.ledger.effect(run, fingerprint, &lease);
        }
        sleep(plan.after).await;
        gate.pass().await;
        let verdict = match plan.ending {
            Ending::Keep => Verdict::Keep(self.ledger.outcome(&lease.key, "run", Some(lease.attempt))),
            Ending::Release { unbind, later } => {
                Verdict::Release { not_before: later.then_some(Duration::from_secs(2)), unbind, cause: None }
            }
            Ending::UnknownDone | Ending::UnknownUndone => Verdict::Unknown(Cause::SAID),
            Ending::Bury => Verdict::Bury(Cause::new("impossible")),
            // Not `panic!`: the hook would print what is planned.
            Ending::PanicUndone | Ending::PanicDone => std::panic::resume_unwind(Box::new("planned")),
        };
        let outcome = if let Verdict::Keep(outcome) = &verdict { Some(outcome.clone()) } else { None };
        (verdict, Value { run, outcome })
    }

    fn plan(&self, random: &Random) -> Plan {
        let part = self.scenario.run_millis_max / 2 + 1;
        // Most runs are short; the long ones are what leases are for.
        let part = if random.chance(60) { part / 10 + 1 } else { part };
        Plan {
            before: Duration::from_millis(random.below(part)),
            after: Duration::from_millis(random.below(part)),
            ending: self.ending(random),
        }
    }

    fn ending(&self, random: &Random) -> Ending {
        let release = Ending::Release { unbind: random.chance(30), later: random.chance(30) };
        let draw = random.below(100);
        match self.scenario.runs {
            Runs::AllKept => Ending::Keep,
            Runs::Certain if draw < 50 => Ending::Keep,
            Runs::Certain => release,
            Runs::Any => match draw {
                0..40 => Ending::Keep,
                40..75 => release,
                75..81 => Ending::UnknownDone,
                81..87 => Ending::UnknownUndone,
                87..91 => Ending::Bury,
                91..95 => Ending::PanicUndone,
                _ => Ending::PanicDone,
            },
        }
    }
}
