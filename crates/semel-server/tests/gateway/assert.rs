//! What every refusal has in common, and short ways to say what is expected.

use crate::support::{Answer, Call, Gateway, Service};

/// A row of the table of refusals, as a caller sees it.
#[track_caller]
pub(crate) fn refused(answer: &Answer, status: u16, code: &str, retryable: bool, effect: &str) {
    let problem = answer.json();
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(problem["type"], format!("urn:semel:problem:{code}"));
    assert_eq!(problem["status"], status);
    assert!(!problem["title"].as_str().unwrap_or_default().is_empty(), "{problem}");
    assert_eq!(problem["retryable"], retryable, "{problem}");
    assert_eq!(problem["effect"], effect, "{problem}");
    let link = answer.header("link").unwrap_or_default();
    assert!(link.contains("rel=\"describedby\""), "{link}");
    assert!(!answer.is_replay(), "a refusal is no replay");
}

#[track_caller]
pub(crate) fn in_flight(answer: &Answer) {
    refused(answer, 409, "in-flight", true, "unknown");
    retry_after(answer);
}

#[track_caller]
pub(crate) fn unknown(answer: &Answer) {
    refused(answer, 409, "outcome-unknown", true, "unknown");
}

/// A whole number of seconds, and at least one.
#[track_caller]
pub(crate) fn retry_after(answer: &Answer) -> u64 {
    let seconds = answer.header("retry-after").unwrap_or_default().parse().unwrap_or(0);
    assert!(seconds >= 1, "Retry-After: {:?}", answer.header("retry-after"));
    seconds
}

/// The header lines that do not depend on the moment, sorted: what a replay has in common with its first answer.
pub(crate) fn lasting(answer: &Answer) -> Vec<(String, String)> {
    let passing = ["date", "idempotent-replayed", "connection"];
    let mut lines: Vec<_> = answer.headers.clone();
    lines.retain(|(name, _)| !passing.contains(&name.as_str()));
    lines.sort();
    lines
}

/// A plain service behind a gateway.
pub(crate) fn plain(args: &[&str]) -> (Service, Gateway) {
    let service = Service::plain();
    let gateway = Gateway::start(service.address(), args);
    (service, gateway)
}

/// Calls twice, and expects that the second answer is the first one's replay.
#[track_caller]
pub(crate) fn replayed(gateway: &Gateway, call: &Call) -> (Answer, Answer) {
    let first = gateway.call(call);
    assert!(!first.is_replay() && first.header("idempotent-replayed").is_none(), "{}", first.text());
    let again = gateway.call(call);
    assert!(again.is_replay(), "{} {}", again.status, again.text());
    assert_eq!(again.header_lines("idempotent-replayed"), ["true"]);
    assert_eq!(again.status, first.status);
    assert_eq!(again.body, first.body);
    (first, again)
}

/// The value of a metric: the sum over its labels of those lines that hold `part`.
pub(crate) fn metric(gateway: &Gateway, name: &str, part: &str) -> f64 {
    let text = gateway.admin("/metrics").text();
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(part));
    let of = lines.filter(|line| line.split(['{', ' ']).next() == Some(name));
    of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// The states of all records, sorted by key.
pub(crate) fn states(gateway: &Gateway) -> Vec<(String, String)> {
    let mut states: Vec<_> =
        gateway.operator().keys().into_iter().map(|record| (record.key, record.state)).collect();
    states.sort();
    states
}
