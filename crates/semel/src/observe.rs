//! What the engine lets be seen: counters, gauges and histograms through the `metrics` facade, and a word about spikes
//! of duplicates (`observe/spikes.rs`).
//!
//! 1. Names begin with `semel_`, values are in base units, and [`METRICS`] has each of them.
//! 2. **No key, scope, path or tenant is a label**: their number has no bound, and some are secret. A route's name is
//!    one, since routes are few.
//! 3. A request looks nothing up: what is counted for a route is in its [`Meters`], what is counted for the store in
//!    the engine. Both are registered when they are first used, with whatever recorder is installed then; one that is
//!    installed later sees nothing of them. Without one these calls cost next to nothing.
//! 4. A histogram's samples are kept by the recorder until it is asked, or told to tidy up: see its own documentation.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use crate::store::{Settlement, StoreError};

pub(crate) mod spikes;

/// A metric, for whoever installs a recorder.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How its values behave.
    pub kind: Kind,
    /// What it means.
    pub meaning: &'static str,
}

/// How a metric's values behave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// It only rises.
    Counter,
    /// It is what it is now.
    Gauge,
    /// It counts values by these upper bounds, which a recorder has to be told.
    Histogram(&'static [f64]),
}

impl Metric {
    /// A counter.
    #[must_use]
    pub const fn counter(name: &'static str, meaning: &'static str) -> Metric {
        Metric { name, kind: Kind::Counter, meaning }
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, meaning: &'static str) -> Metric {
        Metric { name, kind: Kind::Gauge, meaning }
    }

    /// A histogram with these upper bounds.
    #[must_use]
    pub const fn histogram(name: &'static str, bounds: &'static [f64], meaning: &'static str) -> Metric {
        Metric { name, kind: Kind::Histogram(bounds), meaning }
    }

    /// Tells the recorder that is installed what it means.
    pub fn describe(&self) {
        match self.kind {
            Kind::Counter => metrics::describe_counter!(self.name, self.meaning),
            Kind::Gauge => metrics::describe_gauge!(self.name, self.meaning),
            Kind::Histogram(_) => metrics::describe_histogram!(self.name, self.meaning),
        }
    }
}

/// A second, a minute, an hour, a day and between: retries come at once, or when somebody looks again.
const AGES: &[f64] = &[1.0, 10.0, 60.0, 600.0, 3_600.0, 21_600.0, 86_400.0];

/// From a commit in memory to the longest that one call may take.
const STORE_SECONDS: &[f64] =
    &[0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.0];

/// What the engine counts.
pub const METRICS: &[Metric] = &[
    Metric::counter("semel_claims_total", "Decisions, by result, surface and route."),
    Metric::counter(
        "semel_duplicates_total",
        "Claims of a key that had been claimed before, by surface and route.",
    ),
    Metric::histogram("semel_replay_age_seconds", AGES, "Replays, by the time since the key's first claim."),
    Metric::gauge("semel_running", "Runs in this process now, by surface and route."),
    Metric::counter("semel_settlements_total", "Attempts ended, by how."),
    Metric::counter("semel_settle_repeats_total", "Settlements repeated because the store did not answer."),
    Metric::counter("semel_unrecorded_total", "Callers answered before their outcome was recorded."),
    Metric::counter("semel_lease_losses_total", "Runs whose record had another owner when they ended."),
    Metric::histogram("semel_store_seconds", STORE_SECONDS, "How long calls of the store took, by verb."),
    Metric::counter("semel_store_errors_total", "Failed store calls, by verb."),
    Metric::counter("semel_probes_total", "Questions whether an operation took effect, by result."),
    Metric::counter(
        "semel_duplicate_spikes_total",
        "Minutes in which the duplicates of a scope spiked, by what is likely.",
    ),
];

/// What a claim came to, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decided {
    Run,
    Replay,
    InFlight,
    Mismatch,
    Late,
    Unknown,
    Dead,
    OutOfAge,
    TooMany,
    Unavailable,
    Bypass,
    Stopping,
}

impl Decided {
    /// In the order of the variants.
    const NAMES: [&'static str; 12] = [
        "run",
        "replay",
        "in_flight",
        "mismatch",
        "late",
        "unknown",
        "dead",
        "out_of_age",
        "too_many",
        "unavailable",
        "bypass",
        "stopping",
    ];
}

/// What is counted for one route of a surface. Its requests share it.
pub struct Meters {
    surface: &'static str,
    route: Arc<str>,
    /// What is unavailable here passes by.
    lets_by: bool,
    handles: OnceLock<Handles>,
}

struct Handles {
    claims: [Counter; Decided::NAMES.len()],
    duplicates: Counter,
    replay_age: Histogram,
    running: Gauge,
}

impl Meters {
    /// For a route of a surface. Both are labels, so there must be few of them.
    #[must_use]
    pub fn new(surface: &'static str, route: impl Into<Arc<str>>) -> Meters {
        Meters { surface, route: route.into(), lets_by: false, handles: OnceLock::new() }
    }

