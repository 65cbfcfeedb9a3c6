//! The policy page, to which every refusal links (H10).

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, header};
use semel_http::Body;

use super::statement::{POLICY_PATH, Statement};

/// The page in both its forms, made once.
#[derive(Debug)]
pub struct Page {
    text: Bytes,
    json: Bytes,
}

impl Page {
    pub fn new(statement: &Statement) -> Page {
        let json = serde_json::to_vec_pretty(statement).unwrap_or_default();
        Page { text: statement.page().into(), json: json.into() }
    }

    /// The page, if that is what is asked for: as JSON for those who accept it, else as text.
    pub fn answer(&self, parts: &Parts) -> Option<Response<Body>> {
        if parts.uri.path() != POLICY_PATH || !matches!(parts.method, Method::GET | Method::HEAD) {
            return None;
        }
        let accepts =
            parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let (kind, bytes) = if accepts.contains("application/json") {
            ("application/json", &self.json)
        } else {
            ("text/plain; charset=utf-8", &self.text)
        };
        let mut response = Response::new(Body::from(bytes.clone()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        Some(response)
    }
}
