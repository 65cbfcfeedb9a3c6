//! sqlx 0.9. Only single statements on the caller's connection: its nested `begin` is not safe to cancel.

use async_trait::async_trait;
use mysql_async::Value;
use sqlx::mysql::{MySql, MySqlConnection, MySqlDatabaseError, MySqlRow};
use sqlx::{Row, Transaction, TypeInfo, ValueRef};

use super::{Handle, Refusal};

#[async_trait]
impl Handle for Transaction<'_, MySql> {
    async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Refusal> {
        rows(self, sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        sqlx::raw_sql(sql).execute(&mut **self).await.map(drop).map_err(refusal)
    }
}

#[async_trait]
impl Handle for MySqlConnection {
    async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Refusal> {
        rows(self, sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        sqlx::raw_sql(sql).execute(self).await.map(drop).map_err(refusal)
    }
}

async fn rows(
    connection: &mut MySqlConnection,
    sql: &'static str,
    values: Vec<Value>,
) -> Result<Vec<Vec<Value>>, Refusal> {
    let query = values.into_iter().fold(sqlx::query(sql), |query, value| match value {
        Value::Bytes(bytes) => query.bind(bytes),
        Value::Int(number) => query.bind(number),
        Value::UInt(number) => query.bind(number),
        _ => query.bind(None::<i64>),
    });
    let rows = query.fetch_all(connection).await.map_err(refusal)?;
    rows.iter().map(|row| read(row).map_err(refusal)).collect()
}

/// Each value as the column's type has it.
fn read(row: &MySqlRow) -> Result<Vec<Value>, sqlx::Error> {
    (0..row.len())
        .map(|at| {
            let raw = row.try_get_raw(at)?;
            if raw.is_null() {
                return Ok(Value::NULL);
            }
            let kind = raw.type_info();
            Ok(match kind.name() {
                name if name.ends_with("UNSIGNED") => Value::UInt(row.try_get_unchecked(at)?),
                name if name.ends_with("INT") || name == "BOOLEAN" => Value::Int(row.try_get_unchecked(at)?),
                _ => Value::Bytes(row.try_get_unchecked(at)?),
            })
        })
        .collect()
}

pub(super) fn refusal(error: sqlx::Error) -> Refusal {
    Refusal::new(code(&error), error)
}

pub(super) fn code(error: &sqlx::Error) -> Option<u16> {
    Some(error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number())
}
