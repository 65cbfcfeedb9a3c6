//! The schema: numbered SQL files.
//!
//! 1. `semel_schema` has a row for each migration that was applied; the highest number is the schema's.
//! 2. MySQL commits each statement that makes or changes a table by itself, so nothing here is all or nothing. Instead
//!    **every migration can be made again**: its statements say `IF NOT EXISTS`, and its number is written last. One that
//!    was cut off is found pending, and is repeated from its beginning.
//! 3. Several processes take turns by `GET_LOCK`, which the server frees when its connection ends. Where that is no lock
//!    (some clusters), two that do the same at once do no harm, by rule 2.
//! 4. A process that already runs is not told of a migration. So a migration leaves the statements of the program before
//!    it working, or makes every one of them fail.

use std::fmt::Write as _;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Value;
use tokio::time::{Instant, timeout_at};

use super::address::Address;
use super::failure::{Cause, Failure, Step};
use super::link::Link;
use super::rows::Columns;
use crate::{ConnectError, Migrate, Migration, Options};

const MIGRATIONS: [Migration; 1] =
    [Migration { number: 1, name: "records", sql: include_str!("../migrations/mysql/0001_records.sql") }];

/// The highest schema that this program knows.
const KNOWN: u32 = MIGRATIONS.len() as u32;

/// What is in the database, and since when.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS semel_schema (\n    number     INT UNSIGNED  NOT NULL,\n    \
     name       VARBINARY(64) NOT NULL,\n    applied_at DATETIME(6)   NOT NULL,\n    PRIMARY KEY (number)\n\
     ) ENGINE = InnoDB DEFAULT CHARACTER SET = binary";

const VERSION: &str = "SELECT CAST(COALESCE(MAX(number), 0) AS SIGNED) FROM semel_schema";

/// Made again, it stays as it is.
const NOTE: &str =
    "INSERT IGNORE INTO semel_schema (number, name, applied_at) VALUES (?, ?, UTC_TIMESTAMP(6))";

/// One lock for each database, whose name may be longer than a lock's.
const LOCK: &str = "SELECT GET_LOCK(CONCAT('semel.', SHA1(DATABASE())), ?)";

/// How long a migration may take, and another process waits for it.
const MIGRATE_FOR: Duration = Duration::from_secs(600);

/// The schema of one database.
#[derive(Debug)]
pub struct MysqlMigrations {
    address: Address,
}

impl MysqlMigrations {
    pub(super) fn new(address: Address) -> MysqlMigrations {
        MysqlMigrations { address }
    }
}

#[async_trait]
impl Migrate for MysqlMigrations {
    async fn pending(&self) -> Result<Vec<Migration>, ConnectError> {
        pending(&self.address, Options::default().busy_for).await
    }

    /// Not all or nothing: MySQL commits each statement. After an error it is to be made again.
    async fn migrate(&self) -> Result<Vec<Migration>, ConnectError> {
        migrate(&self.address, Options::default().busy_for).await
    }

    fn print(&self) -> String {
        let mut text = format!("{TABLE};\n");
        for migration in &MIGRATIONS {
            let _ = write!(
                text,
                "\n-- {migration}\n{}\n\nINSERT IGNORE INTO semel_schema (number, name, applied_at)\n    VALUES ({}, \
                 '{}', UTC_TIMESTAMP(6));\n",
                migration.sql.trim_end(),
                migration.number,
                migration.name
            );
        }
        text
    }
}

/// Makes sure that the database has this program's schema.
pub(super) async fn ready(
    address: &Address,
    may_migrate: bool,
    busy_for: Duration,
) -> Result<(), ConnectError> {
    if may_migrate {
        return migrate(address, busy_for).await.map(drop);
    }
    match pending(address, busy_for).await? {
        pending if pending.is_empty() => Ok(()),
        pending => Err(ConnectError::Behind { store: address.name.to_string(), pending }),
    }
}

