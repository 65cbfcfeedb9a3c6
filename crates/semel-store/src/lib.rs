//! Durable stores for Semel: one module and one feature each.
//!
//! A store is a URL. [`connect`] opens it and says what it offers; [`migrations`] makes or updates its schema.
//!
//! | URL | Feature | Shared between machines |
//! |---|---|---|
//! | `sqlite://semel.db`, `sqlite:///var/lib/semel.db` | `sqlite` (default) | no |
//! | `memory:` | always there | no, and nothing survives the process |

mod connect;
mod migrate;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use connect::{ConnectError, Connected, Options, connect, migrations};
pub use migrate::{Migrate, Migration};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
