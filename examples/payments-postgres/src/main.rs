//! Payments, orders and stock in axum and PostgreSQL: the key, the effect and the answer commit together, so that each
//! request takes effect exactly once, whatever dies when.
//!
//! ```sh
//! cargo run -p payments-postgres -- 127.0.0.1:3000 postgres://postgres@localhost/payments
//! curl -i http://127.0.0.1:3000/payments -H 'Idempotency-Key: "p-1"' --json '{"account": 7, "amount": 1200}'
//! curl -i http://127.0.0.1:3000/orders/1/pay -H 'Idempotency-Key: "o-1"' -X POST
//! curl -i http://127.0.0.1:3000/reservations -H 'Idempotency-Key: "r-1"' --json '{"item": "lamp", "count": 1}'
//! ```

mod orders;
mod payments;
mod stock;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use semel::{BoxError, OnUnknown, Policy, Rerun, Scope, Whole};
use semel_http::{Body, OneTransaction, Options, Settings};
use semel_store::postgres::Pool;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

type App = Arc<OneTransaction<Pool>>;

/// An answer in JSON.
pub(crate) fn answer(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", axum::http::HeaderValue::from_static("application/json"));
    response
}

/// 422: an answer that says something about the request, so it is kept.
pub(crate) fn refusal(why: &str) -> Response<Bytes> {
    answer(StatusCode::UNPROCESSABLE_ENTITY, &json!({ "error": why }))
}

/// Whose keys they are. A real service takes this from its authentication, never from an address.
pub(crate) fn scope() -> Scope {
    Scope::new("payments:everybody").expect("it is a scope")
}

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0));
    CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, state text NOT NULL, price bigint NOT NULL, account bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, free bigint NOT NULL CHECK (free >= 0));
    INSERT INTO account VALUES (7, 100000) ON CONFLICT DO NOTHING;
    INSERT INTO orders VALUES (1, 'new', 2500, 7) ON CONFLICT DO NOTHING;
    INSERT INTO stock VALUES ('lamp', 20) ON CONFLICT DO NOTHING";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let url = args.next().unwrap_or_else(|| "postgres://localhost/payments".to_owned());

    semel_store::migrations(&url)?.migrate().await?;
    let pool = PgPool::connect(&url).await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;

    // Nothing here reaches outside the transaction, so it may be begun anew when the database asks for it.
    let whole = Whole::new(Pool::new(pool)).rerun(Rerun::Pure);
    let settings = Settings::new(Options::new(Policy::new(OnUnknown::Park)))?;
    let app = Router::new()
        .route("/payments", post(pay))
        .route("/orders/{id}/pay", post(pay_order))
        .route("/reservations", post(reserve))
        .with_state(Arc::new(OneTransaction::new(whole, settings)));
    let (mut terminate, listener) = (signal(SignalKind::terminate())?, TcpListener::bind(address).await?);
    eprintln!("http://{}", listener.local_addr()?);
    let stop = async move {
        let _ = terminate.recv().await;
    };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    Ok(())
}

async fn pay(State(app): State<App>, parts: Parts, body: Bytes) -> Response<Body> {
    let request = Request::from_parts(parts, body.clone());
    app.answer(scope(), request, move |tx, _| Box::pin(payments::pay(tx, body.clone()))).await
}

async fn pay_order(
    State(app): State<App>,
    Path(order): Path<i64>,
    parts: Parts,
    body: Bytes,
) -> Response<Body> {
    let request = Request::from_parts(parts, body);
    app.answer(scope(), request, move |tx, _| Box::pin(orders::pay(tx, order))).await
}

async fn reserve(State(app): State<App>, parts: Parts, body: Bytes) -> Response<Body> {
    let request = Request::from_parts(parts, body.clone());
    app.answer(scope(), request, move |tx, _| Box::pin(stock::reserve(tx, body.clone()))).await
}
