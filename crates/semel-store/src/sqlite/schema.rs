//! The schema: numbered SQL files, applied all or nothing.
//!
//! `PRAGMA user_version` is the schema's number, `PRAGMA application_id` tells Semel's files from others. Both are
//! in the file's header and belong to the transaction.
//!
//! A process that already runs is not told of a migration. So a migration leaves the statements of the program before
//! it working, or makes every one of them fail: then that program writes nothing more, and says that the store is
//! unavailable, until it is restarted as the new one. Half of them working would be the fault.
//!
//! Migration 2 is of the second kind: the table that schema 1 had is gone. A run that is under way in the old program
//! meanwhile cannot be settled. Its caller gets the true answer, marked as not recorded, and the key is unknown after
//! its lease, as after a crash.
//!
//! Migration 3 is of the first kind: it adds a table that the old program does not know.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use async_trait::async_trait;
use rusqlite::Connection;

use super::error::{Failure, Step};
use super::file::File;
use crate::connect::blocking;
use crate::{ConnectError, Migrate, Migration, Options};

/// `SEML`.
const APPLICATION_ID: i32 = 0x5345_4d4c;

const MIGRATIONS: [Migration; 3] = [
    Migration { number: 1, name: "records", sql: include_str!("../migrations/sqlite/0001_records.sql") },
    Migration {
        number: 2,
        name: "running_apart",
        sql: include_str!("../migrations/sqlite/0002_running_apart.sql"),
    },
    Migration { number: 3, name: "history", sql: include_str!("../migrations/sqlite/0003_history.sql") },
];

/// The highest schema that this program knows.
const KNOWN: u32 = MIGRATIONS.len() as u32;

/// The schema of one file.
#[derive(Debug)]
pub struct SqliteMigrations {
    path: PathBuf,
}

impl SqliteMigrations {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> SqliteMigrations {
        SqliteMigrations { path: path.into() }
    }

    fn file(&self) -> Result<File, Failure> {
        File::new(&self.path, Options::default().busy_for)
    }
}

#[async_trait]
impl Migrate for SqliteMigrations {
    /// A file that is missing is not made: everything is pending.
    async fn pending(&self) -> Result<Vec<Migration>, ConnectError> {
        let file = self.file()?;
        blocking(move || pending(&file)).await
    }

    async fn migrate(&self) -> Result<Vec<Migration>, ConnectError> {
        let file = self.file()?;
        blocking(move || migrate(&file)).await
    }

    fn print(&self) -> String {
        let mut text = String::from("PRAGMA journal_mode = WAL;\n");
        for migration in &MIGRATIONS {
            let _ = write!(
                text,
                "\n-- {migration}\nBEGIN IMMEDIATE;\n{}\n{}COMMIT;\n",
                migration.sql.trim_end(),
                header(migration.number)
            );
        }
        text
    }
}

/// Makes sure that the file has this program's schema.
pub(super) fn ready(file: &File, may_migrate: bool) -> Result<(), ConnectError> {
    if may_migrate {
        return migrate(file).map(drop);
    }
    if !file.exists()? {
        return Err(ConnectError::Absent { store: file.name() });
    }
    match pending(file)? {
        pending if pending.is_empty() => Ok(()),
        pending => Err(ConnectError::Behind { store: file.name(), pending }),
    }
}

fn pending(file: &File) -> Result<Vec<Migration>, ConnectError> {
    if !file.exists()? {
        return Ok(MIGRATIONS.to_vec());
    }
    let connection = file.open()?;
    Ok(newer_than(version(file, &connection)?))
}

/// Looks first without the lock, so that another program's file is not even put into WAL mode, and a current one
/// needs no lock at all.
fn migrate(file: &File) -> Result<Vec<Migration>, ConnectError> {
    file.make()?;
    let connection = file.open()?;
    if newer_than(version(file, &connection)?).is_empty() {
        return Ok(Vec::new());
    }
    file.for_writing(&connection)?;
    let until = Instant::now() + file.busy_for();
    file.patiently(until, || connection.execute_batch("BEGIN IMMEDIATE"))
        .map_err(|cause| Failure::new(file, Step::Begin, cause))?;
    // Not committed, the transaction ends with the connection, and nothing was applied.
    let pending = newer_than(version(file, &connection)?);
    announce(file, &connection, &pending);
    for migration in &pending {
        let sql = [migration.sql, &header(migration.number)].concat();
        connection.execute_batch(&sql).map_err(|cause| Failure::new(file, Step::Write, cause))?;
    }
    connection.execute_batch("COMMIT").map_err(|cause| Failure::new(file, Step::Commit, cause))?;
    Ok(pending)
}

/// From this size on a migration takes so long that somebody may wonder.
const LARGE: i64 = 256 << 20;

/// Bytes a second: what a migration that copies all rows takes. Ten million rows took 94 seconds.
const PACE: i64 = 60_000_000;

fn announce(file: &File, connection: &Connection, pending: &[Migration]) {
    let size =
        |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap_or_default();
    let bytes = size("page_count") * size("page_size");
    if bytes >= LARGE && !pending.is_empty() {
        let (file, seconds) = (file.name(), bytes / PACE);
        tracing::warn!(
            file,
            seconds,
            "the store is brought to a new schema: it takes about so long and twice its size again on the disk, \
             and meanwhile nobody writes"
        );
    }
}

fn newer_than(version: u32) -> Vec<Migration> {
    MIGRATIONS.into_iter().filter(|migration| migration.number > version).collect()
}

fn header(number: u32) -> String {
    format!("PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {number};\n")
}

/// The schema's number; 0 for an empty file.
fn version(file: &File, connection: &Connection) -> Result<u32, ConnectError> {
    let (application, number, tables) =
        look(connection).map_err(|cause| Failure::new(file, Step::Read, cause))?;
    match (application, u32::try_from(number)) {
        (APPLICATION_ID, Ok(number)) if number > KNOWN => {
            Err(ConnectError::Newer { store: file.name(), found: number, known: KNOWN })
        }
        (APPLICATION_ID, Ok(number)) => Ok(number),
        (0, Ok(0)) if tables == 0 => Ok(0),
        _ => Err(ConnectError::Foreign { store: file.name() }),
    }
}

/// One statement, so one snapshot: another process may be migrating right now.
fn look(connection: &Connection) -> rusqlite::Result<(i32, i32, u32)> {
    let sql = "SELECT count(*), (SELECT application_id FROM pragma_application_id), \
               (SELECT user_version FROM pragma_user_version) FROM sqlite_schema";
    connection.query_row(sql, [], |row| Ok((row.get(1)?, row.get(2)?, row.get(0)?)))
}
