//! What was asked about which key, and whether the answer is what was written.

use std::time::Duration;

use super::{Book, Check, Ledger, short};
use crate::engine::{Probed, Probing};
use crate::store::{Cause, Lease, Settlement, View};

/// A question, under the attempt id of its claim.
#[derive(Debug)]
pub(super) struct Question {
    /// The cause that the key had.
    cause: Cause,
    answer: Option<Probed>,
}

impl Ledger {
    /// A question begins.
    pub(in crate::testing::simulation) fn asked(&self, who: &str, probing: &Probing, probe_after: Duration) {
        let mut book = self.book();
        let (entry, lease) = (&probing.entry, &probing.lease);
        let (key, by) = (entry.key.as_str(), short(lease.attempt));
        let text = format!("{key} {who} asks under fence {} by {by}", lease.fence.0);
        book.note(text.clone());
        book.count(&format!("asked by {who}"));
        let fresh = lease.fence.0 == entry.fence.0 + 1 && lease.attempt != entry.attempt;
        book.expect(fresh, Check::OneAsks, || format!("{text}: seen was fence {}", entry.fence.0));
        let waited = book.attempts.get(&lease.attempt).and_then(|attempt| attempt.open_for);
        let in_time = waited.is_some_and(|waited| waited >= probe_after);
        book.expect(in_time, Check::AsksInTime, || format!("{text}: it was open for {waited:?}"));
        let View::Unknown { cause } = entry.view.clone() else {
            return book.violated(Check::OneAsks, format!("{text}: it was {:?}", entry.view));
        };
        let other = book.questions.insert(lease.attempt, Question { cause, answer: None });
        book.expect(other.is_none(), Check::OneAsks, || format!("{text}: and it was asked already"));
    }

    /// Whether the operation took effect, now.
    pub(in crate::testing::simulation) fn took_effect(&self, probing: &Probing) -> bool {
        let mut book = self.book();
        let life = book.attempts.get(&probing.lease.attempt).map(|attempt| attempt.life);
        let seen = book.seen(&probing.entry.key);
        // Of a life that was forgotten meanwhile nothing is known; what is answered will be refused.
        life != Some(seen.life) || !seen.effects.is_empty()
    }

    /// The answer is given.
    pub(in crate::testing::simulation) fn heard(&self, probing: &Probing, probed: &Probed) {
        let mut book = self.book();
        let name = match probed {
            Probed::Completed(_) => "it took effect",
            Probed::NoEffect => "it took none",
            Probed::StillUnknown => "nobody knows",
        };
        book.count(&format!("told that {name}"));
        let (key, by) = (probing.entry.key.as_str().to_owned(), short(probing.lease.attempt));
        book.note(format!("{key} question of {by}: {name}"));
        if let Some(question) = book.questions.get_mut(&probing.lease.attempt) {
            question.answer = Some(probed.clone());
        }
    }
}

impl Book {
    /// What a probe found out is what is written; what it did not find out changes nothing.
    pub(super) fn answered_as_heard(&mut self, lease: &Lease, settlement: &Settlement, text: &str) {
        let Some(question) = self.questions.get(&lease.attempt) else { return };
        let holds = match (settlement, &question.answer) {
            (Settlement::Complete { outcome, .. }, Some(Probed::Completed(heard))) => outcome == heard,
            (Settlement::Release { .. }, Some(Probed::NoEffect)) => true,
            (Settlement::Park { cause }, None | Some(Probed::StillUnknown)) => *cause == question.cause,
            _ => false,
        };
        let question = format!("{question:?}");
        self.expect(holds, Check::AsHeard, || format!("{text}: {settlement:?} after {question}"));
    }
}
