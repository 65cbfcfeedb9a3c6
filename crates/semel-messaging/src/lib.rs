//! Messages that take effect once, however often a broker delivers them.
//!
//! Every broker redelivers: after a lost acknowledgement, a cut connection, a consumer that died. A [`Consumer`] claims
//! each message in a [`Store`](semel::Store) before its handler runs, so that a copy finds out what became of the first.
//! Start reading at [`consumer`]; what a broker has to do is in [`source`] and [`sink`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use semel::{MemoryStore, OnUnknown};
//! use semel_messaging::memory::MemoryBroker;
//! use semel_messaging::{Consumer, Failure, Field, Message, Sink, Work};
//!
//! async fn book(work: Work) -> Result<(), Failure> {
//!     let order = std::str::from_utf8(&work.message.body).map_err(Failure::permanent)?;
//!     println!("booking {order} as {}", work.key.as_str()); // an error by `?` is tried again
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let broker = MemoryBroker::new("orders");
//! # let (store, source) = (Arc::new(MemoryStore::new()), Arc::new(broker.source()));
//! let consumer = Consumer::builder("billing", OnUnknown::Park)
//!     .lane(Field::Header("account".into()))
//!     .build(store, source, book)?;
//!
//! // The producer sends it twice. It is booked once, and both are acknowledged.
//! let order = Message::new("orders", "order 7").with_id("m-1").with_header("account", "a-42");
//! broker.sink().send(&order).await?;
//! broker.sink().send(&order).await?;
//! # let empty = async { while broker.left() > 0 { tokio::task::yield_now().await } };
//! consumer.run(empty).await?; // usually: until a signal says to stop
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "amqp")]
pub mod amqp;
pub mod consumer;
mod field;
mod grave;
mod identity;
pub mod inbox;
pub mod memory;
mod message;
pub mod observe;
pub mod redrive;
pub mod sink;
pub mod source;
#[cfg(feature = "testing")]
pub mod testing;

pub use consumer::{Builder, Consumer, Drained, Failure, First, Handler, Retry, Together, Unfit, Work};
pub use field::Field;
pub use grave::{Grave, reason};
pub use identity::{Id, Missing};
pub use inbox::Inbox;
pub use message::{Headers, Message};
pub use redrive::{DeadLetters, Errand, Fate, Look, RedriveError};
pub use sink::{SendError, Sent, Sink};
pub use source::{Abilities, Deadline, Delivery, Later, Order, Receipt, ReceiptError, Source, SourceError};

/// The page for users: its examples compile.
#[cfg(all(doctest, feature = "amqp"))]
#[doc = include_str!("../../../docs/consumers.md")]
struct Page;
