//! RabbitMQ passes the suite, and what can happen to a broker and to the way to it.

#![cfg(feature = "amqp")]

mod consumer;
mod faults;
mod redrive;
mod refused;
mod support;

mod suite {
    use crate::support::Rabbit;
    semel_messaging::broker_suite!(Rabbit::new().await);
}
