//! Where a value stands in a request: for keys that are derived (H4), and for keys that stand in the body (H1).
//!
//! 1. A field is written `header:NAME`, `query:NAME`, `path:NAME`, `json:/POINTER`, `form:NAME` or `xml:NAME`.
//! 2. **Absent is no error**, and not the same as empty. What it means is the caller's choice. A body of no bytes has
//!    no fields.
//! 3. **Nothing is guessed at.** The same field twice with different values, a value that is no text, no single value,
//!    or a body that is not what the field says: [`FieldError`]. Twice with the same value is once.
//! 4. The body is read as what the field says, whatever the content type is: a client that forgets the type must not
//!    lose its key. But `form:` does not read a body that says it is multipart.
//! 5. `query:` and `form:` are pairs of `application/x-www-form-urlencoded` (URL Standard, section 5.1), names and
//!    values without their escapes. A broken escape, in any name or in the field's own value, is an error. `path:` is
//!    a variable of the route's pattern, as it was matched.
//! 6. `json:` is a string's text, a number as it is written, `true` or `false`; `null` is absent. The whole document
//!    is read as `json.rs` says: a member twice, anywhere, is an error.
//! 7. `xml:` is the text of the element with that local name, wherever it stands, without white space around it. See
//!    `field/xml.rs`.

use std::fmt;
use std::str::FromStr;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName};
use http::request::Parts;

use crate::json::{self, Fault, Pointer, PointerError};

mod form;
mod xml;

/// Where a value stands in a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// A header line.
    Header(HeaderName),
    /// A parameter of the query.
    Query(String),
    /// A variable of the route's path.
    Path(String),
    /// A value of a JSON body.
    Json(Pointer),
    /// A field of a URL-encoded body.
    Form(String),
    /// An element of an XML body.
    Xml(String),
}

/// Why a text names no field. One line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldSyntaxError {
    /// It does not begin with a place and a colon.
    #[error(
        "{0:?} names no field: write header:NAME, query:NAME, path:NAME, json:/POINTER, form:NAME or xml:NAME"
    )]
    Place(String),
    /// The name cannot stand in that place.
    #[error("{0:?} names no field: {1:?} is no name there")]
    Name(String, String),
    /// The pointer is malformed.
    #[error("{0:?} names no field: {1}")]
    Pointer(String, PointerError),
}

/// Why a field cannot be read. The text is for the client; it never repeats the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// It stands there more than once, with different values.
    #[error("It stands there more than once, with different values.")]
    Several,
    /// An array, an object, or an element with elements or comments in it.
    #[error("It is no single value.")]
    NotScalar,
    /// Its bytes are no UTF-8, or its characters no Unicode text.
    #[error("It is no Unicode text.")]
    NotText,
    /// The body is no JSON in UTF-8.
    #[error("The body is no JSON in UTF-8.")]
    NotJson,
    /// An object of the body has two members of one name.
    #[error("The JSON body names a member twice in one object.")]
    Twice,
    /// The body is nested deeper than this program reads.
    #[error("The body is nested too deep.")]
    TooDeep,
    /// The body, or the query, is not URL-encoded.
    #[error("It does not stand in well-formed application/x-www-form-urlencoded.")]
    NotForm,
    /// The body is no XML in UTF-8.
    #[error("The body is no well-formed XML in UTF-8.")]
    NotXml,
    /// The body has a document type declaration, or an entity that only one could declare.
    #[error("The XML body has a document type declaration, or an entity of its own.")]
    Doctype,
}

