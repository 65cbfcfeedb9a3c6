//! The contract as a service: a request becomes an [`Operation`], an [`Answer`] becomes a response.
//!
//! 1. Nothing here decides whether something may run: the engine does, and asks this service to run it.
//! 2. The inner service is called inside the run, in the engine's own task. A caller that hangs up drops the
//!    future that it waits on, and nothing else (case C01).
//! 3. The inner request is the caller's, with the key header as it came, plus `Semel-Fence` and `Semel-Attempt`
//!    from the lease, and in its extensions the [`Lease`] itself and the [`IdempotencyKey`]. The body is whole, so its
//!    framing is a `Content-Length`, and `Expect` is answered and gone.
//! 4. An error of the inner service is *unknown*: the request may have been on its way. It is *not sent* only if
//!    it is, or has in the chain of its sources, a [`NotSent`].
//! 5. An error reaches the caller as an error only on a request that passes by: unguarded, observed, or let by while
//!    the store is away.
//!    Give the inner service a named error type: with `Box<dyn Error>` itself the compiler cannot always prove that
//!    a future which holds the call is `Send` ("implementation of `From` is not general enough").
//! 6. Each decision on a guarded request is one line at info, target `semel::decision`, with a digest of the key.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as HttpBody;
use semel::{
    Age, Answer, BoxError, Cause, Engine, Fingerprint, Key, Lease, Operation, Scope, StoreError, Verdict,
};
use tower_service::Service;

use crate::answer::Asked;
use crate::body::{Body, Incoming};
use crate::coding::Accepts;
use crate::error::NotSent;
use crate::extract::IdempotencyKey;
use crate::fingerprint::Subject;
use crate::headers::{self, SEMEL_ATTEMPT, SEMEL_FENCE, SEMEL_GUARDED};
use crate::key::IDEMPOTENCY_KEY;
use crate::name::{self, Named};
use crate::observe;
use crate::refusal::Refusal;
use crate::request;
use crate::response::{Judge, Ran};
use crate::routes::Routes;
use crate::settings::{Options, RouteName, Settings};
use crate::trace::TraceContext;

/// A service whose guarded requests take effect once. See [`SemelLayer`](crate::SemelLayer).
#[derive(Debug, Clone)]
pub struct Semel<S> {
    inner: S,
    engine: Engine,
    routes: Routes,
}

impl<S> Semel<S> {
    /// Guards a service: by [`Routes`], or by [`Settings`] that hold for every request.
    #[must_use]
    pub fn new(inner: S, engine: Engine, routes: impl Into<Routes>) -> Semel<S> {
        Semel { inner, engine, routes: routes.into() }
    }
}

impl<S, B, RB> Service<Request<B>> for Semel<S>
where
    S: Service<Request<Body>, Response = Response<RB>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    RB: HttpBody<Data = Bytes> + Send + 'static,
    RB::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone waits for its own readiness; the one that is ready now takes this request.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let (mut parts, body) = request.into_parts();
        headers::remove_callers_own(&mut parts.headers);
        self.routes.remove_untrusted(&mut parts);
        let settings = self.routes.of(&parts).clone();
        if let Some(name) = &settings.options.name {
            parts.extensions.insert(RouteName(name.clone()));
        }
        if !settings.guards(&parts) {
            return Box::pin(pass_by(inner, parts, Body::new(body)));
        }
        if settings.options.observe {
            return Box::pin(observe::pass_by(inner, parts, body, settings, self.engine.clone()));
        }
        let key = name::in_head(&settings, &parts);
        if matches!(key, Ok(None)) && name::passes_by(&settings) {
            unguarded(&parts);
            return Box::pin(pass_by(inner, parts, Body::new(body)));
        }
        let guard = Guard { engine: self.engine.clone(), settings };
        Box::pin(guard.answer(inner, parts, body, key))
    }
}

/// Without a key, where the route lets it.
fn unguarded(parts: &Parts) {
    metrics::counter!("semel_unguarded_total").increment(1);
    tracing::debug!(method = %parts.method, path = parts.uri.path(), "no key: passes by unguarded");
}

/// Streams, and touches nothing but our own headers.
async fn pass_by<S, RB>(mut inner: S, parts: Parts, body: Body) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<RB>>,
    RB: HttpBody<Data = Bytes> + Send + 'static,
    RB::Error: Into<BoxError>,
{
    let mut response = inner.call(Request::from_parts(parts, body)).await?;
    headers::remove_ours(response.headers_mut());
    Ok(response.map(Body::new))
}

