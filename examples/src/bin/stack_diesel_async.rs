//! A service on `diesel-async`: one call enqueues the message in the service's own transaction.
//!
//! ```text
//! cargo run -p landfall-examples --bin stack_diesel_async -- postgres://user:password@host/empty_database
//! ```

use diesel::{ExpressionMethods, QueryDsl, insert_into, update};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use landfall::postgres::{self, Postgres};
use landfall::stacks::diesel_async::Outbox;
use landfall::{Key, Kind, Message, Schema, TopicName};
use landfall_examples::{Result, database_url, deliver};

diesel::table! {
    orders (id) {
        id -> BigInt,
        pieces -> BigInt,
    }
}

diesel::table! {
    stock (article) {
        article -> Text,
        pieces -> BigInt,
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = database_url()?;
    // Usually the job of a separate `landfall serve`: it creates the tables and publishes committed messages.
    let landfall = Postgres::connect(&url, postgres::Options::default()).await?;
    landfall.migrate().await?;

    // The rest is the service. It only uses its own driver and the outbox.
    let mut connection = AsyncPgConnection::establish(&url).await?;
    connection
        .batch_execute(
            "CREATE TABLE stock (article text PRIMARY KEY, pieces bigint NOT NULL); INSERT INTO stock VALUES ('tea', 5);
             CREATE TABLE orders (id bigint PRIMARY KEY, pieces bigint NOT NULL)",
        )
        .await?;
    let outbox = Outbox::default();
    for (id, pieces) in [(1, 3), (2, 9), (3, 2)] {
        match place(&mut connection, &outbox, id, pieces).await {
            Ok(()) => println!("order {id}: placed"),
            Err(error) => println!("order {id}: {error}"),
        }
    }
    // An optional hint: the relay reads at once instead of at its next poll.
    outbox.wake(&mut connection).await?;
    let orders: i64 = orders::table.count().get_result(&mut connection).await?;
    println!("orders in the database: {orders}");

    deliver(landfall, "orders").await
}

/// Writes the order and its message in ONE transaction. An error rolls both back.
async fn place(connection: &mut AsyncPgConnection, outbox: &Outbox, id: i64, pieces: i64) -> Result<()> {
    let message = Message::new(TopicName::new("orders")?, format!(r#"{{"pieces":{pieces}}}"#))
        .with_key(Key::new(format!("order-{id}"))?)
        .with_kind(Kind::new("OrderPlaced")?);
    let placed = connection.transaction::<(), Failure, _>(async |connection| {
        let order = (orders::id.eq(id), orders::pieces.eq(pieces));
        insert_into(orders::table).values(order).execute(connection).await?;
        outbox.enqueue(connection, &[message]).await?;
        let reserved = update(stock::table.filter(stock::pieces.ge(pieces)))
            .set(stock::pieces.eq(stock::pieces - pieces))
            .execute(connection)
            .await?;
        if reserved == 0 { Err("not enough in stock".into()) } else { Ok(()) }
    });
    placed.await
}
