//! What took effect, and what callers were told.

use bytes::Bytes;

use super::{Check, Ledger, short};
use crate::engine::Answer;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::store::{Lease, Outcome};

/// What a run gives its caller: its own number, and the outcome if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::testing::simulation) struct Value {
    pub(in crate::testing::simulation) run: u64,
    pub(in crate::testing::simulation) outcome: Option<Outcome>,
}

impl Ledger {
    /// A number for a run that may come of a request.
    pub(in crate::testing::simulation) fn next_run(&self) -> u64 {
        let mut book = self.book();
        book.runs += 1;
        book.runs
    }

    /// The run has its lease in hand.
    pub(in crate::testing::simulation) fn started(&self, run: u64, lease: &Lease) {
        let mut book = self.book();
        let text = format!(
            "{} run {run} under fence {} by {}, attempt {}, {:?}, doubt: {}",
            lease.key.as_str(),
            lease.fence.0,
            short(lease.attempt),
            lease.attempts,
            lease.was,
            lease.doubt,
        );
        book.note(text.clone());
        let again = book.started.insert(run, lease.attempt);
        book.expect(again.is_none(), Check::Truth, || format!("{text}: it runs a second time"));
        let life = book.attempts.get(&lease.attempt).map(|attempt| attempt.life);
        let seen = book.seen(&lease.key);
        let open = life == Some(seen.life) && seen.open_effects > 0;
        book.expect(lease.doubt || !open, Check::NoInvitation, || {
            format!("{text}: an earlier effect is not told")
        });
    }

    /// The process learns that the lease is lost.
    pub(in crate::testing::simulation) fn told_lost(&self, lease: &Lease) {
        let mut book = self.book();
        book.count("lease lost");
        book.note(format!("{} the holder of {} is told that it is lost", lease.key.as_str(), lease.fence.0));
        book.lost.insert(lease.attempt);
    }

    /// The run takes effect, now.
    pub(in crate::testing::simulation) fn effect(&self, run: u64, fingerprint: Fingerprint, lease: &Lease) {
        let mut book = self.book();
        book.effects += 1;
        let text = format!("{} effect of run {run} under fence {}", lease.key.as_str(), lease.fence.0);
        book.note(text.clone());
        let stopped = book.lost.contains(&lease.attempt);
        book.expect(!stopped, Check::Stopped, || format!("{text}: its process knew that the lease is lost"));
        let once = book.once;
        let life = book.attempts.get(&lease.attempt).map(|attempt| attempt.life);
        let seen = book.seen(&lease.key);
        if life != Some(seen.life) {
            // A sleeper from a life that was forgotten meanwhile: past `remember_for` nothing is promised.
            return;
        }
        seen.open_effects += u32::from(lease.fence.0 > seen.vouched_by);
        seen.effects.push(fingerprint);
        let (count, allowed) = (seen.effects.len(), seen.allowed);
        let one = seen.effects.iter().all(|effect| *effect == fingerprint);
        book.expect(one, Check::OneRequest, || format!("{text}: another request took effect before"));
        let within = count <= usize::try_from(allowed).unwrap_or(usize::MAX);
        book.expect(within || !once, Check::EffectOnce, || {
            format!("{text}: the {count}th, {allowed} allowed")
        });
    }

    /// The caller is told how its request went.
    pub(in crate::testing::simulation) fn answered(&self, run: u64, key: &Key, answer: &Answer<Value>) {
        let mut book = self.book();
        let (name, text) = (name(answer), format!("{} answer to run {run}: {answer:?}", key.as_str()));
        book.count(&format!("answer {name}"));
        book.note(format!("{} answer to run {run}: {name}", key.as_str()));
        let ran = book.started.contains_key(&run);
        match answer {
            Answer::Ran { value, recorded, .. } => {
                book.expect(value.run == run && ran, Check::Truth, || text);
                if let (Some(outcome), true) = (&value.outcome, recorded) {
                    book.told(key, &outcome.bytes);
                }
            }
            Answer::Replay { outcome, .. } => book.told(key, &outcome.bytes),
            Answer::Mismatch => book.expect(!ran, Check::NoInvitation, || text),
            Answer::Unavailable(_) | Answer::Stopping | Answer::TooMany | Answer::OutOfAge => {
                book.expect(!ran, Check::Truth, || text)
            }
            Answer::Broke { .. } | Answer::Late { .. } => book.expect(ran, Check::Truth, || text),
            Answer::InFlight { .. }
            | Answer::Unknown { .. }
            | Answer::Dead { .. }
            | Answer::Forgotten { .. } => {}
        }
    }
}

impl super::Book {
    /// Every caller that is told an outcome in one life of a key is told the same.
    fn told(&mut self, key: &Key, outcome: &Bytes) {
        let Some((owner, life)) = self.outcomes.get(outcome).cloned() else {
            return self.violated(Check::Truth, format!("nothing made the outcome {outcome:?}"));
        };
        self.expect(owner == *key, Check::Truth, || format!("{outcome:?} was told to {}", key.as_str()));
        let first = self.told.entry((owner, life)).or_insert_with(|| outcome.clone()).clone();
        self.expect(first == *outcome, Check::OutcomeStays, || {
            format!("{first:?} was told before {outcome:?}")
        });
    }
}

fn name(answer: &Answer<Value>) -> &'static str {
    match answer {
        Answer::Ran { recorded: true, .. } => "ran",
        Answer::Ran { recorded: false, .. } => "ran, not recorded",
        Answer::Broke { .. } => "broke",
        Answer::Late { .. } => "late",
        Answer::Replay { .. } => "replay",
        Answer::InFlight { .. } => "in flight",
        Answer::Mismatch => "mismatch",
        Answer::Unknown { .. } => "unknown",
        Answer::Dead { .. } => "dead",
        Answer::Forgotten { .. } => "forgotten",
        Answer::Unavailable(_) => "unavailable",
        Answer::Stopping => "stopping",
        Answer::TooMany => "too many",
        Answer::OutOfAge => "out of age",
    }
}
