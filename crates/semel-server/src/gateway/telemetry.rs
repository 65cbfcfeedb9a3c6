//! What the gateway measures beside the contract and the engine, and the small task that keeps it fresh.
//!
//! 1. `/metrics` costs nothing while nobody asks: histograms are tidied up every second, so that a gateway which is never
//!    scraped does not collect samples.
//! 2. What waits in the store is looked at every ten seconds, the oldest two thousand records at most. More than that is
//!    `semel_open_more`; the age of the oldest holds all the same. Each gateway on a store says the same of it.
//! 3. Causes are few, and labels must be: beyond sixteen in a state the rest is `other`.
//! 4. A look that fails leaves the gauges as they were, and is counted in `semel_store_errors_total`. Then
//!    `semel_ready` says 0.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use metrics::{Gauge, Histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use semel::observe::{Kind, Metric};
use semel::{Swept, Waiting};

use crate::admin::Admin;

/// How often what waits in the store is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How much of it is.
const LOOKED_AT_MAX: u32 = 2_000;
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// Causes of one state that have a label of their own.
const CAUSES_MAX: usize = 16;

const UPSTREAM_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// What the gateway counts beside the contract and the engine.
pub const METRICS: &[Metric] = &[
    Metric::gauge("semel_ready", "Whether it answers as ready: 1 or 0."),
    Metric::gauge("semel_build_info", "1, with the version."),
    Metric::gauge("semel_connections", "Callers' connections that are open."),
    Metric::counter("semel_connections_total", "Callers' connections that were accepted."),
    Metric::histogram(
        "semel_upstream_seconds",
        UPSTREAM_SECONDS,
        "How long the service took to the head of its answer, by route and class.",
    ),
    Metric::gauge("semel_open", "Records that wait for somebody, by state and cause."),
    Metric::gauge(
        "semel_open_oldest_seconds",
        "How long the oldest of them has waited, by state; 0 where none does.",
    ),
    Metric::gauge("semel_open_more", "Whether more of them wait than were counted: 1 or 0."),
    Metric::counter("semel_swept_total", "What sweeps freed, by what it was."),
    Metric::gauge("semel_sweep_timestamp_seconds", "When the last sweep that came to its end did so."),
];

/// All that `/metrics` can show.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let of_messages = semel_messaging::observe::METRICS.iter().chain(crate::bridge::METRICS);
    semel::observe::METRICS.iter().chain(semel_http::METRICS).chain(METRICS).chain(of_messages)
}

/// Installs the recorder. Before anything is counted: what is registered earlier is not seen.
///
/// # Errors
///
/// One line.
pub fn install() -> Result<PrometheusHandle, String> {
    let mut builder = PrometheusBuilder::new();
    for metric in all() {
        if let Kind::Histogram(bounds) = metric.kind {
            let matcher = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(matcher, bounds).map_err(|error| error.to_string())?;
        }
    }
    let handle = builder.install_recorder().map_err(|error| error.to_string())?;
    all().for_each(Metric::describe);
    metrics::gauge!("semel_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    swept(Swept::default());
    Ok(handle)
}

/// Connections are counted from here on: only a gateway has any.
pub fn register_connections() {
    metrics::gauge!("semel_connections").set(0.0);
    metrics::counter!("semel_connections_total").absolute(0);
}

/// Keeps what is shown fresh, for as long as it is polled.
pub async fn watch_for_ever(admin: Admin) {
    let mut tick = tokio::time::interval(TIDY_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut shown, mut looked): (Shown, Option<Instant>) = (Shown::default(), None);
    loop {
        tick.tick().await;
        admin.metrics.run_upkeep();
        if looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            looked = Some(Instant::now());
            metrics::gauge!("semel_ready").set(f64::from(u8::from(admin.unready().await.is_none())));
            shown.look(&admin).await;
        }
    }
}

/// A sweep that came to its end.
pub fn swept(swept: Swept) {
    metrics::counter!("semel_swept_total", "what" => "outcomes").increment(swept.outcomes.into());
    metrics::counter!("semel_swept_total", "what" => "records").increment(swept.records.into());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    metrics::gauge!("semel_sweep_timestamp_seconds").set(now.as_secs_f64().floor());
}

