//! The key in the caller's own transaction, on real databases.

#[cfg(all(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
mod ledger;
#[cfg(all(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
mod ledgers;
#[cfg(feature = "sqlx-mysql")]
mod mysql;
#[cfg(any(feature = "sqlite", feature = "sqlx-postgres", feature = "sqlx-mysql"))]
mod operation;
#[cfg(feature = "sqlx-postgres")]
mod postgres;
#[cfg(feature = "sqlx-postgres")]
mod postgres_prepared;
#[cfg(feature = "sqlx-postgres")]
mod postgres_schedules;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-mysql"))]
mod schedule;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_schedules;
