//! mysql_async.

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Transaction, Value};

use super::{Handle, Refusal};

#[async_trait]
impl Handle for Transaction<'_> {
    async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Refusal> {
        rows(self, sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        self.query_drop(sql).await.map_err(refusal)
    }
}

#[async_trait]
impl Handle for Conn {
    async fn rows(&mut self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Refusal> {
        rows(self, sql, values).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), Refusal> {
        self.query_drop(sql).await.map_err(refusal)
    }
}

async fn rows(
    connection: &mut impl Queryable,
    sql: &'static str,
    values: Vec<Value>,
) -> Result<Vec<Vec<Value>>, Refusal> {
    let parameters = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
    let rows: Vec<Row> = connection.exec(sql, parameters).await.map_err(refusal)?;
    Ok(rows.into_iter().map(Row::unwrap).collect())
}

pub(super) fn refusal(error: mysql_async::Error) -> Refusal {
    Refusal::new(code(&error), error)
}

pub(super) fn code(error: &mysql_async::Error) -> Option<u16> {
    match error {
        mysql_async::Error::Server(error) => Some(error.code),
        _ => None,
    }
}
