//! A fixed place beside the service: asked by GET for the keys of tokens, and whether a caller is allowed; told spans by
//! POST.
//!
//! Where it is, is the configuration's to say and nobody else's: no part of a request goes into its address, no redirect
//! is followed, and every answer is bounded in time and length by whoever asks.

use std::path::Path;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Method, Request, Response, Uri, Version};
use semel_http::Body;

use super::tls::Connector;
use super::upstream::{Arriving, Connections, SendError};
use crate::config::Location;
use crate::values::HttpVersion;

/// Connections to it, and what is asked for. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Place {
    connections: Connections,
    host: HeaderValue,
    target: Uri,
}

impl Place {
    /// Over TLS it is verified against the authority, or against the roots of this system.
    ///
    /// # Errors
    ///
    /// One line that says what is missing.
    pub fn new(location: &Location, authority: Option<&Path>, idle_for: Duration) -> Result<Place, String> {
        let named = |error: &dyn std::fmt::Display| format!("{location}: {error}");
        let secure = location.upstream.secure;
        let tls = secure.then(|| Connector::load(authority)).transpose().map_err(|error| named(&error))?;
        Ok(Place {
            connections: Connections::new(location.upstream.clone(), HttpVersion::Auto, tls, idle_for),
            host: HeaderValue::try_from(&location.host).map_err(|error| named(&error))?,
            target: Uri::try_from(&location.target).map_err(|error| named(&error))?,
        })
    }

    /// A GET of it, with nothing but its Host.
    pub fn question(&self) -> Request<Body> {
        let mut question = Request::new(Body::empty());
        (*question.method_mut(), *question.version_mut()) = (Method::GET, Version::HTTP_11);
        question.uri_mut().clone_from(&self.target);
        question.headers_mut().insert(header::HOST, self.host.clone());
        question
    }

    /// A POST of this to it, once.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn tell(
        &self,
        headers: http::HeaderMap,
        body: bytes::Bytes,
    ) -> Result<Response<Arriving>, SendError> {
        let mut telling = self.question();
        *telling.method_mut() = Method::POST;
        telling.headers_mut().extend(headers);
        telling.headers_mut().insert(header::HOST, self.host.clone());
        telling.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
        *telling.body_mut() = body.into();
        self.connections.send(telling).await
    }

    /// Asks. A GET may be repeated, so it is asked once more where the connection breaks.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn ask(&self, question: impl Fn() -> Request<Body>) -> Result<Response<Arriving>, SendError> {
        match self.connections.send(question()).await {
            Err(SendError::Cut(_)) => self.connections.send(question()).await,
            answer => answer,
        }
    }
}
