//! What a consumer lets be seen, beside what its engine counts (surface `message`, route: the consumer's name).
//!
//! No key, lane or message id is a label: their number has no bound.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use semel::Cause;
use semel::observe::Metric;

/// From at once to the longest that a lane may be held up.
const WAIT_SECONDS: &[f64] = &[0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0];

/// What a consumer counts.
pub const METRICS: &[Metric] = &[
    Metric::counter("semel_deliveries_total", "Deliveries that ended, by result and consumer."),
    Metric::counter("semel_redeliveries_total", "Deliveries that the broker says came before, by consumer."),
    Metric::counter("semel_message_retries_total", "Attempts that failed and are tried again, by consumer."),
    Metric::counter("semel_dead_letters_total", "Messages given up, by reason and consumer."),
    Metric::gauge("semel_messages_held", "Messages received and not settled, by consumer."),
    Metric::gauge("semel_messages_waiting", "Of those, the ones that wait for their lane, by consumer."),
    Metric::histogram("semel_lane_wait_seconds", WAIT_SECONDS, "How long messages waited for their lane."),
];

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Result {
    /// Its effect is there.
    Done,
    /// Its effect was there before.
    Duplicate,
    /// Given back to the broker for later.
    GivenBack,
    /// Among the dead letters.
    Buried,
    /// The broker delivers it again: connection, partition or deadline is gone.
    Lost,
    /// Left because the process stops.
    Left,
}

impl Result {
    /// In the order of the variants.
    const NAMES: [&'static str; 6] = ["done", "duplicate", "given_back", "buried", "lost", "left"];
}

/// What one consumer counts.
pub(crate) struct Meters {
    consumer: Arc<str>,
    deliveries: [Counter; Result::NAMES.len()],
    redeliveries: Counter,
    retries: Counter,
    held: Gauge,
    waiting: Gauge,
    lane_wait: Histogram,
}

impl Meters {
    /// Registers them, so that they are seen at nought before anything happens.
    pub(crate) fn new(consumer: &str) -> Meters {
        let consumer: Arc<str> = consumer.into();
        let label = || [("consumer", metrics::SharedString::from(consumer.clone()))];
        Meters {
            deliveries: Result::NAMES.map(|result| {
                metrics::counter!("semel_deliveries_total", "result" => result, "consumer" => consumer.clone())
            }),
            redeliveries: metrics::counter!("semel_redeliveries_total", &label()),
            retries: metrics::counter!("semel_message_retries_total", &label()),
            held: metrics::gauge!("semel_messages_held", &label()),
            waiting: metrics::gauge!("semel_messages_waiting", &label()),
            lane_wait: metrics::histogram!("semel_lane_wait_seconds", &label()),
            consumer,
        }
    }

    pub(crate) fn ended(&self, result: Result) {
        self.deliveries[result as usize].increment(1);
    }

    pub(crate) fn redelivered(&self) {
        self.redeliveries.increment(1);
    }

    pub(crate) fn retried(&self) {
        self.retries.increment(1);
    }

    /// A cause is one of a few words, or a word of the operator's own.
    pub(crate) fn buried(&self, reason: &Cause) {
        let reason = reason.as_str().to_owned();
        metrics::counter!("semel_dead_letters_total", "reason" => reason, "consumer" => self.consumer.clone())
            .increment(1);
    }

    pub(crate) fn holds(&self, held: usize, waiting: usize) {
        self.held.set(f64::from(u32::try_from(held).unwrap_or(u32::MAX)));
        self.waiting.set(f64::from(u32::try_from(waiting).unwrap_or(u32::MAX)));
    }

    pub(crate) fn waited(&self, waited: Duration) {
        self.lane_wait.record(waited.as_secs_f64());
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meters({})", self.consumer)
    }
}
