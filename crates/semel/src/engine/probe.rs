//! Asking outside whether an operation took effect (K7, G5).
//!
//! 1. **A question is a claim.** It takes the record in exactly the state that was seen, under a fresh fence and by
//!    no force, so of all processes only one asks at a time, and an operator, another probe or the owner's renewal
//!    that comes first makes it [`Asking::Moved`]. Nothing is renewed: the lease is longer than the question.
//! 2. **The answer settles.** [`Probed::Completed`] completes the key, [`Probed::NoEffect`] releases it, and it may
//!    run again; [`Probed::StillUnknown`], a panic, no answer within `probe_within` and a stop of the process park
//!    it again, with the cause that it had.
//! 3. **Not before `probe_after`**, from when the record became unknown: was parked, or its lease lapsed. The
//!    store's clock measures it. The same pause lies between two questions, and doubles from one to the next, up to
//!    an hour: see [`is_due`]. Nothing of it is in memory, so a restart and a second gateway change nothing.
//! 4. **The fence moves when a question begins**, and stays moved whatever the answer. Until then the owner's late
//!    settlement is the truth (K7); from then on its renewal and its settlement are refused, its run is stopped
//!    where it still goes on, and what it would have told is lost to the record, even if the answer was that nobody
//!    knows. A later question, or a person, has to find it out. So `probe_after` is the time that the owner has, too.
//! 5. **A process that dies while it asks** leaves a lease that lapses: the key is unknown again, and counts as such
//!    from the lapse. Its cause is then `lapsed`, since a record keeps one cause. A question whose claim got no
//!    answer is given back, cause and all, as soon as the store answers.
//!
//! The hazard: a probe that finds nothing while the operation is still on its way releases a key whose effect comes
//! later. A fence cannot stop what was already sent, unless the service compares fences itself. Only `probe_after`
//! can, by being longer than any request may be under way.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout;

use super::patience::Failed;
use super::{Engine, Operation};
use crate::history::{Event, Through};
use crate::policy::{OnUnknown, Policy};
use crate::store::{
    Cause, Claim, ClaimRequest, Cursor, Entry, Fence, Lease, Outcome, Purpose, Settlement, StoreError, View,
    Was,
};

/// Asks outside whether an operation took effect. An adapter's part: the engine decides when, and what the answer
/// means for the key.
#[async_trait]
pub trait Probe: fmt::Debug + Send + Sync + 'static {
    /// Asks. Must change nothing outside. Dropped after `probe_within`.
    async fn ask(&self, probing: &Probing) -> Probed;
}

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probing {
    /// The record as it was seen before the question: its names, label and input, attempts so far, and the fence of
    /// the latest claim that may have run.
    pub entry: Entry,
    /// The lease of the question. A service that compares fences can be told its fence, and will then refuse the
    /// attempt that is asked about, should it still be on its way.
    pub lease: Lease,
}

/// What a probe found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probed {
    /// It took effect: this is replayed.
    Completed(Outcome),
    /// It took no effect, and never will: the key may run again.
    NoEffect,
    /// Nobody can tell yet.
    StillUnknown,
}

/// What came of a page of questions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Keys that took effect.
    pub completed: u32,
    /// Keys that took none.
    pub released: u32,
    /// Keys of which nobody can tell.
    pub unknown: u32,
    /// Keys that somebody else took, or settled, first.
    pub moved: u32,
    /// Keys of which the store did not say whether they were settled.
    pub failed: u32,
    /// Where the next page begins; `None` behind the last one.
    pub next: Option<Cursor>,
}

/// What came of one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    Completed,
    Released,
    Unknown,
    Moved,
    Failed,
}

/// Questions at once of one page.
const AT_ONCE: usize = 8;

/// The longest pause between two questions, unless `probe_after` is longer.
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

