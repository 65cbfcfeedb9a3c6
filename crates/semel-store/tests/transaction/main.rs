//! The key in the caller's own transaction, on real databases.

mod operation;
#[cfg(feature = "sqlite")]
mod sqlite;
