//! A reservation that cannot oversell: compare and set, in one statement.

use axum::http::{Response, StatusCode};
use bytes::Bytes;
use semel::BoxError;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::{answer, refusal};

pub(crate) async fn reserve(tx: &mut PgConnection, body: Bytes) -> Result<Response<Bytes>, BoxError> {
    let wish: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (Some(item), Some(count)) =
        (wish["item"].as_str(), wish["count"].as_i64().filter(|count| *count > 0))
    else {
        return Ok(refusal("item and count are needed"));
    };
    // Who comes second waits for the row, and then the condition is judged anew: never more is given than there is.
    let sql = "UPDATE stock SET free = free - $1 WHERE item = $2 AND free >= $1 RETURNING free";
    let free: Option<i64> = sqlx::query_scalar(sql).bind(count).bind(item).fetch_optional(tx).await?;
    Ok(match free {
        Some(free) => answer(StatusCode::CREATED, &json!({ "reserved": count, "free": free })),
        None => answer(StatusCode::UNPROCESSABLE_ENTITY, &json!({ "error": "sold out" })),
    })
}
