//! What the store did, call by call, and what it must never do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Book, Check, Ledger, short};
use crate::environment::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::store::{AttemptId, Cause, Claim, ClaimRequest, Lease, Outcome, Purpose, Settlement, Swept};
use crate::testing::sample;

/// What is known of a key's present life.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Counts how often the key was new.
    pub(super) life: u32,
    fence: u64,
    holders: BTreeMap<u64, AttemptId>,
    over: BTreeSet<AttemptId>,
    /// What was asked for, and the fence that bound it.
    bound: Option<(Fingerprint, u64)>,
    /// The end of the lease, while something holds it.
    until: Option<Timestamp>,
    outcome: Option<Outcome>,
    replay_until: Option<Timestamp>,
    forget_at: Option<Timestamp>,
    /// How the latest attempt ended.
    end: Option<End>,
    /// When it was parked, if it was.
    parked_at: Option<Timestamp>,
    /// How many effects there may be: one, and one more for each release by an operator.
    pub(super) allowed: u32,
    pub(super) effects: Vec<Fingerprint>,
    /// Effects that no operator has vouched for since.
    pub(super) open_effects: u32,
    /// The fence by which an operator last vouched that nothing had happened. What an earlier attempt does
    /// nevertheless is the operator's mistake.
    pub(super) vouched_by: u64,
}

/// How an attempt got its lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    /// In which life of its key.
    pub(super) life: u32,
    /// Whether it settles.
    settles: bool,
    /// How long the key had been open then.
    pub(super) open_for: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Completed,
    Released,
    Unknown,
    Dead,
}

impl Seen {
    fn holds(&self, lease: &Lease) -> bool {
        self.fence == lease.fence.0 && self.holders.get(&self.fence) == Some(&lease.attempt)
    }

    fn is_forgotten(&self, latest: Timestamp) -> bool {
        self.life == 0 || self.forget_at.is_some_and(|at| latest >= at)
    }
}

impl Ledger {
    pub(in crate::testing::simulation) fn claimed(
        &self,
        request: &ClaimRequest,
        answer: &Claim,
        now: Timestamp,
    ) {
        let mut book = self.book();
        book.latest = book.latest.max(now);
        let kind = match request.purpose {
            Purpose::Run { .. } => "run",
            Purpose::Settle { .. } => "settle",
        };
        let name = sample::name(answer);
        let fence = if let Claim::Acquired(lease) = answer { lease.fence.0 } else { 0 };
        book.count(&format!("claim {name}"));
        book.note(format!(
            "{} claim to {kind} by {}: {name} {fence}",
            request.key.as_str(),
            short(request.attempt)
        ));
        match answer {
            Claim::Acquired(lease) => book.acquired(request, lease, now),
            _ => book.refused(request, answer, now),
        }
    }

    pub(in crate::testing::simulation) fn renewed(
        &self,
        lease: &Lease,
        lease_for: Duration,
        done: bool,
        now: Timestamp,
    ) {
        let mut book = self.book();
        book.latest = book.latest.max(now);
        let text = format!("{} renewal of {} by {}", lease.key.as_str(), lease.fence.0, short(lease.attempt));
        book.note(format!("{text}: {done}"));
        let Some(seen) = book.keys.get_mut(&lease.key) else { return };
        let holds = seen.holds(lease) && seen.until.is_some();
        if done && holds {
            seen.until = Some(now.after(lease_for));
        }
        book.expect(done == holds, Check::Fenced, || format!("{text}: {done}, but holds: {holds}"));
    }

