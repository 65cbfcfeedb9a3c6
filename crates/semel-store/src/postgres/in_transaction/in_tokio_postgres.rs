//! tokio-postgres. Cancelling a call is harmless to the connection; the transaction is then rolled back by its handle.

use async_trait::async_trait;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, Row, Transaction};

use super::{Handle, Refusal, Reply, Value, reply};

#[async_trait]
impl Handle for Transaction<'_> {
    async fn rows(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Reply>, Refusal> {
        rows(self, sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        run(self, sql).await
    }
}

#[async_trait]
impl Handle for Client {
    async fn rows(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Reply>, Refusal> {
        rows(self, sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        run(self, sql).await
    }
}

/// One round trip: the statement carries its types, so nothing is prepared, and a pooler cannot mix it up.
pub(super) async fn rows(
    client: &(impl GenericClient + Sync),
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<Vec<Reply>, Refusal> {
    let rows = client.query_typed(sql, &parameters(values)).await.map_err(refusal)?;
    replies(&rows)
}

pub(super) fn parameters<'a>(values: &'a [Value<'_>]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    values
        .iter()
        .map(|value| match value {
            Value::Text(text) => (text as &(dyn ToSql + Sync), Type::TEXT),
            Value::Bytes(bytes) => (bytes as _, Type::BYTEA),
            Value::MaybeBytes(bytes) => (bytes as _, Type::BYTEA),
            Value::Number(number) => (number as _, Type::INT8),
            Value::Flag(flag) => (flag as _, Type::BOOL),
            Value::Texts(texts) => (texts as _, Type::TEXT_ARRAY),
            Value::ByteStrings(strings) => (strings as _, Type::BYTEA_ARRAY),
            Value::Numbers(numbers) => (numbers as _, Type::INT8_ARRAY),
            Value::Flags(flags) => (flags as _, Type::BOOL_ARRAY),
        })
        .collect()
}

pub(super) fn replies(rows: &[Row]) -> Result<Vec<Reply>, Refusal> {
    rows.iter().map(|row| read(row).map_err(refusal)).collect()
}

pub(super) async fn run(client: &(impl GenericClient + Sync), sql: &'static str) -> Result<(), Refusal> {
    client.batch_execute(sql).await.map_err(refusal)
}

fn read(row: &Row) -> Result<Reply, tokio_postgres::Error> {
    if row.len() == 1 {
        return Ok(Reply::default());
    }
    Ok(reply!(row))
}

pub(super) fn refusal(error: tokio_postgres::Error) -> Refusal {
    let code = error.code().map(|state| state.code().to_owned());
    Refusal::new(code.as_deref(), error)
}
