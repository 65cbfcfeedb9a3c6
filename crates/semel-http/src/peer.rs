//! Where a request came from, as far as the connection knows: what a server puts into the request's extensions.

use std::net::IpAddr;

/// The address at the other end of the connection: the caller's, or its last proxy's.
///
/// The layer knows no connections. Whether a [`Principal::Header`](crate::Principal::Header) is believed depends on who
/// sent it, so whoever has one in its list puts this into each request's extensions, **outside** of the layer:
///
/// ```
/// # use std::{convert::Infallible, net::SocketAddr, sync::Arc};
/// # use http::{Request, Response};
/// # use semel::{Engine, Entropy, MemoryStore, OnUnknown, Policy};
/// # use semel_http::{Body, Options, Settings};
/// use semel_http::{Peer, SemelLayer};
/// use tower::{ServiceBuilder, service_fn};
///
/// # let engine = Engine::new(Arc::new(MemoryStore::new()), Entropy::system());
/// # let settings = Settings::new(Options::new(Arc::new(Policy::new(OnUnknown::Park)))).unwrap();
/// # let charge = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
/// let service = ServiceBuilder::new()
///     .map_request(|mut request: Request<Body>| {
///         // In axum it is `ConnectInfo<SocketAddr>`, with `into_make_service_with_connect_info`.
///         if let Some(address) = request.extensions().get::<SocketAddr>() {
///             let peer = Peer(address.ip());
///             request.extensions_mut().insert(peer);
///         }
///         request
///     })
///     .layer(SemelLayer::new(engine, settings))
///     .service(charge);
/// # let _ = tower::ServiceExt::oneshot(service, Request::new(Body::empty()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// SHA-256 of the certificate that the caller has proved to hold, DER-encoded, where TLS ends here.
///
/// Only of a certificate that was verified against the authorities that the operator chose. One that is renewed is another
/// one: a retry with it is another operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientCertificate(pub [u8; 32]);
