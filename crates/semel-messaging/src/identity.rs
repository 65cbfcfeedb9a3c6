//! What a message is called: the key, the scope and the fingerprint that it is claimed under.
//!
//! 1. **The key is computed once**, when the message arrives, and is the same to the end: a handler gets the message
//!    and cannot change what it is settled under (C102).
//! 2. **The scope is the consumer's name**, so that two subscribers each get their copy (C69): `message:NAME`. Where ids
//!    are unique only per producer, the source is in it too: `message:NAME:SOURCE`.
//! 3. **What is missing is never guessed.** [`Missing`] is one explicit choice; the default is a dead letter with the
//!    reason `key-missing`. [`Missing::Generate`] protects against nothing: it is for the audit only.
//! 4. **An id that is no key is refused**, not cut: `key-malformed` (C89).
//! 5. **The fingerprint is of the body**: the same id with another payload is no duplicate (M4). A key that is made of
//!    the message's own fields says by itself what is the same: two channels may tell of one fact in two ways (C30), so
//!    for [`Id::Fields`] the fingerprint is of nothing but the key.
//! 6. CloudEvents are identified by `source` and `id` together (CloudEvents 1.0, "id"), in the headers of the broker's
//!    binding or in a structured JSON body.

use semel::{Algorithm, Cause, Entropy, Fingerprint, Key, Scope};

use crate::field::Field;
use crate::grave::reason;
use crate::message::Message;
use crate::source::Delivery;

/// Where the id of a message comes from (M2).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Id {
    /// One field, as it is.
    Field(Field),
    /// A business key: the values of these fields, together.
    Fields(Vec<Field>),
    /// The broker's own number for it, where it has one. It protects against redelivery, not against a producer that
    /// sends twice.
    Broker,
    /// The id and the source of a CloudEvent.
    CloudEvents,
}

/// What becomes of a message without an id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Missing {
    /// A dead letter, reason `key-missing`.
    #[default]
    Reject,
    /// These fields are its id, together.
    Derive(Vec<Field>),
    /// Its subject and body are its id. Two orders that read alike are one, then.
    ContentHash,
    /// A new id for each delivery, for the audit. **Nothing is recognised as a duplicate.**
    Generate,
}

/// How messages are named.
#[derive(Debug, Clone)]
pub(crate) struct Naming {
    pub(crate) consumer: String,
    pub(crate) id: Id,
    pub(crate) missing: Missing,
    pub(crate) source: Option<Field>,
    pub(crate) entropy: Entropy,
}

/// What a message is claimed under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) scope: Scope,
    /// Of the record in the handler's transaction, which may be in the same store.
    pub(crate) inbox: Scope,
    pub(crate) key: Key,
    pub(crate) fingerprint: Fingerprint,
}

/// A message that cannot be named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unnamed {
    pub(crate) reason: Cause,
    pub(crate) said: String,
}

impl Naming {
    pub(crate) fn name(&self, delivery: &Delivery) -> Result<Name, Unnamed> {
        let message = &delivery.message;
        let (scope, inbox) = (self.scope("message", message)?, self.scope("inbox", message)?);
        let by_fields = matches!(self.id, Id::Fields(_));
        let (key, says_all) = match self.id(delivery)? {
            Some(key) => (key, by_fields),
            None => self.made_up(message)?,
        };
        let builder = Fingerprint::builder(Algorithm::EXACT).part(b"message");
        let body = (!says_all).then_some(message.body.as_ref());
        Ok(Name { scope, inbox, key, fingerprint: builder.optional(body).finish() })
    }

    fn scope(&self, surface: &str, message: &Message) -> Result<Scope, Unnamed> {
        let Some(field) = &self.source else { return self.scope_named(surface, None) };
        match field.of(message) {
            Some(source) => self.scope_named(surface, Some(&source)),
            None => Err(missing(format!("it has no source ({field:?})"))),
        }
    }

    fn scope_named(&self, surface: &str, source: Option<&str>) -> Result<Scope, Unnamed> {
        let parts = [surface, &self.consumer].into_iter().chain(source);
        Scope::new(parts.collect::<Vec<_>>().join(":")).map_err(|error| malformed("source", &error))
    }

    fn id(&self, delivery: &Delivery) -> Result<Option<Key>, Unnamed> {
        let message = &delivery.message;
        let text = match &self.id {
            Id::Field(field) => field.of(message),
            Id::Fields(fields) => return Ok(together(fields, message)),
            Id::Broker => delivery.number.clone(),
            Id::CloudEvents => {
                return Ok(cloud_event(message).map(|(source, id)| Key::derived([source, id])));
            }
        };
        text.map(|text| Key::new(text).map_err(|error| malformed("id", &error))).transpose()
    }

    /// The key of a message without an id, and whether that says all of what it is.
    fn made_up(&self, message: &Message) -> Result<(Key, bool), Unnamed> {
        match &self.missing {
            Missing::Reject => Err(missing(format!("it has no id ({:?})", self.id))),
            Missing::Derive(fields) => together(fields, message)
                .map(|key| (key, true))
                .ok_or_else(|| missing(format!("it has no id ({:?}), and not all of {fields:?}", self.id))),
            Missing::ContentHash => {
                Ok((Key::derived([message.subject.as_bytes(), message.body.as_ref()]), true))
            }
            Missing::Generate => {
                let drawn = [self.entropy.next(), self.entropy.next()].map(u64::to_be_bytes);
                Ok((Key::derived(drawn), true))
            }
        }
    }
}

/// A key of all of these, or none: half of them would be another message's key.
fn together(fields: &[Field], message: &Message) -> Option<Key> {
    let values: Option<Vec<String>> = fields.iter().map(|field| field.of(message)).collect();
    values.filter(|values| !values.is_empty()).map(Key::derived)
}

/// Source and id of a CloudEvent: the attribute's prefix is `cloudEvents:` or `cloudEvents_` in AMQP (the binding, §3.1),
/// `ce_` in Kafka and `ce-` in NATS and HTTP.
fn cloud_event(message: &Message) -> Option<(String, String)> {
    let header = |name: &str| {
        let prefixes = ["cloudEvents:", "cloudEvents_", "ce_", "ce-"];
        prefixes.iter().find_map(|prefix| Field::Header(format!("{prefix}{name}")).of(message))
    };
    let is_structured =
        message.content_type.as_deref().is_some_and(|kind| kind.starts_with("application/cloudevents+json"));
    let attribute = |name: &str| match is_structured {
        true => Field::Json(format!("/{name}")).of(message),
        false => header(name),
    };
    Some((attribute("source")?, attribute("id")?))
}

fn missing(said: String) -> Unnamed {
    Unnamed { reason: Cause::new(reason::KEY_MISSING), said }
}

fn malformed(what: &str, error: &semel::KeyError) -> Unnamed {
    Unnamed { reason: Cause::new(reason::KEY_MALFORMED), said: format!("its {what} is no key: {error}") }
}

#[cfg(test)]
mod tests;
