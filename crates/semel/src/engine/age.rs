//! How old a key says it is (H15): a key that carries its time is refused when it is too old to be new.
//!
//! 1. A record is forgotten `remember_for` after its operation was done, so at that time a key that carries its
//!    time reads as older than `remember_for`. Refusing to begin anything with such a key leaves no hole between
//!    forgetting and a very late retry. Where keys are remembered for ever there is nothing to refuse.
//! 2. A known record wins: its outcome is replayed, and its state is told, however old the key is. A record of
//!    which nothing ever ran is none: it may be what a refused claim left behind.
//! 3. A key from the future is refused when it is more than [`Age::AHEAD_MAX`] ahead. One that is less ahead is
//!    remembered for so much longer, so that rule 1 holds for a client whose clock is fast.
//! 4. The engine has no clock. Whoever names the operation reads the key's time and the machine's clock, and hands
//!    in the distance between them.
//! 5. A UUID's time counts only if a clock could have shown it ([`Age::of`]): random bytes are written in that shape
//!    too, and a key of those is no older than any other.
//!
//! What a wrong clock does: if it is fast, keys look older than they are, and one that is fast by `remember_for`
//! refuses new keys; if it is slow by more than a day, new keys look as if they came from the future and are
//! refused. While it is wrong by the same amount all the time, no hole opens: what is slow remembers longer by
//! rule 3, and what is fast refuses earlier. A clock that is set back later opens a hole as wide as the step, and so
//! does a second gateway whose clock is behind the first one's.
//!
//! Two limits. A dead key that an operator released anew counts from no attempts, so past `remember_for` it is
//! refused like one of which nothing ran. An operator, and a probe in the background, remember what they complete
//! for `remember_for` and no longer, whatever the client's clock was.

use std::time::Duration;

use super::{Engine, Operation};
use crate::environment::Timestamp;
use crate::key::Key;
use crate::policy::{FOREVER, Policy};
use crate::store::{Lease, StoreError, View, Was};

/// The distance between the time that a key carries and now, on the machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// It was made so long ago.
    Ago(Duration),
    /// It will be made in so long.
    Ahead(Duration),
}

impl Age {
    /// Keys that are further ahead are refused: a day.
    pub const AHEAD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// A UUID whose time is further ahead than this carries none: no clock is so wrong.
    const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

    /// 2021-01-01: version 7 of UUID was first drafted that spring (draft-peabody-dispatch-new-uuid-format-01).
    const FIRST_UUID_7: Timestamp = Timestamp(1_609_459_200_000);

    /// The age of a key that carries its time; `ulid` as in [`Key::time`].
    ///
    /// Stripe's SDK for Python writes sixteen random bytes as a UUID, without a version. One in 64 of those has the
    /// shape of version 7, with a time anywhere in 8,900 years. Only a time between the drafting of version 7 and a
    /// year from now is taken for one: that leaves one such key in some 80,000 (in 2026) that is refused for nothing.
    #[must_use]
    pub fn of(key: &Key, ulid: bool, now: Timestamp) -> Option<Age> {
        let made = key.time(ulid)?;
        let could_be = Age::FIRST_UUID_7 <= made && made <= now.after(Age::CLOCK_AHEAD_MAX);
        let is_uuid = key.time(false).is_some();
        (could_be || !is_uuid).then(|| Age::between(made, now))
    }

    /// The age of what was made then.
    #[must_use]
    pub fn between(made: Timestamp, now: Timestamp) -> Age {
        if made <= now { Age::Ago(now.since(made)) } else { Age::Ahead(made.since(now)) }
    }
}

impl Operation {
    /// The key's age, where the key carries a time ([`Key::time`](crate::Key::time)). Without it a key that was
    /// forgotten is new again.
    #[must_use]
    pub fn aged(self, age: Age) -> Operation {
        let remember_for = self.policy.remember_for;
        match age {
            _ if remember_for == FOREVER => self,
            // Equal too: that is the instant at which a record is forgotten.
            Age::Ago(ago) => Operation { never_new: ago >= remember_for, ..self },
            Age::Ahead(ahead) if ahead > Age::AHEAD_MAX => Operation { never_new: true, ..self },
            Age::Ahead(ahead) => {
                let remember_for = remember_for.saturating_add(ahead);
                Operation { policy: Policy { remember_for, ..(*self.policy).clone() }.into(), ..self }
            }
        }
    }
}