/// The gauges of what waits, by state and cause: what was shown once goes back to nought.
#[derive(Default)]
struct Shown(BTreeMap<(&'static str, String), Gauge>);

impl Shown {
    async fn look(&mut self, admin: &Admin) {
        let Ok(open) = admin.engine.open(LOOKED_AT_MAX).await else { return };
        self.show("unknown", &open.unknown);
        self.show("dead", &open.dead);
        metrics::gauge!("semel_open_more").set(f64::from(u8::from(open.more)));
    }

    fn show(&mut self, state: &'static str, waiting: &Waiting) {
        let oldest = waiting.oldest.unwrap_or_default();
        metrics::gauge!("semel_open_oldest_seconds", "state" => state).set(oldest.as_secs_f64());
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        for (cause, count) in &waiting.by_cause {
            let known = self.0.keys().filter(|(of, _)| *of == state);
            let has_label = self.0.contains_key(&(state, cause.clone())) || known.count() < CAUSES_MAX;
            let label = if has_label { cause.as_str() } else { "other" };
            self.gauge(state, label);
            *counts.entry(label.to_owned()).or_default() += count;
        }
        // There is always one of a state, so that a sum is nought and not nothing.
        self.gauge(state, semel::Cause::LAPSED.as_str());
        for ((of, cause), gauge) in &self.0 {
            if *of == state {
                gauge.set(counts.get(cause).copied().unwrap_or(0));
            }
        }
    }

    fn gauge(&mut self, state: &'static str, cause: &str) {
        let made = || metrics::gauge!("semel_open", "state" => state, "cause" => cause.to_owned());
        self.0.entry((state, cause.to_owned())).or_insert_with(made);
    }
}

/// A caller's connection, counted for as long as it lives.
pub struct Connected(());

impl Connected {
    pub fn begin() -> Connected {
        metrics::gauge!("semel_connections").increment(1.0);
        metrics::counter!("semel_connections_total").increment(1);
        Connected(())
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        metrics::gauge!("semel_connections").decrement(1.0);
    }
}

/// How long a route's service takes. Clones are the same.
#[derive(Clone)]
pub struct Timing(Arc<Classes>);

struct Classes {
    route: Arc<str>,
    classes: [OnceLock<Histogram>; Class::NAMES.len()],
}

/// How a request to the service ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// With a status.
    Status(StatusCode),
    /// It was certainly not processed.
    NotSent,
    /// The connection broke.
    Cut,
    /// Nobody waited any longer.
    Late,
}

impl Class {
    const NAMES: [&'static str; 8] = ["1xx", "2xx", "3xx", "4xx", "5xx", "not_sent", "cut", "late"];

    /// The word for it, in spans as in metrics.
    #[cfg(feature = "otel")]
    pub fn as_str(self) -> &'static str {
        Class::NAMES[self.at()]
    }

    fn at(self) -> usize {
        match self {
            Class::Status(status) => usize::from(status.as_u16() / 100).clamp(1, 5) - 1,
            Class::NotSent => 5,
            Class::Cut => 6,
            Class::Late => 7,
        }
    }
}

impl Timing {
    /// For a route.
    pub fn new(route: Arc<str>) -> Timing {
        Timing(Arc::new(Classes { route, classes: Default::default() }))
    }

    /// A request has ended.
    pub fn ended(&self, class: Class, took: Duration) {
        let Classes { route, classes } = &*self.0;
        let at = class.at();
        let made = || metrics::histogram!("semel_upstream_seconds", "route" => route.clone(), "class" => Class::NAMES[at]);
        classes[at].get_or_init(made).record(took.as_secs_f64());
    }
}

impl std::fmt::Debug for Timing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Timing({})", self.0.route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service that makes up statuses makes up causes. They are counted all the same.
    #[test]
    fn causes_are_few_labels() {
        let mut shown = Shown::default();
        for round in 0..10 {
            let by_cause =
                (0..20).map(|number| (format!("status-{}", 500 + 20 * round + number), 2)).collect();
            shown.show("unknown", &Waiting { by_cause, oldest: Some(Duration::from_secs(1)) });
            shown.show("dead", &Waiting::default());
        }
        let of = |state: &str| -> Vec<&str> {
            shown.0.keys().filter(|(of, _)| *of == state).map(|(_, cause)| cause.as_str()).collect()
        };
        assert_eq!(of("dead"), ["lapsed"]);
        let unknown = of("unknown");
        assert!(unknown.contains(&"other") && unknown.contains(&"lapsed"), "{unknown:?}");
        assert!(unknown.len() <= CAUSES_MAX + 2, "{unknown:?}");
    }

    #[test]
    fn each_metric_is_named_once_and_in_base_units() {
        let mut names = std::collections::BTreeSet::new();
        for metric in all() {
            assert!(metric.name.starts_with("semel_") && names.insert(metric.name), "{}", metric.name);
            assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
            if let Kind::Histogram(bounds) = metric.kind {
                assert!(metric.name.ends_with("_seconds") && bounds.is_sorted(), "{}", metric.name);
            }
        }
    }
}
