//! What the engine lets be seen: counters of decisions and settlements, through the `metrics` facade.
//!
//! Without a recorder installed these calls cost next to nothing. No key, scope or path is a label: their number
//! has no bound.

use crate::store::{Settlement, StoreError};

/// Names and meanings, for whoever installs a recorder.
pub const METRICS: &[(&str, &str)] = &[
    ("semel_claims_total", "Decisions by result."),
    ("semel_settlements_total", "Attempts ended, by how."),
    ("semel_settle_repeats_total", "Settlements repeated because the store did not answer."),
    ("semel_unrecorded_total", "Callers answered before their outcome was recorded."),
    ("semel_lease_losses_total", "Runs whose record had another owner when they ended."),
    ("semel_store_errors_total", "Failed store calls, by verb."),
    ("semel_probes_total", "Questions whether an operation took effect, by result."),
    ("semel_running", "Runs in this process now."),
];

pub(crate) fn decided(result: &'static str) {
    metrics::counter!("semel_claims_total", "result" => result).increment(1);
}

pub(crate) fn settled(settlement: &Settlement) {
    metrics::counter!("semel_settlements_total", "how" => name(settlement)).increment(1);
}

pub(crate) fn settle_repeated() {
    metrics::counter!("semel_settle_repeats_total").increment(1);
}

pub(crate) fn unrecorded() {
    metrics::counter!("semel_unrecorded_total").increment(1);
}

pub(crate) fn probed(result: &'static str) {
    metrics::counter!("semel_probes_total", "result" => result).increment(1);
}

pub(crate) fn lease_lost() {
    metrics::counter!("semel_lease_losses_total").increment(1);
}

pub(crate) fn store_failed(verb: &'static str, error: &StoreError) {
    metrics::counter!("semel_store_errors_total", "verb" => verb).increment(1);
    tracing::warn!(verb, %error, "store call failed");
}

/// Counts a run for as long as it lives.
#[derive(Debug)]
pub(crate) struct Running(());

impl Running {
    pub(crate) fn begin() -> Running {
        metrics::gauge!("semel_running").increment(1.0);
        Running(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        metrics::gauge!("semel_running").decrement(1.0);
    }
}

fn name(settlement: &Settlement) -> &'static str {
    match settlement {
        Settlement::Complete { .. } => "completed",
        Settlement::Release { .. } => "released",
        Settlement::Park { .. } => "unknown",
        Settlement::Bury { .. } => "dead",
    }
}
