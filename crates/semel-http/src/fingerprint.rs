//! What two requests have alike when they are the same request: H6.
//!
//! **Exact** ([`Algorithm::EXACT`]): SHA-256 over method, host, path, query, content type and body, as they were sent.
//!
//! 1. The host is the authority of the target if it has one, else `Host` (RFC 9112, section 3.2.2), in lower
//!    case: host names have no case (RFC 3986, section 3.2.2). A port counts as written.
//! 2. Path and query count as written. `/a` and `/%61` are two requests: which resource they name is the
//!    service's to say.
//! 3. An absent query is not an empty one, an absent content type not an empty one. An absent body **is** an
//!    empty one: clients and proxies add and drop `Content-Length: 0`.
//! 4. Further lines of `Content-Type` or `Host`, which no sound client sends, are added at the end, so that they
//!    count too.
//! 5. Nothing is parsed, so numbers are never compared through a float (case C24). Members in another order
//!    (C97) and another multipart boundary (C16) are another request in this algorithm.
//!
//! **JSON** ([`Algorithm::JSON`]), where the route asks for it and the content type is `application/json` or ends in
//! `+json`: the body is compared in the form of `json.rs`, without the members that the route ignores. Method, host,
//! path and query count as above.
//!
//! 6. Of the content type, case, space and quotes do not count, nor does `charset=utf-8`. Other parameters do. With
//!    another charset, or with two content types, the request is compared exactly.
//! 7. A body that is no JSON is compared exactly: what to say of it is the service's business. A member twice, and
//!    arrays and objects deeper than [`JSON_DEPTH_MAX`](crate::JSON_DEPTH_MAX), are [`Incomparable`]: whether two such
//!    bodies are the same is not to be guessed at.
//! 8. **Ignored members** are compared as if they were not there. Which they are is the route's choice and not in the
//!    record. When the choice changes between an attempt and its retry, the retry is compared without what is ignored
//!    now, and the record without what was ignored then. They are equal where both leave the same; otherwise the
//!    retry is told `key-reused`, and nothing runs.
//!
//! **Multipart** ([`Algorithm::MULTIPART`]), where the route asks for it and the content type is
//! `multipart/form-data`: by part, not by boundary, as `multipart.rs` says. The content type counts without its
//! boundary. What cannot be split without doubt is compared exactly.
//!
//! 9. **A record is compared by the algorithm that made it**, whatever the route asks for now: that is what
//!    [`Comparison::fingerprint_by`] is for. A body that an algorithm cannot compare is by that algorithm equal to
//!    none but the same bytes, and never to one that it could compare.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::request;
use http::{Method, Uri};
use semel::fingerprint::FingerprintBuilder;
use semel::{Algorithm, Fingerprint};

use crate::json::{self, Fault, Form, Pointer};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod media_type;
mod multipart;

use media_type::MediaType;
use multipart::Parts;

/// How a route compares two requests of one key. The default is byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// JSON bodies by what they say: members in any order, white space ignored. `false`.
    pub json: bool,
    /// What does not count in JSON bodies, say the number of the attempt. Empty.
    pub ignore: Vec<Pointer>,
    /// `multipart/form-data` by its parts, whatever the boundary. `false`.
    pub multipart: bool,
}

/// Why a comparison makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComparisonError {
    /// Nothing would be left to compare (case C70).
    #[error("the empty JSON pointer ignores the whole body")]
    IgnoresAll,
    /// Members are ignored where JSON is not read.
    #[error("{0} can be ignored only where JSON bodies are compared as JSON")]
    IgnoresUnread(Pointer),
}

/// Why a request cannot be compared: it is malformed in a way that readers take differently. The text is for the
/// client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Incomparable {
    /// An object of the body has two members of one name.
    #[error("The JSON body names a member twice in one object.")]
    Twice,
    /// The body is deeper than [`JSON_DEPTH_MAX`](crate::JSON_DEPTH_MAX).
    #[error("The JSON body is nested more than {} deep.", json::DEPTH_MAX)]
    TooDeep,
}

/// What a request is compared by. Cheap to make and to clone: it shares the request's bytes.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    method: Method,
    uri: Uri,
    host: Lines,
    content_type: Lines,
    body: Bytes,
}

/// The lines of one header.
#[derive(Debug, Clone)]
struct Lines {
    first: Option<HeaderValue>,
    further: Vec<HeaderValue>,
}

impl Comparison {
    /// Checks that it compares something.
    ///
    /// # Errors
    ///
    /// [`ComparisonError`] when it ignores a whole body, or members of bodies that are not read.
    pub fn check(&self) -> Result<(), ComparisonError> {
        match self.ignore.iter().find(|pointer| pointer.is_whole() || !self.json) {
            Some(pointer) if pointer.is_whole() => Err(ComparisonError::IgnoresAll),
            Some(pointer) => Err(ComparisonError::IgnoresUnread(pointer.clone())),
            None => Ok(()),
        }
    }

