//! Bodies, and reading them within bounds: H14, and the first half of H13.
//!
//! 1. The body of a guarded request is read whole before anything is claimed: the fingerprint covers it, and the
//!    run must not depend on a client that may hang up. A body that breaks off claims nothing.
//! 2. It has a limit in bytes and in time. A `Content-Length` over the limit is refused before a byte is read; a
//!    body without one is counted while it is read (case C74). Memory is bounded by the limit, not by what a
//!    length promises.
//! 3. After a refusal the rest is read and thrown away, within bounds, because a client that still writes when the
//!    connection is closed never sees the answer (RFC 9112, section 9.6). Where the bounds do not suffice, the
//!    answer says `Connection: close`.
//! 4. With `Expect: 100-continue` a refused body is not asked for: polling it is what makes a server send 100
//!    (RFC 9110, section 10.1.1). The client has been told to wait, so there is nothing to throw away.
//! 5. Trailers are dropped, from requests and from answers: they have no place in a fingerprint or an outcome.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use semel::BoxError;
use tokio::time::timeout;

/// A body that is here whole, or one that streams.
///
/// What the layer reads or keeps is whole; what it lets by streams, and is never held in memory.
pub struct Body(Kind);

enum Kind {
    /// `None` once it was handed out, or empty from the start.
    Whole(Option<Bytes>),
    Stream(Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>),
}

impl Body {
    /// A body without bytes.
    #[must_use]
    pub fn empty() -> Body {
        Body(Kind::Whole(None))
    }

    /// Any other body, as a stream.
    pub fn new<B>(body: B) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body(Kind::Stream(Box::pin(body.map_err(Into::into))))
    }

    /// What was already read of a body, and the rest of it without its trailers.
    pub(crate) fn resumed<B>(head: Bytes, rest: Pin<Box<B>>) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body(Kind::Stream(Box::pin(Resumed { head: Some(head), rest })))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}

/// The head that was read, then the rest.
struct Resumed<B> {
    head: Option<Bytes>,
    rest: Pin<Box<B>>,
}

impl<B> HttpBody for Resumed<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(head) = self.head.take().filter(|head| !head.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        match self.rest.as_mut().poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => Poll::Ready(None),
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.head.as_ref().is_none_or(Bytes::is_empty) && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let head = self.head.as_ref().map_or(0, |head| head.len() as u64);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(head));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(head)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl Default for Body {
    fn default() -> Body {
        Body::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body(Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Whole(bytes) => write!(f, "Body({} bytes)", bytes.as_ref().map_or(0, Bytes::len)),
            Kind::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

/// How far reading got.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// All of it.
    Whole(Bytes),
    /// More than the limit; this much was read.
    Over(Bytes),
}

/// Reads a body, up to a limit and the frame that passes it. A body of one frame is not copied.
pub(crate) async fn read<B>(mut body: Pin<&mut B>, bytes_max: usize) -> Result<Read, BoxError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let Some(first) = next(body.as_mut()).await? else { return Ok(Read::Whole(Bytes::new())) };
    if first.len() > bytes_max {
        return Ok(Read::Over(first));
    }
    let Some(second) = next(body.as_mut()).await? else { return Ok(Read::Whole(first)) };
    let mut bytes = BytesMut::from(first);
    let mut frame = second;
    loop {
        bytes.extend_from_slice(&frame);
        if bytes.len() > bytes_max {
            return Ok(Read::Over(bytes.freeze()));
        }
        match next(body.as_mut()).await? {
            Some(next) => frame = next,
            None => return Ok(Read::Whole(bytes.freeze())),
        }
    }
}

/// The next bytes. Trailers end a body: nothing follows them.
async fn next<B>(mut body: Pin<&mut B>) -> Result<Option<Bytes>, BoxError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return Ok(None);
    }
    match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        Some(frame) => Ok(frame.map_err(Into::into)?.into_data().ok()),
        None => Ok(None),
    }
}

/// The bounds of a guarded request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// The longest body. 1 MiB.
    pub bytes_max: usize,
    /// How long it may take to arrive. 60 s.
    pub within: Duration,
    /// How much is thrown away after a refusal, so that its answer arrives. 8 MiB.
    pub drain_bytes_max: usize,
    /// And for how long. 5 s.
    pub drain_within: Duration,
}

impl Default for BodyLimits {
    fn default() -> BodyLimits {
        BodyLimits {
            bytes_max: 1024 * 1024,
            within: Duration::from_secs(60),
            drain_bytes_max: 8 * 1024 * 1024,
            drain_within: Duration::from_secs(5),
        }
    }
}

/// Why a request's body was not taken. Nothing was claimed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Untaken {
    /// It is longer than the limit.
    #[error("the body is too long")]
    TooLarge,
    /// It did not arrive in time.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// It broke off, or its framing is broken.
    #[error("the body broke off: {0}")]
    Broken(BoxError),
}

/// A guarded request's body, as it arrives.
pub(crate) struct Incoming<'a, B> {
    headers: &'a HeaderMap,
    body: Pin<&'a mut B>,
    limits: BodyLimits,
    /// Whether the client has been asked for the body.
    asked: bool,
}

impl<'a, B> Incoming<'a, B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    pub(crate) fn new(headers: &'a HeaderMap, body: Pin<&'a mut B>, limits: BodyLimits) -> Incoming<'a, B> {
        Incoming { headers, body, limits, asked: false }
    }

    pub(crate) async fn take(&mut self) -> Result<Bytes, Untaken> {
        if self.announced() > self.limits.bytes_max as u64 {
            return Err(Untaken::TooLarge);
        }
        self.asked = true;
        match timeout(self.limits.within, read(self.body.as_mut(), self.limits.bytes_max)).await {
            Ok(Ok(Read::Whole(bytes))) => Ok(bytes),
            Ok(Ok(Read::Over(_))) => Err(Untaken::TooLarge),
            Ok(Err(error)) => Err(Untaken::Broken(error)),
            Err(_) => Err(Untaken::TooSlow),
        }
    }

    /// Throws away what is left, within bounds. Whether the connection can serve another request.
    pub(crate) async fn drain(&mut self) -> bool {
        if !self.asked && self.waits_for_continue() {
            return self.body.is_end_stream();
        }
        let all = drained(self.body.as_mut(), self.limits.drain_bytes_max);
        timeout(self.limits.drain_within, all).await.unwrap_or(false)
    }

    /// The length that the head or the body itself promises.
    fn announced(&self) -> u64 {
        let length = self.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        self.body.size_hint().lower().max(length.unwrap_or(0))
    }

    fn waits_for_continue(&self) -> bool {
        self.headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
    }
}

async fn drained<B>(mut body: Pin<&mut B>, bytes_max: usize) -> bool
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut left = bytes_max;
    loop {
        match next(body.as_mut()).await {
            Ok(None) => return true,
            Ok(Some(bytes)) if bytes.len() <= left => left -= bytes.len(),
            Ok(Some(_)) | Err(_) => return false,
        }
    }
}
