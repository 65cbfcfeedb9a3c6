//! What holds in every history of one key, whatever the callers, the clock and the network do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::Life;
use crate::fingerprint::Fingerprint;
use crate::record::{Record, State, Unfit};
use crate::store::{AttemptId, Claim, ClaimRequest, Fence, Lease, Outcome, Purpose, Settlement, View};
use crate::testing::sample::{
    LEASE, REMEMBER, REPLAY, bury, complete, forcing, park, release, release_for, release_unbound, rerun,
    run, run_at_most, run_for, settling,
};

const KEY: &str = "k";

/// One step. Attempts and leases are named by small numbers, so that repetitions and zombies are frequent.
#[derive(Debug, Clone)]
enum Step {
    Run(u64),
    Rerun(u64),
    RunFor(u64, bool),
    RunAtMost(u64, u32),
    /// Settle what has this many fences less than now.
    Settle(u64, u64),
    Force(u64),
    Renew(usize),
    End(usize, Settlement),
    Wait(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    let attempt = 1..6_u64;
    let settlement = prop_oneof![
        4 => any::<bool>().prop_map(|same| complete(if same { "done" } else { "otherwise" })),
        3 => Just(release()),
        1 => Just(release_for(LEASE)),
        1 => Just(release_unbound()),
        2 => Just(park()),
        1 => Just(bury()),
    ];
    let wait = prop_oneof![6 => Just(LEASE / 2), 3 => Just(LEASE), 1 => Just(REPLAY), 1 => Just(REMEMBER)];
    prop_oneof![
        4 => attempt.clone().prop_map(Step::Run),
        4 => attempt.clone().prop_map(Step::Rerun),
        2 => (attempt.clone(), any::<bool>()).prop_map(|(number, other)| Step::RunFor(number, other)),
        1 => (attempt.clone(), 1..4_u32).prop_map(|(number, max)| Step::RunAtMost(number, max)),
        // Numbers of their own: an attempt has one purpose.
        2 => (6..9_u64, 0..2_u64).prop_map(|(number, back)| Step::Settle(number, back)),
        1 => (9..11_u64).prop_map(Step::Force),
        2 => (0..8_usize).prop_map(Step::Renew),
        6 => (0..8_usize, settlement).prop_map(|(lease, settlement)| Step::End(lease, settlement)),
        4 => wait.prop_map(Step::Wait),
    ]
}

/// What an onlooker remembers of the present life of the key. It is kept from answers alone where that is
/// possible, so that it is not the same reading of the record twice.
#[derive(Debug, Default)]
struct Onlooker {
    leases: Vec<Lease>,
    fence: u64,
    holders: BTreeMap<Fence, AttemptId>,
    over: BTreeSet<AttemptId>,
    bound: Option<(Fingerprint, Fence)>,
    runs: u32,
    outcome: Option<Outcome>,
}

impl Onlooker {
    /// The key is new again: nothing that was so before binds it, except that old leases are still about.
    fn forget(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        *self = Onlooker { leases, ..Onlooker::default() };
    }

    fn sees_lease(&mut self, request: &ClaimRequest, lease: &Lease, before: Option<&View>) {
        assert_eq!(lease.attempt, request.attempt);
        assert!(!self.over.contains(&lease.attempt), "an attempt that is over claimed again");
        assert!(self.outcome.is_none(), "a completed key was claimed");
        if self.holders.get(&lease.fence) == Some(&lease.attempt) {
            assert_eq!(lease.fence.0, self.fence, "only the latest holder is given its lease again");
            return;
        }
        assert_eq!(lease.fence.0, self.fence + 1, "every claim raises the fence, by one");
        assert!(self.holders.insert(lease.fence, lease.attempt).is_none(), "two holders of one fence");
        self.fence = lease.fence.0;
        self.over.extend(self.holders.values().filter(|id| **id != lease.attempt));
        self.sees_purpose(request, lease, before);
        self.leases.push(lease.clone());
    }

    fn sees_purpose(&mut self, request: &ClaimRequest, lease: &Lease, before: Option<&View>) {
        let forces = matches!(request.purpose, Purpose::Settle { force: true, .. });
        assert!(forces || !matches!(before, Some(View::Running { .. })), "a running key was taken");
        if let Purpose::Run { fingerprint, .. } = request.purpose {
            let (bound, _) = *self.bound.get_or_insert((fingerprint, lease.fence));
            assert_eq!(bound, fingerprint, "another request ran under this key");
            self.runs += 1;
        }
        assert!(lease.attempts <= self.runs, "more attempts counted than there were");
    }

    fn sees_end_again(&self, lease: &Lease, settlement: &Settlement) {
        assert_eq!(self.holders.get(&lease.fence), Some(&lease.attempt), "a foreign lease settled");
        assert_eq!(lease.fence.0, self.fence, "a zombie settled");
        // Burying what a claim has found exhausted is no repetition, and changes nothing either.
        let buries = matches!(settlement, Settlement::Bury { .. });
        assert!(buries || self.over.contains(&lease.attempt), "nothing stood that this could repeat");
        let completes = matches!(settlement, Settlement::Complete { .. });
        assert_eq!(completes, self.outcome.is_some(), "one kind of end was taken for another");
    }

