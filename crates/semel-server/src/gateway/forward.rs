//! The service behind the gateway, as the innermost tower service: what `semel-http` calls to run a request.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use semel::BoxError;
use semel_http::{Body, NotSent, RouteName, remove_hop_by_hop};
use tower_service::Service;

use super::telemetry::{Class, Timing};
use super::tls::Connector;
use super::traces::Traces;
use super::upstream::{Arriving, Connections, SendError};
use crate::config::{Config, Contract, RouteConfig};

/// Sends each request on, once, to the service of its route.
#[derive(Debug, Clone)]
pub struct Forward(Arc<Targets>);

#[derive(Debug)]
struct Targets {
    otherwise: Target,
    routes: HashMap<Arc<str>, Target>,
    traces: Traces,
}

/// A service, and how long it is waited for.
#[derive(Debug, Clone)]
struct Target {
    connections: Connections,
    /// How long the caller of a request that is not guarded waits for the head of its response, once its body stands
    /// still. A guarded one is listened to for longer than its caller waits, which is the engine's business.
    unguarded_within: Duration,
    timing: Timing,
}

/// How services are reached over TLS: one for each file of authorities, one for those of this system.
#[derive(Debug, Default)]
pub struct Connectors(HashMap<Option<PathBuf>, Connector>);

impl Connectors {
    /// Those that the configuration needs. A file that is named is read, also where nothing needs it yet.
    ///
    /// # Errors
    ///
    /// One line that names what is missing.
    pub fn load(config: &Config) -> Result<Connectors, String> {
        let mut connectors = HashMap::new();
        for contract in contracts(config) {
            let authority = &contract.upstream_ca;
            if (contract.upstream.secure || authority.is_some()) && !connectors.contains_key(authority) {
                connectors.insert(authority.clone(), Connector::load(authority.as_deref())?);
            }
        }
        Ok(Connectors(connectors))
    }

    /// New connections to the service of a contract.
    pub fn connections(&self, contract: &Contract, idle_for: Duration) -> Connections {
        Connections::new(contract.upstream.clone(), contract.upstream_http, self.of(contract), idle_for)
    }

    fn of(&self, contract: &Contract) -> Option<Connector> {
        self.0.get(&contract.upstream_ca).filter(|_| contract.upstream.secure).cloned()
    }
}

/// Those of the routes, and of their probes where these are asked elsewhere.
fn contracts(config: &Config) -> impl Iterator<Item = Contract> {
    let routes = config.routes.iter().map(|route| &route.contract);
    let all = std::iter::once(&config.otherwise).chain(routes);
    all.flat_map(|contract| std::iter::once(contract.clone()).chain(contract.of_probe()))
}

/// The service did not answer in time, and nobody listens on.
#[derive(Debug, thiserror::Error)]
#[error("the service did not answer within {0:?}")]
pub struct TooLate(pub Duration);

impl Forward {
    /// With connections of its own; routes to the same service share them.
    pub fn new(config: &Config, connectors: &Connectors, traces: Traces) -> Forward {
        let mut all = HashMap::new();
        let mut target = |contract: &Contract, route: Arc<str>| {
            let connections = all
                .entry((contract.upstream.clone(), contract.upstream_http, contract.upstream_ca.clone()))
                .or_insert_with(|| connectors.connections(contract, config.upstream_idle));
            Target {
                connections: connections.clone(),
                unguarded_within: contract.upstream_timeout,
                timing: Timing::new(route),
            }
        };
        let otherwise = target(&config.otherwise, "otherwise".into());
        let of_route = |route: &RouteConfig| (route.name(), target(&route.contract, route.name()));
        let routes = config.routes.iter().map(of_route).collect();
        Forward(Arc::new(Targets { otherwise, routes, traces }))
    }

    fn target(&self, request: &Request<Body>) -> &Target {
        let name = request.extensions().get::<RouteName>();
        name.and_then(|name| self.0.routes.get(&name.0)).unwrap_or(&self.0.otherwise)
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<Arriving>, BoxError> {
        let target = self.target(&request);
        let is_guarded = request.extensions().get::<semel::Lease>().is_some();
        // A guarded request asks for nothing but its answer (H3).
        if is_guarded && request.headers_mut().remove(header::UPGRADE).is_some() {
            request.headers_mut().remove(header::CONNECTION);
        }
        let asked_to_switch = request.headers().contains_key(header::UPGRADE);
        let begun = Instant::now();
        let span = self.0.traces.calls(&mut request);
        let sent = if is_guarded {
            Ok(target.connections.send(request).await)
        } else {
            target.send_within(request).await
        };
        let class = class(&sent);
        target.timing.ended(class, begun.elapsed());
        span.called(class);
        let sent = sent?;
        let mut response = sent.map_err(|error| match error {
            SendError::NotSent { .. } | SendError::Refused { .. } => BoxError::from(NotSent::new(error)),
            SendError::Cut(_) => error.into(),
        })?;
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if !is_guarded && switches && !(asked_to_switch && is_to_websocket(&response)) {
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
        if !is_guarded && switches {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        Ok(response)
    }
}

fn class(sent: &Result<SendResult, TooLate>) -> Class {
    match sent {
        Ok(Ok(response)) => Class::Status(response.status()),
        Ok(Err(SendError::NotSent { .. } | SendError::Refused { .. })) => Class::NotSent,
        Ok(Err(SendError::Cut(_))) => Class::Cut,
        Err(TooLate(_)) => Class::Late,
    }
}

/// Of the protocols only this one was asked for.
fn is_to_websocket<B>(response: &Response<B>) -> bool {
    let protocol = response.headers().get(header::UPGRADE);
    protocol.is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

impl Target {
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
