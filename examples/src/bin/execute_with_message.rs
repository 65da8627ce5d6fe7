//! Business change and message in one call: the business code runs in a closure, and its message commits with it.
//!
//! `execute_with_message` is for a message that is known beforehand, `execute` for messages that the business code
//! produces. An error in the closure or in the enqueue rolls back everything.
//!
//! ```text
//! cargo run -p landfall-examples --bin execute_with_message
//! ```

use landfall::produce::Outbox;
use landfall::sqlite::{self, Sqlite};
use landfall::{Key, Kind, Message, OutboxFilter, OutboxView, Schema, TopicName};
use landfall_examples::Result;
use sqlx::{Executor, SqliteConnection};

#[tokio::main]
async fn main() -> Result<()> {
    let database = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
    database.migrate().await?;
    database.pool().execute("CREATE TABLE seat (number INTEGER PRIMARY KEY, guest TEXT NOT NULL)").await?;
    let outbox = Outbox::new(database.clone());

    for (seat, guest) in [(1, "ada"), (2, "grace"), (1, "edsger")] {
        match book(&outbox, seat, guest).await {
            Ok(()) => println!("seat {seat} is {guest}'s"),
            Err(_) => println!("seat {seat} is taken: nothing written, nothing sent"),
        }
    }
    let freed = free_all(&outbox).await?;
    println!("{freed} seats freed");

    // No relay runs here, so all committed messages are still in the outbox, in order.
    for row in database.list(&OutboxFilter::default(), 10).await? {
        let key = row.key.map(|key| key.to_string()).unwrap_or_default();
        println!("outbox: {} {key}, {} bytes", row.topic, row.payload_bytes);
    }
    Ok(())
}

/// Here the message is known before the business code runs.
async fn book(outbox: &Outbox<Sqlite>, seat: i64, guest: &str) -> Result<()> {
    let message = Message::new(TopicName::new("booked")?, guest.to_owned())
        .with_key(Key::new(format!("seat-{seat}"))?)
        .with_kind(Kind::new("SeatBooked")?);
    let guest = guest.to_owned();
    outbox
        .execute_with_message(message, async |connection| {
            // A second guest on a seat violates the primary key; the `?` rolls the transaction back.
            sqlx::query("INSERT INTO seat VALUES (?, ?)").bind(seat).bind(guest).execute(connection).await?;
            Ok(())
        })
        .await
}

/// Here the business code determines the number and the content of the messages.
async fn free_all(outbox: &Outbox<Sqlite>) -> Result<usize> {
    outbox
        .execute(async |connection: &mut SqliteConnection| {
            let delete = "DELETE FROM seat RETURNING number, guest";
            let freed: Vec<(i64, String)> = sqlx::query_as(delete).fetch_all(connection).await?;
            let mut messages = Vec::new();
            for (seat, guest) in &freed {
                let message = Message::new(TopicName::new("freed")?, guest.clone());
                messages.push(message.with_key(Key::new(format!("seat-{seat}"))?));
            }
            Ok((freed.len(), messages))
        })
        .await
}
