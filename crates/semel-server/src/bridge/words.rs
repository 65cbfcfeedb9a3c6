//! The words that a bridge's settings choose among.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use http::{HeaderName, header};
use semel_messaging::Field;

use crate::values::nearest;

/// Where a value stands in a message: `message-id`, `header:account`, `json:/order/id` …
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldWord(pub Field);

/// Where a message's id comes from: a field, or `cloudevents`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdWord {
    /// One field.
    Field(Field),
    /// Source and id of a CloudEvent.
    CloudEvents,
}

/// What becomes of a message without an id (M2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingChoice {
    /// A dead letter
    Reject,
    /// The fields that `derive` names are its id, together
    Derive,
    /// Its subject and body are its id: two that read alike are one
    ContentHash,
    /// A new id for each delivery: nothing is recognised as a duplicate
    Generate,
}

/// Whether the queue is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Declare {
    /// It is there: a name that is not is an error
    No,
    /// A durable quorum queue, where there is none
    Queue,
    /// The same, delivering to one consumer at a time: lanes keep their order over several bridges
    SingleActive,
}

/// A header of a message that becomes one of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded(pub HeaderName);

const FIELDS: [&str; 4] = ["message-id", "correlation-id", "producer", "subject"];
const FORM: &str = "a field is message-id, correlation-id, producer, subject, header:NAME or json:/POINTER";

impl FromStr for FieldWord {
    type Err = String;

    fn from_str(text: &str) -> Result<FieldWord, String> {
        let plain = match text {
            "message-id" => Field::MessageId,
            "correlation-id" => Field::CorrelationId,
            "producer" => Field::Producer,
            "subject" => Field::Subject,
            _ => return with_name(text).map(FieldWord),
        };
        Ok(FieldWord(plain))
    }
}

fn with_name(text: &str) -> Result<Field, String> {
    match text.split_once(':') {
        Some(("header", name)) if !name.is_empty() => Ok(Field::Header(name.to_owned())),
        Some(("json", pointer)) if pointer.starts_with('/') => Ok(Field::Json(pointer.to_owned())),
        Some(("json", pointer)) => {
            Err(format!("a JSON pointer begins with a slash; did you mean 'json:/{pointer}'?"))
        }
        Some((kind, rest)) => Err(match nearest(kind, ["header", "json"]) {
            Some(near) => format!("'{text}': {FORM}; did you mean '{near}:{rest}'?"),
            None => format!("'{text}': {FORM}"),
        }),
        None => Err(match nearest(&text.replace('_', "-"), FIELDS) {
            Some(near) => format!("'{text}': {FORM}; did you mean '{near}'?"),
            None => format!("'{text}': {FORM}"),
        }),
    }
}

impl fmt::Display for FieldWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Field::MessageId => f.write_str("message-id"),
            Field::CorrelationId => f.write_str("correlation-id"),
            Field::Producer => f.write_str("producer"),
            Field::Subject => f.write_str("subject"),
            Field::Header(name) => write!(f, "header:{name}"),
            Field::Json(pointer) => write!(f, "json:{pointer}"),
            other => write!(f, "{other:?}"),
        }
    }
}

impl FromStr for IdWord {
    type Err = String;

    fn from_str(text: &str) -> Result<IdWord, String> {
        if text == "cloudevents" {
            return Ok(IdWord::CloudEvents);
        }
        text.parse::<FieldWord>().map(|word| IdWord::Field(word.0)).map_err(|error| {
            match nearest(text, ["cloudevents", "message-id"]) {
                Some("cloudevents") => format!("'{text}' is no field; did you mean 'cloudevents'?"),
                _ => format!("{error}, or cloudevents"),
            }
        })
    }
}

impl fmt::Display for IdWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdWord::Field(field) => FieldWord(field.clone()).fmt(f),
            IdWord::CloudEvents => f.write_str("cloudevents"),
        }
    }
}

impl FromStr for Forwarded {
    type Err = String;

    fn from_str(text: &str) -> Result<Forwarded, String> {
        let name: HeaderName = text.parse().map_err(|_| format!("'{text}' is no header's name"))?;
        let framing = [
            header::HOST,
            header::CONTENT_LENGTH,
            header::CONTENT_TYPE,
            header::TRANSFER_ENCODING,
            header::CONNECTION,
            header::UPGRADE,
            header::TE,
            header::EXPECT,
            header::AUTHORIZATION,
            header::USER_AGENT,
        ];
        let is_own = name == semel_http::IDEMPOTENCY_KEY || name.as_str().starts_with("semel-");
        if is_own || framing.contains(&name) {
            return Err(format!("the header '{text}' is the bridge's own: a message cannot set it"));
        }
        Ok(Forwarded(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_are_written() {
        for text in ["message-id", "correlation-id", "producer", "subject", "header:x", "json:/a/b"] {
            assert_eq!(text.parse::<FieldWord>().unwrap().to_string(), text);
        }
        assert_eq!("cloudevents".parse::<IdWord>().unwrap().to_string(), "cloudevents");
    }

    #[test]
    fn a_bad_field_names_the_nearest_one() {
        for (typo, meant) in [
            ("mesage-id", "'message-id'"),
            ("correlation_id", "'correlation-id'"),
            ("headr:account", "'header:account'"),
            ("json:id", "'json:/id'"),
        ] {
            assert!(typo.parse::<FieldWord>().unwrap_err().contains(meant), "{typo}");
        }
        assert!("cloudevent".parse::<IdWord>().unwrap_err().contains("'cloudevents'"));
        assert!("header:".parse::<FieldWord>().is_err());
    }

    #[test]
    fn a_message_cannot_set_what_is_the_bridges_own() {
        assert!("traceparent".parse::<Forwarded>().is_ok());
        for name in ["Host", "Content-Length", "Idempotency-Key", "Semel-Fence", "Authorization", "a b", ""] {
            assert!(name.parse::<Forwarded>().is_err(), "{name}");
        }
    }
}
