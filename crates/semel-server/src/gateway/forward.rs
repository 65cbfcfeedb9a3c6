//! The service behind the gateway, as the innermost tower service: what `semel-http` calls to run a request.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use semel::BoxError;
use semel_http::{Body, NotSent, remove_hop_by_hop};
use tower_service::Service;

use super::upstream::{Arriving, Connections, SendError};

/// Sends each request on, once.
#[derive(Debug, Clone)]
pub struct Forward {
    connections: Connections,
    /// How long the caller of a request that is not guarded waits for the head of its response, once its body stands
    /// still. A guarded one is listened to for longer than its caller waits, which is the engine's business.
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
        let sent =
            if is_guarded { self.connections.send(request).await } else { self.send_within(request).await? };
        let mut response = sent.map_err(|error| match error {
            SendError::NotSent { .. } => BoxError::from(NotSent::new(error)),
            SendError::Cut(_) => error.into(),
        })?;
        if !is_guarded && response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err("the service switched protocols, which nobody asked for".into());
        }
        *response.version_mut() = Version::HTTP_11;
        let headers = response.headers_mut();
        // The coding counts, not the length beside it (RFC 9112 §6.3): what goes on is framed anew.
        if headers.contains_key(header::TRANSFER_ENCODING) {
            headers.remove(header::CONTENT_LENGTH);
        }
        if !is_guarded {
            // From a guarded one the contract takes them off.
            remove_hop_by_hop(headers);
        }
        Ok(response)
    }

    /// The time is counted from the last piece of the body: a large upload is no slow service.
    async fn send_within(&self, request: Request<Body>) -> Result<SendResult, TooLate> {
        let begun = Instant::now();
        let last_piece = Arc::new(AtomicU64::new(0));
        let piece = last_piece.clone();
        let request = request.map(|body| {
            Body::new(body.map_frame(move |frame| {
                piece.store(millis(begun.elapsed()), Ordering::Relaxed);
                frame
            }))
        });
        let mut sending = pin!(self.connections.send(request));
        loop {
            let waited =
                begun.elapsed().saturating_sub(Duration::from_millis(last_piece.load(Ordering::Relaxed)));
            let left = self.unguarded_within.saturating_sub(waited);
            match tokio::time::timeout(left, sending.as_mut()).await {
                Ok(sent) => return Ok(sent),
                Err(_) if left.is_zero() => return Err(TooLate(self.unguarded_within)),
                // Over, unless a piece went out meanwhile.
                Err(_) => {}
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

type SendResult = Result<Response<Arriving>, SendError>;

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
