//! The program as a user starts it, with a real RabbitMQ and a real PostgreSQL.

use std::process::{Child, Command};
use std::time::Duration;

use semel_messaging::amqp::RabbitMq;
use semel_messaging::{Grave, Message, Sink, Source};
use sqlx::{Connection, PgConnection, Row};

struct Service(Child);

impl Service {
    fn start(broker: &str, database: &str) -> Service {
        let command = Command::new(env!("CARGO_BIN_EXE_orders-rabbitmq")).args([broker, database]).spawn();
        Service(command.expect("the program starts"))
    }

    fn kill(&mut self) {
        self.0.kill().expect("it is killed");
        self.0.wait().expect("it has ended");
    }

    /// As a supervisor does.
    fn stop(mut self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("a signal").success());
        assert!(self.0.wait().expect("it has ended").success(), "it ends in good order");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn order(id: &str, item: &str, count: i64) -> Message {
    Message::new("orders", format!(r#"{{"item": "{item}", "count": {count}}}"#))
        .with_id(id)
        .with_header("customer", "c-7")
}

/// Numbers and counts, once there are so many; tables that are not there yet are none.
async fn booked(database: &str, rows_min: usize) -> Vec<(String, i64)> {
    let booked = async {
        loop {
            let mut connection = PgConnection::connect(database).await.expect("a connection");
            let rows =
                sqlx::query("SELECT number, count FROM booked ORDER BY number").fetch_all(&mut connection);
            let rows = rows.await.unwrap_or_default();
            if rows.len() >= rows_min {
                return rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), booked).await.expect("they are booked within a minute")
}

#[tokio::test]
async fn each_order_is_booked_once_and_what_is_sold_out_is_a_dead_letter() {
    let (broker, database) = (semel_testbed::Rabbitmq::start().await, semel_testbed::postgres().await);
    let (broker, database) = (broker.url(), database.url().to_owned());
    let mut service = Service::start(&broker, &database);
    // The queue is there from when the tables are.
    let sink = RabbitMq::new(&broker).unwrap().sink("").unwrap();
    let first = order("o-1", "lamp", 2);
    while sink.send(&first).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    booked(&database, 1).await;
    service.kill();
    for message in [&first, &order("o-2", "chair", 5), &order("o-3", "chair", 1), &first] {
        sink.send(message).await.expect("it is sent");
    }
    let service = Service::start(&broker, &database);
    let booked = booked(&database, 2).await;
    assert_eq!(booked, [("o-1".to_owned(), 2), ("o-3".to_owned(), 1)]);

    let dead = RabbitMq::new(&broker).unwrap().queue("orders.dead").unwrap();
    dead.open(1).await.expect("the dead letters are there");
    let dead_letter = dead.receive().await.expect("one of them").message.clone();
    assert_eq!(dead_letter.id.as_deref(), Some("o-2"));
    assert_eq!(dead_letter.headers.text(Grave::REASON), Some("rejected"));
    dead.close().await;
    service.stop();
}
