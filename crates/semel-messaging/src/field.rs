//! Where a value stands in a message: for ids, sources and lanes.
//!
//! 1. A value is text. A JSON number is the digits as they were written, never through a float: two large order
//!    numbers stay two.
//! 2. What is absent, `null`, empty, an object or an array has no value, and the consumer's rule for what is missing
//!    holds. A made-up value would make one key of many messages.
//! 3. A member that comes twice on the way has no value either: two readers of such a body see different ones.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::message::Message;

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The producer's message id.
    MessageId,
    /// The correlation id.
    CorrelationId,
    /// The producer's name.
    Producer,
    /// Routing key, topic or subject.
    Subject,
    /// What the broker keeps the order of: Kafka's record key.
    Lane,
    /// A header, by its name.
    Header(String),
    /// A value in a JSON body, by its pointer (RFC 6901).
    Json(String),
}

impl Field {
    /// Its value in a message.
    #[must_use]
    pub fn of(&self, message: &Message) -> Option<String> {
        let text = match self {
            Field::MessageId => message.id.clone(),
            Field::CorrelationId => message.correlation_id.clone(),
            Field::Producer => message.producer.clone(),
            Field::Subject => Some(message.subject.clone()),
            Field::Lane => message.lane.clone(),
            Field::Header(name) => message.headers.text(name).map(str::to_owned),
            Field::Json(pointer) => scalar(&message.body, pointer),
        };
        text.filter(|text| !text.is_empty())
    }
}

/// The text of the string, number or truth value that a pointer leads to.
fn scalar(body: &[u8], pointer: &str) -> Option<String> {
    let steps = pointer.strip_prefix('/')?.split('/');
    let mut at: &RawValue = serde_json::from_slice(body).ok()?;
    for step in steps {
        at = child(at, &step.replace("~1", "/").replace("~0", "~"))?;
    }
    let raw = at.get();
    match raw.as_bytes().first()? {
        b'"' => serde_json::from_str(raw).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(raw.to_owned()),
    }
}

fn child<'a>(of: &'a RawValue, step: &str) -> Option<&'a RawValue> {
    let raw = of.get();
    match raw.as_bytes().first()? {
        b'{' => serde_json::from_str::<Members<'_>>(raw).ok()?.0.remove(step),
        b'[' => {
            let is_index =
                step == "0" || (!step.starts_with('0') && step.bytes().all(|b| b.is_ascii_digit()));
            let items: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
            items.get(step.parse::<usize>().ok().filter(|_| is_index)?).copied()
        }
        _ => None,
    }
}

/// An object's members, each there once.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Members<'a>, D::Error> {
        struct Once<'a>(std::marker::PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Once<'a> {
            type Value = Members<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object whose members come once")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'a>, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, &'a RawValue>()? {
                    if members.insert(name, value).is_some() {
                        return Err(de::Error::custom("a member comes twice"));
                    }
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Once(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(body: &str, pointer: &str) -> Option<String> {
        Field::Json(pointer.into()).of(&Message::new("orders", body.to_owned()))
    }

    #[test]
    fn m2_a_json_pointer_leads_to_a_value() {
        let body = r#"{"order":{"id":"o-7","lines":[{"sku":"a"},{"sku":"b"}]},"a/b":true,"~":1}"#;
        assert_eq!(json(body, "/order/id").as_deref(), Some("o-7"));
        assert_eq!(json(body, "/order/lines/1/sku").as_deref(), Some("b"));
        assert_eq!(json(body, "/a~1b").as_deref(), Some("true"));
        assert_eq!(json(body, "/~0").as_deref(), Some("1"));
        assert_eq!(json(r#"{"a":"\u00e9\n"}"#, "/a").as_deref(), Some("é\n"));
    }

    #[test]
    fn m2_numbers_are_taken_as_written() {
        let (one, other) = (r#"{"id":9007199254740993}"#, r#"{"id":9007199254740992}"#);
        assert_eq!(json(one, "/id").as_deref(), Some("9007199254740993"));
        assert_ne!(json(one, "/id"), json(other, "/id"));
        assert_eq!(json(r#"{"id":1.50}"#, "/id").as_deref(), Some("1.50"));
    }

    #[test]
    fn m2_what_is_no_single_value_has_none() {
        for body in [
            "",
            "not json",
            "[]",
            r#"{"id":null}"#,
            r#"{"id":""}"#,
            r#"{"id":{}}"#,
            r#"{"id":[1]}"#,
            r#"{"other":1}"#,
            r#"{"id":1,"id":2}"#,
            r#"{"id":1"#,
        ] {
            assert_eq!(json(body, "/id"), None, "{body}");
        }
        assert_eq!(json(r#"["a"]"#, "/00"), None);
        assert_eq!(json(r#"["a"]"#, "/+0"), None);
        assert_eq!(json(r#"{"id":1}"#, "id"), None, "a pointer begins with a slash");
        let not_utf8 = Message::new("orders", &b"{\"id\":\"\xff\"}"[..]);
        assert_eq!(Field::Json("/id".into()).of(&not_utf8), None);
    }
}
