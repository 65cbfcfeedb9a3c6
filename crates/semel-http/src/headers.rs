//! Which headers go where: H11 and H12.
//!
//! 1. **Hop-by-hop** headers, and those that `Connection` names, belong to one connection (RFC 9110, section
//!    7.6.1). They are taken off every guarded answer; the server and the client on either side make their own.
//! 2. **Ours**: `Semel-*` and `Idempotent-Replayed` mean something only when this layer wrote them. They are
//!    taken off what comes from the other side: `Semel-Fence` and `Semel-Attempt` off every request,
//!    `Semel-Outcome` and the rest off every answer, guarded or not.
//! 3. **Kept** for replays is everything else but what was meant for the first caller or the first moment:
//!    cookies and authentication challenges (case C44), trace and request ids, rate limits, `Date`, `Age`,
//!    `Server-Timing`, and the framing, which each answer gets anew (C98).
//! 4. `Retry-After` is kept. With a 202 or a 301 it tells when to come back: seconds count from when it is read,
//!    and a date that has passed means now.

use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};

use crate::key::IDEMPOTENCY_KEY;

/// Marks a replay.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// To the application: the fence of the claim.
pub const SEMEL_FENCE: HeaderName = HeaderName::from_static("semel-fence");
/// To the application: attempts so far, from 1.
pub const SEMEL_ATTEMPT: HeaderName = HeaderName::from_static("semel-attempt");
/// From the application: `keep`, `release` or `unknown`.
pub const SEMEL_OUTCOME: HeaderName = HeaderName::from_static("semel-outcome");
/// To the caller: `false` while the outcome is still being written to the store.
pub const SEMEL_RECORDED: HeaderName = HeaderName::from_static("semel-recorded");
/// To the caller: `false` where the store was away and the route lets requests by unguarded.
pub const SEMEL_GUARDED: HeaderName = HeaderName::from_static("semel-guarded");
/// To the caller: the status of an answer that was not kept.
pub const SEMEL_ORIGINAL_STATUS: HeaderName = HeaderName::from_static("semel-original-status");

/// In a kept outcome: the trace context of its run. Never sent to anybody.
pub(crate) const SEMEL_TRACE: HeaderName = HeaderName::from_static("semel-trace");

const HOP_BY_HOP: [HeaderName; 10] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("proxy-authentication-info"),
    header::PROXY_AUTHENTICATE,
];

/// What `Connection` cannot take away: with it the other side would see another request, or none that is guarded.
const NEVER_BY_NAME: [HeaderName; 5] =
    [header::HOST, header::CONTENT_LENGTH, header::CONTENT_TYPE, header::AUTHORIZATION, IDEMPOTENCY_KEY];

/// Of ours, what may stand in an answer that was made elsewhere.
const OURS: [HeaderName; 8] = [
    IDEMPOTENT_REPLAYED,
    SEMEL_OUTCOME,
    SEMEL_RECORDED,
    SEMEL_GUARDED,
    SEMEL_ORIGINAL_STATUS,
    SEMEL_FENCE,
    SEMEL_ATTEMPT,
    SEMEL_TRACE,
];

/// Takes the hop-by-hop headers off a request or an answer, and those that its `Connection` names.
///
/// `Host`, the content's length and type, `Authorization` and the key stay whatever `Connection` says.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        for name in named_by_connection(headers) {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    remove_all(headers, &HOP_BY_HOP);
}

/// Most messages have none of them, and to see that costs less than to look for each.
fn remove_all(headers: &mut HeaderMap, names: &[HeaderName]) {
    if headers.keys().any(|name| names.contains(name)) {
        for name in names {
            headers.remove(name);
        }
    }
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(header::CONNECTION).iter();
    let names = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let names = names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    names.filter(|name| !NEVER_BY_NAME.contains(name)).collect()
}

/// Takes what only this layer may say off an answer.
pub(crate) fn remove_ours(headers: &mut HeaderMap) {
    remove_all(headers, &OURS);
}

