//! `observe` mode: H18. What would have been, measured on real traffic before anything is guarded.
//!
//! 1. Nothing changes: the request streams to the service as it came, and its answer streams back. No key is added, no
//!    header, and nothing waits for the store.
//! 2. Beside it, what passes is read along, up to the body's limit. When the body has ended, the operation is claimed in
//!    a scope of its own, which no guarded request ever has, so nothing of it is replayed when the mode ends.
//! 3. The claim's run is the service's own answer: its head gives the verdict. Of the answer itself nothing is kept.
//! 4. What the claim says is counted in `semel_observed_total` by result, and is a line at info: `run` is a first
//!    request, `replay` a duplicate that took effect again just now, `mismatch` and `in_flight` what would have been
//!    refused. A key that is missing or malformed, and a body that is too large, are counted too.
//! 5. An attempt without an answer is unknown here, also where the request did not reach the service.
//! 6. A duplicate is known only after it ran. While many are watched at once, further ones are not (`skipped`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use semel::{BoxError, Cause, Engine, Key, Operation, Scope, Verdict};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tower_service::Service;

use crate::answer;
use crate::body::Body;
use crate::fingerprint::Subject;
use crate::headers;
use crate::name::{self, Named};
use crate::outcome;
use crate::refusal::Refusal;
use crate::request;
use crate::settings::Settings;
use crate::verdict::{self, Meaning};

/// Requests that are watched at once, each with a body of up to the limit.
pub(crate) const WATCHED_MAX: usize = 1_000;

/// Passes the request by, and watches.
pub(crate) async fn pass_by<S, B, RB>(
    mut inner: S,
    parts: Parts,
    body: B,
    settings: Arc<Settings>,
    engine: Engine,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    RB: HttpBody<Data = Bytes> + Send + 'static,
    RB::Error: Into<BoxError>,
{
    let (told, verdict) = oneshot::channel();
    let body = match watch(&parts, &settings) {
        Ok((key, scope, place)) => {
            let (body, whole) = ReadAlong::new(body, settings.options.body.bytes_max);
            let head = head(&parts);
            tokio::spawn(observed(
                Watched { head, settings: settings.clone(), key, scope, place },
                engine,
                whole,
                verdict,
            ));
            Body::new(body)
        }
        Err(result) => {
            count(&settings, result, &parts);
            Body::new(body)
        }
    };
    // Without an answer, `told` is dropped with this future, and the attempt is unknown.
    let mut response = inner.call(Request::from_parts(parts, body)).await?;
    let _ = told.send(judged(&settings, &response));
    headers::remove_ours(response.headers_mut());
    Ok(response.map(Body::new))
}

/// What is watched, if it can be.
fn watch(
    parts: &Parts,
    settings: &Settings,
) -> Result<(Option<Key>, Scope, OwnedSemaphorePermit), &'static str> {
    let key = name::in_head(settings, parts).map_err(|refusal| refusal.result())?;
    if key.is_none() && (name::passes_by(settings) || name::is_refused(settings)) {
        return Err("key_missing");
    }
    let scope = settings.scopes.of(parts).map_err(|_| "no_scope")?;
    let place = settings.watched.clone().try_acquire_owned().map_err(|_| "skipped")?;
    Ok((key, scope, place))
}

struct Watched {
    head: Parts,
    settings: Arc<Settings>,
    key: Option<Key>,
    scope: Scope,
    place: OwnedSemaphorePermit,
}

async fn observed(
    watched: Watched,
    engine: Engine,
    whole: oneshot::Receiver<Option<Bytes>>,
    verdict: oneshot::Receiver<Verdict>,
) {
    let Watched { head, settings, key, scope, place } = watched;
    let result = match whole.await {
        Ok(Some(body)) => claimed(&head, &settings, key, scope, &body, &engine, verdict).await,
        Ok(None) => "body_too_large",
        Err(_) => "body_broken",
    };
    drop(place);
    count(&settings, result, &head);
}

