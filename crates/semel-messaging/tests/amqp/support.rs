//! A queue on a broker, behind a proxy.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_messaging::amqp::{RabbitMq, RabbitSink, RabbitSource};
use semel_messaging::testing::Harness;
use semel_messaging::{Message, Sink, Source};
use semel_testbed::{Broker, Proxy, at_address, rabbitmq};

/// A queue of one's own on the shared broker.
pub(crate) struct Rabbit {
    pub(crate) broker: Broker,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) queue: String,
}

impl Rabbit {
    pub(crate) async fn new() -> Rabbit {
        let broker = rabbitmq().await;
        let (proxy, queue) = (Arc::new(Proxy::before(address(broker.url()))), broker.name("orders"));
        let rabbit = Rabbit { broker, proxy, queue };
        // Made before anything is sent.
        let source = rabbit.rabbit_source();
        source.open(1).await.expect("the queue is made");
        source.close().await;
        rabbit
    }

    /// Through the proxy.
    pub(crate) fn rabbit(&self) -> RabbitMq {
        RabbitMq::new(&at_address(self.broker.url(), self.proxy.addr())).expect("a URL")
    }

    pub(crate) fn rabbit_source(&self) -> RabbitSource {
        self.rabbit().queue(&self.queue).expect("a name").declare()
    }

    pub(crate) fn rabbit_sink(&self) -> RabbitSink {
        self.rabbit().sink("").expect("a name")
    }

    pub(crate) async fn send(&self, messages: impl IntoIterator<Item = Message>) {
        let sink = RabbitMq::new(self.broker.url()).expect("a URL").sink("").expect("a name");
        for message in messages {
            sink.send(&message).await.expect("it is sent");
        }
        sink.close().await;
    }

    pub(crate) fn order(&self, id: &str) -> Message {
        Message::new(self.queue.clone(), id.to_owned()).with_id(id)
    }
}

#[async_trait]
impl Harness for Rabbit {
    fn subject(&self) -> &str {
        &self.queue
    }

    async fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.rabbit_source())
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.rabbit_sink())
    }

    async fn cut(&self) {
        self.proxy.cut_all();
    }

    async fn dead(&self) -> Vec<Message> {
        drain(self.broker.url(), &format!("{}.dead", self.queue)).await
    }
}

/// Where a broker listens.
pub(crate) fn address(url: &str) -> SocketAddr {
    let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).expect("a URL");
    let host = authority.rsplit('@').next().expect("a host");
    host.to_socket_addrs().expect("host and port").next().expect("the host has an address")
}

/// Takes out of a queue what is in it now: a marker is sent behind that.
pub(crate) async fn drain(url: &str, queue: &str) -> Vec<Message> {
    let broker = RabbitMq::new(url).expect("a URL");
    let sink = broker.sink("").expect("a name");
    let marker = Message::new(queue, "").with_id("semel-marker");
    // A queue of a broker that has just been restarted takes its time.
    let sent = async { while sink.send(&marker).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), sent).await.expect("the marker is sent");
    sink.close().await;
    let source = broker.queue(queue).expect("a name");
    source.open(1_000).await.expect("the queue is there");
    let mut drained = Vec::new();
    loop {
        let delivery = tokio::time::timeout(Duration::from_secs(30), source.receive()).await;
        let delivery = delivery.expect("the marker comes").expect("the source gives deliveries");
        delivery.receipt.ack().await.expect("it is acknowledged");
        if delivery.message.id.as_deref() == Some("semel-marker") {
            break;
        }
        drained.push((*delivery.message).clone());
    }
    source.close().await;
    drained
}
