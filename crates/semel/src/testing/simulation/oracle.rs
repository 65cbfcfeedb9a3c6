//! Somebody to ask who knows the truth, and does not always tell it: questions hang, break and stay without an
//! answer; what is answered is true. And those who ask in the background.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::process::{Gate, Process};
use super::world::World;
use crate::engine::{Probe, Probed, Probing};
use crate::policy::OnUnknown;
use crate::store::Entry;
use crate::testing::random::Random;

/// How many ask in the background.
const PROBERS: usize = 2;
/// Records on a page.
const PAGE: u32 = 3;

/// The way from one process to the truth.
struct Oracle {
    /// Who asks, for the counts.
    by: &'static str,
    world: World,
    gate: Gate,
    random: Random,
}

impl World {
    /// Whom the process asks.
    pub(super) fn oracle(&self, process: &Process, by: &'static str) -> Arc<dyn Probe> {
        let random = self.random.fork();
        Arc::new(Oracle { by, world: self.clone(), gate: process.gate.clone(), random })
    }

    /// Starts those who ask in the background, after the storm too.
    pub(super) fn probers(&self) -> Vec<JoinHandle<()>> {
        let count = if self.scenario.on_unknown == OnUnknown::Probe { PROBERS } else { 0 };
        (0..count).map(|_| tokio::spawn(self.clone().ask_on(self.random.fork()))).collect()
    }

    /// Goes through what is open, again and again, each time from another process.
    async fn ask_on(self, random: Random) {
        loop {
            let pause_max = if self.is_stormy() { 4_000 } else { 40_000 };
            sleep(Duration::from_millis(1 + random.below(pause_max))).await;
            let process = random.pick(&self.processes()).clone();
            // One that sleeps or dies meanwhile is left alone: what it asks goes on, or never ends.
            let _ = timeout(Duration::from_secs(20), self.ask_about_all(&process)).await;
        }
    }

    async fn ask_about_all(&self, process: &Process) {
        let (oracle, policy) = (self.oracle(process, "the background"), self.policy.clone());
        let choose = |_: &Entry| Some((oracle.clone(), policy.clone()));
        let mut next = None;
        while let Ok(asked) = process.engine.probe_unsettled(next.as_ref(), PAGE, &choose).await {
            next = asked.next;
            if next.is_none() {
                return;
            }
        }
    }
}

#[async_trait]
impl Probe for Oracle {
    async fn ask(&self, probing: &Probing) -> Probed {
        self.gate.pass().await;
        let ledger = &self.world.ledger;
        ledger.asked(self.by, probing, self.world.policy.probe_after);
        let storm = self.world.is_stormy();
        if storm {
            sleep(Duration::from_millis(self.random.below(1_000))).await;
        }
        self.gate.pass().await;
        let probed = match ledger.took_effect(probing) {
            true => {
                Probed::Completed(ledger.outcome(&probing.entry.key, "probe", Some(probing.lease.attempt)))
            }
            false => Probed::NoEffect,
        };
        // The answer is what was true when it was given: it takes its time to arrive.
        if storm {
            match self.random.below(100) {
                0..10 => sleep(Duration::from_secs(3_600)).await,
                10..15 => std::panic::resume_unwind(Box::new("planned")),
                15..35 => return self.answers(probing, Probed::StillUnknown),
                _ => sleep(Duration::from_millis(self.random.below(3_000))).await,
            }
        }
        self.gate.pass().await;
        self.answers(probing, probed)
    }
}

impl Oracle {
    fn answers(&self, probing: &Probing, probed: Probed) -> Probed {
        self.world.ledger.heard(probing, &probed);
        probed
    }
}

impl fmt::Debug for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Oracle")
    }
}
