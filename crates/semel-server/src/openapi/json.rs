//! JSON, with where each value stands.

use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::document::{DEPTH_MAX, Member, Node, What};

/// Reads a text.
///
/// # Errors
///
/// One line that says what is wrong, and where.
pub fn parse(text: &str) -> Result<Rc<Node>, String> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Reader { text }.node(raw, 0).map(Rc::new)
}

struct Reader<'a> {
    text: &'a str,
}

impl<'a> Reader<'a> {
    fn node(&self, raw: &'a RawValue, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX}"));
        }
        let source = raw.get();
        let child = |raw| self.node(raw, depth + 1).map(Rc::new);
        let what = match source.as_bytes().first() {
            Some(b'{') => {
                let Members(members) = read(source)?;
                let mut names = HashSet::new();
                let members = members.into_iter().map(|(name, value)| {
                    let text: String = read(name.get())?;
                    if !names.insert(text.clone()) {
                        return Err(format!("the member '{text}' stands twice in one object"));
                    }
                    Ok(Member { name: text, at: self.at(name.get()), value: child(value)? })
                });
                What::Map(members.collect::<Result<_, String>>()?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = read(source)?;
                What::List(items.into_iter().map(child).collect::<Result<_, _>>()?)
            }
            Some(b'"') => What::Scalar(read(source)?),
            _ => What::Scalar(source.to_owned()),
        };
        let start = self.at(source);
        Ok(Node { what, range: start..start + source.len(), flow: true, shared: false })
    }

    /// Where a piece of the text begins in it.
    fn at(&self, piece: &str) -> usize {
        piece.as_ptr().addr() - self.text.as_ptr().addr()
    }
}

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// An object's members in their order.
struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = access.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}
