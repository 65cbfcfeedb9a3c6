//! The service behind the gateway, as the innermost tower service: what `semel-http` calls to run a request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use semel::BoxError;
use semel_http::{Body, NotSent, remove_hop_by_hop};
use tower_service::Service;

use super::upstream::{Arriving, Connections, SendError};

/// Sends each request on, once.
#[derive(Debug, Clone)]
pub struct Forward {
    connections: Connections,
    /// How long the caller of a request that is not guarded waits for the head of its response. A guarded one is
    /// listened to for longer than its caller waits, which is the engine's business.
    unguarded_within: Duration,
}

/// The service did not answer in time, and nobody listens on.
#[derive(Debug, thiserror::Error)]
#[error("the service did not answer within {0:?}")]
pub struct TooLate(pub Duration);

impl Forward {
    pub fn new(connections: Connections, unguarded_within: Duration) -> Forward {
        Forward { connections, unguarded_within }
    }

    async fn send(self, request: Request<Body>) -> Result<Response<Arriving>, BoxError> {
        let is_guarded = request.extensions().get::<semel::Lease>().is_some();
        let sending = self.connections.send(request);
        let sent = if is_guarded {
            sending.await
        } else {
            let within = self.unguarded_within;
            tokio::time::timeout(within, sending).await.map_err(|_| TooLate(within))?
        };
        let mut response = sent.map_err(|error| match error {
            SendError::NotSent { .. } => BoxError::from(NotSent::new(error)),
            SendError::Cut(_) => error.into(),
        })?;
        remove_hop_by_hop(response.headers_mut());
        Ok(response)
    }
}

impl Service<Request<Body>> for Forward {
    type Response = Response<Arriving>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Arriving>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}
