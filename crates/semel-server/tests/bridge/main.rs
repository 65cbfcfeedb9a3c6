//! `semel bridge` and `semel dlq` (M6, M11): the real program between a real RabbitMQ and a service that counts its
//! effects. The broker is that of `testbed/`.

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod dlq;
mod faults;
mod mapping;
mod mistakes;
mod page;
mod probing;
