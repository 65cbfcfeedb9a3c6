//! Logs: JSON, a line each, on standard error.

use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;

use crate::config::LogLevel;

/// Starts logging. The lines go through a queue to a thread of its own, so that a slow disk or terminal does not
/// hold up requests; what the guard's drop finds in the queue is still written.
///
/// When the queue is full, lines are dropped rather than requests held: a log of decisions is not the record of
/// them, the store is.
pub fn start(level: LogLevel) -> WorkerGuard {
    let (writer, guard) = tracing_appender::non_blocking(std::io::stderr());
    let level = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        // Otherwise HTTP/2 would have a line for each frame.
        LogLevel::Debug => "debug,h2=info",
    };
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_env_filter(EnvFilter::new(level))
        .with_writer(writer)
        .init();
    guard
}
