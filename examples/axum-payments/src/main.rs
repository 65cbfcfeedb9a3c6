//! A payment service that charges once, however often it is asked.
//!
//! ```sh
//! cargo run -p axum-payments -- 127.0.0.1:3000 payments.db
//! curl -i http://127.0.0.1:3000/charges -H 'Idempotency-Key: "order-77"' --json '{"amount": 1200}'
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use semel::{BoxError, Engine, Entropy, OnUnknown, Policy};
use semel_http::{Attempt, IdempotencyKey, KeyPolicy, Options, SemelLayer, Settings};
use semel_store::SqliteStore;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

type Moved = Arc<AtomicU64>;

/// Moves the money. A real one hands the key and the fence on to the bank.
async fn charge(
    State(moved): State<Moved>,
    key: IdempotencyKey,
    attempt: Attempt,
    Json(order): Json<Value>,
) -> Result<(StatusCode, Json<Value>), (StatusCode, &'static str)> {
    // A refusal is an outcome too: every retry gets it.
    let amount = order["amount"].as_u64().ok_or((StatusCode::UNPROCESSABLE_ENTITY, "no amount\n"))?;
    let all = moved.fetch_add(amount, Ordering::SeqCst) + amount;
    let Attempt { fence, number } = attempt;
    let charged =
        json!({ "key": key.as_str(), "fence": fence.0, "attempt": number, "amount": amount, "all": all });
    Ok((StatusCode::CREATED, Json(charged)))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let file = args.next().unwrap_or_else(|| "payments.db".to_owned());

    let store = SqliteStore::open(file, &semel_store::Options { migrate: true, ..Default::default() })?;
    let engine = Engine::new(Arc::new(store), Entropy::system());
    let mut options = Options::new(Policy::new(OnUnknown::Park));
    options.key = KeyPolicy::Required;
    let guard = SemelLayer::new(engine.clone(), Settings::new(options)?);

    let app = Router::new()
        .route("/charges", post(charge))
        .route("/moved", get(async |State(moved): State<Moved>| moved.load(Ordering::SeqCst).to_string()))
        .layer(guard)
        .with_state(Moved::default());
    tokio::spawn(sweep(engine.clone()));
    let (mut terminate, listener) = (signal(SignalKind::terminate())?, TcpListener::bind(address).await?);
    eprintln!("http://{}", listener.local_addr()?);
    let stop = async move {
        let _ = terminate.recv().await;
        // New operations are told to come back, and what runs is waited for. Only then is the listener closed.
        let parked = engine.drain(Duration::from_secs(25)).await;
        eprintln!("stopped, {parked} operations unknown");
    };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    Ok(())
}

/// Frees space, once a minute. Nothing waits for it.
async fn sweep(engine: Engine) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        while engine.sweep(1_000).await.is_ok_and(|swept| swept.total() == 1_000) {}
    }
}