/// What one guarded request needs of its service.
struct Guard {
    engine: Engine,
    settings: Arc<Settings>,
}

/// A request that is named.
struct Taken {
    scope: Scope,
    key: Key,
    generated: bool,
    subject: Subject,
    fingerprint: Fingerprint,
    body: Bytes,
}

/// A request that is here whole, and what becomes of it.
enum Arrived {
    Named(Box<Taken>),
    /// It has no key, and needs none: nothing more of it is looked at.
    Unguarded(Bytes),
}

impl Guard {
    async fn answer<S, B, RB>(
        self,
        inner: S,
        parts: Parts,
        body: B,
        key: Result<Option<Key>, Refusal>,
    ) -> Result<Response<Body>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<RB>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        RB: HttpBody<Data = Bytes> + Send + 'static,
        RB::Error: Into<BoxError>,
    {
        let body = pin!(body);
        let mut incoming = Incoming::new(&parts.headers, body, self.settings.options.body);
        match self.take(&parts, &mut incoming, key).await {
            Ok(Arrived::Unguarded(body)) => {
                unguarded(&parts);
                pass_by(inner, parts, body.into()).await
            }
            Ok(Arrived::Named(taken)) => self.once(inner, parts, *taken).await,
            Err(refusal) => {
                let reusable = refusal.drains() && incoming.drain().await;
                Ok(refusal.respond(&self.settings, &parts, reusable))
            }
        }
    }

    /// In this order: what the head alone decides, whether the caller may, the body, and what needs it.
    async fn take<B>(
        &self,
        parts: &Parts,
        incoming: &mut Incoming<'_, B>,
        key: Result<Option<Key>, Refusal>,
    ) -> Result<Arrived, Refusal>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let settings = &*self.settings;
        let key = key?;
        if key.is_none() && name::is_refused(settings) {
            return Err(Refusal::KeyMissing);
        }
        let scope = settings.scopes.of(parts).map_err(Refusal::NoScope)?;
        self.allowed(parts).await?;
        let body = incoming.take().await.map_err(Refusal::Body)?;
        let (key, generated) = match name::of(settings, parts, &body, key)? {
            Named::Key(key) => (key, false),
            Named::Generated(key) => (key, true),
            Named::Unguarded => return Ok(Arrived::Unguarded(body)),
        };
        let subject = Subject::of(parts, &body);
        let fingerprint = settings.options.comparison.fingerprint(&subject).map_err(Refusal::Incomparable)?;
        Ok(Arrived::Named(Box::new(Taken { scope, key, generated, subject, fingerprint, body })))
    }

    /// Before anything of the key is looked up: a replay is an answer (H7).
    async fn allowed(&self, parts: &Parts) -> Result<(), Refusal> {
        match &self.settings.options.auth_check {
            Some(asked) => asked.check(parts).await.map_err(|answer| Refusal::NotAllowed(Box::new(answer))),
            None => Ok(()),
        }
    }

    async fn once<S, RB>(self, inner: S, mut parts: Parts, taken: Taken) -> Result<Response<Body>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<RB>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        RB: HttpBody<Data = Bytes> + Send + 'static,
        RB::Error: Into<BoxError>,
    {
        let Guard { engine, settings } = self;
        let Taken { scope, key, generated, subject, fingerprint, body } = taken;
        let generated = generated.then(|| quoted(&key));
        if let Some(line) = &generated {
            parts.headers.insert(IDEMPOTENCY_KEY, line.clone());
        }
        settings.weak.notice(&key);
        let wait = request::wait(&parts.headers, settings.options.wait_max);
        let policy = settings.options.policy.clone();
        let operation = Operation::new(scope.clone(), settings.stored(&key), fingerprint, policy)
            .label(request::label(&settings, &parts.method, &parts.uri))
            .meters(settings.meters.clone())
            .wait(wait.unwrap_or_default());
        let operation = with_options(operation, &settings, subject, &key);
        let trace = TraceContext::of(&parts.headers);
        let asked = Asked {
            trace: trace.clone(),
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            accepts: Accepts::of(&parts.headers),
            scope,
            key,
            settings,
        };
        // Only what may have to pass by unguarded is kept for that.
        let spare = asked.settings.options.bypass.then(|| (inner.clone(), parts.clone(), body.clone()));
        let run = Run {
            settings: asked.settings.clone(),
            key: IdempotencyKey(asked.key.clone()),
            parts,
            body,
            negotiated: asked.accepts.named,
            trace,
        };
        // Boxed: the engine's task moves the run about before it starts, and a replay has no run to move.
        let answer = engine.once(operation, move |lease| Box::pin(run.through(inner, lease))).await;
        let answer = match (answer, spare) {
            (Answer::Unavailable(error), Some((inner, parts, body))) => {
                return bypass(&asked.settings, inner, parts, body, &error).await;
            }
            (answer, _) => answer,
        };
        let mut response = asked.respond(answer);
        if let Some(line) = generated {
            response.headers_mut().insert(IDEMPOTENCY_KEY, line);
        }
        if let Some(wait) = wait {
            response.headers_mut().insert(request::PREFERENCE_APPLIED, request::applied(wait));
        }
        Ok(response)
    }
}

