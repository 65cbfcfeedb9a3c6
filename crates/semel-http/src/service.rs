//! The contract as a service: a request becomes an [`Operation`], an [`Answer`] becomes a response.
//!
//! 1. Nothing here decides whether something may run: the engine does, and asks this service to run it.
//! 2. The inner service is called inside the run, in the engine's own task. A caller that hangs up drops the
//!    future that it waits on, and nothing else (case C01).
//! 3. The inner request is the caller's, with the key header as it came, plus `Semel-Fence` and `Semel-Attempt`
//!    from the lease, and the [`Lease`] itself in its extensions. The body is whole, so its framing is a
//!    `Content-Length`, and `Expect` is answered and gone.
//! 4. An error of the inner service is *unknown*: the request may have been on its way. It is *not sent* only if
//!    it is, or has in the chain of its sources, a [`NotSent`].
//! 5. An error reaches the caller as an error only on an unguarded request.
//!    Give the inner service a named error type: with `Box<dyn Error>` itself the compiler cannot always prove that
//!    a future which holds the call is `Send` ("implementation of `From` is not general enough").
//! 6. Each decision on a guarded request is one line at info, target `semel::decision`, with a digest of the key.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as HttpBody;
use semel::{BoxError, Cause, Engine, Key, Lease, Operation, Scope, Verdict};
use tower_service::Service;

use crate::answer::Asked;
use crate::body::{Body, Incoming};
use crate::coding::Accepts;
use crate::error::NotSent;
use crate::headers::{self, SEMEL_ATTEMPT, SEMEL_FENCE};
use crate::key::{self, Malformed};
use crate::refusal::Refusal;
use crate::request;
use crate::response::{Judge, Ran};
use crate::routes::Routes;
use crate::settings::{KeyPolicy, RouteName, Settings};

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
        let settings = self.routes.of(&parts).clone();
        if let Some(name) = &settings.options.name {
            parts.extensions.insert(RouteName(name.clone()));
        }
        settings.scopes.remove_untrusted(&mut parts);
        if !settings.guards(&parts) {
            return Box::pin(pass_by(inner, parts, body));
        }
        let options = &settings.options;
        let key = key::read(&parts.headers, &options.key_names, options.key_syntax);
        if let (Ok(None), KeyPolicy::Optional) = (&key, options.key) {
            metrics::counter!("semel_unguarded_total").increment(1);
            tracing::debug!(method = %parts.method, path = parts.uri.path(), "no key: passes by unguarded");
            return Box::pin(pass_by(inner, parts, body));
        }
        let guard = Guard { engine: self.engine.clone(), settings };
        Box::pin(async move { Ok(guard.answer(inner, parts, body, key).await) })
    }
}

/// Streams, and touches nothing but our own headers.
async fn pass_by<S, B, RB>(mut inner: S, parts: Parts, body: B) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<RB>>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    RB: HttpBody<Data = Bytes> + Send + 'static,
    RB::Error: Into<BoxError>,
{
    let mut response = inner.call(Request::from_parts(parts, Body::new(body))).await?;
    headers::remove_ours(response.headers_mut());
    Ok(response.map(Body::new))
}

/// What one guarded request needs of its service.
struct Guard {
    engine: Engine,
    settings: Arc<Settings>,
}

impl Guard {
    async fn answer<S, B, RB>(
        self,
        inner: S,
        parts: Parts,
        body: B,
        key: Result<Option<Key>, Malformed>,
    ) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<RB>> + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        RB: HttpBody<Data = Bytes> + Send + 'static,
        RB::Error: Into<BoxError>,
    {
        let body = pin!(body);
        let mut incoming = Incoming::new(&parts.headers, body, self.settings.options.body);
        let taken = match named(&self.settings, &parts, key) {
            Ok(named) => match self.allowed(&parts).await {
                Ok(()) => incoming.take().await.map(|body| (named, body)).map_err(Refusal::Body),
                Err(refusal) => Err(refusal),
            },
            Err(refusal) => Err(refusal),
        };
        match taken {
            Ok(((scope, key), body)) => self.once(inner, parts, body, scope, key).await,
            Err(refusal) => {
                let reusable = refusal.drains() && incoming.drain().await;
                refusal.respond(&self.settings, &parts, reusable)
            }
        }
    }

    /// Before anything of the key is looked up: a replay is an answer (H7).
    async fn allowed(&self, parts: &Parts) -> Result<(), Refusal> {
        match &self.settings.options.auth_check {
            Some(asked) => asked.check(parts).await.map_err(|answer| Refusal::NotAllowed(Box::new(answer))),
            None => Ok(()),
        }
    }

    async fn once<S, RB>(self, inner: S, parts: Parts, body: Bytes, scope: Scope, key: Key) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<RB>> + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
        RB: HttpBody<Data = Bytes> + Send + 'static,
        RB::Error: Into<BoxError>,
    {
        let asked = Asked {
            settings: self.settings,
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            accepts: Accepts::of(&parts.headers),
            scope,
            key,
        };
        let fingerprint = request::fingerprint(&parts, &body);
        let policy = asked.settings.options.policy.clone();
        let operation = Operation::new(asked.scope.clone(), asked.key.clone(), fingerprint, policy)
            .label(request::label(&parts.method, &parts.uri));
        let run = Run { settings: asked.settings.clone(), parts, body, negotiated: asked.accepts.named };
        // Boxed: the engine's task moves the run about before it starts, and a replay has no run to move.
        let answer = self.engine.once(operation, move |lease| Box::pin(run.through(inner, lease))).await;
        asked.respond(answer)
    }
}

/// Who asks for what: the scope and the key.
fn named(
    settings: &Settings,
    parts: &Parts,
    key: Result<Option<Key>, Malformed>,
) -> Result<(Scope, Key), Refusal> {
    let key = key.map_err(Refusal::KeyMalformed)?.ok_or(Refusal::KeyMissing)?;
    settings.weak.notice(&key);
    let scope = settings.scopes.of(parts).map_err(Refusal::NoScope)?;
    Ok((scope, key))
}

/// The run: what the engine starts when it holds the lease.
struct Run {
    settings: Arc<Settings>,
    parts: Parts,
    body: Bytes,
    negotiated: bool,
}

impl Run {
    async fn through<S, RB>(self, mut inner: S, lease: Lease) -> (Verdict, Ran)
    where
        S: Service<Request<Body>, Response = Response<RB>>,
        S::Error: Into<BoxError>,
        RB: HttpBody<Data = Bytes> + Send + 'static,
        RB::Error: Into<BoxError>,
    {
        let Run { settings, parts, body, negotiated } = self;
        let method = parts.method.clone();
        let answered: Result<_, BoxError> =
            inner.call(forwarded(parts, body, lease)).await.map_err(Into::into);
        match answered {
            Ok(response) => {
                let (statuses, kept_bytes_max) =
                    (&settings.options.statuses, settings.options.kept_bytes_max);
                Judge { statuses, kept_bytes_max, method: &method, negotiated }.judge(response).await
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