    /// The fingerprint of a request, by the algorithm that its content type and the route's choice give.
    pub(crate) fn fingerprint(&self, subject: &Subject) -> Result<Fingerprint, Incomparable> {
        // A route that compares exactly does not read the type.
        let media_type = if self.json || self.multipart { subject.media_type() } else { None };
        let read = match media_type {
            Some(media_type) if self.json && is_json(&media_type) => self.json(subject, media_type)?,
            Some(media_type) if self.multipart && is_form_data(&media_type) => multipart(subject, media_type),
            _ => None,
        };
        Ok(read.unwrap_or_else(|| subject.exact(Fingerprint::builder(Algorithm::EXACT))))
    }

    /// The fingerprint by the algorithm that a record has; `None` for one that is unknown here.
    pub(crate) fn fingerprint_by(&self, algorithm: Algorithm, subject: &Subject) -> Option<Fingerprint> {
        let media_type = subject.media_type();
        let read = match algorithm {
            Algorithm::EXACT => return Some(subject.exact(Fingerprint::builder(Algorithm::EXACT))),
            Algorithm::JSON => media_type
                .filter(is_json)
                .and_then(|media_type| self.json(subject, media_type).ok().flatten()),
            Algorithm::MULTIPART => {
                media_type.filter(is_form_data).and_then(|media_type| multipart(subject, media_type))
            }
            _ => return None,
        };
        // It begins with an absence, where the method of what was read stands.
        let unread = || subject.exact(Fingerprint::builder(algorithm).optional(None));
        Some(read.unwrap_or_else(unread))
    }

    /// `None`: the body is no JSON.
    fn json(
        &self,
        subject: &Subject,
        mut media_type: MediaType,
    ) -> Result<Option<Fingerprint>, Incomparable> {
        if media_type.take("charset").is_some_and(|charset| !charset.eq_ignore_ascii_case(b"utf-8")) {
            return Ok(None);
        }
        let Form { text, .. } = match json::form(&subject.body, &self.ignore) {
            Ok(form) => form,
            Err(Fault::NotJson) => return Ok(None),
            Err(Fault::Twice) => return Err(Incomparable::Twice),
            Err(Fault::TooDeep) => return Err(Incomparable::TooDeep),
        };
        Ok(Some(subject.read(Algorithm::JSON, &media_type).part(&text).finish()))
    }
}

/// `None`: the body cannot be split without doubt.
fn multipart(subject: &Subject, mut media_type: MediaType) -> Option<Fingerprint> {
    let boundary = media_type.take("boundary")?;
    let parts = Parts::read(&subject.body, &boundary)?;
    Some(parts.add_to(subject.read(Algorithm::MULTIPART, &media_type)).finish())
}

fn is_json(media_type: &MediaType) -> bool {
    media_type.essence == "application/json" || media_type.essence.ends_with("+json")
}

fn is_form_data(media_type: &MediaType) -> bool {
    media_type.essence == "multipart/form-data"
}

impl Subject {
    pub(crate) fn of(parts: &request::Parts, body: &Bytes) -> Subject {
        Subject {
            method: parts.method.clone(),
            uri: parts.uri.clone(),
            host: Lines::of(&parts.headers, &HOST),
            content_type: Lines::of(&parts.headers, &CONTENT_TYPE),
            body: body.clone(),
        }
    }

    /// The one content type that the request has.
    fn media_type(&self) -> Option<MediaType> {
        let one = self.content_type.first.as_ref().filter(|_| self.content_type.further.is_empty());
        one.and_then(|line| MediaType::parse(line.as_bytes()))
    }

    pub(crate) fn exact(&self, builder: FingerprintBuilder) -> Fingerprint {
        let once = self
            .target(builder)
            .optional(self.content_type.first.as_ref().map(HeaderValue::as_bytes))
            .part(&self.body);
        // Something that no line can be, so that a second type is not a second host.
        self.host.add_further(self.content_type.add_further(once).optional(None)).finish()
    }

    /// Everything but the body, for algorithms that read it.
    fn read(&self, algorithm: Algorithm, media_type: &MediaType) -> FingerprintBuilder {
        let typed = self.target(Fingerprint::builder(algorithm)).part(media_type.essence.as_bytes());
        let typed = media_type
            .parameters
            .iter()
            .fold(typed, |builder, (name, value)| builder.part(name.as_bytes()).part(value));
        // No parameter's name and no host is absent, so this ends each of the two lists.
        self.host.add_further(typed.optional(None)).optional(None)
    }

    fn target(&self, builder: FingerprintBuilder) -> FingerprintBuilder {
        builder
            .part(self.method.as_str().as_bytes())
            .part(&self.host())
            .part(self.uri.path().as_bytes())
            .optional(self.uri.query().map(str::as_bytes))
    }

    fn host(&self) -> Cow<'_, [u8]> {
        let host = match self.uri.authority() {
            Some(authority) => authority.as_str().as_bytes(),
            None => self.host.first.as_ref().map_or(&b""[..], HeaderValue::as_bytes),
        };
        if host.iter().any(u8::is_ascii_uppercase) {
            Cow::Owned(host.to_ascii_lowercase())
        } else {
            Cow::Borrowed(host)
        }
    }
}

impl Lines {
    fn of(headers: &HeaderMap, name: &HeaderName) -> Lines {
        let mut lines = headers.get_all(name).iter().cloned();
        Lines { first: lines.next(), further: lines.collect() }
    }

    fn add_further(&self, builder: FingerprintBuilder) -> FingerprintBuilder {
        self.further.iter().fold(builder, |builder, line| builder.part(line.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