impl Engine {
    /// Whether there is a record under which something ran. A look and no claim: looking makes no record.
    pub(super) async fn is_known(&self, operation: &Operation) -> Result<bool, StoreError> {
        let Operation { scope, key, .. } = operation;
        let found = self.patiently("find", self.patience.claim, || self.store.find(scope, key)).await?;
        Ok(found.is_some_and(|entry| entry.attempts > 0 || !matches!(entry.view, View::Released { .. })))
    }
}

/// Whether nothing had ever run when the claim was made: what was looked at has been forgotten since, and perhaps
/// another one, as late, has claimed and given back.
pub(super) fn is_first(lease: &Lease) -> bool {
    lease.was == Was::New || (lease.was == Was::Released && lease.attempts == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::OnUnknown;
    use crate::testing::sample;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn aged(remember_for: Duration, age: Age) -> Operation {
        let policy = Policy { remember_for, ..Policy::new(OnUnknown::Park) };
        Operation::new(sample::scope(), sample::key("k"), sample::fingerprint("same"), policy.into())
            .aged(age)
    }

    #[test]
    fn h15_a_key_as_old_as_its_retention_is_never_new() {
        let just_below = 30 * DAY - Duration::from_millis(1);
        assert!(!aged(30 * DAY, Age::Ago(Duration::ZERO)).never_new);
        assert!(!aged(30 * DAY, Age::Ago(just_below)).never_new);
        assert!(aged(30 * DAY, Age::Ago(30 * DAY)).never_new);
        assert!(!aged(FOREVER, Age::Ago(Duration::MAX)).never_new);
        assert!(!aged(FOREVER, Age::Ahead(Duration::MAX)).never_new);
    }

    #[test]
    fn h15_a_key_more_than_a_day_ahead_is_never_new_and_one_less_ahead_is_remembered_longer() {
        assert!(aged(30 * DAY, Age::Ahead(DAY + Duration::from_millis(1))).never_new);
        let ahead = aged(30 * DAY, Age::Ahead(DAY));
        assert_eq!((ahead.never_new, ahead.policy.remember_for), (false, 31 * DAY));
    }

    #[test]
    fn h15_a_uuid_of_random_bytes_has_no_age() {
        // 2026-11-30.
        let now = Timestamp(1_796_064_676_000);
        let age = |millis: i64, ulid| {
            let uuid = format!("{:08x}-{:04x}-7abc-8def-0123456789ab", millis >> 16, millis & 0xffff);
            Age::of(&Key::new(uuid).unwrap(), ulid, now)
        };
        let year = i64::try_from(Age::CLOCK_AHEAD_MAX.as_millis()).unwrap();
        for shown in [Age::FIRST_UUID_7.0, now.0, now.0 + year] {
            assert_eq!(age(shown, false), Some(Age::between(Timestamp(shown), now)), "{shown}");
        }
        for random in [0, Age::FIRST_UUID_7.0 - 1, now.0 + year + 1, (1 << 48) - 1] {
            assert_eq!((age(random, false), age(random, true)), (None, None), "{random}");
        }
        // What is declared is taken at its word.
        let ulid = Key::new("7ZZZZZZZZZZZZZZZZZZZZZZZZZ").unwrap();
        assert_eq!(Age::of(&ulid, false, now), None);
        assert!(matches!(Age::of(&ulid, true, now), Some(Age::Ahead(_))));
        assert!(matches!(
            Age::of(&Key::new("00000000000000000000000000").unwrap(), true, now),
            Some(Age::Ago(_))
        ));
    }

    #[test]
    fn an_age_is_a_distance() {
        let (one, other) = (Timestamp(1_000), Timestamp(4_000));
        assert_eq!(Age::between(one, other), Age::Ago(Duration::from_secs(3)));
        assert_eq!(Age::between(other, one), Age::Ahead(Duration::from_secs(3)));
        assert_eq!(Age::between(one, one), Age::Ago(Duration::ZERO));
    }
}
