//! An order service: each order that RabbitMQ delivers is in the books once, whatever dies when. See its README.
//!
//! ```sh
//! cargo run -p orders-rabbitmq -- amqp://guest:guest@localhost:5672/%2f postgres://postgres@localhost/orders
//! ```

use std::error::Error;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use semel_messaging::amqp::RabbitMq;
use semel_messaging::{Consumer, Failure, Field, Inbox, Work};
use semel_store::postgres::Pool;
use serde_json::Value;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::signal::unix::{SignalKind, signal};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS stock (item text PRIMARY KEY, left_over bigint NOT NULL);
    INSERT INTO stock VALUES ('lamp', 10), ('chair', 1) ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS booked (number text NOT NULL, item text NOT NULL, count bigint NOT NULL)";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(broker), Some(database)) = (arguments.next(), arguments.next()) else {
        return Err("the arguments are the URLs of RabbitMQ and PostgreSQL".into());
    };
    semel_store::migrations(&database)?.migrate().await?;
    let pool = PgPool::connect(&database).await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;

    // All that makes it happen once.
    let store = semel_store::connect(&database, &semel_store::Options::default()).await?.store;
    let source = RabbitMq::new(&broker)?.queue("orders")?.declare_single_active();
    let mut stop = signal(SignalKind::terminate())?;
    Consumer::inbox("orders")
        .lane(Field::Header("customer".into()))
        .build(store, Arc::new(source), Inbox::in_batches(Pool::new(pool), 50, book))?
        .run(async move { stop.recv().await.unwrap_or_default() })
        .await?;
    Ok(())
}

/// Takes the order's item from the stock, and books it. Both, the order's id and its neighbours' are one transaction.
fn book<'t>(tx: &'t mut Transaction<'static, Postgres>, work: Work) -> BoxFuture<'t, Result<(), Failure>> {
    async move {
        let order: Value = serde_json::from_slice(&work.message.body).map_err(Failure::permanent)?;
        let (Some(item), Some(count)) = (order["item"].as_str(), order["count"].as_i64()) else {
            return Err(Failure::permanent("an order has an item and a count"));
        };
        let take = "UPDATE stock SET left_over = left_over - $2 WHERE item = $1 AND left_over >= $2";
        if sqlx::query(take).bind(item).bind(count).execute(&mut **tx).await?.rows_affected() == 0 {
            return Err(Failure::permanent("sold out"));
        }
        let book = "INSERT INTO booked (number, item, count) VALUES ($1, $2, $3)";
        sqlx::query(book).bind(work.key.as_str()).bind(item).bind(count).execute(&mut **tx).await?;
        Ok(())
    }
    .boxed()
}
