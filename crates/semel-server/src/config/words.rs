//! The words that settings choose among, and lists: on the command line, in the environment and in TOML alike.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use http::{HeaderName, Method, StatusCode};
use serde::de::{self, Deserialize, Deserializer};

use crate::values::nearest;

/// What happens to a guarded request without a key (H4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyPolicy {
    /// Without a key it goes through, unguarded and counted
    Optional,
    /// Without a key it is refused
    Required,
    /// Without a key one is made of the fields that `derive` names
    Derive,
    /// Without a key it gets one of its own, so that it is on record; a retry is another operation
    Generate,
    /// It goes through: repeating it changes nothing, by its nature
    Natural,
}

/// How a key may be written (H1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeySyntax {
    /// With quotes or without
    Lenient,
    /// In quotes, as a structured field
    Strict,
}

/// What happens to what is unknown (K7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownChoice {
    /// Wait for an operator: never silently twice
    Park,
    /// Run it again: only where that is safe
    Rerun,
    /// Ask the service whether it took effect
    Probe,
}

/// A choice of several settings at once (H11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// A 500, 501 or 503 of the service means that nothing took effect
    Default,
    /// No 5xx proves anything: each is unknown unless the service says otherwise
    Cautious,
    /// As Stripe does: a 500 is kept and replayed, other 5xx prove nothing, a reused key is a 400
    Stripe,
}

/// How two requests are compared (H6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sameness {
    /// Byte for byte
    Exact,
    /// JSON by its members, whatever their order and the white space
    Json,
    /// Multipart by its parts, whatever the boundary
    Multipart,
}

/// What happens to guarded requests while the store is away (H9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreDown {
    /// They are refused with 503: nothing runs unguarded
    Refuse,
    /// They go through unguarded, marked and counted: a retry may take effect twice
    Bypass,
}

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the levels of every logger")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// Several values: an array in TOML, with commas between them elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

/// A value of a type that another crate made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct One<T>(pub T);

/// A status of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub StatusCode);

/// A method that can be guarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guardable(pub Method);

/// A header that carries the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header(pub HeaderName);

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Status, String> {
        let status = text.parse::<u16>().ok().filter(|code| (200..600).contains(code));
        let status = status.and_then(|code| StatusCode::from_u16(code).ok());
        status.map(Status).ok_or_else(|| format!("'{text}' is no status of an answer: 200 to 599"))
    }
}

impl FromStr for Guardable {
    type Err = String;

    fn from_str(text: &str) -> Result<Guardable, String> {
        const KNOWN: [&str; 4] = ["POST", "PATCH", "PUT", "DELETE"];
        let upper = text.to_ascii_uppercase();
        if ["GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"].contains(&upper.as_str()) {
            return Err(format!("{upper} takes no effect, so it is never guarded"));
        }
        let method = Method::from_bytes(text.as_bytes()).ok().filter(|_| text == upper);
        // An extension method is fine; a misspelt common one is not.
        match (method, nearest(&upper, KNOWN)) {
            (Some(method), near) if near.is_none_or(|near| near == text) => Ok(Guardable(method)),
            (_, Some(near)) => Err(format!("unknown method '{text}'; did you mean '{near}'?")),
            _ => Err(format!("'{text}' is no method")),
        }
    }
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Header, String> {
        HeaderName::from_str(text).map(Header).map_err(|_| format!("'{text}' is no header name"))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl<T: FromStr<Err: fmt::Display>> FromStr for List<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<List<T>, String> {
        let parse = |item: &str| item.trim().parse().map_err(|error| format!("{error}"));
        text.split(',').map(parse).collect::<Result<_, _>>().map(List)
    }
}

impl<T: FromStr<Err: fmt::Display>> FromStr for One<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<One<T>, String> {
        text.parse().map(One).map_err(|error| format!("{error}"))
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for One<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<One<T>, D::Error> {
        Item::deserialize(deserializer)?.parse().map(One).map_err(de::Error::custom)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        let items = match Written::deserialize(deserializer)? {
            Written::One(item) => vec![item],
            Written::Several(items) => items,
        };
        items.iter().map(Item::parse).collect::<Result<_, _>>().map(List).map_err(de::Error::custom)
    }
}

#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "it is an array, such as [\"one\", \"two\"]")]
enum Written {
    One(Item),
    Several(Vec<Item>),
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Item {
    Number(i64),
    Text(String),
}

impl Item {
    fn parse<T: FromStr<Err: fmt::Display>>(&self) -> Result<T, String> {
        let parsed = match self {
            Item::Number(number) => number.to_string().parse(),
            Item::Text(text) => text.parse(),
        };
        parsed.map_err(|error: T::Err| error.to_string())
    }
}

macro_rules! from_toml {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                Item::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

from_toml!(Status);

/// The words of the choices, as they are written.
macro_rules! as_written {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let word = self.to_possible_value();
                f.write_str(word.as_ref().map_or("", |word| word.get_name()))
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                <$type as ValueEnum>::from_str(text, false).map_err(|_| {
                    let words: Vec<_> = <$type>::value_variants().iter().map(ToString::to_string).collect();
                    match nearest(text, words.iter().map(String::as_str)) {
                        Some(near) => format!("unknown value '{text}'; did you mean '{near}'?"),
                        None => format!("unknown value '{text}'; it is one of {}", words.join(", ")),
                    }
                })
            }
        }
    )*};
}

as_written!(KeyPolicy, KeySyntax, UnknownChoice, Preset, Sameness, StoreDown, LogLevel);

#[cfg(test)]
mod tests {
    use super::*;

    fn list<T: FromStr<Err: fmt::Display>>(text: &str) -> Result<List<T>, String> {
        text.parse()
    }

    #[test]
    fn a_list_is_written_with_commas_or_as_an_array() {
        let statuses = List(vec![Status(StatusCode::OK), Status(StatusCode::CONFLICT)]);
        assert_eq!(list::<Status>("200, 409"), Ok(statuses.clone()));
        #[derive(Debug, serde::Deserialize)]
        struct Table {
            l: List<Status>,
        }
        assert_eq!(toml::from_str::<Table>("l = [200, \"409\"]").unwrap().l, statuses);
        assert_eq!(toml::from_str::<Table>("l = 200").unwrap().l, List(vec![Status(StatusCode::OK)]));
        assert!(toml::from_str::<Table>("l = [99]").unwrap_err().message().contains("200 to 599"));
        assert!(toml::from_str::<Table>("l = true").unwrap_err().message().contains("an array"));
    }

    #[test]
    fn a_misspelt_method_is_no_extension_method() {
        assert_eq!(
            list("POST,PURGE"),
            Ok(List(vec![Guardable(Method::POST), Guardable(Method::from_bytes(b"PURGE").unwrap())]))
        );
        for (typo, meant) in
            [("post", "'POST'"), ("PSOT", "'POST'"), ("PACH", "'PATCH'"), ("Delete", "'DELETE'")]
        {
            assert!(typo.parse::<Guardable>().unwrap_err().contains(meant), "{typo}");
        }
        assert!("GET".parse::<Guardable>().unwrap_err().contains("never guarded"));
    }

    #[test]
    fn a_choice_is_read_as_it_is_written() {
        assert_eq!("stripe".parse(), Ok(Preset::Stripe));
        assert_eq!(Preset::Stripe.to_string(), "stripe");
        assert!("jason".parse::<Sameness>().unwrap_err().contains("'json'"));
    }
}
