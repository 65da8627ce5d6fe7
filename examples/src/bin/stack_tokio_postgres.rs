//! A service on `tokio-postgres`: its own transaction, in which one call enqueues.
//!
//! ```text
//! cargo run -p landfall-examples --bin stack_tokio_postgres -- postgres://user:password@host/empty_database
//! ```

use landfall::postgres::{self, Postgres};
use landfall::stacks::tokio_postgres::Outbox;
use landfall::{Key, Kind, Message, Schema, TopicName};
use landfall_examples::{Result, database_url, deliver};
use tokio_postgres::{Client, NoTls};

#[tokio::main]
async fn main() -> Result<()> {
    let url = database_url()?;
    // Usually `landfall serve` in a process of its own: it makes the tables and publishes what is committed to them.
    let landfall = Postgres::connect(&url, postgres::Options::default()).await?;
    landfall.migrate().await?;

    // From here on this is the service, which knows nothing but its own driver and the outbox.
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute(
            "CREATE TABLE stock (pieces bigint NOT NULL); INSERT INTO stock VALUES (5);
             CREATE TABLE orders (id bigint PRIMARY KEY, pieces bigint NOT NULL)",
        )
        .await?;
    let outbox = Outbox::default();
    for (id, pieces) in [(1, 3), (2, 9), (3, 2)] {
        match place(&mut client, &outbox, id, pieces).await {
            Ok(()) => println!("order {id}: placed"),
            Err(error) => println!("order {id}: {error}"),
        }
    }
    // A hint, so that the relay does not wait for its next look.
    outbox.wake(&client).await?;
    let orders: i64 = client.query_one("SELECT count(*) FROM orders", &[]).await?.get(0);
    println!("orders in the database: {orders}");

    deliver(landfall, "orders").await
}

/// The order and its message are written in ONE transaction. An error drops it, and both are gone.
async fn place(client: &mut Client, outbox: &Outbox, id: i64, pieces: i64) -> Result<()> {
    let transaction = client.transaction().await?;
    transaction.execute("INSERT INTO orders VALUES ($1, $2)", &[&id, &pieces]).await?;
    let message = Message::new(TopicName::new("orders")?, format!(r#"{{"pieces":{pieces}}}"#))
        .with_key(Key::new(format!("order-{id}"))?)
        .with_kind(Kind::new("OrderPlaced")?);
    outbox.enqueue(&transaction, &[message]).await?;
    let taken = "UPDATE stock SET pieces = pieces - $1 WHERE pieces >= $1";
    if transaction.execute(taken, &[&pieces]).await? == 0 {
        return Err("not enough in stock".into());
    }
    Ok(transaction.commit().await?)
}