    pub(in crate::testing::simulation) fn settled(
        &self,
        lease: &Lease,
        settlement: &Settlement,
        done: bool,
        now: Timestamp,
    ) {
        let mut book = self.book();
        book.latest = book.latest.max(now);
        let kind = match settlement {
            Settlement::Complete { .. } => "complete",
            Settlement::Release { .. } => "release",
            Settlement::Park { .. } => "park",
            Settlement::Bury { .. } => "bury",
        };
        book.count(&format!("{kind} {}", if done { "done" } else { "refused" }));
        let text = format!("{} {kind} of {} by {}", lease.key.as_str(), lease.fence.0, short(lease.attempt));
        book.note(format!("{text}: {done}"));
        if done {
            return book.ended(lease, settlement, now, &text);
        }
        // The truth may follow the owner's own park.
        let truth = matches!(settlement, Settlement::Complete { .. } | Settlement::Release { .. });
        let open = |seen: &Seen| seen.until.is_some() || (truth && seen.end == Some(End::Unknown));
        let holds = book.keys.get(&lease.key).is_some_and(|seen| seen.holds(lease) && open(seen));
        book.expect(!holds, Check::Fenced, || format!("{text}: its holder was refused"));
    }
}

impl Ledger {
    /// What a sweep has dropped is gone although the clock went back.
    pub(in crate::testing::simulation) fn swept(&self, swept: Swept, now: Timestamp) {
        let mut book = self.book();
        book.latest = book.latest.max(now);
        book.note(format!("swept {} outcomes, {} records", swept.outcomes, swept.records));
    }
}

impl Book {
    fn acquired(&mut self, request: &ClaimRequest, lease: &Lease, now: Timestamp) {
        let key = request.key.clone();
        let text = format!("{} fence {} by {}", key.as_str(), lease.fence.0, short(request.attempt));
        let latest = self.latest;
        let mut seen = self.keys.remove(&key).unwrap_or_default();
        let again = seen.holds(lease) && seen.until.is_some() && lease.attempt == request.attempt;
        if lease.was == crate::store::Was::New && !again {
            let forgotten = seen.is_forgotten(latest);
            self.expect(forgotten, Check::Remembered, || format!("{text}: the key is new again"));
            seen = Seen { life: seen.life + 1, allowed: 1, ..Seen::default() };
        }
        if !again {
            self.granted(&mut seen, request, lease, now, &text);
        }
        seen.until = Some(now.after(request.lease_for));
        (seen.forget_at, seen.end, seen.parked_at) = (None, None, None);
        self.keys.insert(key, seen);
    }

    fn granted(
        &mut self,
        seen: &mut Seen,
        request: &ClaimRequest,
        lease: &Lease,
        now: Timestamp,
        text: &str,
    ) {
        let forces = matches!(request.purpose, Purpose::Settle { force: true, .. });
        let raised = lease.fence.0 == seen.fence + 1;
        self.expect(raised, Check::OneHolder, || format!("{text}: the fence before was {}", seen.fence));
        let over = seen.over.contains(&request.attempt);
        self.expect(!over, Check::AttemptOver, || format!("{text}: it was over"));
        let lives = seen.until.is_some_and(|until| now < until);
        self.expect(forces || !lives, Check::NoTakeover, || format!("{text}: the lease before lives"));
        self.expect(seen.outcome.is_none(), Check::OutcomeStays, || format!("{text}: it was completed"));
        seen.over.extend(seen.holders.get(&seen.fence));
        let other = seen.holders.insert(lease.fence.0, request.attempt);
        self.expect(other.is_none(), Check::OneHolder, || format!("{text}: a second holder"));
        seen.fence = lease.fence.0;
        let settles = match request.purpose {
            Purpose::Run { fingerprint, .. } => {
                let (bound, _) = *seen.bound.get_or_insert((fingerprint, lease.fence.0));
                let text = || format!("{text}: the key is bound to another request");
                self.expect(bound == fingerprint, Check::OneRequest, text);
                false
            }
            Purpose::Settle { .. } => true,
        };
        // A lease that lapsed is still there.
        let open_for = seen.until.or(seen.parked_at).map(|since| now.since(since));
        self.attempts.insert(request.attempt, Attempt { life: seen.life, settles, open_for });
    }

