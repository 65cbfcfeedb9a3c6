//! What becomes of a delivery, by the engine's answer. One table, and no decision whether anything runs: that was the
//! engine's.

use std::time::Duration;

use semel::{Answer, Cause};

use crate::grave::reason;

/// How the handler's run ended, for the delivery that it ran for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    Retry { after: Duration, said: String },
    Rejected { reason: &'static str, said: String },
    Unknown { said: String },
    NotRun { said: String },
}

/// What becomes of the delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Its effect is there.
    Ack,
    /// Its effect was there before, since so long.
    AckDuplicate { age: Duration },
    /// Tried again after so long; the wait may be spent at the broker.
    Later(Duration),
    /// Another attempt has it for so long, or less; the wait may be spent at the broker.
    Elsewhere(Duration),
    /// Claim it again soon, and hold it meanwhile.
    Soon,
    /// Among the dead letters.
    Bury { reason: Cause, said: String },
    /// The process is stopping: it comes again.
    Leave,
}

pub(super) fn next(answer: Answer<Ended>) -> Next {
    match answer {
        // Not recorded yet is no reason to hold the message: its effect is certain, and the engine goes on writing.
        Answer::Ran { value: Ended::Done, .. } => Next::Ack,
        Answer::Ran { value: Ended::Retry { after, .. }, .. } => Next::Later(after),
        Answer::Ran { value: Ended::Rejected { reason, said }, .. } => bury(reason, said),
        // The next claim says what the policy makes of it.
        Answer::Ran { value: Ended::Unknown { .. }, .. } | Answer::Late { .. } => Next::Soon,
        Answer::Ran { value: Ended::NotRun { .. }, .. } => Next::Soon,
        Answer::Broke { cause, .. } if cause == Cause::SHUTDOWN => Next::Leave,
        Answer::Broke { .. } => Next::Soon,
        Answer::Replay { age, .. } | Answer::Forgotten { age } => Next::AckDuplicate { age },
        Answer::InFlight { retry_after, .. } => Next::Elsewhere(retry_after),
        Answer::Mismatch => bury(reason::KEY_REUSED, "its id came before with another payload".to_owned()),
        Answer::Unknown { cause, .. } => bury(
            reason::OUTCOME_UNKNOWN,
            format!("it may have taken effect ({cause}): resolve its key first"),
        ),
        Answer::Dead { cause, .. } => Next::Bury { said: String::new(), reason: cause },
        Answer::OutOfAge => bury(reason::KEY_MALFORMED, "its id is too old to be new".to_owned()),
        // Nothing ran, and that is no fault of the message: it waits, and is never buried for it.
        Answer::Unavailable(_) | Answer::TooMany => Next::Soon,
        Answer::Stopping => Next::Leave,
    }
}

fn bury(reason: &'static str, said: String) -> Next {
    Next::Bury { reason: Cause::new(reason), said }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use semel::testing::sample;
    use semel::{AttemptId, Fence, Lease, Outcome, StoreError, Was};

    use super::*;

    const AGE: Duration = Duration::from_secs(7);

    fn lease() -> Lease {
        let (scope, key) = (sample::scope(), sample::key("k"));
        let attempt = AttemptId([1; 16]);
        Lease { scope, key, fence: Fence(1), attempt, attempts: 1, was: Was::New, doubt: false }
    }

    fn ran(value: Ended) -> Next {
        next(Answer::Ran { value, lease: lease(), recorded: true })
    }

    fn buried(next: Next) -> String {
        let Next::Bury { reason, .. } = next else { panic!("{next:?}") };
        reason.as_str().to_owned()
    }

    #[test]
    fn c113_only_what_is_done_or_a_duplicate_is_acknowledged() {
        let outcome = Outcome::value(Bytes::new());
        assert_eq!(ran(Ended::Done), Next::Ack);
        assert_eq!(next(Answer::Replay { outcome, age: AGE, attempts: 1 }), Next::AckDuplicate { age: AGE });
        assert_eq!(next(Answer::Forgotten { age: AGE }), Next::AckDuplicate { age: AGE });
        let said = String::new();
        let retry = Ended::Retry { after: AGE, said: said.clone() };
        assert_eq!(ran(retry), Next::Later(AGE));
        assert_eq!(ran(Ended::Unknown { said }), Next::Soon);
    }

    #[test]
    fn m5_what_can_never_succeed_is_buried_under_its_reason() {
        assert_eq!(buried(ran(Ended::Rejected { reason: reason::REJECTED, said: "no".into() })), "rejected");
        assert_eq!(buried(next(Answer::Mismatch)), "key-reused");
        let dead = Answer::Dead { cause: Cause::ATTEMPTS_EXHAUSTED, age: AGE };
        assert_eq!(buried(next(dead)), "attempts-exhausted");
        assert_eq!(buried(next(Answer::Unknown { cause: Cause::LAPSED, age: AGE })), "outcome-unknown");
    }

    #[test]
    fn c82_another_attempt_or_a_store_that_is_away_buries_nothing() {
        assert_eq!(next(Answer::InFlight { retry_after: AGE, age: AGE }), Next::Elsewhere(AGE));
        for error in [
            StoreError::Unavailable("x".into()),
            StoreError::Refused("x".into()),
            StoreError::Corrupt("x".into()),
        ] {
            assert_eq!(next(Answer::Unavailable(error)), Next::Soon);
        }
        assert_eq!(next(Answer::TooMany), Next::Soon);
        assert_eq!(next(Answer::Late { lease: lease() }), Next::Soon);
    }

    #[test]
    fn what_the_process_leaves_when_it_stops_comes_again() {
        assert_eq!(next(Answer::Stopping), Next::Leave);
        assert_eq!(next(Answer::Broke { cause: Cause::SHUTDOWN, lease: lease() }), Next::Leave);
        assert_eq!(next(Answer::Broke { cause: Cause::PANIC, lease: lease() }), Next::Soon);
    }
}
