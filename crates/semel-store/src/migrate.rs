//! Making a store's schema, and bringing it up to date.

use std::fmt;

use async_trait::async_trait;

use crate::ConnectError;

/// One numbered step of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Counts from 1; the schema's number after it was applied.
    pub number: u32,
    /// What it makes.
    pub name: &'static str,
    /// Its statements.
    pub sql: &'static str,
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}_{}", self.number, self.name)
    }
}

/// The schema of one store.
#[async_trait]
pub trait Migrate: fmt::Debug + Send + Sync {
    /// What [`migrate`](Migrate::migrate) would apply. Changes nothing.
    ///
    /// # Errors
    ///
    /// When the store cannot be read, is not Semel's, or is newer than this program.
    async fn pending(&self) -> Result<Vec<Migration>, ConnectError>;

    /// Applies what is pending, all or nothing, and gives what it applied. Safe to run from several processes at
    /// once: one applies, the others find nothing left to do.
    ///
    /// # Errors
    ///
    /// As [`pending`](Migrate::pending), and when the store cannot be written. Nothing was applied then.
    async fn migrate(&self) -> Result<Vec<Migration>, ConnectError>;

    /// Every migration as text, for people who apply their own.
    fn print(&self) -> String;
}

/// The schema of a store that has none.
#[derive(Debug)]
pub(crate) struct NoSchema;

#[async_trait]
impl Migrate for NoSchema {
    async fn pending(&self) -> Result<Vec<Migration>, ConnectError> {
        Ok(Vec::new())
    }

    async fn migrate(&self) -> Result<Vec<Migration>, ConnectError> {
        Ok(Vec::new())
    }

    fn print(&self) -> String {
        String::new()
    }
}
