//! Spikes of duplicates, said aloud: which scope, since when, how many, and what is likely to cause them.
//!
//! 1. A scope's minute is a **spike** once 50 of its claims in it were duplicates, and they are a fifth of its claims or
//!    more. A duplicate is a claim of a key that was claimed before, a mismatch included. The minute begins with the
//!    first duplicate, so what came before counts for nothing.
//! 2. It is one line at warn, target `semel::spike`, when it begins, and again every ten minutes while it goes on; each
//!    of its minutes is counted in `semel_duplicate_spikes_total`. The scope is named as everywhere, never a key.
//! 3. **The likely cause** is read from the duplicates themselves ([`Likely`]). It is a guess for a person to start
//!    from, and nothing acts on it.
//! 4. **Memory is bounded**: so many scopes, of each so many keys, of a key a digest. A scope gets a place at its first
//!    duplicate; when all are taken, the one goes that was quiet for the longest.
//!
//! Each process sees its own part of the traffic.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics::Counter;
use tokio::time::Instant;

use crate::key::{Key, Scope};

const MINUTE: Duration = Duration::from_secs(60);
/// Duplicates in a minute that make a spike.
const DUPLICATES_MIN: u32 = 50;
/// One duplicate in so many claims, or more.
const CLAIMS_PER_DUPLICATE_MAX: u32 = 5;
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(10 * 60);
const SCOPES_MAX: usize = 256;
/// Keys of a scope whose duplicates are timed.
const KEYS_MAX: usize = 16;
/// A key that is quiet for so long gives its place to another.
const KEY_QUIET: Duration = Duration::from_secs(120);
/// A client that backs off leaves more between its first and its second retry than this, or soon does.
const SHORT_GAP: Duration = Duration::from_secs(1);
/// A run that takes so long is slow for somebody.
pub(crate) const SLOW: Duration = Duration::from_secs(1);
/// So long after a run has ended, a replay still belongs to the caller who did not wait for it.
const SOON: Duration = Duration::from_secs(10);

/// What a claim was, for its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A new key, or one of which nothing is said here.
    First,
    /// A released key, run again.
    Again,
    Replay {
        /// Time since the key's first claim.
        age: Duration,
    },
    InFlight,
    Mismatch,
    /// Unknown or dead: somebody has to find out.
    Waiting,
    /// Done, and forgotten.
    Late,
}

/// The likely cause of a spike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likely {
    /// Mostly in flight, with short gaps.
    NoBackoff,
    /// Replays right after slow runs, or mostly in flight with long gaps: the handler is slow, or its callers' timeout
    /// is shorter than it.
    SlowHandler,
    /// Mismatches: a key is used for another request.
    KeyReused,
    /// Replays at even intervals: somebody repeats what has succeeded.
    RetryLoop,
    /// Unknown or dead: clients retry what waits for a person.
    Waiting,
    /// Released again and again: the service fails without effect.
    Failing,
    Unclear,
}

/// A spike that is to be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spike {
    pub(crate) scope: Scope,
    pub(crate) likely: Likely,
    /// Since its first duplicate.
    pub(crate) lasts: Duration,
    /// In this minute so far.
    pub(crate) duplicates: u32,
    pub(crate) claims: u32,
}

#[derive(Default)]
pub(crate) struct Spikes {
    scopes: Mutex<HashMap<Scope, Watched>>,
    hasher: RandomState,
    counted: OnceLock<[Counter; Likely::ALL.len()]>,
}

/// One scope's minute.
#[derive(Debug)]
struct Watched {
    began: Instant,
    last: Instant,
    claims: u32,
    seen: Tally,
    /// The longest run that ended in this minute or the one before.
    slowest: [Duration; 2],
    keys: Vec<Timed>,
    /// When the first of the minutes began that were spikes without a pause.
    since: Option<Instant>,
    is_spike: bool,
    said: Option<Instant>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    again: u32,
    replays: u32,
    after_slow: u32,
    in_flight: u32,
    mismatches: u32,
    waiting: u32,
    late: u32,
    /// Gaps between a key's duplicates, and those that were short.
    gaps: u32,
    short: u32,
    /// Gaps that could be compared with the one before, and those that were as long.
    pairs: u32,
    even: u32,
}

