//! The schema: numbered SQL files, applied all or nothing under one lock of the database's.
//!
//! Which ones were applied stands in `semel.migrations`. A process that already runs is not told of a migration, so a
//! migration leaves the statements of the program before it working: several gateways share the database and are not
//! restarted at one moment.

use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::Client;

use super::address::Address;
use super::error::Failure;
use super::session;
use crate::{ConnectError, Migrate, Migration};

const RECORDS: Migration =
    Migration { number: 1, name: "records", sql: include_str!("../migrations/postgres/0001_records.sql") };
const FUNCTIONS: Migration = Migration {
    number: 2,
    name: "functions",
    sql: include_str!("../migrations/postgres/0002_functions.sql"),
};

const ONCE: Migration =
    Migration { number: 3, name: "once", sql: include_str!("../migrations/postgres/0003_once.sql") };

const INBOX: Migration =
    Migration { number: 4, name: "inbox", sql: include_str!("../migrations/postgres/0004_inbox.sql") };

const MIGRATIONS: [Migration; 4] = [RECORDS, FUNCTIONS, ONCE, INBOX];

/// Those that make functions, and what needs them: passed over with `functions=off`.
const ONLY_FUNCTIONS: [u32; 3] = [2, 3, 4];

/// The highest schema that this program knows.
const KNOWN: u32 = MIGRATIONS.len() as u32;

/// Taken by whoever migrates, until its transaction ends. `SEMEL` in ASCII.
const LOCK: &str = "SELECT pg_advisory_xact_lock(357644977484)";

const CREATE_SCHEMA: &str = "CREATE SCHEMA semel";

const CREATE_MIGRATIONS: &str = "CREATE TABLE semel.migrations (\
     number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())";

/// One statement, so one snapshot: another process may be migrating right now. From the catalogue's tables:
/// `to_regclass` would answer from the session's memory, which waiting for the lock does not refresh.
const LOOK: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'semel'), \
     EXISTS (SELECT FROM pg_class WHERE relname = 'migrations' AND relnamespace = there.oid), \
     EXISTS (SELECT FROM pg_class WHERE relname = 'records' AND relnamespace = there.oid), \
     pg_is_in_recovery(), current_setting('server_encoding'), \
     current_setting('fsync') = 'off' OR current_setting('synchronous_commit') = 'off' \
     FROM (SELECT max(oid::text::bigint)::oid AS oid FROM pg_namespace WHERE nspname = 'semel') AS there";

/// The schema of one database.
pub(super) struct Schema {
    address: Arc<Address>,
}

/// What is there.
pub(super) struct Found {
    has_schema: bool,
    has_migrations: bool,
    applied: Vec<u32>,
    /// Whether the server answers before its log is on the disk.
    pub(super) lossy: bool,
}

impl Schema {
    pub(super) fn new(address: Arc<Address>) -> Schema {
        Schema { address }
    }

    /// Makes sure that the database has this program's schema.
    pub(super) async fn ready(&self, client: &mut Client, may_migrate: bool) -> Result<Found, ConnectError> {
        if may_migrate {
            self.apply(client).await?;
        }
        let found = self.look(client).await?;
        match self.newer(&found)? {
            pending if pending.is_empty() => Ok(found),
            pending => Err(ConnectError::Behind { store: self.address.name(), pending }),
        }
    }

    async fn look(&self, client: &Client) -> Result<Found, ConnectError> {
        let row = client.query_typed_one(LOOK, &[]).await.map_err(Failure::before_commit)?;
        let (has_schema, has_migrations, has_records): (bool, bool, bool) =
            (row.get(0), row.get(1), row.get(2));
        if row.get(3) {
            let text = "this server is a standby: name the primary, or all hosts of the cluster";
            return Err(ConnectError::Unavailable(text.into()));
        }
        let encoding: String = row.get(4);
        if encoding != "UTF8" {
            let text = format!("the database's encoding is {encoding}: Semel needs one in UTF8");
            return Err(ConnectError::Unavailable(text.into()));
        }
        if has_records && !has_migrations {
            return Err(ConnectError::Foreign {
                store: format!("the schema semel of {}", self.address.name()),
            });
        }
        let mut applied = Vec::new();
        if has_migrations {
            let rows = client.query_typed("SELECT number FROM semel.migrations", &[]).await;
            for row in rows.map_err(Failure::before_commit)? {
                applied.push(u32::try_from(row.get::<_, i32>(0)).unwrap_or(u32::MAX));
            }
        }
        Ok(Found { has_schema, has_migrations, applied, lossy: row.get(5) })
    }

    /// What is pending; an error if the schema is newer than this program.
    fn newer(&self, found: &Found) -> Result<Vec<Migration>, ConnectError> {
        if let Some(number) = found.applied.iter().copied().max().filter(|number| *number > KNOWN) {
            return Err(ConnectError::Newer { store: self.address.name(), found: number, known: KNOWN });
        }
        let is_wanted = |migration: &Migration| {
            !found.applied.contains(&migration.number)
                && (self.address.functions || !ONLY_FUNCTIONS.contains(&migration.number))
        };
        Ok(MIGRATIONS.into_iter().filter(is_wanted).collect())
    }

    /// All in one transaction: whoever dies before its commit has applied nothing. Looks first without the lock, which
    /// somebody may hold for long.
    async fn apply(&self, client: &mut Client) -> Result<Vec<Migration>, ConnectError> {
        if self.newer(&self.look(client).await?)?.is_empty() {
            return Ok(Vec::new());
        }
        let transaction = client.transaction().await.map_err(Failure::before_commit)?;
        transaction.batch_execute(LOCK).await.map_err(Failure::before_commit)?;
        let found = self.look(transaction.client()).await?;
        let pending = self.newer(&found)?;
        let mut steps = Vec::new();
        if !found.has_schema {
            steps.push(CREATE_SCHEMA.to_owned());
        }
        if !found.has_migrations {
            steps.push(CREATE_MIGRATIONS.to_owned());
        }
        for migration in &pending {
            steps.push(migration.sql.to_owned());
            steps.push(note(migration));
        }
        for step in &steps {
            transaction.batch_execute(step).await.map_err(Failure::before_commit)?;
        }
        transaction.commit().await.map_err(Failure::server)?;
        Ok(pending)
    }
}

fn note(migration: &Migration) -> String {
    format!("INSERT INTO semel.migrations (number, name) VALUES ({}, '{}')", migration.number, migration.name)
}

#[async_trait]
impl Migrate for Schema {
    async fn pending(&self) -> Result<Vec<Migration>, ConnectError> {
        let client = session::connect(&self.address).await?;
        self.newer(&self.look(&client).await?)
    }

    async fn migrate(&self) -> Result<Vec<Migration>, ConnectError> {
        let mut client = session::connect(&self.address).await?;
        self.apply(&mut client).await
    }

    fn print(&self) -> String {
        let mut text = format!("BEGIN;\n{LOCK};\n{CREATE_SCHEMA};\n{CREATE_MIGRATIONS};\n");
        for migration in &MIGRATIONS {
            if self.address.functions || !ONLY_FUNCTIONS.contains(&migration.number) {
                let _ =
                    write!(text, "\n-- {migration}\n{}\n{};\n", migration.sql.trim_end(), note(migration));
            }
        }
        text.push_str("\nCOMMIT;\n");
        text
    }
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schema").field("database", &self.address.name()).finish_non_exhaustive()
    }
}
