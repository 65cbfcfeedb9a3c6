//! A message, whatever the broker: what a source delivers, and what a sink is given.
//!
//! 1. What brokers call differently has one name here, and what a broker lacks is `None`: nothing is made up.
//! 2. **Headers are bytes with a name**, in their order, and a name may come twice. A broker with typed headers gives
//!    text for text, digits for numbers and `true` or `false` for what is either; what has no such form (tables,
//!    lists) is not in here, and stays on the broker's own copy.
//! 3. **A body is bytes.** Nothing here reads it as text or as JSON; whoever does is told when it is neither.
//! 4. `Debug` shows no body and no header's value: they may be secret.

use std::fmt;

use bytes::Bytes;

/// A message.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// The producer's name for it: RabbitMQ `message-id`, NATS `Nats-Msg-Id`. Kafka has none.
    pub id: Option<String>,
    /// RabbitMQ `correlation-id`.
    pub correlation_id: Option<String>,
    /// Who sent it, by its own word: RabbitMQ `app-id`.
    pub producer: Option<String>,
    /// What it is about: routing key, topic or subject.
    pub subject: String,
    /// What the broker itself keeps the order of: Kafka's record key.
    pub lane: Option<String>,
    /// The body's media type.
    pub content_type: Option<String>,
    /// Everything else that it carries.
    pub headers: Headers,
    /// What it says.
    pub body: Bytes,
}

/// Headers in the order in which they came.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, Bytes)>);

impl Message {
    /// A message about something, without a name.
    #[must_use]
    pub fn new(subject: impl Into<String>, body: impl Into<Bytes>) -> Message {
        Message { subject: subject.into(), body: body.into(), ..Message::default() }
    }

    /// The same message with a name.
    #[must_use]
    pub fn with_id(self, id: impl Into<String>) -> Message {
        Message { id: Some(id.into()), ..self }
    }

    /// The same message with one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Message {
        self.headers.append(name, value);
        self
    }
}

impl Headers {
    /// The first header of this name, if it is UTF-8. ASCII case does not count: brokers that carry HTTP's names
    /// change it.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(name)?).ok()
    }

    /// The first header of this name.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Adds a header behind the others.
    pub fn append(&mut self, name: impl Into<String>, value: impl Into<Bytes>) {
        self.0.push((name.into(), value.into()));
    }

    /// Puts one header in the place of all of this name.
    pub fn set(&mut self, name: &str, value: impl Into<Bytes>) {
        self.remove(name);
        self.append(name, value);
    }

    /// Takes away every header of this name.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("subject", &self.subject)
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_whatever_its_case_and_the_first_one_counts() {
        let message = Message::new("orders", "").with_header("Tenant", "a").with_header("tenant", "b");
        assert_eq!(message.headers.text("TENANT"), Some("a"));
        assert_eq!(message.headers.iter().count(), 2);
    }

    #[test]
    fn a_header_that_is_set_is_there_once() {
        let mut headers = Headers::default();
        headers.append("semel-attempts", "1");
        headers.set("Semel-Attempts", "2");
        assert_eq!((headers.text("semel-attempts"), headers.iter().count()), (Some("2"), 1));
    }

    #[test]
    fn what_is_no_text_is_still_bytes() {
        let message = Message::new("orders", "").with_header("raw", &b"\xff"[..]);
        assert_eq!(message.headers.text("raw"), None);
        assert_eq!(message.headers.bytes("raw").unwrap().as_ref(), b"\xff");
    }

    #[test]
    fn a_message_does_not_print_what_it_carries() {
        let message = Message::new("orders", "card 4111").with_header("authorization", "secret");
        let printed = format!("{message:?}");
        assert!(!printed.contains("4111") && !printed.contains("secret"), "{printed}");
    }
}
