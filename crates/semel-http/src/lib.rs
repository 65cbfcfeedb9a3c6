//! The `Idempotency-Key` contract over HTTP, as a tower layer: a request with a key takes effect once, however
//! often it arrives, and every retry gets the first answer.
//!
//! The same code is the gateway's contract and a service's own. It translates: a request into an
//! [`Operation`](semel::Operation), the engine's [`Answer`](semel::Answer) into a response. It decides nothing
//! about who may run, and touches no store.
//!
//! ```
//! use std::{convert::Infallible, sync::Arc};
//! use http::{Request, Response, StatusCode};
//! use semel::{MemoryStore, OnUnknown};
//! use semel_http::{Body, SemelLayer};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), semel_http::BoxError> {
//! // Any tower service over `http` types; it may be an axum router.
//! let charge = service_fn(async |_: Request<Body>| {
//!     let mut charged = Response::new(Body::from("charged"));
//!     *charged.status_mut() = StatusCode::CREATED;
//!     Ok::<_, Infallible>(charged)
//! });
//! let layer = SemelLayer::over(Arc::new(MemoryStore::new()), OnUnknown::Park);
//! let service = ServiceBuilder::new().layer(layer).service(charge);
//!
//! let request = || Request::post("/charges").header("idempotency-key", "\"order-77\"").body(Body::from("{}"));
//! let first = service.clone().oneshot(request()?).await?;
//! let retry = service.clone().oneshot(request()?).await?;
//! assert_eq!(first.status(), StatusCode::CREATED);
//! assert_eq!(retry.status(), StatusCode::CREATED);
//! assert_eq!(retry.headers()["idempotent-replayed"], "true");
//! # Ok(())
//! # }
//! ```
//!
//! [`SemelLayer::over`] has the defaults. To choose, [`Options`] are changed and checked as [`Settings`], one for all
//! requests or several as [`Routes`], and [`SemelLayer::new`] takes them with an engine. A handler gets its
//! [`IdempotencyKey`] and its [`Attempt`]; with the feature `axum` they are extractors. `docs/layer.md` is the page for
//! authors of services: choosing, draining, sweeping, metrics.
//!
//! # Where it belongs
//!
//! Inside authentication and authorisation, since a replay is an answer; outside of whatever rewrites the path. A
//! timeout, a limit, compression and CORS have their place too: see [`SemelLayer`].
//! It keeps answers, so a secret in an answer's body is a secret in the store.
//!
//! # What it cannot promise
//!
//! A run whose process dies after the effect and before its end is written is *unknown*, and what happens then is
//! [`OnUnknown`](semel::OnUnknown)'s choice. Only a key in the same database transaction as the effect is certain.
//! An application that answers 500 or 503 promises that nothing took effect; for one that does not keep that
//! promise there is [`Statuses::cautious`].
//!
//! Start reading at `service.rs`; then `request.rs` and `key.rs` (arrive and name), `verdict.rs` and `response.rs`
//! (what is kept, how it goes out), `problem.rs` (every refusal in one table).

mod answer;
mod auth_check;
mod body;
mod coding;
mod error;
mod extract;
mod field;
mod fingerprint;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod headers;
mod json;
mod jwt;
mod key;
mod layer;
mod name;
mod observe;
mod one_transaction;
mod outcome;
mod peer;
mod principal;
mod problem;
mod redact;
mod refusal;
mod request;
mod response;
mod routes;
mod scope;
mod service;
mod settings;
mod trace;
mod verdict;
mod weak;

pub use semel::BoxError;
use semel::observe::Metric;

pub use auth_check::AuthCheck;
pub use body::{Body, BodyLimits};
pub use coding::DECODED_BYTES_MAX;
pub use error::NotSent;
pub use extract::{Attempt, IdempotencyKey, NotGuarded};
pub use field::{Field, FieldError, FieldSyntaxError};
pub use fingerprint::{Comparison, ComparisonError, Incomparable};
pub use headers::{
    IDEMPOTENT_REPLAYED, SEMEL_ATTEMPT, SEMEL_FENCE, SEMEL_GUARDED, SEMEL_ORIGINAL_STATUS, SEMEL_OUTCOME,
    SEMEL_RECORDED, remove_hop_by_hop,
};
pub use json::{DEPTH_MAX as JSON_DEPTH_MAX, Pointer, PointerError};
pub use jwt::{KeySet, KeySetError, Verifier, VerifierError};
pub use key::{IDEMPOTENCY_KEY, Malformed, Syntax};
pub use layer::SemelLayer;
pub use name::KeySecret;
pub use one_transaction::{Answering, OneTransaction};
pub use outcome::{Kept, Unreadable};
pub use peer::{ClientCertificate, Peer};
pub use principal::{Principal, PrincipalError};
pub use problem::{Code, Effect, Problem, Row, TABLE};
pub use redact::Keeping;
pub use routes::{Pattern, PatternError, Routes};
pub use scope::{Network, NetworkError, TrustedProxies};
pub use service::Semel;
pub use settings::{KeyPolicy, Options, RouteName, Settings, SettingsError};
pub use trace::{Decided, TraceContext};
pub use verdict::{Meaning, Statuses};

/// The page for authors of services: what stands on it compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/layer.md")]
struct Page;

/// What this crate counts beside the engine, for whoever installs a recorder.
pub const METRICS: &[Metric] = &[
    Metric::counter(
        "semel_refused_total",
        "Requests refused before any claim, by result, surface and route.",
    ),
    Metric::counter("semel_unguarded_total", "Requests of a guarded method without a key."),
    Metric::counter(
        "semel_untrusted_headers_total",
        "Headers that say who calls, taken off since no trusted proxy sent them.",
    ),
    Metric::counter("semel_observed_total", "Requests watched in observe mode, by what would have been."),
    Metric::counter("semel_weak_keys_total", "Guarded requests whose key is short, or only the time."),
];
