//! Where a request came from, as far as the connection knows: what a server puts into the request's extensions.
//!
//! The layer knows no connections. A gateway inserts both for each request; a service that uses the layer inserts
//! what its server tells it, in a layer **outside** of this one. In axum, with
//! `into_make_service_with_connect_info::<SocketAddr>()`:
//!
//! ```text
//! Router::new().route("/charges", post(charge)).layer(SemelLayer::new(engine, settings)).layer(map_request(
//!     |ConnectInfo(address): ConnectInfo<SocketAddr>, mut request: Request| async move {
//!         request.extensions_mut().insert(Peer(address.ip()));
//!         request
//!     },
//! ))
//! ```

use std::net::IpAddr;

/// The address at the other end of the connection: the caller's, or its last proxy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// SHA-256 of the certificate that the caller has proved to hold, DER-encoded, where TLS ends here.
///
/// Only of a certificate that was verified against the authorities that the operator chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientCertificate(pub [u8; 32]);