/// A key's latest duplicate.
#[derive(Debug)]
struct Timed {
    digest: u64,
    last: Instant,
    gap: Option<Duration>,
}

impl Likely {
    const ALL: [Likely; 7] = [
        Likely::NoBackoff,
        Likely::SlowHandler,
        Likely::KeyReused,
        Likely::RetryLoop,
        Likely::Waiting,
        Likely::Failing,
        Likely::Unclear,
    ];

    /// The word for it, in metrics and in the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Likely::NoBackoff => "no_backoff",
            Likely::SlowHandler => "slow_handler",
            Likely::KeyReused => "key_reused",
            Likely::RetryLoop => "retry_loop",
            Likely::Waiting => "waiting",
            Likely::Failing => "failing",
            Likely::Unclear => "unclear",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Likely::NoBackoff => {
                "retries come while the first attempt runs, at short gaps: a client without backoff"
            }
            Likely::SlowHandler => {
                "retries come during or right after slow runs: a slow handler, or a client whose timeout is shorter"
            }
            Likely::KeyReused => "one key for different requests: the client's key generation is broken",
            Likely::RetryLoop => {
                "the same is repeated at even intervals after it succeeded: a loop that ignores success"
            }
            Likely::Waiting => "clients retry keys that are unknown or dead: somebody has to resolve them",
            Likely::Failing => "runs end without effect and are tried again: the service fails",
            Likely::Unclear => "no pattern",
        }
    }
}

impl Spikes {
    /// Counts a claim, and says aloud what is to be said.
    pub(crate) fn saw(&self, scope: &Scope, key: &Key, seen: Seen) {
        let Some(spike) = self.watch(scope, key, seen, Instant::now()) else { return };
        tracing::warn!(
            target: "semel::spike",
            scope = spike.scope.as_str(),
            likely = spike.likely.as_str(),
            duplicates = spike.duplicates,
            claims = spike.claims,
            lasts_ms = u64::try_from(spike.lasts.as_millis()).unwrap_or(u64::MAX),
            "a spike of duplicates: {}",
            spike.likely.hint()
        );
    }

    /// A run of the scope has ended.
    pub(crate) fn ran(&self, scope: &Scope, took: Duration) {
        if took < SLOW {
            return;
        }
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = scopes.get_mut(scope) {
            watched.slowest[0] = watched.slowest[0].max(took);
        }
    }

    pub(crate) fn register(&self) {
        self.counted();
    }

    fn counted(&self) -> &[Counter; Likely::ALL.len()] {
        let counter =
            |likely: Likely| metrics::counter!("semel_duplicate_spikes_total", "likely" => likely.as_str());
        self.counted.get_or_init(|| Likely::ALL.map(counter))
    }

    fn watch(&self, scope: &Scope, key: &Key, seen: Seen, now: Instant) -> Option<Spike> {
        // Numbers only, so a panic elsewhere leaves them right.
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if !scopes.contains_key(scope) {
            if seen == Seen::First {
                return None;
            }
            make_room(&mut scopes);
            scopes.insert(scope.clone(), Watched::new(now));
        }
        let watched = scopes.get_mut(scope)?;
        watched.roll(now);
        watched.claims += 1;
        if seen == Seen::First {
            return None;
        }
        watched.last = now;
        watched.count(seen);
        watched.time(self.hasher.hash_one(key), now);
        if !watched.becomes_spike() {
            return None;
        }
        let likely = watched.seen.likely();
        self.counted()[likely as usize].increment(1);
        watched.is_to_be_said(now).then(|| Spike {
            scope: scope.clone(),
            likely,
            lasts: now - watched.since.unwrap_or(now),
            duplicates: watched.seen.duplicates(),
            claims: watched.claims,
        })
    }
}

fn make_room(scopes: &mut HashMap<Scope, Watched>) {
    if scopes.len() < SCOPES_MAX {
        return;
    }
    let quietest = scopes.iter().min_by_key(|(_, watched)| watched.last).map(|(scope, _)| scope.clone());
    if let Some(scope) = quietest {
        scopes.remove(&scope);
    }
}

