//! A service on `tokio-postgres`: one call enqueues the message in the service's own transaction.
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
    // Usually the job of a separate `landfall serve`: it creates the tables and publishes committed messages.
    let landfall = Postgres::connect(&url, postgres::Options::default()).await?;
    landfall.migrate().await?;

    // The rest is the service. It only uses its own driver and the outbox.
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
    // An optional hint: the relay reads at once instead of at its next poll.
    outbox.wake(&client).await?;
    let orders: i64 = client.query_one("SELECT count(*) FROM orders", &[]).await?.get(0);
    println!("orders in the database: {orders}");

    deliver(landfall, "orders").await
}

/// Writes the order and its message in ONE transaction. An error drops the transaction and rolls both back.
async fn place(client: &mut Client, outbox: &Outbox, id: i64, pieces: i64) -> Result<()> {
    let transaction = client.transaction().await?;
    transaction.execute("INSERT INTO orders VALUES ($1, $2)", &[&id, &pieces]).await?;
    let message = Message::new(TopicName::new("orders")?, format!(r#"{{"pieces":{pieces}}}"#))
        .with_key(Key::new(format!("order-{id}"))?)
        .with_kind(Kind::new("OrderPlaced")?);
    outbox.enqueue(&transaction, &[message]).await?;
    let reserve = "UPDATE stock SET pieces = pieces - $1 WHERE pieces >= $1";
    if transaction.execute(reserve, &[&pieces]).await? == 0 {
        return Err("not enough in stock".into());
    }
    Ok(transaction.commit().await?)
}
