//! Stores with one rule broken each. A suite that does not notice tests nothing.
//!
//! A mutant wraps any store, so that the proof of one store is also a proof of the checks on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::contract::Harness;
use crate::fingerprint::Fingerprint;
use crate::key::{Key, Scope};
use crate::store::{
    AttemptId, Cause, Claim, ClaimRequest, Cursor, Entry, Lease, Outcome, Purpose, Settlement, Store,
    StoreError, Swept, View, Was,
};

/// Which rule is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// Whoever settles or renews owns the record: no fence is compared.
    NoFence,
    /// Attempt ids are ignored: a repeated claim is a new one, a spent attempt may claim, and the fence alone
    /// proves a lease.
    NoAttempt,
    /// A renewal is answered and not made.
    NoRenewal,
    /// A caller that hangs up releases its claim.
    ReleaseOnDrop,
    /// Another request under a running key is told that it is in flight.
    MismatchAfterInFlight,
    /// A release loosens the fingerprint.
    FingerprintLostOnRelease,
    /// Leases and retention end when somebody sweeps.
    ExpiryOnlyBySweep,
    /// What is unknown is said to have been so for a day, so that whoever asks about it asks at once.
    UnknownForLong,
    /// A claim that settles is given the lease that is there, and no fence of its own.
    SettlesWithoutFence,
}

impl Mutant {
    /// Each once.
    pub const ALL: [Mutant; 9] = [
        Mutant::NoFence,
        Mutant::NoAttempt,
        Mutant::NoRenewal,
        Mutant::ReleaseOnDrop,
        Mutant::MismatchAfterInFlight,
        Mutant::FingerprintLostOnRelease,
        Mutant::ExpiryOnlyBySweep,
        Mutant::UnknownForLong,
        Mutant::SettlesWithoutFence,
    ];
}

/// A store around another one, with one rule broken.
#[derive(Debug)]
pub struct MutantStore {
    mutant: Mutant,
    inner: Arc<dyn Store>,
    claims: AtomicU64,
    unswept: Mutex<Unswept>,
}

/// The harness of a store, which opens the mutant.
#[derive(Clone, Copy)]
pub struct MutantHarness<'a> {
    mutant: Mutant,
    inner: &'a dyn Harness,
}

impl<'a> MutantHarness<'a> {
    /// The mutant's harness.
    #[must_use]
    pub fn new(mutant: Mutant, inner: &'a dyn Harness) -> MutantHarness<'a> {
        MutantHarness { mutant, inner }
    }
}

impl fmt::Debug for MutantHarness<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MutantHarness").field(&self.mutant).finish()
    }
}

#[async_trait]
impl Harness for MutantHarness<'_> {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(MutantStore::new(self.mutant, self.inner.open().await))
    }

    async fn reopen(&self) -> Arc<dyn Store> {
        Arc::new(MutantStore::new(self.mutant, self.inner.reopen().await))
    }

    async fn advance(&self, by: Duration) {
        self.inner.advance(by).await;
    }

    fn tolerance(&self) -> Duration {
        self.inner.tolerance()
    }
}

type Name = (Scope, Key);

/// What [`Mutant::ExpiryOnlyBySweep`] has not noticed yet, and what it has.
#[derive(Debug, Default)]
struct Unswept {
    completed: BTreeMap<Name, (Option<Fingerprint>, Outcome)>,
    lapsed: BTreeSet<Name>,
}

impl MutantStore {
    /// The mutant of a store.
    #[must_use]
    pub fn new(mutant: Mutant, inner: Arc<dyn Store>) -> MutantStore {
        MutantStore { mutant, inner, claims: AtomicU64::new(0), unswept: Mutex::default() }
    }

    /// What a simulation says when the caller whose claim this is has hung up.
    pub async fn hung_up(&self, lease: &Lease) {
        if self.mutant == Mutant::ReleaseOnDrop {
            let remember_for = Duration::from_secs(86_400);
            let release = Settlement::Release { not_before: None, unbind: false, ran: true, remember_for };
            let _ = self.inner.settle(lease, &release).await;
        }
    }

    fn unswept(&self) -> MutexGuard<'_, Unswept> {
        self.unswept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease that would be good now, whatever the one at hand is.
    async fn forged(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let entry = self.inner.find(&lease.scope, &lease.key).await?.ok_or(StoreError::LeaseLost)?;
        match self.mutant {
            Mutant::NoFence => Ok(Lease { fence: entry.fence, attempt: entry.attempt, ..lease.clone() }),
            Mutant::NoAttempt => Ok(Lease { attempt: entry.attempt, ..lease.clone() }),
            _ => Ok(lease.clone()),
        }
    }

