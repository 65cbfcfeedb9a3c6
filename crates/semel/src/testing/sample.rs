//! Requests and settlements to write tests with. Keys, attempts and fingerprints are named by short texts and
//! numbers, so that a test reads as what happens.

use std::time::Duration;

use bytes::Bytes;

use crate::fingerprint::{Algorithm, Fingerprint};
use crate::key::{Key, Scope};
use crate::store::{
    AttemptId, Cause, Claim, ClaimRequest, Fence, Label, Lease, Outcome, Purpose, Settlement,
};

/// How long a lease lasts here. Long: a store on a clock that runs may take seconds over a test.
pub const LEASE: Duration = Duration::from_secs(60);
/// How long an outcome is replayed here.
pub const REPLAY: Duration = Duration::from_secs(3_600);
/// How long a key is remembered here.
pub const REMEMBER: Duration = Duration::from_secs(86_400);

/// The scope of every sample.
///
/// # Panics
///
/// Never.
#[must_use]
pub fn scope() -> Scope {
    Scope::new("test:contract").expect("a scope")
}

/// The key of that text.
///
/// # Panics
///
/// When it is no key.
#[must_use]
pub fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

/// The attempt of that number.
#[must_use]
pub fn attempt(number: u64) -> AttemptId {
    let mut id = [0xa5; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    AttemptId(id)
}

/// The fingerprint of a request that asks for `what`.
#[must_use]
pub fn fingerprint(what: &str) -> Fingerprint {
    Fingerprint::builder(Algorithm::EXACT).part(what.as_bytes()).finish()
}

/// An attempt that wants to run the key. It asks for the same thing as every other, takes nothing unknown, and
/// may be one of many.
#[must_use]
pub fn run(key_text: &str, number: u64) -> ClaimRequest {
    ClaimRequest {
        scope: scope(),
        key: key(key_text),
        attempt: attempt(number),
        purpose: Purpose::Run { fingerprint: fingerprint("same"), rerun: false, attempts_max: u32::MAX },
        lease_for: LEASE,
        label: Label::new("POST /charges"),
        input: Some(Bytes::from_static(b"{\"amount\":1}")),
    }
}

/// An attempt that may also take what is unknown.
#[must_use]
pub fn rerun(key_text: &str, number: u64) -> ClaimRequest {
    let purpose = Purpose::Run { fingerprint: fingerprint("same"), rerun: true, attempts_max: u32::MAX };
    ClaimRequest { purpose, ..run(key_text, number) }
}

/// An attempt that asks for something of its own.
#[must_use]
pub fn run_for(key_text: &str, number: u64, what: &str) -> ClaimRequest {
    let purpose = Purpose::Run { fingerprint: fingerprint(what), rerun: false, attempts_max: u32::MAX };
    ClaimRequest { purpose, ..run(key_text, number) }
}

/// An attempt that may be the `attempts_max`-th at most, and may take what is unknown.
#[must_use]
pub fn run_at_most(key_text: &str, number: u64, attempts_max: u32) -> ClaimRequest {
    let purpose = Purpose::Run { fingerprint: fingerprint("same"), rerun: true, attempts_max };
    ClaimRequest { purpose, ..run(key_text, number) }
}

/// A claim that settles what has the fence `seen`.
#[must_use]
pub fn settling(key_text: &str, number: u64, seen: Fence) -> ClaimRequest {
    ClaimRequest { purpose: Purpose::Settle { seen, force: false }, ..run(key_text, number) }
}

/// A claim that settles what has the fence `seen`, even if it runs.
#[must_use]
pub fn forcing(key_text: &str, number: u64, seen: Fence) -> ClaimRequest {
    ClaimRequest { purpose: Purpose::Settle { seen, force: true }, ..run(key_text, number) }
}

/// The attempt's end with an outcome.
#[must_use]
pub fn complete(text: &str) -> Settlement {
    Settlement::Complete {
        outcome: Outcome::value(text.to_owned()),
        replay_for: REPLAY,
        remember_for: REMEMBER,
    }
}

/// The attempt's end without effect.
#[must_use]
pub fn release() -> Settlement {
    Settlement::Release { not_before: None, unbind: false, ran: true, remember_for: REMEMBER }
}

/// The end of an attempt under which nothing ran.
#[must_use]
pub fn release_not_run() -> Settlement {
    Settlement::Release { not_before: None, unbind: false, ran: false, remember_for: REMEMBER }
}

/// The attempt's end without effect, not to be tried again before so long.
#[must_use]
pub fn release_for(not_before: Duration) -> Settlement {
    Settlement::Release { not_before: Some(not_before), unbind: false, ran: true, remember_for: REMEMBER }
}

/// The attempt's end without effect, which loosens the fingerprint.
#[must_use]
pub fn release_unbound() -> Settlement {
    Settlement::Release { not_before: None, unbind: true, ran: true, remember_for: REMEMBER }
}

/// The attempt's unsure end.
#[must_use]
pub fn park() -> Settlement {
    Settlement::Park { cause: Cause::CUT }
}

/// The end of all attempts.
#[must_use]
pub fn bury() -> Settlement {
    Settlement::Bury { cause: Cause::new("rejected") }
}

/// The lease that a claim was given.
///
/// # Panics
///
/// When it was given none.
#[must_use]
#[track_caller]
pub fn lease(claim: Claim) -> Lease {
    match claim {
        Claim::Acquired(lease) => lease,
        other => panic!("expected a lease, got {other:?}"),
    }
}

/// The name of an answer.
#[must_use]
pub fn name(claim: &Claim) -> &'static str {
    match claim {
        Claim::Acquired(_) => "acquired",
        Claim::InFlight { .. } => "in-flight",
        Claim::Completed { .. } => "completed",
        Claim::Mismatch { .. } => "mismatch",
        Claim::Unknown { .. } => "unknown",
        Claim::Dead { .. } => "dead",
        Claim::Forgotten { .. } => "forgotten",
        Claim::Moved => "moved",
    }
}
