//! A shop behind the layer: a service that counts its runs, over a memory store on the runtime's own (paused) time.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use semel::{
    BoxError, Claim, ClaimRequest, Clock, Cursor, Engine, Entropy, Entry, Filter, Inspect, Key, Lease,
    MemoryStore, OnUnknown, Policy, Scope, Settlement, Store, StoreError, Swept, Timestamp, View,
};
use semel_http::{Body, NotSent, Options, Semel, SemelLayer, Settings};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};

pub(crate) type Answered = Result<Response<Body>, Failure>;
type Inner = BoxCloneSyncService<Request<Body>, Response<Body>, Failure>;

/// The inner service's error. What matters may be further down its chain.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(#[source] BoxError);

impl From<&str> for Failure {
    fn from(reason: &str) -> Failure {
        Failure(reason.into())
    }
}

impl From<NotSent> for Failure {
    fn from(error: NotSent) -> Failure {
        Failure(error.into())
    }
}

pub(crate) struct Shop {
    pub(crate) service: Semel<Inner>,
    pub(crate) engine: Engine,
    pub(crate) store: Arc<Switch>,
    runs: Arc<AtomicU32>,
}

/// A response that arrived whole.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Shop {
    /// The defaults, parking what is unknown. `handle` gets the number of the run, from 1.
    pub(crate) fn new<F, Fut>(handle: F) -> Shop
    where
        F: Fn(u32, Request<Body>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answered> + Send + 'static,
    {
        Shop::with(|_| {}, handle)
    }

    pub(crate) fn with<F, Fut>(change: impl FnOnce(&mut Options), handle: F) -> Shop
    where
        F: Fn(u32, Request<Body>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answered> + Send + 'static,
    {
        let mut options = Options::new(Arc::new(Policy::new(OnUnknown::Park)));
        change(&mut options);
        let store = Arc::new(Switch::new());
        let engine = Engine::new(store.clone(), Entropy::system());
        let runs = Arc::new(AtomicU32::new(0));
        let (counted, handle) = (runs.clone(), Arc::new(handle));
        let inner = service_fn(move |request| {
            let (counted, handle) = (counted.clone(), handle.clone());
            async move { handle(counted.fetch_add(1, Ordering::SeqCst) + 1, request).await }
        });
        let settings = Arc::new(Settings::new(options).expect("options that fit"));
        let service = SemelLayer::new(engine.clone(), settings).layer(BoxCloneSyncService::new(inner));
        Shop { service, engine, store, runs }
    }

    /// Always the same answer.
    pub(crate) fn answering(status: u16, body: &'static str) -> Shop {
        Shop::new(move |_, _| async move { Ok(respond(status, &[], body)) })
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// The answer with its body still to be read.
    pub(crate) async fn open(&self, request: Request<Body>) -> Response<Body> {
        self.service.clone().oneshot(request).await.expect("only an unguarded request fails")
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Reply {
        Reply::read(self.open(request).await).await
    }

    /// Sends it, and leaves the waiting to a task.
    pub(crate) fn start(&self, request: Request<Body>) -> JoinHandle<Reply> {
        let sent = self.service.clone().oneshot(request);
        tokio::spawn(async { Reply::read(sent.await.expect("only an unguarded request fails")).await })
    }

    /// The records of a key, in every scope.
    pub(crate) async fn records(&self, key: &str) -> Vec<Entry> {
        self.store.memory.find_key(&Key::new(key).unwrap(), 10).await.unwrap()
    }

    /// The state of the only record of a key.
    pub(crate) async fn state(&self, key: &str) -> &'static str {
        match &self.records(key).await[..] {
            [] => "absent",
            [entry] => entry.view.name(),
            _ => "several",
        }
    }

    /// What is stored for a key, in every byte that a dump would show.
    pub(crate) async fn outcome(&self, key: &str) -> Bytes {
        match &self.records(key).await[0].view {
            View::Completed { outcome } => outcome.bytes.clone(),
            other => panic!("not completed: {other:?}"),
        }
    }

    pub(crate) async fn number_of_records(&self) -> usize {
        self.store.memory.list(&Filter::default(), None, 100).await.unwrap().len()
    }
}

impl Reply {
    pub(crate) async fn read(response: Response<Body>) -> Reply {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Reply { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The code of a refusal, after checking what every refusal has.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.header("link"), Some("</.well-known/semel-policy>; rel=\"describedby\""));
        assert!(!self.headers.contains_key("idempotent-replayed"));
        let problem = self.json();
        let code = problem["code"].as_str().expect("a code").to_owned();
        assert_eq!(problem["type"], format!("urn:semel:problem:{code}"));
        assert_eq!(problem["status"], self.status.as_u16());
        assert!(problem["title"].is_string() && problem["detail"].is_string());
        assert!(problem["retryable"].is_boolean());
        code
    }

    pub(crate) fn effect(&self) -> String {
        self.json()["effect"].as_str().expect("an effect").to_owned()
    }
}

/// `POST /charges` with a key.
pub(crate) fn post(key: &str) -> Request<Body> {
    posting(key, "{\"amount\":5}")
}

pub(crate) fn posting(key: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post("/charges")
        .header("host", "shop.example")
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(body.into())
        .unwrap()
}

/// The same with one more header.
pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &'static str) -> Request<Body> {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

pub(crate) fn respond(
    status: u16,
    headers: &[(&'static str, &'static str)],
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

pub(crate) async fn body_of(request: Request<Body>) -> Bytes {
    request.into_body().collect().await.unwrap().to_bytes()
}

/// Where a handler waits until the test lets it go on, and the test until the handler has come.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<(Semaphore, Semaphore)>);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate(Arc::new((Semaphore::new(0), Semaphore::new(0))))
    }

    pub(crate) async fn pass(&self) {
        self.0.0.add_permits(1);
        self.0.1.acquire().await.unwrap().forget();
    }

    pub(crate) async fn entered(&self) {
        self.0.0.acquire().await.unwrap().forget();
    }

    pub(crate) fn open(&self) {
        self.0.1.add_permits(1);
    }
}

/// A body in chunks that counts how often it is asked.
pub(crate) struct Chunks {
    chunks: VecDeque<Result<Bytes, BoxError>>,
    asked: Arc<AtomicUsize>,
    at_end: AtEnd,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum AtEnd {
    Close,
    /// Nothing comes any more, and no end.
    Hang,
    Trailers,
}

impl Chunks {
    /// These chunks, as a body, and how often it was asked.
    pub(crate) fn body(chunks: Vec<&'static [u8]>, at_end: AtEnd) -> (Body, Arc<AtomicUsize>) {
        Chunks::of(chunks.into_iter().map(|chunk| Ok(Bytes::from_static(chunk))).collect(), at_end)
    }

    pub(crate) fn of(chunks: VecDeque<Result<Bytes, BoxError>>, at_end: AtEnd) -> (Body, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        (Body::new(Chunks { chunks, asked: asked.clone(), at_end }), asked)
    }

    /// These chunks, then an error.
    pub(crate) fn broken(chunks: Vec<&'static [u8]>) -> Body {
        let chunks = chunks.into_iter().map(|chunk| Ok(Bytes::from_static(chunk)));
        Chunks::of(chunks.chain([Err("connection reset".into())]).collect(), AtEnd::Close).0
    }
}

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match (self.chunks.pop_front(), self.at_end) {
            (Some(chunk), _) => Poll::Ready(Some(chunk.map(Frame::data))),
            (None, AtEnd::Close) => Poll::Ready(None),
            (None, AtEnd::Hang) => Poll::Pending,
            (None, AtEnd::Trailers) => {
                self.at_end = AtEnd::Close;
                let trailers = HeaderMap::from_iter([("x-trailer".parse().unwrap(), "1".parse().unwrap())]);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
        }
    }
}

/// The runtime's time as a wall clock, so that pausing it pauses the store too.
#[derive(Debug)]
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_750_000_000_000).after(self.0.elapsed())
    }
}

/// A memory store whose verbs can be turned off.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) memory: MemoryStore,
    pub(crate) claims_fail: AtomicBool,
    pub(crate) settles_fail: AtomicBool,
    pub(crate) calls: AtomicUsize,
}

impl Switch {
    fn new() -> Switch {
        Switch {
            memory: MemoryStore::with_clock(Arc::new(RuntimeClock(Instant::now()))),
            claims_fail: AtomicBool::new(false),
            settles_fail: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
        }
    }

    fn check(&self, off: &AtomicBool) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match off.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("turned off".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Switch {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.check(&self.claims_fail)?;
        self.memory.claim(request).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<(), StoreError> {
        self.check(&self.settles_fail)?;
        self.memory.renew(lease, lease_for).await
    }

    async fn settle(&self, lease: &Lease, settlement: &Settlement) -> Result<(), StoreError> {
        self.check(&self.settles_fail)?;
        self.memory.settle(lease, settlement).await
    }

    async fn find(&self, scope: &Scope, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.memory.find(scope, key).await
    }

    async fn unsettled(&self, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        self.memory.unsettled(after, limit).await
    }

    async fn sweep(&self, limit: u32) -> Result<Swept, StoreError> {
        self.memory.sweep(limit).await
    }
}
