//! Where a value stands in a JSON document: RFC 6901.

use std::fmt;
use std::str::FromStr;

/// A JSON pointer. Member names are compared as strings; an index counts elements from 0, without leading zeros.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pointer {
    text: String,
    steps: Vec<Step>,
}

/// One step: the name of a member as the form writes it, in quotes, or an index in digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Step {
    name: Vec<u8>,
    index: Option<usize>,
}

/// Why a text is no pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PointerError {
    /// It does not begin with `/`.
    #[error("a JSON pointer begins with /, as in /payment/id")]
    NoSlash,
    /// A `~` without `0` or `1` after it.
    #[error("in a JSON pointer, ~ is written ~0, and / in a name ~1")]
    Escape,
    /// The element after the last one, which no document has.
    #[error("the step - in a JSON pointer names the element after the last one, which no document has")]
    AfterLast,
}

impl Pointer {
    /// The step at this depth; `None` where the pointer has ended.
    pub(super) fn step(&self, depth: usize) -> Option<&Step> {
        self.steps.get(depth)
    }

    /// Whether it names the whole document.
    pub(crate) fn is_whole(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Step {
    pub(super) fn is_name(&self, name: &[u8]) -> bool {
        self.name == name
    }

    pub(super) fn is_index(&self, index: usize) -> bool {
        self.index == Some(index)
    }

    fn of(text: &str) -> Result<Step, PointerError> {
        if text == "-" {
            return Err(PointerError::AfterLast);
        }
        let is_index =
            text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let index = if is_index { text.parse().ok() } else { None };
        let escaped = unescaped(text)?.replace('\\', r"\\").replace('"', "\\\"");
        Ok(Step { name: ["\"", &escaped, "\""].concat().into_bytes(), index })
    }
}

fn unescaped(text: &str) -> Result<String, PointerError> {
    let mut parts = text.split('~');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (letter, rest) = match part.as_bytes().first() {
            Some(b'0') => ('~', &part[1..]),
            Some(b'1') => ('/', &part[1..]),
            _ => return Err(PointerError::Escape),
        };
        name.push(letter);
        name.push_str(rest);
    }
    Ok(name)
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Pointer, PointerError> {
        let steps = match text.strip_prefix('/') {
            Some(steps) => steps.split('/').map(Step::of).collect::<Result<_, _>>()?,
            None if text.is_empty() => Vec::new(),
            None => return Err(PointerError::NoSlash),
        };
        Ok(Pointer { text: text.to_owned(), steps })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