async fn claimed(
    head: &Parts,
    settings: &Settings,
    key: Option<Key>,
    scope: Scope,
    body: &Bytes,
    engine: &Engine,
    verdict: oneshot::Receiver<Verdict>,
) -> &'static str {
    let key = match name::of(settings, head, body, key) {
        Ok(Named::Key(key)) => settings.stored(&key),
        Ok(Named::Generated(_)) => return "generated",
        Ok(Named::Unguarded) => return "key_missing",
        Err(refusal) => return refusal.result(),
    };
    let options = &settings.options;
    let fingerprint = match options.comparison.fingerprint(&Subject::of(head, body)) {
        Ok(fingerprint) => fingerprint,
        Err(error) => return Refusal::Incomparable(error).result(),
    };
    let operation = Operation::new(scope, key, fingerprint, options.policy.clone())
        .label(request::label(settings, &head.method, &head.uri))
        .meters(settings.meters.clone());
    // The answer's head never came: whether it took effect is not known.
    let run = async |_| (verdict.await.unwrap_or(Verdict::Unknown(Cause::CUT)), ());
    answer::result(&engine.once(operation, move |lease| Box::pin(run(lease))).await)
}

/// What the head of the service's answer means for the key.
fn judged<B>(settings: &Settings, response: &Response<B>) -> Verdict {
    match settings.options.statuses.judge(response.status(), response.headers()) {
        Meaning::Keep => {
            Verdict::Keep(outcome::encode(response.status(), std::iter::empty(), None, false, None))
        }
        Meaning::Release => {
            let (unbind, cause) = (verdict::unbinds(response.status()), verdict::cause(response.status()));
            Verdict::Release { not_before: None, unbind, cause: Some(cause) }
        }
        Meaning::Unknown(cause) => Verdict::Unknown(cause),
    }
}

/// The head without its extensions: they belong to the request.
fn head(parts: &Parts) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    (head.method, head.uri, head.version) = (parts.method.clone(), parts.uri.clone(), parts.version);
    head.headers = parts.headers.clone();
    head
}

fn count(settings: &Settings, result: &'static str, head: &Parts) {
    metrics::counter!("semel_observed_total", "result" => result).increment(1);
    let label = request::label(settings, &head.method, &head.uri);
    tracing::info!(target: "semel::decision", observed = true, result, label = label.as_str());
}

/// A body that is read along while it passes.
struct ReadAlong<B> {
    inner: Pin<Box<B>>,
    read: BytesMut,
    bytes_max: usize,
    /// Taken when it has ended, or is too long.
    whole: Option<oneshot::Sender<Option<Bytes>>>,
}

impl<B: HttpBody<Data = Bytes>> ReadAlong<B> {
    fn new(body: B, bytes_max: usize) -> (ReadAlong<B>, oneshot::Receiver<Option<Bytes>>) {
        let (whole, receiver) = oneshot::channel();
        let mut body =
            ReadAlong { inner: Box::pin(body), read: BytesMut::new(), bytes_max, whole: Some(whole) };
        // Of a body that is over before it begins nobody asks for a frame.
        if body.inner.is_end_stream() {
            body.ended();
        }
        (body, receiver)
    }

    fn ended(&mut self) {
        if let Some(whole) = self.whole.take() {
            let _ = whole.send(Some(self.read.split().freeze()));
        }
    }

    fn passed(&mut self, bytes: &Bytes) {
        if self.read.len() + bytes.len() > self.bytes_max {
            self.read = BytesMut::new();
            if let Some(whole) = self.whole.take() {
                let _ = whole.send(None);
            }
        }
        if self.whole.is_some() {
            self.read.extend_from_slice(bytes);
        }
    }
}

impl<B: HttpBody<Data = Bytes>> HttpBody for ReadAlong<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(self.inner.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    self.passed(bytes);
                }
                if self.inner.is_end_stream() {
                    self.ended();
                }
            }
            // It broke off, and nobody hears how it would have ended.
            Some(Err(_)) => self.whole = None,
            None => self.ended(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
