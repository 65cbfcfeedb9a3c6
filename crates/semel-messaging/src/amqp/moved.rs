//! A message on its way to another queue: what it keeps, and what would lead it astray.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::grave::Grave;

/// The routing key that the message was published with.
pub(super) const SUBJECT: &str = Grave::SUBJECT;
/// The exchange that it was published to.
pub(super) const EXCHANGE: &str = "semel-exchange";

/// What the broker writes itself, or would route copies by.
const ASTRAY: [&str; 5] = ["x-death", "x-delivery-count", "CC", "BCC", "x-delay"];

/// The properties of a copy, with where the message was published to, and `further` headers. Without expiration, which
/// would end it early, and without `user-id`, which the broker takes only from that user.
pub(super) fn copied(
    of: &BasicProperties,
    exchange: &ShortString,
    routing_key: &ShortString,
    further: impl IntoIterator<Item = (&'static str, String)>,
) -> BasicProperties {
    let text = |text: &ShortString| AMQPValue::LongString(text.as_str().into());
    let mut table = FieldTable::default();
    table.insert(SUBJECT.into(), text(routing_key));
    table.insert(EXCHANGE.into(), text(exchange));
    for (name, value) in of.headers().iter().flat_map(|table| table.inner()) {
        if !is_astray(name.as_str()) {
            table.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in further {
        table.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    kept(of).with_headers(table).with_delivery_mode(2)
}

fn is_astray(name: &str) -> bool {
    ASTRAY.contains(&name) || name.starts_with("x-first-death-") || name.starts_with("x-last-death-")
}

type With = fn(BasicProperties, ShortString) -> BasicProperties;

fn kept(of: &BasicProperties) -> BasicProperties {
    let mut copy = BasicProperties::default();
    let properties: [(&Option<ShortString>, With); 7] = [
        (of.content_type(), BasicProperties::with_content_type),
        (of.content_encoding(), BasicProperties::with_content_encoding),
        (of.correlation_id(), BasicProperties::with_correlation_id),
        (of.reply_to(), BasicProperties::with_reply_to),
        (of.message_id(), BasicProperties::with_message_id),
        (of.kind(), BasicProperties::with_type),
        (of.app_id(), BasicProperties::with_app_id),
    ];
    for (value, with) in properties {
        if let Some(value) = value {
            copy = with(copy, value.clone());
        }
    }
    if let Some(priority) = of.priority() {
        copy = copy.with_priority(*priority);
    }
    if let Some(timestamp) = of.timestamp() {
        copy = copy.with_timestamp(*timestamp);
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_what_it_says_and_loses_what_would_lead_it_astray() {
        let mut table = FieldTable::default();
        let names = ["account", "CC", "BCC", "x-death", "x-first-death-queue", "x-delivery-count"];
        for name in names {
            table.insert(name.into(), AMQPValue::LongString("x".into()));
        }
        let of = BasicProperties::default()
            .with_headers(table)
            .with_message_id("m-1".into())
            .with_user_id("shop".into())
            .with_expiration("1000".into())
            .with_priority(7);
        let copy =
            copied(&of, &"events".into(), &"orders.paid".into(), [("semel-reason", "rejected".into())]);
        assert_eq!(copy.message_id().as_ref().map(ShortString::as_str), Some("m-1"));
        assert_eq!((copy.user_id(), copy.expiration(), *copy.priority()), (&None, &None, Some(7)));
        let names: Vec<&str> =
            copy.headers().as_ref().unwrap().inner().keys().map(ShortString::as_str).collect();
        assert_eq!(names, ["account", "semel-exchange", "semel-reason", "semel-subject"]);
    }

    #[test]
    fn a_copy_of_a_copy_still_knows_where_it_was_published_to() {
        let of = BasicProperties::default();
        let once = copied(&of, &"events".into(), &"orders.paid".into(), []);
        let twice = copied(&once, &"".into(), &"billing".into(), []);
        assert_eq!(twice, once);
    }
}
