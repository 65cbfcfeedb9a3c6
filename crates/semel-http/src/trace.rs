//! Trace context (W3C Trace Context, 2021): what a caller's request belongs to, and what a replay goes back to.
//!
//! 1. `traceparent` and `tracestate` reach the service as they came, or as whoever stands in front of this layer has
//!    written them. Nothing here makes spans.
//! 2. The context of the run stands **in its outcome**, as one line among the kept header lines, `semel-trace`: so the
//!    store needs no column for it, and what is replayed and what it goes back to are one write. [`Kept::decode`]
//!    takes it out of the headers, so that no replay carries it, and a service's own line of that name is taken off its
//!    answer, as all of ours are.
//! 3. A replay, and a `response-not-kept`, have the original's context in their [`Decided`]: a span of theirs can link to
//!    it. Its trace id is in the log too. What is in flight, unknown or released has no outcome, and so nothing to link to.
//! 4. A context that is malformed, or stands there twice, is none; it is passed on all the same.
//!
//! [`Kept::decode`]: crate::Kept::decode

use std::sync::Arc;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const LENGTH: usize = 55;

/// The trace and the span that something belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext(HeaderValue);

/// What was decided about a request that came with a trace context: in the extensions of its response, for whoever makes
/// spans. Only there where the request has been named: not on what passes by, nor on what is refused before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The word for it, as in the log.
    pub result: &'static str,
    /// The name of its route, as in metrics.
    pub route: Arc<str>,
    /// The run that a replay goes back to.
    pub original: Option<TraceContext>,
}

impl TraceContext {
    /// That of a request, from its one `traceparent`.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<TraceContext> {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let line = lines.next()?;
        if lines.next().is_some() { None } else { TraceContext::parse(line.as_bytes()) }
    }

    /// A context as `traceparent` has it. Of a later version what this one knows (section 3.2.4 there).
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<TraceContext> {
        let is_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
        let head = text.get(..LENGTH)?;
        let (version, trace, span, flags) = (&head[..2], &head[3..35], &head[36..52], &head[53..55]);
        let fits = is_hex(version)
            && version != b"ff"
            && [head[2], head[35], head[52]] == *b"---"
            && (is_hex(trace) && !is_zero(trace))
            && (is_hex(span) && !is_zero(span))
            && is_hex(flags)
            && (text.len() == LENGTH || (version != b"00" && text[LENGTH] == b'-'));
        if !fits {
            return None;
        }
        let line = [b"00", &head[2..]].concat();
        HeaderValue::from_bytes(&line).ok().map(TraceContext)
    }

    /// As `traceparent` has it, in version 00.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// The trace's id, 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        self.as_str().get(3..35).unwrap_or_default()
    }

    /// The line itself.
    pub(crate) fn line(&self) -> &HeaderValue {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(text: &str) -> Option<String> {
        TraceContext::parse(text.as_bytes()).map(|context| context.as_str().to_owned())
    }

    #[test]
    fn a_context_is_read_as_the_recommendation_says() {
        assert_eq!(parse(TRACE).as_deref(), Some(TRACE));
        let context = TraceContext::parse(TRACE.as_bytes()).unwrap();
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parse(&TRACE.replacen("00", "cc", 1)).as_deref(), Some(TRACE), "a later version");
        assert_eq!(parse(&format!("{}-what-will-be", TRACE.replacen("00", "cc", 1))).as_deref(), Some(TRACE));
        for wrong in [
            String::new(),
            TRACE[..54].to_owned(),
            format!("{TRACE}-more"),
            format!("{}x", TRACE.replacen("00", "cc", 1)),
            TRACE.replacen("00", "ff", 1),
            TRACE.to_uppercase(),
            TRACE.replace('-', "_"),
            TRACE.replace("b7ad6b7169203331", "0000000000000000"),
            TRACE.replace("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn two_contexts_are_none() {
        let mut headers = HeaderMap::new();
        assert_eq!(TraceContext::of(&headers), None);
        headers.append(TRACEPARENT, HeaderValue::from_static(TRACE));
        assert!(TraceContext::of(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(TRACE));
        assert_eq!(TraceContext::of(&headers), None);
    }
}