/// Takes what only this layer may say off a request.
pub(crate) fn remove_callers_own(headers: &mut HeaderMap) {
    remove_all(headers, &[SEMEL_FENCE, SEMEL_ATTEMPT]);
}

/// The lines that a replay carries, of an answer without hop-by-hop headers and without ours.
pub(crate) fn kept(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| is_kept(name.as_str()))
}

fn is_kept(name: &str) -> bool {
    !is_for_the_first_caller(name) && !is_for_the_first_moment(name) && !is_trace(name)
}

fn is_for_the_first_caller(name: &str) -> bool {
    matches!(
        name,
        "set-cookie" | "set-cookie2" | "www-authenticate" | "authentication-info" | "authorization"
    )
}

fn is_for_the_first_moment(name: &str) -> bool {
    const PREFIXES: [&str; 3] = ["ratelimit", "x-ratelimit", "x-rate-limit"];
    matches!(name, "date" | "age" | "server-timing" | "content-length")
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn is_trace(name: &str) -> bool {
    const PREFIXES: [&str; 2] = ["x-b3-", "x-datadog-"];
    matches!(
        name,
        "traceparent"
            | "tracestate"
            | "traceresponse"
            | "baggage"
            | "b3"
            | "uber-trace-id"
            | "x-cloud-trace-context"
            | "x-trace-id"
            | "x-amzn-trace-id"
            | "x-amzn-requestid"
            | "x-amz-request-id"
            | "x-request-id"
            | "request-id"
            | "x-correlation-id"
            | "correlation-id"
            | "cf-ray"
    ) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            })
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn hop_by_hop_is_also_what_connection_names() {
        let mut headers = map(&[
            ("connection", "close, X-One, idempotency-key, Host"),
            ("idempotency-key", "k"),
            ("host", "h"),
            ("connection", "x-two"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("x-three", "3"),
            ("transfer-encoding", "chunked"),
            ("keep-alive", "timeout=5"),
            ("upgrade", "h2c"),
        ]);
        remove_hop_by_hop(&mut headers);
        let mut left = names(&headers);
        left.sort_unstable();
        assert_eq!(left, ["host", "idempotency-key", "x-three"]);
    }

    #[test]
    fn c44_nothing_of_the_first_callers_session_is_kept() {
        let headers = map(&[
            ("set-cookie", "a=1"),
            ("www-authenticate", "Basic"),
            ("date", "Mon, 01 Jan 2024 00:00:00 GMT"),
            ("age", "5"),
            ("x-request-id", "r"),
            ("request-id", "r"),
            ("x-correlation-id", "r"),
            ("traceparent", "00-1-2-01"),
            ("x-b3-traceid", "1"),
            ("ratelimit-remaining", "3"),
            ("ratelimit", "r=3"),
            ("x-ratelimit-limit", "3"),
            ("server-timing", "db;dur=3"),
            ("content-length", "3"),
            ("location", "/charges/1"),
            ("etag", "\"1\""),
            ("content-type", "text/plain"),
            ("content-encoding", "gzip"),
            ("content-language", "eo"),
            ("link", "</a>; rel=a"),
            ("cache-control", "no-store"),
            ("vary", "accept-encoding"),
            ("retry-after", "3"),
            ("x-app", "1"),
        ]);
        let kept: Vec<&str> = kept(&headers).map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            kept,
            [
                "location",
                "etag",
                "content-type",
                "content-encoding",
                "content-language",
                "link",
                "cache-control",
                "vary",
                "retry-after",
                "x-app"
            ]
        );
    }

    #[test]
    fn a_callers_fence_is_taken_off() {
        let mut headers = map(&[("semel-fence", "9"), ("semel-attempt", "9"), ("x", "1")]);
        remove_callers_own(&mut headers);
        assert_eq!(names(&headers), ["x"]);
    }
}