    async fn claim_anew(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let mut attempt = [0x6d; 16];
        attempt[8..].copy_from_slice(&self.claims.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        let claim =
            self.inner.claim(&ClaimRequest { attempt: AttemptId(attempt), ..request.clone() }).await?;
        Ok(match claim {
            Claim::Acquired(lease) => Claim::Acquired(Lease { attempt: request.attempt, ..lease }),
            other => other,
        })
    }

    async fn claim_blindly(&self, request: &ClaimRequest, asked: Fingerprint) -> Result<Claim, StoreError> {
        if let Some(entry) = self.inner.find(&request.scope, &request.key).await?
            && let View::Running { lease_left } = entry.view
            && entry.fingerprint.is_some_and(|bound| bound != asked)
        {
            return Ok(Claim::InFlight { retry_after: lease_left, age: entry.age });
        }
        self.inner.claim(request).await
    }

    async fn claim_unswept(&self, request: &ClaimRequest, asked: Fingerprint) -> Result<Claim, StoreError> {
        let name = (request.scope.clone(), request.key.clone());
        let entry = self.inner.find(&request.scope, &request.key).await?;
        let age = entry.as_ref().map_or(Duration::ZERO, |entry| entry.age);
        let view = entry.map(|entry| entry.view);
        if matches!(&view, Some(View::Unknown { cause }) if *cause == Cause::LAPSED)
            && !self.unswept().lapsed.contains(&name)
        {
            return Ok(Claim::InFlight { retry_after: Duration::ZERO, age });
        }
        let kept = self.unswept().completed.get(&name).cloned();
        match kept {
            Some((bound, outcome)) if matches!(view, None | Some(View::Forgotten)) => {
                let same = bound.is_none_or(|bound| bound == asked);
                let mismatch = Claim::Mismatch { algorithm: asked.algorithm };
                Ok(if same { Claim::Completed { outcome, age, attempts: 1 } } else { mismatch })
            }
            _ => self.inner.claim(request).await,
        }
    }

    async fn claim_unfenced(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let Purpose::Settle { seen, force } = request.purpose else { return self.inner.claim(request).await };
        let entry = self.inner.find(&request.scope, &request.key).await?;
        let Some(entry) = entry.filter(|entry| entry.fence == seen) else { return Ok(Claim::Moved) };
        let was = match entry.view {
            View::Unknown { .. } => Was::Unknown,
            View::Dead { .. } => Was::Dead,
            View::Running { .. } if force => Was::Running,
            _ => return Ok(Claim::Moved),
        };
        let Entry { scope, key, fence, attempt, attempts, .. } = entry;
        Ok(Claim::Acquired(Lease { scope, key, fence, attempt, attempts, was, doubt: false }))
    }

    fn seen(&self, entry: Entry) -> Entry {
        let is_old = self.mutant == Mutant::UnknownForLong && matches!(entry.view, View::Unknown { .. });
        let more = if is_old { Duration::from_secs(86_400) } else { Duration::ZERO };
        Entry { age: entry.age + more, since: entry.since + more, ..entry }
    }

    async fn remember(&self, lease: &Lease, outcome: &Outcome) -> Result<(), StoreError> {
        let bound = self.inner.find(&lease.scope, &lease.key).await?.and_then(|entry| entry.fingerprint);
        let name = (lease.scope.clone(), lease.key.clone());
        self.unswept().completed.insert(name, (bound, outcome.clone()));
        Ok(())
    }

    /// Notices what has expired.
    async fn notice(&self) -> Result<(), StoreError> {
        let open = self.inner.unsettled(None, u32::MAX).await?;
        let names: Vec<Name> = self.unswept().completed.keys().cloned().collect();
        for name in names {
            let entry = self.inner.find(&name.0, &name.1).await?;
            if entry.is_none_or(|entry| entry.view == View::Forgotten) {
                self.unswept().completed.remove(&name);
            }
        }
        self.unswept().lapsed = open.into_iter().map(|entry| (entry.scope, entry.key)).collect();
        Ok(())
    }
}

#[async_trait]
impl Store for MutantStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        match (self.mutant, request.purpose) {
            (Mutant::NoAttempt, _) => self.claim_anew(request).await,
            (Mutant::SettlesWithoutFence, _) => self.claim_unfenced(request).await,
            (Mutant::MismatchAfterInFlight, Purpose::Run { fingerprint, .. }) => {
                self.claim_blindly(request, fingerprint).await
            }
            (Mutant::ExpiryOnlyBySweep, Purpose::Run { fingerprint, .. }) => {
                self.claim_unswept(request, fingerprint).await
            }
            _ => self.inner.claim(request).await,
        }
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        match self.mutant {
            Mutant::NoRenewal => Ok(()),
            Mutant::NoFence | Mutant::NoAttempt => {
                self.inner.renew(&self.forged(lease).await?, lease_for).await
            }
            _ => self.inner.renew(lease, lease_for).await,
        }
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        match (self.mutant, settlement) {
            (Mutant::NoFence | Mutant::NoAttempt, _) => {
                self.inner.settle(&self.forged(lease).await?, settlement).await
            }
            (
                Mutant::FingerprintLostOnRelease,
                &Settlement::Release { not_before, ran, remember_for, unbind: _ },
            ) => {
                // Changed in this one thing, so that this one thing is what is noticed.
                let unbound = Settlement::Release { not_before, unbind: true, ran, remember_for };
                self.inner.settle(lease, &unbound).await
            }
            (Mutant::ExpiryOnlyBySweep, Settlement::Complete { outcome, .. }) => {
                self.inner.settle(lease, settlement).await?;
                self.remember(lease, outcome).await
            }
            _ => self.inner.settle(lease, settlement).await,
        }
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        Ok(self.inner.find(scope, key).await?.map(|entry| self.seen(entry)))
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let open = self.inner.unsettled(after, limit).await?;
        Ok(open.into_iter().map(|entry| self.seen(entry)).collect())
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        if self.mutant == Mutant::ExpiryOnlyBySweep {
            self.notice().await?;
        }
        self.inner.sweep(limit).await
    }
}
