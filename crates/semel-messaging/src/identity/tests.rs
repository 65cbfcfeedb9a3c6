use super::*;
use crate::memory::MemoryBroker;
use crate::sink::Sink;
use crate::source::Source;

fn naming(id: Id) -> Naming {
    let (consumer, missing) = ("billing".to_owned(), Missing::Reject);
    Naming { consumer, id, missing, source: None, entropy: Entropy::system() }
}

fn by_message_id() -> Naming {
    naming(Id::Field(Field::MessageId))
}

async fn delivered(message: Message) -> Delivery {
    let broker = MemoryBroker::new("orders");
    let source = broker.source();
    source.open(1).await.unwrap();
    broker.sink().send(&message).await.unwrap();
    source.receive().await.unwrap()
}

async fn name(naming: &Naming, message: Message) -> Result<Name, Unnamed> {
    naming.name(&delivered(message).await)
}

fn order(body: &str) -> Message {
    Message::new("orders", body.to_owned())
}

fn reason_of(named: Result<Name, Unnamed>) -> String {
    named.expect_err("it has no name").reason.as_str().to_owned()
}

#[tokio::test]
async fn m2_the_scope_is_the_consumer_so_that_each_subscriber_gets_its_copy() {
    let billing = name(&by_message_id(), order("").with_id("m1")).await.unwrap();
    let mail = Naming { consumer: "mail".into(), ..by_message_id() };
    let mail = name(&mail, order("").with_id("m1")).await.unwrap();
    assert_eq!(billing.scope.as_str(), "message:billing");
    assert_eq!(billing.key, mail.key);
    assert_ne!(billing.scope, mail.scope);
}

#[tokio::test]
async fn m2_the_same_id_from_two_producers_is_two_messages_where_the_source_is_in_the_scope() {
    let naming = Naming { source: Some(Field::Producer), ..by_message_id() };
    let from = |producer: &str| Message { producer: Some(producer.into()), ..order("").with_id("1") };
    let (shop, till) =
        (name(&naming, from("shop")).await.unwrap(), name(&naming, from("till")).await.unwrap());
    assert_eq!(shop.scope.as_str(), "message:billing:shop");
    assert_ne!(shop.scope, till.scope);
    assert_eq!(reason_of(name(&naming, order("").with_id("1")).await), reason::KEY_MISSING);
}

#[tokio::test]
async fn m2_a_missing_id_is_rejected_derived_hashed_or_generated_and_nothing_else() {
    assert_eq!(reason_of(name(&by_message_id(), order("a")).await), reason::KEY_MISSING);
    let with = |missing| Naming { missing, ..by_message_id() };
    let fields = vec![Field::Json("/order".into()), Field::Json("/event".into())];
    let derive = with(Missing::Derive(fields));
    let paid = name(&derive, order(r#"{"order":7,"event":"paid"}"#)).await.unwrap();
    let refunded = name(&derive, order(r#"{"order":7,"event":"refunded"}"#)).await.unwrap();
    assert_ne!(paid.key, refunded.key);
    assert_eq!(reason_of(name(&derive, order(r#"{"order":7}"#)).await), reason::KEY_MISSING);

    let hash = with(Missing::ContentHash);
    assert_eq!(name(&hash, order("a")).await.unwrap(), name(&hash, order("a")).await.unwrap());
    assert_ne!(name(&hash, order("a")).await.unwrap().key, name(&hash, order("b")).await.unwrap().key);

    let generate = with(Missing::Generate);
    assert_ne!(
        name(&generate, order("a")).await.unwrap().key,
        name(&generate, order("a")).await.unwrap().key
    );
}

#[tokio::test]
async fn c30_a_business_key_is_one_key_whatever_channel_tells_of_it() {
    let naming = naming(Id::Fields(vec![Field::Json("/order".into()), Field::Json("/event".into())]));
    let hook = name(&naming, order(r#"{"order":7,"event":"paid","via":"hook"}"#)).await.unwrap();
    let queue = name(&naming, order(r#"{"event":"paid","order":7}"#)).await.unwrap();
    assert_eq!(hook, queue);
    let null = order(r#"{"order":null,"event":"paid"}"#);
    assert_eq!(reason_of(name(&naming, null).await), reason::KEY_MISSING);
}

#[tokio::test]
async fn m4_the_fingerprint_is_of_the_payload() {
    let of = |body| async move { name(&by_message_id(), order(body).with_id("m1")).await.unwrap() };
    assert_eq!(of("a").await, of("a").await);
    assert_ne!(of("a").await.fingerprint, of("b").await.fingerprint);
}

#[tokio::test]
async fn c89_an_id_that_is_no_key_is_refused_and_not_cut() {
    for id in ["k".repeat(256), "a\u{7}b".to_owned()] {
        assert_eq!(reason_of(name(&by_message_id(), order("").with_id(id)).await), reason::KEY_MALFORMED);
    }
}

#[tokio::test]
async fn m2_a_cloud_event_is_its_source_and_its_id() {
    let naming = naming(Id::CloudEvents);
    let binary = |prefix: &str, source: &str| {
        order("")
            .with_header(format!("{prefix}id"), "1")
            .with_header(format!("{prefix}source"), source.to_owned())
    };
    let amqp = name(&naming, binary("cloudEvents:", "/shop")).await.unwrap();
    let kafka = name(&naming, binary("ce_", "/shop")).await.unwrap();
    let elsewhere = name(&naming, binary("ce_", "/till")).await.unwrap();
    assert_eq!(amqp.key, kafka.key);
    assert_ne!(kafka.key, elsewhere.key);
    let structured = Message {
        content_type: Some("application/cloudevents+json; charset=utf-8".into()),
        ..order(r#"{"id":"1","source":"/shop","data":1}"#)
    };
    assert_eq!(name(&naming, structured).await.unwrap().key, amqp.key);
    assert_eq!(reason_of(name(&naming, order("")).await), reason::KEY_MISSING);
}

#[tokio::test]
async fn m2_the_brokers_own_number_is_an_id_where_there_is_one() {
    let numbered = Delivery { number: Some("orders/0/17".into()), ..delivered(order("")).await };
    let named = naming(Id::Broker).name(&numbered).unwrap();
    assert_eq!(named.key.as_str(), "orders/0/17");
    assert_eq!(reason_of(naming(Id::Broker).name(&delivered(order("")).await)), reason::KEY_MISSING);
}
