//! An order under a row lock: its state machine says what may follow, and the payment commits with the new state.

use axum::http::{Response, StatusCode};
use bytes::Bytes;
use semel::BoxError;
use semel::transition::{Machine, Moved};
use serde_json::json;
use sqlx::{PgConnection, Row};

use crate::answer;

/// The states of an order, as the table has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Paid,
    Cancelled,
}

const ORDER: Machine<State> = Machine::new(&[(State::New, State::Paid), (State::New, State::Cancelled)]);

impl State {
    fn read(word: &str) -> Result<State, BoxError> {
        match word {
            "new" => Ok(State::New),
            "paid" => Ok(State::Paid),
            "cancelled" => Ok(State::Cancelled),
            _ => Err(format!("no such state: {word}").into()),
        }
    }
}

pub(crate) async fn pay(tx: &mut PgConnection, order: i64) -> Result<Response<Bytes>, BoxError> {
    // The lock makes what was read true until the commit: whoever cancels the order waits.
    let sql = "SELECT state, price, account FROM orders WHERE id = $1 FOR UPDATE";
    let row = sqlx::query(sql).bind(order).fetch_optional(&mut *tx).await?;
    let found = row.as_ref().map(|row| State::read(row.get("state"))).transpose()?;
    let (status, said) = match (ORDER.guard(found, State::Paid), row) {
        (Moved::Applied, Some(row)) => {
            let (price, account): (i64, i64) = (row.get("price"), row.get("account"));
            let sql = "UPDATE account SET balance = balance - $1 WHERE id = $2 AND balance >= $1";
            let paid = sqlx::query(sql).bind(price).bind(account).execute(&mut *tx).await?;
            if paid.rows_affected() == 0 {
                return Ok(answer(StatusCode::PAYMENT_REQUIRED, &json!({ "error": "not enough money" })));
            }
            sqlx::query("UPDATE orders SET state = 'paid' WHERE id = $1")
                .bind(order)
                .execute(&mut *tx)
                .await?;
            (StatusCode::OK, json!({ "order": order, "state": "paid" }))
        }
        // Paid under another key: the order is where the caller wants it, and nothing is paid twice.
        (Moved::AlreadyThere, _) => (StatusCode::OK, json!({ "order": order, "state": "paid" })),
        (Moved::Refused { .. }, _) => {
            (StatusCode::UNPROCESSABLE_ENTITY, json!({ "error": "the order is cancelled" }))
        }
        (Moved::Applied | Moved::Absent, _) => (StatusCode::NOT_FOUND, json!({ "error": "no such order" })),
    };
    Ok(answer(status, &said))
}
