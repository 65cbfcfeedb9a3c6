//! A payment: takes an amount off an account, if it is there.

use axum::http::{Response, StatusCode};
use bytes::Bytes;
use semel::BoxError;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::{answer, refusal};

pub(crate) async fn pay(tx: &mut PgConnection, body: Bytes) -> Result<Response<Bytes>, BoxError> {
    let order: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (Some(account), Some(amount)) =
        (order["account"].as_i64(), order["amount"].as_i64().filter(|sum| *sum > 0))
    else {
        return Ok(refusal("account and amount are needed"));
    };
    // One statement decides: two payments at once cannot both find the money.
    let sql = "UPDATE account SET balance = balance - $1 WHERE id = $2 AND balance >= $1 RETURNING balance";
    let left: Option<i64> = sqlx::query_scalar(sql).bind(amount).bind(account).fetch_optional(tx).await?;
    Ok(match left {
        Some(left) => answer(StatusCode::CREATED, &json!({ "paid": amount, "left": left })),
        // Kept, like every answer that says something about the request: a retry hears it, and pays nothing later on.
        None => answer(StatusCode::PAYMENT_REQUIRED, &json!({ "error": "not enough money" })),
    })
}