impl Engine {
    /// Asks about what is unknown: one page of the store's open records, oldest first, from behind `after` on. Call
    /// it again with [`Asked::next`] until there is none, and after a while from the start: also after a restart,
    /// what was left open is asked about then. Nothing does it by itself.
    ///
    /// `choose` says whom to ask about a record and by which policy; it is called for every unknown one. Those that
    /// are not due are left. At most `limit` records are looked at, and a few asked about at once.
    ///
    /// # Errors
    ///
    /// When the page cannot be read. A question that fails is counted.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future breaks off no question: those under way are settled.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn probe_unsettled(
        &self,
        after: Option<&Cursor>,
        limit: u32,
        choose: impl Fn(&Entry) -> Option<(Arc<dyn Probe>, Arc<Policy>)>,
    ) -> Result<Asked, StoreError> {
        if self.stopping.is_cancelled() {
            return Ok(Asked::default());
        }
        let page = self.bounded("unsettled", self.store.unsettled(after, limit)).await?;
        let is_full = page.len() == usize::try_from(limit).unwrap_or(usize::MAX);
        let next = page.last().filter(|_| is_full).map(|entry| entry.cursor.clone());
        let due: Vec<_> = page
            .into_iter()
            .filter(|entry| matches!(entry.view, View::Unknown { .. }))
            .filter_map(|entry| choose(&entry).map(|(probe, policy)| (entry, probe, policy)))
            .filter(|(entry, _, policy)| is_due(entry, policy))
            .collect();
        let mut due = due.into_iter();
        let mut questions = FuturesUnordered::new();
        let mut asked = Asked { next, ..Asked::default() };
        loop {
            for (entry, probe, policy) in due.by_ref().take(AT_ONCE - questions.len()) {
                let engine = self.clone();
                let question = async move { engine.ask(entry, probe.as_ref(), &policy).await };
                questions.push(self.tasks.spawn(question));
            }
            let Some(ended) = questions.next().await else { return Ok(asked) };
            asked.count(ended.unwrap_or(Asking::Failed));
        }
    }

    /// For an operation that was told `Unknown`: asks, if it may and it is time. Whether to claim again: the key is
    /// settled, or somebody else has taken it.
    pub(super) async fn finds_out(&self, operation: &Operation, seen: Fence) -> bool {
        let Operation { scope, key, policy, .. } = operation;
        let (OnUnknown::Probe, Some(probe)) = (policy.on_unknown, &operation.probe) else { return false };
        let found = self.patiently("find", self.patience.claim, || self.store.find(scope, key)).await;
        let entry = match found {
            Ok(Some(entry)) if entry.fence == seen && matches!(entry.view, View::Unknown { .. }) => entry,
            Ok(_) => return true,
            Err(_) => return false,
        };
        let asked = is_due(&entry, policy).then(|| self.ask(entry, probe.as_ref(), policy));
        let Some(asked) = asked else { return false };
        matches!(asked.await, Asking::Completed | Asking::Released | Asking::Moved)
    }

    /// One question, from its claim to its settlement.
    async fn ask(&self, entry: Entry, probe: &dyn Probe, policy: &Policy) -> Asking {
        if self.stopping.is_cancelled() {
            return Asking::Unknown;
        }
        let _asking = self.asking.token();
        let asking = self.ask_and_settle(entry, probe, policy).await.unwrap_or(Asking::Failed);
        self.meters.probed(asking.as_str());
        asking
    }

    async fn ask_and_settle(
        &self,
        entry: Entry,
        probe: &dyn Probe,
        policy: &Policy,
    ) -> Result<Asking, StoreError> {
        let View::Unknown { cause } = entry.view.clone() else { return Ok(Asking::Moved) };
        let Some(lease) = self.claim_to_ask(&entry, &cause, policy).await? else { return Ok(Asking::Moved) };
        if lease.was == Was::Dead {
            // A redrive that died: the record is as dead as before, and waits for a person.
            self.settle_or_go_on(lease, Settlement::Bury { cause }, policy.late_answer_for).await?;
            return Ok(Asking::Moved);
        }
        let probing = Probing { entry, lease };
        let probed = self.hear(probe, &probing, policy.probe_within).await;
        let Policy { replay_for, remember_for, .. } = *policy;
        let (settlement, asking) = match probed {
            Probed::Completed(outcome) => {
                (Settlement::Complete { outcome, replay_for, remember_for }, Asking::Completed)
            }
            Probed::NoEffect => {
                let release =
                    Settlement::Release { not_before: None, unbind: false, ran: true, remember_for };
                (release, Asking::Released)
            }
            Probed::StillUnknown => (Settlement::Park { cause }, Asking::Unknown),
        };
        let (lease, event) =
            (probing.lease.clone(), Event::settled(&probing.lease, &settlement, Through::Probe));
        match self.settle_or_go_on(probing.lease, settlement, policy.late_answer_for).await {
            // Taken by force meanwhile: what the record says is the truth.
            Err(StoreError::LeaseLost | StoreError::Refused(_)) => Ok(Asking::Moved),
            settled => {
                // A question in vain is asked again and again, and would drive out what happened.
                if settled.is_ok() && !matches!(asking, Asking::Unknown) {
                    self.note(&lease, || event);
                }
                settled.map(|()| asking)
            }
        }
    }

    /// The fresh fence; `None` when the record is not as it was seen.
    async fn claim_to_ask(
        &self,
        entry: &Entry,
        cause: &Cause,
        policy: &Policy,
    ) -> Result<Option<Lease>, StoreError> {
        let request = ClaimRequest {
            scope: entry.scope.clone(),
            key: entry.key.clone(),
            attempt: self.new_attempt(),
            purpose: Purpose::Settle { seen: entry.fence, force: false },
            // The question's time, and the time to settle in, with as much again for the claim's own way back.
            lease_for: policy.probe_within.saturating_add(2 * self.patience.settle),
            label: entry.label.clone(),
            input: None,
        };
        match self.persistently("claim", self.patience.claim, || self.store.claim(&request)).await {
            Ok(Claim::Acquired(lease)) => Ok(Some(lease)),
            Ok(_) => Ok(None),
            Err(Failed { error, perhaps }) => {
                if perhaps {
                    let (engine, within) = (self.clone(), policy.late_answer_for);
                    let parked = Settlement::Park { cause: cause.clone() };
                    self.tasks.spawn(async move {
                        engine.withdraw(request, within, |_| parked.clone()).await;
                    });
                }
                Err(error)
            }
        }
    }

    /// The probe's answer, if it gives one in time and before the process must end.
    async fn hear(&self, probe: &dyn Probe, probing: &Probing, within: Duration) -> Probed {
        if self.parking.is_cancelled() {
            return Probed::StillUnknown;
        }
        // The question's own state is dropped with it, so nobody sees what a panic left half done.
        let answer = AssertUnwindSafe(async { probe.ask(probing).await }).catch_unwind();
        tokio::select! {
            biased;
            answer = timeout(within, answer) => match answer {
                Ok(Ok(probed)) => probed,
                Ok(Err(_)) | Err(_) => Probed::StillUnknown,
            },
            () = self.parking.cancelled() => Probed::StillUnknown,
        }
    }
}