    fn refused(&mut self, request: &ClaimRequest, answer: &Claim, now: Timestamp) {
        let text = format!("{} by {}: {answer:?}", request.key.as_str(), short(request.attempt));
        let Some(mut seen) = self.keys.remove(&request.key) else { return };
        if let Purpose::Run { fingerprint, .. } = request.purpose {
            let bound = seen.bound.map(|(bound, _)| bound);
            let other = bound.is_some_and(|bound| bound != fingerprint) && !seen.is_forgotten(self.latest);
            let told = matches!(answer, Claim::Mismatch { .. });
            self.expect(told || !other, Check::MismatchFirst, || text.clone());
            self.expect(!told || bound != Some(fingerprint), Check::NoInvitation, || text.clone());
        }
        let lives = seen.until.is_some_and(|until| now < until);
        match answer {
            Claim::Completed { outcome, .. } => {
                self.expect(seen.outcome.as_ref() == Some(outcome), Check::OutcomeStays, || text.clone());
                self.expect(seen.replay_until.is_some_and(|until| now < until), Check::Expiry, || text);
            }
            Claim::InFlight { .. } => {
                self.expect(lives || seen.until.is_none(), Check::Expiry, || text);
            }
            Claim::Unknown { cause, .. } if *cause == Cause::LAPSED => {
                self.expect(!lives, Check::Expiry, || text);
            }
            Claim::Forgotten { .. } => {
                let over = seen.replay_until.is_some_and(|until| self.latest >= until);
                self.expect(over, Check::Expiry, || text);
            }
            // Found exhausted, perhaps: from now on it is remembered until somebody redrives it.
            Claim::Dead { .. } => (seen.forget_at, seen.end, seen.until) = (None, Some(End::Dead), None),
            _ => {}
        }
        self.keys.insert(request.key.clone(), seen);
    }

    fn ended(&mut self, lease: &Lease, settlement: &Settlement, now: Timestamp, text: &str) {
        let settles = self.attempts.get(&lease.attempt).is_some_and(|attempt| attempt.settles);
        self.answered_as_heard(lease, settlement, text);
        let asked = self.questions.contains_key(&lease.attempt);
        let Some(mut seen) = self.keys.remove(&lease.key) else { return };
        let holds = seen.holds(lease) && !seen.is_forgotten(self.latest);
        self.expect(holds, Check::Fenced, || format!("{text}: it holds nothing"));
        seen.over.insert(lease.attempt);
        let stood = seen.outcome.is_none() || matches!(settlement, Settlement::Complete { .. });
        self.expect(stood, Check::OutcomeStays, || format!("{text}: it was completed"));
        match settlement {
            Settlement::Complete { outcome, replay_for, remember_for } => {
                let stood = seen.outcome.get_or_insert_with(|| outcome.clone());
                self.expect(stood == outcome, Check::OutcomeStays, || format!("{text}: it was another"));
                if seen.end != Some(End::Completed) {
                    seen.replay_until = Some(now.after(*replay_for));
                    seen.forget_at = Some(now.after(*remember_for));
                }
                (seen.end, seen.open_effects) = (Some(End::Completed), 0);
            }
            Settlement::Release { unbind, remember_for, .. } if seen.end != Some(End::Released) => {
                seen.end = Some(End::Released);
                seen.forget_at = Some(now.after(*remember_for));
                // A probe vouches for nothing: it has told the truth, and its time had come.
                if settles && !asked {
                    seen.allowed += 1;
                    (seen.open_effects, seen.vouched_by) = (0, lease.fence.0);
                }
                if *unbind && seen.bound.is_some_and(|(_, by)| by == seen.fence) {
                    seen.bound = None;
                }
            }
            Settlement::Release { .. } => {}
            Settlement::Park { .. } => {
                seen.end = Some(End::Unknown);
                seen.parked_at.get_or_insert(now);
            }
            Settlement::Bury { .. } => seen.end = Some(End::Dead),
        }
        seen.until = None;
        self.keys.insert(lease.key.clone(), seen);
    }

    pub(super) fn seen(&mut self, key: &Key) -> &mut Seen {
        self.keys.entry(key.clone()).or_default()
    }
}