    fn sees_end(&mut self, lease: &Lease, settlement: &Settlement) {
        assert_eq!(self.holders.get(&lease.fence), Some(&lease.attempt), "a foreign lease settled");
        assert_eq!(lease.fence.0, self.fence, "a zombie settled");
        assert_eq!(self.outcome, None, "a completed record changed");
        self.over.insert(lease.attempt);
        match settlement {
            Settlement::Complete { outcome, .. } => {
                self.outcome = Some(outcome.clone());
            }
            Settlement::Release { unbind: true, .. }
                if self.bound.is_some_and(|(_, by)| by == lease.fence) =>
            {
                self.bound = None;
            }
            _ => {}
        }
    }

    fn agrees_with(&self, record: &Record) {
        assert_eq!(record.fence.0, self.fence);
        assert_eq!(Some(&record.attempt), self.holders.get(&record.fence));
        assert_eq!(
            record.fingerprint,
            self.bound.map(|(bound, _)| bound),
            "the fingerprint is what was bound"
        );
        if let State::Completed { outcome: Some(outcome), .. } = &record.state {
            assert_eq!(Some(outcome), self.outcome.as_ref());
        }
    }
}

struct Play {
    life: Life,
    onlooker: Onlooker,
}

impl Play {
    fn step(&mut self, step: &Step) {
        if self.life.view().is_none() {
            self.onlooker.forget();
        }
        match step {
            Step::Run(number) => self.claim(&run(KEY, *number)),
            Step::Rerun(number) => self.claim(&rerun(KEY, *number)),
            Step::RunFor(number, other) => {
                self.claim(&run_for(KEY, *number, if *other { "other" } else { "same" }))
            }
            Step::RunAtMost(number, max) => self.claim(&run_at_most(KEY, *number, *max)),
            Step::Settle(number, back) => self.claim(&settling(KEY, *number, self.seen(*back))),
            Step::Force(number) => self.claim(&forcing(KEY, *number, self.seen(0))),
            Step::Renew(lease) => self.renew(*lease),
            Step::End(lease, settlement) => self.end(*lease, settlement),
            Step::Wait(time) => self.life.wait(*time),
        }
        if let (Some(record), Some(_)) = (&self.life.record, self.life.view()) {
            self.onlooker.agrees_with(record);
        }
    }

    fn seen(&self, back: u64) -> Fence {
        Fence(self.life.fence().0.saturating_sub(back))
    }

    fn claim(&mut self, request: &ClaimRequest) {
        let (before, view) = (self.life.record.clone(), self.life.view());
        let answer = self.life.claim(request);
        match &answer {
            Claim::Acquired(lease) => self.onlooker.sees_lease(request, lease, view.as_ref()),
            Claim::Completed { outcome, .. } => assert_eq!(Some(outcome), self.onlooker.outcome.as_ref()),
            Claim::Dead { .. } => {}
            _ => assert_eq!(self.life.record, before, "a claim that was not granted wrote"),
        }
        let after = self.life.record.clone();
        assert_eq!(self.life.claim(request), answer, "a claim repeated at once gets the same answer");
        assert_eq!(self.life.record, after, "and writes nothing else");
    }

    fn renew(&mut self, number: usize) {
        let Some(lease) = self.onlooker.leases.get(number).cloned() else { return };
        let before = self.life.record.clone();
        match self.life.renew(&lease, LEASE) {
            Ok(()) => {
                assert_eq!(self.onlooker.holders.get(&lease.fence), Some(&lease.attempt));
                assert_eq!(self.life.view(), Some(View::Running { lease_left: LEASE }));
                assert!(!self.onlooker.over.contains(&lease.attempt), "an attempt that is over renewed");
            }
            Err(refusal) => assert_eq!((refusal, &self.life.record), (Unfit::LeaseLost, &before)),
        }
    }

    fn end(&mut self, number: usize, settlement: &Settlement) {
        let Some(lease) = self.onlooker.leases.get(number).cloned() else { return };
        let before = self.life.record.clone();
        match self.life.settle(&lease, settlement) {
            Ok(()) if self.life.record == before => self.onlooker.sees_end_again(&lease, settlement),
            Ok(()) => self.onlooker.sees_end(&lease, settlement),
            Err(_) => assert_eq!(self.life.record, before, "a refused settlement wrote"),
        }
        let after = self.life.record.clone();
        if after != before {
            assert_eq!(
                self.life.settle(&lease, settlement),
                Ok(()),
                "a settlement repeated at once succeeds"
            );
            assert_eq!(self.life.record, after, "and writes nothing else");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_invariants(steps in prop::collection::vec(step(), 1..40)) {
        let mut play = Play { life: Life::new(), onlooker: Onlooker::default() };
        for step in &steps {
            play.step(step);
        }
    }
}