/// Whether it is time to ask.
///
/// The pause before the next question is `probe_after`, doubled for each claim that was no attempt: each question
/// is one. So is a claim that ran nothing, and of those there may be many; so the pause is not longer than the time
/// that had passed since the key's first claim when it came into this state, which doubles from question to
/// question by itself. Each bound mends the other: by the second alone a key that was first tried a week ago would
/// not be asked about for an hour.
fn is_due(entry: &Entry, policy: &Policy) -> bool {
    let asked = entry.fence.0.saturating_sub(u64::from(entry.attempts)).min(30);
    let doubled = policy.probe_after.saturating_mul(1 << asked);
    let open_for = entry.age.saturating_sub(entry.since);
    entry.since >= doubled.min(open_for).min(PAUSE_MAX).max(policy.probe_after)
}

impl Asked {
    fn count(&mut self, asking: Asking) {
        let count = match asking {
            Asking::Completed => &mut self.completed,
            Asking::Released => &mut self.released,
            Asking::Unknown => &mut self.unknown,
            Asking::Moved => &mut self.moved,
            Asking::Failed => &mut self.failed,
        };
        *count += 1;
    }
}

impl Asking {
    fn as_str(self) -> &'static str {
        match self {
            Asking::Completed => "completed",
            Asking::Released => "released",
            Asking::Unknown => "unknown",
            Asking::Moved => "moved",
            Asking::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample;

    const SECOND: Duration = Duration::from_secs(1);

    /// A record that was first claimed so long ago, has been unknown for so long, and was asked about so often.
    fn entry(age: Duration, since: Duration, asked: u64) -> Entry {
        Entry {
            scope: sample::scope(),
            key: sample::key("k"),
            view: View::Unknown { cause: Cause::CUT },
            fence: Fence(1 + asked),
            attempt: sample::attempt(1),
            attempts: 1,
            fingerprint: None,
            label: crate::store::Label::default(),
            input: None,
            age,
            since,
            cursor: Cursor::default(),
        }
    }

    /// After how many seconds it is due.
    fn due_after(policy: &Policy, open_for: Duration, asked: u64) -> u64 {
        let at = |seconds| entry(open_for + seconds * SECOND, seconds * SECOND, asked);
        let due = (0..100_000).find(|seconds| is_due(&at(*seconds), policy));
        due.expect("it is due some day").into()
    }

    #[test]
    fn g5_the_first_question_is_after_probe_after_and_the_pause_doubles_up_to_an_hour() {
        let policy = Policy::new(OnUnknown::Probe);
        let mut open_for = SECOND;
        let mut pauses = Vec::new();
        for asked in 0..10 {
            let pause = due_after(&policy, open_for, asked);
            open_for += Duration::from_secs(pause);
            pauses.push(pause);
        }
        assert_eq!(pauses, [30, 31, 62, 124, 248, 496, 992, 1_984, 3_600, 3_600]);
    }

    #[test]
    fn g5_a_key_that_is_old_but_was_never_asked_about_waits_no_longer_than_probe_after() {
        let policy = Policy::new(OnUnknown::Probe);
        assert_eq!(due_after(&policy, Duration::from_secs(700_000), 0), 30);
        assert_eq!(due_after(&policy, Duration::from_secs(700_000), 3), 240);
        assert_eq!(due_after(&policy, Duration::from_secs(600), 100), 600, "a service that was not reached");
        assert_eq!(due_after(&policy, Duration::from_secs(700_000), u64::MAX - 1), 3_600);
    }

    #[test]
    fn g5_a_longer_probe_after_holds_and_forever_is_never() {
        let policy = |probe_after| Policy { probe_after, ..Policy::new(OnUnknown::Probe) };
        assert_eq!(due_after(&policy(7_200 * SECOND), SECOND, 0), 7_200);
        assert_eq!(due_after(&policy(7_200 * SECOND), 100_000 * SECOND, 5), 7_200);
        let never = entry(Duration::MAX, Duration::MAX - SECOND, 3);
        assert!(!is_due(&never, &policy(crate::policy::FOREVER)));
    }
}