/// What else the route says of an operation.
fn with_options(operation: Operation, settings: &Arc<Settings>, subject: Subject, key: &Key) -> Operation {
    let by = settings.clone();
    let operation =
        operation.fingerprint_by(move |algorithm| by.options.comparison.fingerprint_by(algorithm, &subject));
    let operation = match &settings.options.probe {
        Some(probe) => operation.probe(probe.clone()),
        None => operation,
    };
    match Age::of(key, settings.options.ulid, settings.options.clock.now()) {
        Some(age) => operation.aged(age),
        None => operation,
    }
}

/// The store is away, and the route says that this is no reason to refuse (H9): unguarded and marked. The engine has
/// counted it.
async fn bypass<S, RB>(
    settings: &Settings,
    inner: S,
    parts: Parts,
    body: Bytes,
    error: &StoreError,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<RB>>,
    RB: HttpBody<Data = Bytes> + Send + 'static,
    RB::Error: Into<BoxError>,
{
    let label = request::label(settings, &parts.method, &parts.uri);
    tracing::warn!(target: "semel::decision", result = "bypass", label = label.as_str(), %error);
    let mut response = pass_by(inner, parts, body.into()).await?;
    response.headers_mut().insert(SEMEL_GUARDED, HeaderValue::from_static("false"));
    Ok(response)
}

/// A key as a structured-field string.
fn quoted(key: &Key) -> HeaderValue {
    HeaderValue::from_str(&["\"", key.as_str(), "\""].concat())
        .unwrap_or_else(|_| unreachable!("a generated key is plain"))
}

/// The run: what the engine starts when it holds the lease.
struct Run {
    settings: Arc<Settings>,
    key: IdempotencyKey,
    parts: Parts,
    body: Bytes,
    negotiated: bool,
    trace: Option<TraceContext>,
}

impl Run {
    async fn through<S, RB>(self, mut inner: S, lease: Lease) -> (Verdict, Ran)
    where
        S: Service<Request<Body>, Response = Response<RB>>,
        S::Error: Into<BoxError>,
        RB: HttpBody<Data = Bytes> + Send + 'static,
        RB::Error: Into<BoxError>,
    {
        let Run { settings, key, mut parts, body, negotiated, trace } = self;
        let method = parts.method.clone();
        parts.extensions.insert(key);
        let answered: Result<_, BoxError> =
            inner.call(forwarded(parts, body, lease)).await.map_err(Into::into);
        match answered {
            Ok(response) => {
                let Options { statuses, kept_bytes_max, keeping, .. } = &settings.options;
                let (kept_bytes_max, trace) = (*kept_bytes_max, trace.as_ref());
                let judge = Judge { statuses, kept_bytes_max, keeping, method: &method, negotiated, trace };
                judge.judge(response).await
            }
            Err(error) => failed(error),
        }
    }
}

fn forwarded(mut parts: Parts, body: Bytes, lease: Lease) -> Request<Body> {
    let headers = &mut parts.headers;
    headers.insert(SEMEL_FENCE, lease.fence.0.into());
    headers.insert(SEMEL_ATTEMPT, lease.attempts.into());
    headers.insert(header::CONTENT_LENGTH, body.len().into());
    for name in [header::EXPECT, header::TRANSFER_ENCODING, header::TRAILER] {
        headers.remove(name);
    }
    parts.extensions.insert(lease);
    Request::from_parts(parts, body.into())
}

fn failed(error: BoxError) -> (Verdict, Ran) {
    if NotSent::is_in(&*error) {
        tracing::warn!(%error, "the request was not sent");
        return (Verdict::NotRun, Ran::NotSent);
    }
    tracing::warn!(%error, "the run broke");
    (Verdict::Unknown(Cause::CUT), Ran::Unsure(None))
}
