//! The text of an element of an XML body.
//!
//! 1. The element is named by its local name: its namespace's prefix is the client's choice. Elements of that name
//!    that say different things are refused; so is one that stands in another of them.
//! 2. Its text has no elements, comments or processing instructions in it: readers differ in what is left of the text
//!    around a comment. White space around the text does not count. Without any text it is empty, which is not absent.
//! 3. **No entities** but the five that XML has, and characters by their number. A document type declaration is
//!    refused wherever it stands, so nothing is expanded and nothing fetched.
//! 4. UTF-8 only, with or without its mark. Elements lie in each other [`DEPTH_MAX`] deep at most.
//! 5. The whole body is read, so that what stands behind the element counts too. It must have one outermost element
//!    and be well formed as far as its tags go: attributes of other elements are not looked at.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

use super::{FieldError, only};

/// How deep elements may lie in each other.
const DEPTH_MAX: usize = 128;

pub(super) fn is_local_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || "_-.".contains(letter);
    name.starts_with(|first: char| first.is_alphabetic() || first == '_') && name.chars().all(is_letter)
}

pub(super) fn find(body: &[u8], name: &str) -> Result<Option<String>, FieldError> {
    let text = std::str::from_utf8(body).map_err(|_| FieldError::NotXml)?;
    let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    reader.config_mut().check_comments = true;
    let mut walk = Walk { name, depth: 0, roots: 0, open: None, found: Vec::new() };
    loop {
        match reader.read_event().map_err(|_| FieldError::NotXml)? {
            Event::Eof => return walk.end(),
            event => walk.step(event)?,
        }
    }
}

/// Where the reading is.
struct Walk<'a> {
    name: &'a str,
    depth: usize,
    /// How many outermost elements there were.
    roots: usize,
    /// The text so far of the element that was asked for.
    open: Option<String>,
    found: Vec<String>,
}

impl Walk<'_> {
    fn step(&mut self, event: Event<'_>) -> Result<(), FieldError> {
        match event {
            Event::Start(tag) => self.start(tag.local_name().as_ref()),
            Event::Empty(tag) => {
                self.start(tag.local_name().as_ref())?;
                self.close();
                Ok(())
            }
            Event::End(_) => {
                self.close();
                Ok(())
            }
            Event::Text(text) => self.text(&text.xml10_content()),
            Event::CData(text) if self.depth > 0 => self.text(&text.xml10_content()),
            Event::GeneralRef(entity) if self.depth > 0 => {
                self.text(character(&entity)?.encode_utf8(&mut [0; 4]))
            }
            Event::Comment(_) | Event::PI(_) if self.open.is_some() => Err(FieldError::NotScalar),
            Event::Comment(_) | Event::PI(_) => Ok(()),
            Event::Decl(declaration) if self.depth == 0 && self.roots == 0 => match declaration.encoding() {
                Some(Ok(encoding)) if !encoding.eq_ignore_ascii_case("utf-8") => Err(FieldError::NotXml),
                Some(Err(_)) => Err(FieldError::NotXml),
                _ => Ok(()),
            },
            Event::DocType(_) => Err(FieldError::Doctype),
            _ => Err(FieldError::NotXml),
        }
    }

    fn start(&mut self, local_name: &str) -> Result<(), FieldError> {
        if self.open.is_some() {
            return Err(FieldError::NotScalar);
        }
        if self.depth == DEPTH_MAX {
            return Err(FieldError::TooDeep);
        }
        self.roots += usize::from(self.depth == 0);
        self.depth += 1;
        if local_name == self.name {
            self.open = Some(String::new());
        }
        Ok(())
    }

    fn close(&mut self) {
        // The reader has checked that something is open.
        self.depth = self.depth.saturating_sub(1);
        self.found.extend(self.open.take());
    }

    fn text(&mut self, text: &str) -> Result<(), FieldError> {
        match &mut self.open {
            Some(open) => open.push_str(text),
            None if self.depth == 0 && !text.trim_matches(SPACE).is_empty() => {
                return Err(FieldError::NotXml);
            }
            None => {}
        }
        Ok(())
    }

    fn end(self) -> Result<Option<String>, FieldError> {
        if self.depth != 0 || self.roots != 1 {
            return Err(FieldError::NotXml);
        }
        only(self.found.into_iter().map(|text| Ok(text.trim_matches(SPACE).to_owned())))
    }
}

/// XML's white space (section 2.3).
const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// The character that an entity stands for.
fn character(entity: &BytesRef<'_>) -> Result<char, FieldError> {
    if let Some(letter) = entity.resolve_char_ref().map_err(|_| FieldError::NotXml)? {
        return Ok(letter);
    }
    match &entity[..] {
        "amp" => Ok('&'),
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err(FieldError::Doctype),
    }
}
