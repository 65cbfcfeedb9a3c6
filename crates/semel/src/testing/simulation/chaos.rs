//! What befalls the system while the storm lasts.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::LEASE;
use super::world::World;
use crate::engine::Engine;
use crate::store::{Cause, Entry, Settlement, View};
use crate::testing::random::Random;
use crate::testing::sample;

impl World {
    /// Starts what the scenario switches on.
    pub(super) fn chaos(&self) -> Vec<JoinHandle<()>> {
        let scenario = self.scenario;
        let mut tasks = Vec::new();
        if scenario.crashes {
            tasks.push(tokio::spawn(self.clone().crash(self.random.fork())));
            tasks.push(tokio::spawn(self.clone().restart(self.random.fork())));
        }
        if scenario.sleepers {
            tasks.push(tokio::spawn(self.clone().lull(self.random.fork())));
        }
        if scenario.clock_steps {
            tasks.push(tokio::spawn(self.clone().set_clock(self.random.fork())));
        }
        if scenario.operators {
            tasks.push(tokio::spawn(self.clone().operate(self.random.fork())));
        }
        if scenario.sweeps {
            tasks.push(tokio::spawn(self.clone().sweep(self.random.fork())));
        }
        tasks
    }

    /// Processes die between two steps, and others take their place.
    async fn crash(self, random: Random) {
        loop {
            pause(&random, 15_000).await;
            let victim = random.pick(&self.processes()).clone();
            self.ledger.note(format!("process {} dies", victim.number));
            victim.gate.kill();
            pause(&random, 3_000).await;
            let fresh = self.process(victim.number);
            self.processes()[victim.number] = fresh;
        }
    }

    /// Processes are stopped as they should be, but are given little time.
    async fn restart(self, random: Random) {
        loop {
            pause(&random, 20_000).await;
            let old = random.pick(&self.processes()).clone();
            self.ledger.note(format!("process {} is stopped", old.number));
            let parked = old.engine.drain(Duration::from_millis(random.below(5_000))).await;
            self.ledger.note(format!("process {} ends, {parked} runs parked", old.number));
            old.gate.kill();
            let fresh = self.process(old.number);
            self.processes()[old.number] = fresh;
        }
    }

    /// Processes stand still for longer than a lease, in the middle of whatever they do.
    async fn lull(self, random: Random) {
        loop {
            pause(&random, 10_000).await;
            let sleeper = random.pick(&self.processes()).clone();
            self.ledger.note(format!("process {} falls asleep", sleeper.number));
            sleeper.gate.sleep();
            sleep(LEASE / 2 + Duration::from_millis(random.below(18_000))).await;
            self.ledger.note(format!("process {} wakes", sleeper.number));
            sleeper.gate.wake();
        }
    }

    async fn set_clock(self, random: Random) {
        loop {
            pause(&random, 20_000).await;
            let step = i64::try_from(random.below(16_000)).expect("a small number") - 8_000;
            self.ledger.note(format!("the store's clock is set by {step} ms"));
            self.clock.step(step);
        }
    }

    async fn sweep(self, random: Random) {
        loop {
            pause(&random, 8_000).await;
            let limit = u32::try_from(1 + random.below(4)).expect("a small number");
            self.store.sweep(limit).await.expect("the witness has no faults");
        }
    }

    /// Somebody looks at what is unknown or dead and settles it; seldom also what runs.
    async fn operate(self, random: Random) {
        let operator = self.process(0).engine;
        loop {
            pause(&random, 8_000).await;
            let open = self.store.unsettled(None, 10).await.expect("the witness has no faults");
            if !open.is_empty() && random.chance(80) {
                self.look_at(&operator, random.pick(&open), &random, false).await;
            }
            if random.chance(5) {
                let key = self.any_key(&random);
                let found = self.store.find(&sample::scope(), &key).await.expect("the witness has no faults");
                if let Some(entry) = found.filter(|entry| matches!(entry.view, View::Running { .. })) {
                    self.look_at(&operator, &entry, &random, true).await;
                }
            }
        }
    }

    async fn look_at(&self, operator: &Engine, entry: &Entry, random: &Random, force: bool) {
        let remember_for = self.policy.remember_for;
        let settlement = match random.below(10) {
            0..5 => Settlement::Release { not_before: None, unbind: false, ran: true, remember_for },
            5..9 => self.operators_outcome(&entry.key),
            _ => Settlement::Park { cause: Cause::new("still unknown") },
        };
        let resolved = operator.resolve(entry, &settlement, force).await;
        self.ledger.note(format!("{} an operator looks: {resolved:?}", entry.key.as_str()));
    }
}

async fn pause(random: &Random, millis_max: u64) {
    sleep(Duration::from_millis(1 + random.below(millis_max))).await;
}
