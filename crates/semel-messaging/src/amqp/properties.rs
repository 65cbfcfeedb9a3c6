//! A message as AMQP writes it, and back.

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use semel::BoxError;

use super::moved::{EXCHANGE, SUBJECT};
use crate::message::{Headers, Message};

const PERSISTENT: u8 = 2;

/// The properties of a message to be sent.
///
/// # Errors
///
/// When AMQP has no room for one of them: 255 bytes for a property or a header's name.
pub(super) fn encode(message: &Message) -> Result<BasicProperties, BoxError> {
    let mut table = FieldTable::default();
    for (name, value) in message.headers.iter() {
        table.insert(short(name)?, AMQPValue::LongString(value.to_vec().into()));
    }
    let mut properties = BasicProperties::default().with_delivery_mode(PERSISTENT).with_headers(table);
    if let Some(id) = &message.id {
        properties = properties.with_message_id(short(id)?);
    }
    if let Some(id) = &message.correlation_id {
        properties = properties.with_correlation_id(short(id)?);
    }
    if let Some(producer) = &message.producer {
        properties = properties.with_app_id(short(producer)?);
    }
    if let Some(kind) = &message.content_type {
        properties = properties.with_content_type(short(kind)?);
    }
    Ok(properties)
}

/// A message that was delivered.
pub(super) fn decode(routing_key: &ShortString, properties: &BasicProperties, body: Bytes) -> Message {
    let text = |property: &Option<ShortString>| property.as_ref().map(ToString::to_string);
    let mut headers = Headers::default();
    for (name, value) in properties.headers().iter().flat_map(|table| table.inner()) {
        if let Some(value) = plain(value) {
            headers.append(name.as_str(), value);
        }
    }
    let subject = headers.text(SUBJECT).map_or_else(|| routing_key.to_string(), str::to_owned);
    headers.remove(SUBJECT);
    headers.remove(EXCHANGE);
    Message {
        id: text(properties.message_id()),
        correlation_id: text(properties.correlation_id()),
        producer: text(properties.app_id()),
        subject,
        lane: None,
        content_type: text(properties.content_type()),
        headers,
        body,
    }
}

/// Text as it is, numbers as digits, truth as a word; what has no such form has none.
fn plain(value: &AMQPValue) -> Option<Bytes> {
    let text = match value {
        AMQPValue::LongString(text) => return Some(Bytes::copy_from_slice(text.as_bytes())),
        AMQPValue::ByteArray(bytes) => return Some(Bytes::copy_from_slice(bytes.as_slice())),
        AMQPValue::ShortString(text) => text.to_string(),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Timestamp(value) => value.to_string(),
        _ => return None,
    };
    Some(text.into())
}

pub(super) fn short(text: &str) -> Result<ShortString, BoxError> {
    ShortString::try_new(text).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_amqp_has_no_room_for_is_refused_and_not_cut() {
        assert!(encode(&Message::new("q", "").with_id("i".repeat(255))).is_ok());
        assert!(encode(&Message::new("q", "").with_id("i".repeat(256))).is_err());
        assert!(encode(&Message::new("q", "").with_header("h".repeat(256), "")).is_err());
    }

    #[test]
    fn typed_headers_are_read_as_text_and_tables_are_left_out() {
        let mut table = FieldTable::default();
        table.insert("number".into(), AMQPValue::LongLongInt(-7));
        table.insert("yes".into(), AMQPValue::Boolean(true));
        table.insert("table".into(), AMQPValue::FieldTable(FieldTable::default()));
        table.insert(SUBJECT.into(), AMQPValue::LongString("orders.paid".into()));
        let properties = BasicProperties::default().with_headers(table);
        let message = decode(&"queue".into(), &properties, Bytes::new());
        assert_eq!(message.headers.text("number"), Some("-7"));
        assert_eq!(message.headers.text("yes"), Some("true"));
        assert_eq!(message.headers.iter().count(), 2);
        assert_eq!(message.subject, "orders.paid");
    }
}
