//! The layer that puts [`Semel`](crate::Semel) around a service.

use semel::Engine;
use tower_layer::Layer;

use crate::routes::Routes;
use crate::service::Semel;

/// Guards the services that it is put around. Clones share the engine.
///
/// It belongs **inside** authentication and authorisation: a replay is an answer, and whoever may not call the
/// service may not get one (case C32). It belongs **outside** of what changes the path, such as a nested router:
/// the path that it sees is part of the fingerprint.
#[derive(Debug, Clone)]
pub struct SemelLayer {
    engine: Engine,
    routes: Routes,
}

impl SemelLayer {
    /// A layer over an engine: with [`Routes`], or with [`Settings`](crate::Settings) that hold for every request.
    #[must_use]
    pub fn new(engine: Engine, routes: impl Into<Routes>) -> SemelLayer {
        SemelLayer { engine, routes: routes.into() }
    }
}

impl<S> Layer<S> for SemelLayer {
    type Service = Semel<S>;

    fn layer(&self, inner: S) -> Semel<S> {
        Semel::new(inner, self.engine.clone(), self.routes.clone())
    }
}
