//! The smallest complete path: the north bank debits an account and enqueues a message in one transaction. The south
//! bank credits an account exactly once, however often the message arrives.
//!
//! One process does everything here, on two SQLite files and the embedded log. In production the banks are two services
//! with their own databases and a broker between them; the calls are the same.
//!
//! ```text
//! cargo run -p landfall-examples --bin transfer_sqlite
//! ```

use std::path::Path;
use std::sync::Arc;

use landfall::consume::{self, Consumer, Context, Handler};
use landfall::log::{self, Log};
use landfall::produce::Outbox;
use landfall::relay::{self, Relay};
use landfall::sqlite::{self, Sqlite};
use landfall::{Broker, Failure, GroupName, Key, Message, Schema, TopicName};
use landfall_examples::{Result, until};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let north = open_bank(&folder.path().join("north.db"), "alice", 100).await?;
    let south = open_bank(&folder.path().join("south.db"), "bob", 0).await?;
    let log: Arc<dyn Broker> = Arc::new(Log::open(folder.path().join("log"), log::Options::default())?);

    // The relay publishes what the north bank commits; the consumer applies it to the south bank.
    let stop = CancellationToken::new();
    let queue = Arc::new(north.clone());
    let relay = Relay::new(queue.clone(), queue, log.publisher(), relay::Options::default());
    let relay = tokio::spawn(relay.run(stop.clone()));
    let (topic, group) = (TopicName::new("transfers")?, GroupName::new("south-bank")?);
    let consumer = Consumer::new(south.clone(), log.clone(), topic, group, BookIn, consume::Options::default());
    let consumer = tokio::spawn(consumer.run(stop.clone()));

    let outbox = Outbox::new(north.clone());
    let sent = [transfer(&outbox, 10).await?, transfer(&outbox, 20).await?, transfer(&outbox, 30).await?];
    until("three transfers have arrived", async || Ok(balance(&south, "bob").await? >= 60)).await?;
    println!("3 transfers: alice {}, bob {}", balance(&north, "alice").await?, balance(&south, "bob").await?);

    // A relay that crashes between publishing and settling publishes again: these are three such duplicates.
    log.publisher().publish(&sent).await;
    // The duplicates precede this message of the same key. Once it has arrived, they have been handled.
    transfer(&outbox, 1).await?;
    until("the last transfer has arrived", async || Ok(balance(&south, "bob").await? >= 61)).await?;
    println!("3 copies, 1 more: alice {}, bob {}", balance(&north, "alice").await?, balance(&south, "bob").await?);

    // Both finish their work in flight; the relay releases its leases.
    stop.cancel();
    relay.await??;
    consumer.await??;
    Ok(())
}

/// Debits and enqueues in ONE transaction: both happen, or neither.
async fn transfer(outbox: &Outbox<Sqlite>, amount: i64) -> Result<Message> {
    let message = Message::new(TopicName::new("transfers")?, amount.to_string()).with_key(Key::new("bob")?);
    let mut transaction = outbox.begin().await?;
    sqlx::query("UPDATE account SET balance = balance - ? WHERE owner = 'alice'")
        .bind(amount)
        .execute(&mut *transaction)
        .await?;
    outbox.enqueue(&mut transaction, &message).await?;
    // Commits and wakes the relay: the message does not wait for a poll.
    outbox.commit(transaction).await?;
    Ok(message)
}

/// The south bank's effect. Statements on `connection` commit together with the inbox row of this message. An error
/// rolls both back, and the message is retried.
struct BookIn;

impl Handler<Sqlite> for BookIn {
    async fn handle<'a>(&'a self, context: Context<'a, Sqlite>) -> Result<(), Failure> {
        let amount: i64 = std::str::from_utf8(&context.message.payload)?.parse()?;
        sqlx::query("UPDATE account SET balance = balance + ? WHERE owner = 'bob'")
            .bind(amount)
            .execute(context.connection)
            .await?;
        Ok(())
    }
}

/// Opens a database with Landfall's tables and the bank's own.
async fn open_bank(file: &Path, owner: &str, balance: i64) -> Result<Sqlite> {
    let bank = Sqlite::open(&file.display().to_string(), sqlite::Options::default()).await?;
    bank.migrate().await?;
    sqlx::query("CREATE TABLE account (owner TEXT PRIMARY KEY, balance INTEGER NOT NULL)").execute(bank.pool()).await?;
    sqlx::query("INSERT INTO account VALUES (?, ?)").bind(owner).bind(balance).execute(bank.pool()).await?;
    Ok(bank)
}

async fn balance(bank: &Sqlite, owner: &str) -> Result<i64> {
    let balance = sqlx::query_scalar("SELECT balance FROM account WHERE owner = ?").bind(owner);
    Ok(balance.fetch_one(bank.pool()).await?)
}
