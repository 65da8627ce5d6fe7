//! A service on `sqlx` and MySQL or MariaDB: one call enqueues the message in the service's own transaction.
//!
//! ```text
//! cargo run -p landfall-examples --bin stack_sqlx_mysql -- mysql://user:password@host/empty_database
//! ```

use landfall::mysql::{self, MySql};
use landfall::produce::Outbox;
use landfall::{Key, Kind, Message, Schema, TopicName};
use landfall_examples::{Result, database_url, deliver};
use sqlx::{Executor, MySqlPool};

#[tokio::main]
async fn main() -> Result<()> {
    // The service's own pool with its own settings; Landfall uses it too.
    let pool = MySqlPool::connect(&database_url()?).await?;
    let landfall = MySql::from_pool(pool.clone(), mysql::Options::default());
    landfall.migrate().await?;
    pool.execute(
        "CREATE TABLE stock (pieces BIGINT NOT NULL); INSERT INTO stock VALUES (5);
         CREATE TABLE orders (id BIGINT PRIMARY KEY, pieces BIGINT NOT NULL)",
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
async fn place(pool: &MySqlPool, outbox: &Outbox<MySql>, id: i64, pieces: i64) -> Result<()> {
    let mut transaction = pool.begin().await?;
    sqlx::query("INSERT INTO orders VALUES (?, ?)").bind(id).bind(pieces).execute(&mut *transaction).await?;
    let message = Message::new(TopicName::new("orders")?, format!(r#"{{"pieces":{pieces}}}"#))
        .with_key(Key::new(format!("order-{id}"))?)
        .with_kind(Kind::new("OrderPlaced")?);
    outbox.enqueue(&mut transaction, &message).await?;
    let reserve = sqlx::query("UPDATE stock SET pieces = pieces - ? WHERE pieces >= ?").bind(pieces).bind(pieces);
    if reserve.execute(&mut *transaction).await?.rows_affected() == 0 {
        return Err("not enough in stock".into());
    }
    transaction.commit().await?;
    // An optional hint: the relay reads at once instead of at its next poll. `outbox.commit(…)` does both.
    outbox.wake();
    Ok(())
}
