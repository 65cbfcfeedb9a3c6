//! What a broker refuses is said at once, with what to do, and without a password.

use semel_messaging::amqp::RabbitMq;
use semel_messaging::{Source, SourceError};

use crate::support::Rabbit;

async fn opened(url: &str, queue: &str) -> SourceError {
    let source = RabbitMq::new(url).unwrap().queue(queue).unwrap();
    source.open(1).await.expect_err("it is refused")
}

fn refused(error: &SourceError, words: &[&str]) {
    let SourceError::Refused(said) = error else { panic!("{error:?}") };
    for word in words {
        assert!(said.contains(word), "{said}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_said_and_not_shown() {
    let rabbit = Rabbit::new().await;
    let url = rabbit.broker.url().replace("guest:guest", "guest:wrong-secret");
    let error = opened(&url, &rabbit.queue).await;
    refused(&error, &["ACCESS_REFUSED", "check user, password"]);
    assert!(!format!("{error} {error:?}").contains("wrong-secret"));
}

#[tokio::test]
async fn an_unknown_queue_is_said_and_not_made() {
    let rabbit = Rabbit::new().await;
    let error = opened(rabbit.broker.url(), "semel.no-such-queue").await;
    refused(&error, &["NOT_FOUND", "semel.no-such-queue", "check its name, or declare it"]);
}

#[tokio::test]
async fn an_unknown_virtual_host_is_said() {
    let rabbit = Rabbit::new().await;
    let error = opened(&rabbit.broker.url().replace("%2f", "nowhere"), &rabbit.queue).await;
    refused(&error, &["nowhere", "check the virtual host"]);
}

#[tokio::test]
async fn a_queue_with_other_settings_is_said() {
    let rabbit = Rabbit::new().await;
    let waiting = format!("{}.semel.1s", rabbit.queue);
    let source = rabbit.rabbit_source();
    source.open(1).await.unwrap();
    rabbit.send([rabbit.order("a")]).await;
    let delivery = source.receive().await.unwrap();
    delivery.receipt.later().unwrap().later(std::time::Duration::from_secs(1)).await.unwrap();
    source.close().await;
    let other = rabbit.rabbit().queue(&waiting).unwrap().declare();
    refused(&other.open(1).await.unwrap_err(), &["PRECONDITION_FAILED", "take it as it is"]);
}

#[tokio::test]
async fn nobody_there_is_said() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = opened(&format!("amqp://guest:secret@{free}/%2f"), "q").await;
    assert!(
        matches!(&error, SourceError::Unreachable { at, .. } if at.contains(&free.to_string())),
        "{error:?}"
    );
    assert!(!format!("{error} {error:?}").contains("secret"));
}
