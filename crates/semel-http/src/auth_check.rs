//! Authorise before replay: H7.

use std::fmt::Debug;

use async_trait::async_trait;
use http::Response;
use http::request::Parts;

use crate::body::Body;

/// Asks whether a caller may still do what it asks for.
///
/// A replay is an answer: whoever was thrown out yesterday must not get it today (case C32). The layer is to sit
/// inside of what authenticates and authorises. A gateway stands before that, so it asks the service, or whoever
/// decides in its place.
///
/// It is asked for every guarded request with a key: after the key and the scope are known, before the body is read
/// and before the store is asked. So a caller who is refused claims nothing, and learns nothing about a key. What
/// passes by unguarded is not asked about: the service answers that itself.
#[async_trait]
pub trait AuthCheck: Debug + Send + Sync {
    /// Whether the request with this head may go on.
    ///
    /// It must end by itself: nothing here limits its time.
    ///
    /// # Errors
    ///
    /// The answer for the caller. What only the layer may say is taken off it, and nothing of it is kept.
    async fn check(&self, parts: &Parts) -> Result<(), Response<Body>>;
}