impl Watched {
    fn new(now: Instant) -> Watched {
        Watched {
            began: now,
            last: now,
            claims: 0,
            seen: Tally::default(),
            slowest: [Duration::ZERO; 2],
            keys: Vec::new(),
            since: None,
            is_spike: false,
            said: None,
        }
    }

    /// Begins another minute when this one is over.
    fn roll(&mut self, now: Instant) {
        let past = now.duration_since(self.began);
        if past < MINUTE {
            return;
        }
        if !self.is_spike || past >= 2 * MINUTE {
            (self.since, self.said) = (None, None);
        }
        self.slowest = [Duration::ZERO, if past < 2 * MINUTE { self.slowest[0] } else { Duration::ZERO }];
        (self.began, self.claims, self.seen, self.is_spike) = (now, 0, Tally::default(), false);
    }

    fn count(&mut self, seen: Seen) {
        let tally = &mut self.seen;
        match seen {
            Seen::First => {}
            Seen::Again => tally.again += 1,
            Seen::Replay { age } => {
                tally.replays += 1;
                let slowest = self.slowest[0].max(self.slowest[1]);
                if slowest >= SLOW && age <= slowest + SOON {
                    tally.after_slow += 1;
                }
            }
            Seen::InFlight => tally.in_flight += 1,
            Seen::Mismatch => tally.mismatches += 1,
            Seen::Waiting => tally.waiting += 1,
            Seen::Late => tally.late += 1,
        }
    }

    /// The gap to the key's duplicate before, for the keys that have a place.
    fn time(&mut self, digest: u64, now: Instant) {
        let Some(timed) = self.keys.iter_mut().find(|timed| timed.digest == digest) else {
            if self.keys.len() == KEYS_MAX {
                self.keys.retain(|timed| now.duration_since(timed.last) < KEY_QUIET);
            }
            if self.keys.len() < KEYS_MAX {
                self.keys.push(Timed { digest, last: now, gap: None });
            }
            return;
        };
        let gap = now.duration_since(timed.last);
        self.seen.gaps += 1;
        self.seen.short += u32::from(gap < SHORT_GAP);
        if let Some(before) = timed.gap {
            self.seen.pairs += 1;
            self.seen.even += u32::from(gap.abs_diff(before) <= before / 10);
        }
        (timed.last, timed.gap) = (now, Some(gap));
    }

    /// Whether this duplicate has made the minute a spike.
    fn becomes_spike(&mut self) -> bool {
        let duplicates = self.seen.duplicates();
        let many =
            duplicates >= DUPLICATES_MIN && duplicates >= self.claims.div_ceil(CLAIMS_PER_DUPLICATE_MAX);
        if self.is_spike || !many {
            return false;
        }
        self.is_spike = true;
        self.since.get_or_insert(self.began);
        true
    }

    fn is_to_be_said(&mut self, now: Instant) -> bool {
        let say = self.said.is_none_or(|said| now.duration_since(said) >= SAY_AGAIN_AFTER);
        if say {
            self.said = Some(now);
        }
        say
    }
}

impl Tally {
    fn duplicates(&self) -> u32 {
        self.again + self.replays + self.in_flight + self.mismatches + self.waiting + self.late
    }

    /// What most of the duplicates say. A half is most: two patterns at once are rare, and a third takes none of them.
    fn likely(&self) -> Likely {
        let is_most = |count: u32, of: u32| of > 0 && 2 * count >= of;
        let all = self.duplicates();
        if is_most(self.mismatches, all) {
            return Likely::KeyReused;
        }
        if is_most(self.waiting, all) {
            return Likely::Waiting;
        }
        if is_most(self.in_flight, all) {
            return if is_most(self.short, self.gaps) { Likely::NoBackoff } else { Likely::SlowHandler };
        }
        if is_most(self.again, all) {
            return Likely::Failing;
        }
        if is_most(self.after_slow, all) {
            return Likely::SlowHandler;
        }
        if is_most(self.replays + self.late, all) && is_most(self.even, self.pairs) {
            return Likely::RetryLoop;
        }
        Likely::Unclear
    }
}

#[cfg(test)]
mod tests;
