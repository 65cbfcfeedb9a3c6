//! The layer that puts [`Semel`] around a service.

use std::sync::Arc;

use semel::{Engine, Entropy, OnUnknown, Policy, Store};
use tower_layer::Layer;

use crate::routes::Routes;
use crate::service::Semel;
use crate::settings::{Options, Settings};

/// Guards the services that it is put around. Clones share the engine.
///
/// # Where it belongs
///
/// What stands **outside** of it sees every request and every answer, replays and refusals too. What stands **inside**
/// sees the one run, and its answer is what is kept.
///
/// | | Where | Since |
/// |---|---|---|
/// | authentication, authorisation | outside | a replay is an answer, and whoever may not call the service may not get one (case C32) |
/// | what changes the path, such as `nest` of an axum router | inside | the path that the layer sees is part of the fingerprint: where two services are nested and each has the layer inside, the same key at both is the same operation |
/// | CORS | outside | refusals need its headers too, and a replay must not carry those of the first caller's origin |
/// | compression of answers | outside | then the plain answer is kept. Inside, the coded one is, and it is decoded for a retry that does not accept its coding |
/// | a timeout | outside | the caller is told that it was too long, the run goes on, and a retry gets its answer. A timeout inside cuts the run off in its middle and answers in its name: a 408 of it, or a 503, says that nothing took effect. [`Policy::answer_within`] is the timeout that knows |
/// | catching panics | outside, or not at all | a run that panics is unknown: the caller gets 502 `outcome-unknown`. Caught inside it is a 500, which says that nothing took effect |
/// | a limit of the body | [`Options::body`] | the layer reads the body of a guarded request whole, before anything is claimed, and refuses a longer one with 413. A smaller limit outside refuses it first; one inside, such as axum's own, is an answer of the service and is kept |
///
/// Each of these is a test in `tests/contract/around.rs`.
///
/// [`Policy::answer_within`]: semel::Policy::answer_within
#[derive(Debug, Clone)]
pub struct SemelLayer {
    engine: Engine,
    routes: Routes,
}

impl SemelLayer {
    /// A layer over an engine: with [`Routes`], or with [`Settings`] that hold for every request.
    #[must_use]
    pub fn new(engine: Engine, routes: impl Into<Routes>) -> SemelLayer {
        SemelLayer { engine, routes: routes.into() }
    }

    /// A layer over a store, with an engine of its own and the default [`Options`]: POST and PATCH are guarded where
    /// they have a key. What happens to what is unknown has no default.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use semel::{MemoryStore, OnUnknown};
    /// use semel_http::SemelLayer;
    ///
    /// let layer = SemelLayer::over(Arc::new(MemoryStore::new()), OnUnknown::Park);
    /// let engine = layer.engine(); // for drain and sweep
    /// # let _ = engine;
    /// ```
    #[must_use]
    pub fn over(store: Arc<dyn Store>, on_unknown: OnUnknown) -> SemelLayer {
        let settings = Settings::new(Options::new(Policy::new(on_unknown)));
        let settings = settings.unwrap_or_else(|_| unreachable!("the defaults fit together"));
        SemelLayer::new(Engine::new(store, Entropy::system()), settings)
    }

    /// The engine that runs what it guards: to drain it before the process ends, and to sweep its store.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl<S> Layer<S> for SemelLayer {
    type Service = Semel<S>;

    fn layer(&self, inner: S) -> Semel<S> {
        Semel::new(inner, self.engine.clone(), self.routes.clone())
    }
}
