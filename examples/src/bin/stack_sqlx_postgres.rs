//! A service on `sqlx` and PostgreSQL: one call enqueues the message in the service's own transaction.
//!
//! ```text
//! cargo run -p landfall-examples --bin stack_sqlx_postgres -- postgres://user:password@host/empty_database
//! ```

use landfall::postgres::{self, Postgres};
use landfall::produce::Outbox;
use landfall::{Key, Kind, Message, Schema, TopicName};
use landfall_examples::{Result, database_url, deliver};
use sqlx::{Executor, PgPool};

#[tokio::main]
async fn main() -> Result<()> {
    // The service's own pool with its own settings; Landfall uses it too.
    let pool = PgPool::connect(&database_url()?).await?;
    let landfall = Postgres::from_pool(pool.clone(), postgres::Options::default());
    landfall.migrate().await?;
    pool.execute(
        "CREATE TABLE stock (pieces bigint NOT NULL); INSERT INTO stock VALUES (5);
         CREATE TABLE orders (id bigint PRIMARY KEY, pieces bigint NOT NULL)",
    )
    .await?;

    let outbox = Outbox::new(landfall.clone());
    for (id, pieces) in [(1, 3), (2, 9), (3, 2)] {
        match place(&pool, &outbox, id, pieces).await {
            Ok(()) => println!("order {id}: placed"),
            Err(error) => println!("order {id}: {error}"),
        }
    }
    let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&pool).await?;
    println!("orders in the database: {orders}");

    deliver(landfall, "orders").await
}

/// Writes the order and its message in ONE transaction. An error drops the transaction and rolls both back.
async fn place(pool: &PgPool, outbox: &Outbox<Postgres>, id: i64, pieces: i64) -> Result<()> {
    let mut transaction = pool.begin().await?;
    sqlx::query("INSERT INTO orders VALUES ($1, $2)").bind(id).bind(pieces).execute(&mut *transaction).await?;
    let message = Message::new(TopicName::new("orders")?, format!(r#"{{"pieces":{pieces}}}"#))
        .with_key(Key::new(format!("order-{id}"))?)
        .with_kind(Kind::new("OrderPlaced")?);
    outbox.enqueue(&mut transaction, &message).await?;
    let reserve = sqlx::query("UPDATE stock SET pieces = pieces - $1 WHERE pieces >= $1").bind(pieces);
    if reserve.execute(&mut *transaction).await?.rows_affected() == 0 {
        return Err("not enough in stock".into());
    }
    transaction.commit().await?;
    // An optional hint: the relay reads at once instead of at its next poll. `outbox.commit(…)` does both.
    outbox.wake();
    Ok(())
}