impl Field {
    /// The value. `variables` are those of the route's path.
    ///
    /// # Errors
    ///
    /// [`FieldError`] when it cannot be read without doubt.
    pub fn find<'v>(
        &self,
        parts: &Parts,
        body: &[u8],
        variables: impl IntoIterator<Item = (&'v str, &'v str)>,
    ) -> Result<Option<String>, FieldError> {
        match self {
            Field::Header(name) => header(&parts.headers, name),
            Field::Query(name) => form::find(parts.uri.query().unwrap_or_default().as_bytes(), name),
            Field::Path(name) => {
                let values = variables.into_iter().filter(|(other, _)| other == name);
                only(values.map(|(_, value)| Ok(value.to_owned())))
            }
            Field::Form(_) if is_multipart(&parts.headers) => Err(FieldError::NotForm),
            Field::Json(_) | Field::Form(_) | Field::Xml(_) => self.in_body(body),
        }
    }

    /// Whether it stands in the body.
    #[must_use]
    pub fn is_in_body(&self) -> bool {
        matches!(self, Field::Json(_) | Field::Form(_) | Field::Xml(_))
    }

    fn in_body(&self, body: &[u8]) -> Result<Option<String>, FieldError> {
        match self {
            _ if body.is_empty() => Ok(None),
            Field::Json(pointer) => in_json(body, pointer),
            Field::Form(name) => form::find(body, name),
            Field::Xml(name) => xml::find(body, name),
            Field::Header(_) | Field::Query(_) | Field::Path(_) => Ok(None),
        }
    }
}

fn header(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, FieldError> {
    only(headers.get_all(name).iter().map(|line| text(line.as_bytes().trim_ascii().to_vec())))
}

fn is_multipart(headers: &HeaderMap) -> bool {
    const MULTIPART: &[u8] = b"multipart/";
    let heads = headers.get_all(CONTENT_TYPE).iter();
    heads
        .filter_map(|line| line.as_bytes().trim_ascii_start().get(..MULTIPART.len()))
        .any(|head| head.eq_ignore_ascii_case(MULTIPART))
}

fn in_json(body: &[u8], pointer: &Pointer) -> Result<Option<String>, FieldError> {
    let mut form = json::form(body, std::slice::from_ref(pointer)).map_err(|fault| match fault {
        Fault::NotJson => FieldError::NotJson,
        Fault::Twice => FieldError::Twice,
        Fault::TooDeep => FieldError::TooDeep,
    })?;
    let Some(value) = form.taken.pop().flatten() else { return Ok(None) };
    match value.first() {
        Some(b'{' | b'[') => Err(FieldError::NotScalar),
        Some(b'n') => Ok(None),
        Some(b'"') => text(json::text_of(&value)).map(Some),
        _ => text(value).map(Some),
    }
}

/// The one value that all of them are.
fn only(mut values: impl Iterator<Item = Result<String, FieldError>>) -> Result<Option<String>, FieldError> {
    let Some(first) = values.next().transpose()? else { return Ok(None) };
    for other in values {
        if other? != first {
            return Err(FieldError::Several);
        }
    }
    Ok(Some(first))
}

fn text(bytes: Vec<u8>) -> Result<String, FieldError> {
    String::from_utf8(bytes).map_err(|_| FieldError::NotText)
}

impl FromStr for Field {
    type Err = FieldSyntaxError;

    fn from_str(text: &str) -> Result<Field, FieldSyntaxError> {
        let (place, name) = text.split_once(':').ok_or_else(|| FieldSyntaxError::Place(text.to_owned()))?;
        let no_name = || FieldSyntaxError::Name(text.to_owned(), name.to_owned());
        let named = || if name.is_empty() { Err(no_name()) } else { Ok(name.to_owned()) };
        match place {
            "header" => name.parse().map(Field::Header).map_err(|_| no_name()),
            "query" => named().map(Field::Query),
            "path" => named().map(Field::Path),
            "form" => named().map(Field::Form),
            "xml" if xml::is_local_name(name) => named().map(Field::Xml),
            "xml" => Err(no_name()),
            "json" => {
                let pointer = |error| FieldSyntaxError::Pointer(text.to_owned(), error);
                name.parse().map(Field::Json).map_err(pointer)
            }
            _ => Err(FieldSyntaxError::Place(text.to_owned())),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Header(name) => write!(f, "header:{name}"),
            Field::Query(name) => write!(f, "query:{name}"),
            Field::Path(name) => write!(f, "path:{name}"),
            Field::Json(pointer) => write!(f, "json:{pointer}"),
            Field::Form(name) => write!(f, "form:{name}"),
            Field::Xml(name) => write!(f, "xml:{name}"),
        }
    }
}

#[cfg(test)]
mod tests;
