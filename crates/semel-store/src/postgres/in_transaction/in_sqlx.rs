//! sqlx 0.9. Only single statements on the caller's connection: its nested `begin` is not safe to cancel.

use async_trait::async_trait;
use sqlx::postgres::{PgConnection, PgRow, Postgres};
use sqlx::{Connection, Row, Transaction};

use super::{Handle, Refusal, Reply, Value, reply};

#[async_trait]
impl Handle for Transaction<'_, Postgres> {
    async fn rows(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Reply>, Refusal> {
        rows(self, sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        sqlx::raw_sql(sql).execute(&mut **self).await.map(drop).map_err(refusal)
    }
}

#[async_trait]
impl Handle for PgConnection {
    async fn rows(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Reply>, Refusal> {
        rows(self, sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        sqlx::raw_sql(sql).execute(self).await.map(drop).map_err(refusal)
    }
}

/// Prepared for good only where the caller has others so: behind a pooler in transaction mode nobody may have any, and
/// within the transaction a statement without a name is safe.
async fn rows(
    connection: &mut PgConnection,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<Vec<Reply>, Refusal> {
    let query = values.iter().fold(sqlx::query(sql), |query, value| match *value {
        Value::Text(text) => query.bind(text),
        Value::Bytes(bytes) => query.bind(bytes),
        Value::MaybeBytes(bytes) => query.bind(bytes),
        Value::Number(number) => query.bind(number),
        Value::Flag(flag) => query.bind(flag),
        Value::Texts(texts) => query.bind(texts),
        Value::ByteStrings(strings) => query.bind(strings),
        Value::Numbers(numbers) => query.bind(numbers),
        Value::Flags(flags) => query.bind(flags),
    });
    let is_kept = connection.cached_statements_size() > 0;
    let rows = query.persistent(is_kept).fetch_all(connection).await.map_err(refusal)?;
    rows.iter().map(|row| read(row).map_err(refusal)).collect()
}

fn read(row: &PgRow) -> Result<Reply, sqlx::Error> {
    if row.len() == 1 {
        return Ok(Reply::default());
    }
    Ok(reply!(row))
}

pub(super) fn refusal(error: sqlx::Error) -> Refusal {
    let code = code(&error);
    Refusal::new(code.as_deref(), error)
}

pub(super) fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}
