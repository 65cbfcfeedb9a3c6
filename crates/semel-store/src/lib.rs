//! Durable stores for Semel: one module and one feature each.
//!
//! A store is a URL. [`connect`] opens it and says what it offers; [`migrations`] makes or updates its schema.
//!
//! | URL | Feature | Shared between machines |
//! |---|---|---|
//! | `sqlite://semel.db`, `sqlite:///var/lib/semel.db` | `sqlite` (default) | no |
//! | `postgres://user@host/database` | `postgres` | yes |
//! | `mysql://user@host/database` | `mysql` | yes |
//! | `redis://host/0`, `redis+cluster://host` | `redis` | yes |
//! | `memory:` | always there | no, and nothing survives the process |

mod connect;
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[cfg_attr(not(feature = "mysql"), allow(dead_code, reason = "each store takes what it needs"))]
mod flat;
mod migrate;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod order;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use connect::{ConnectError, Connected, Options, connect, migrations};
pub use migrate::{Migrate, Migration};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