    /// Where the surface lets requests by while the store is away: what is `unavailable` is counted as `bypass`.
    #[must_use]
    pub fn letting_by(self, lets_by: bool) -> Meters {
        Meters { lets_by, ..self }
    }

    /// Registers them, so that they are seen at nought before anything happens.
    pub fn register(&self) {
        self.handles();
    }

    pub(crate) fn decided(&self, decided: Decided) {
        let decided = match decided {
            Decided::Unavailable if self.lets_by => Decided::Bypass,
            decided => decided,
        };
        self.handles().claims[decided as usize].increment(1);
    }

    pub(crate) fn duplicate(&self) {
        self.handles().duplicates.increment(1);
    }

    pub(crate) fn replayed(&self, age: Duration) {
        self.handles().replay_age.record(age.as_secs_f64());
    }

    /// Counts a run for as long as the guard lives.
    pub(crate) fn begin(&self) -> Running {
        let running = self.handles().running.clone();
        running.increment(1.0);
        Running(running)
    }

    fn handles(&self) -> &Handles {
        self.handles.get_or_init(|| {
            let (surface, route) = (self.surface, &self.route);
            let labels = || [("surface", surface.into()), ("route", metrics::SharedString::from(route.clone()))];
            let claims = Decided::NAMES.map(|result| {
                metrics::counter!("semel_claims_total", "result" => result, "surface" => surface, "route" => route.clone())
            });
            Handles {
                claims,
                duplicates: metrics::counter!("semel_duplicates_total", &labels()),
                replay_age: metrics::histogram!("semel_replay_age_seconds", &labels()),
                running: metrics::gauge!("semel_running", &labels()),
            }
        })
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meters({} {})", self.surface, self.route)
    }
}

/// A run that is counted.
pub(crate) struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// What is counted for an engine, whatever the route.
#[derive(Default)]
pub(crate) struct EngineMeters(OnceLock<EngineHandles>);

struct EngineHandles {
    settlements: [Counter; SETTLEMENTS.len()],
    settle_repeats: Counter,
    unrecorded: Counter,
    lease_losses: Counter,
    store_seconds: [Histogram; VERBS.len()],
    store_errors: [Counter; VERBS.len()],
    probes: [Counter; PROBES.len()],
}

const SETTLEMENTS: [&str; 4] = ["completed", "released", "unknown", "dead"];
const VERBS: [&str; 6] = ["claim", "settle", "renew", "find", "unsettled", "sweep"];
const PROBES: [&str; 5] = ["completed", "released", "unknown", "moved", "failed"];

impl EngineMeters {
    /// Registers them, so that they are seen at nought before anything happens.
    pub(crate) fn register(&self) {
        self.handles();
    }

    pub(crate) fn settled(&self, settlement: &Settlement) {
        let how = match settlement {
            Settlement::Complete { .. } => 0,
            Settlement::Release { .. } => 1,
            Settlement::Park { .. } => 2,
            Settlement::Bury { .. } => 3,
        };
        self.handles().settlements[how].increment(1);
    }

    pub(crate) fn settle_repeated(&self) {
        self.handles().settle_repeats.increment(1);
    }

    pub(crate) fn unrecorded(&self) {
        self.handles().unrecorded.increment(1);
    }

    pub(crate) fn lease_lost(&self) {
        self.handles().lease_losses.increment(1);
    }

    pub(crate) fn probed(&self, result: &'static str) {
        if let Some(at) = PROBES.iter().position(|name| *name == result) {
            self.handles().probes[at].increment(1);
        }
    }

    /// A call of the store has ended, however it did.
    pub(crate) fn called(&self, verb: &'static str, took: Duration) {
        if let Some(at) = VERBS.iter().position(|name| *name == verb) {
            self.handles().store_seconds[at].record(took.as_secs_f64());
        }
    }

    pub(crate) fn store_failed(&self, verb: &'static str, error: &StoreError) {
        if let Some(at) = VERBS.iter().position(|name| *name == verb) {
            self.handles().store_errors[at].increment(1);
        }
        tracing::warn!(verb, %error, "store call failed");
    }

    fn handles(&self) -> &EngineHandles {
        self.0.get_or_init(|| EngineHandles {
            settlements: SETTLEMENTS.map(|how| metrics::counter!("semel_settlements_total", "how" => how)),
            settle_repeats: metrics::counter!("semel_settle_repeats_total"),
            unrecorded: metrics::counter!("semel_unrecorded_total"),
            lease_losses: metrics::counter!("semel_lease_losses_total"),
            store_seconds: VERBS.map(|verb| metrics::histogram!("semel_store_seconds", "verb" => verb)),
            store_errors: VERBS.map(|verb| metrics::counter!("semel_store_errors_total", "verb" => verb)),
            probes: PROBES.map(|result| metrics::counter!("semel_probes_total", "result" => result)),
        })
    }
}