async fn pending(address: &Address, busy_for: Duration) -> Result<Vec<Migration>, ConnectError> {
    let until = Instant::now() + busy_for;
    let mut link = Link::open(address, until).await?;
    let version = within(&mut link, until, async |link| version(link).await).await?;
    link.close().await;
    newer_than(address, version)
}

/// Looks first without the lock: a program without the right to make tables may use a database that is up to date.
async fn migrate(address: &Address, busy_for: Duration) -> Result<Vec<Migration>, ConnectError> {
    if pending(address, busy_for).await?.is_empty() {
        return Ok(Vec::new());
    }
    let mut link = Link::open(address, Instant::now() + busy_for).await?;
    let until = Instant::now() + MIGRATE_FOR;
    let applied = within(&mut link, until, async |link| apply(link, address).await).await?;
    link.close().await;
    applied
}

/// Whoever had the lock before has applied everything.
async fn apply(link: &mut Link, address: &Address) -> Result<Result<Vec<Migration>, ConnectError>, Failure> {
    let seconds = MIGRATE_FOR.as_secs();
    let granted = link.rows(LOCK, vec![seconds.into()], Step::Read).await?;
    if granted.first().is_none_or(|row| row.first() != Some(&Value::Int(1))) {
        return Err(link.failure(Step::Read, Cause::Late));
    }
    let pending = match newer_than(address, version(link).await?) {
        Ok(pending) => pending,
        refused => return Ok(refused),
    };
    link.run(TABLE, Step::Read).await?;
    for migration in &pending {
        for statement in statements(migration.sql) {
            link.run(statement, Step::Read).await?;
        }
        let note = vec![migration.number.into(), migration.name.into()];
        link.write(NOTE, note, Step::Commit).await?;
    }
    Ok(Ok(pending))
}

/// No call of the driver is cancelled without its connection.
async fn within<T>(
    link: &mut Link,
    until: Instant,
    work: impl AsyncFnOnce(&mut Link) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let silent = link.failure(Step::Read, Cause::Silent);
    match timeout_at(until, work(link)).await {
        Ok(done) => done,
        Err(_) => {
            link.give_up();
            Err(silent)
        }
    }
}

/// The schema's number; 0 where there is none.
async fn version(link: &mut Link) -> Result<u32, Failure> {
    let rows = match link.rows(VERSION, Vec::new(), Step::Read).await {
        Ok(rows) => rows,
        Err(failure) if failure.is_no_table() => return Ok(0),
        Err(failure) => return Err(failure),
    };
    let number = rows.into_iter().next().map_or(Ok(0), |row| Columns(row.into_iter()).small("number"));
    number.map_err(|what| link.failure(Step::Read, Cause::Unreadable(what)))
}

fn newer_than(address: &Address, version: u32) -> Result<Vec<Migration>, ConnectError> {
    if version > KNOWN {
        return Err(ConnectError::Newer { store: address.name.to_string(), found: version, known: KNOWN });
    }
    Ok(MIGRATIONS.into_iter().filter(|migration| migration.number > version).collect())
}

/// The statements of a file; each ends with a semicolon at the end of a line.
fn statements(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(";\n").map(str::trim).filter(|statement| !statement.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_of_a_migration_can_be_made_again() {
        for migration in &MIGRATIONS {
            let mut count = 0;
            for statement in statements(migration.sql) {
                let text: Vec<&str> =
                    statement.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
                assert!(
                    text.join("\n").trim_start().starts_with("CREATE TABLE IF NOT EXISTS "),
                    "{statement}"
                );
                count += 1;
            }
            assert_eq!(count, migration.sql.matches(';').count() - in_comments(migration.sql), "{migration}");
        }
    }

    fn in_comments(sql: &str) -> usize {
        let comments = sql.lines().filter_map(|line| line.split_once("--"));
        comments.map(|(_, comment)| comment.matches(';').count()).sum()
    }

    #[test]
    fn migrations_count_from_one() {
        for (at, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.number as usize, at + 1);
        }
    }
}
