//! A message that cannot be handled: it is parked as a dead letter, its successors wait behind it, and other keys
//! continue. After the cause is fixed, a redrive delivers all of them in order.
//!
//! ```text
//! cargo run -p landfall-examples --bin park_and_redrive
//! ```

use std::sync::Arc;
use std::time::Duration;

use landfall::consume::{self, Consumer, Context, Handler};
use landfall::log::{self, Log};
use landfall::sqlite::{self, Sqlite};
use landfall::{Broker, DeadLetterFilter, DeadLetterStatus, DeadLetters, ErrorCode, Failure, GroupName, Key, Message};
use landfall::{Schema, TopicName};
use landfall_examples::{Result, until};
use sqlx::Executor;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("ledger.db");
    let database = Sqlite::open(&file.display().to_string(), sqlite::Options::default()).await?;
    database.migrate().await?;
    database.pool().execute("CREATE TABLE account (owner TEXT PRIMARY KEY)").await?;
    database.pool().execute("CREATE TABLE entry (owner TEXT NOT NULL, amount TEXT NOT NULL)").await?;
    database.pool().execute("INSERT INTO account VALUES ('carol')").await?;
    let log = Arc::new(Log::open(folder.path().join("log"), log::Options::default())?);

    let stop = CancellationToken::new();
    let (topic, group) = (TopicName::new("deposits")?, GroupName::new("ledger")?);
    let options = consume::Options { redrive_poll: Duration::from_millis(20), ..consume::Options::default() };
    let consumer = Consumer::new(database.clone(), log.clone(), topic, group, Deposit, options);
    let consumer = tokio::spawn(consumer.run(stop.clone()));

    // Bob has no account, but his three deposits arrive, and so does Carol's.
    for (owner, amount) in [("bob", 1), ("bob", 2), ("carol", 7), ("bob", 3)] {
        publish(&log, owner, amount).await?;
    }
    until("Bob's deposits wait and Carol's is booked", async || {
        let waiting = database.find(&DeadLetterFilter::default(), 10).await?.len();
        Ok(waiting == 3 && entries(&database, "carol").await? == ["7"])
    })
    .await?;
    println!("carol is not held up: {:?}", entries(&database, "carol").await?);
    for letter in database.find(&DeadLetterFilter::default(), 10).await? {
        let amount = String::from_utf8_lossy(&letter.payload).into_owned();
        println!("bob {amount} is {}: {}", letter.status.as_str(), letter.error_code);
    }

    // An operator fixes the cause and redrives the parked message. Its successors follow automatically.
    database.pool().execute("INSERT INTO account VALUES ('bob')").await?;
    let parked = DeadLetterFilter { status: Some(DeadLetterStatus::Parked), ..DeadLetterFilter::default() };
    println!("redriven: {}", database.redrive(&parked, "ops").await?.redriven.len());
    println!("redriven by a second click: {}", database.redrive(&parked, "ops").await?.redriven.len());
    until("Bob's deposits are booked", async || Ok(entries(&database, "bob").await?.len() == 3)).await?;
    println!("bob, in order: {:?}", entries(&database, "bob").await?);

    // After the last of them the key is no longer held.
    publish(&log, "bob", 4).await?;
    until("Bob's next deposit is booked", async || Ok(entries(&database, "bob").await?.len() == 4)).await?;
    println!("bob, in order: {:?}", entries(&database, "bob").await?);

    let audit = "SELECT actor || ' ' || action FROM landfall_audit ORDER BY id";
    let audit: Vec<String> = sqlx::query_scalar(audit).fetch_all(database.pool()).await?;
    println!("audit: {}", audit.join(", "));
    stop.cancel();
    consumer.await??;
    Ok(())
}

struct Deposit;

impl Handler<Sqlite> for Deposit {
    async fn handle<'a>(&'a self, context: Context<'a, Sqlite>) -> Result<(), Failure> {
        let owner = context.message.key.as_ref().map(|key| key.as_str());
        let amount = std::str::from_utf8(&context.message.payload)?;
        let book = "INSERT INTO entry SELECT owner, ? FROM account WHERE owner = ?";
        let booked = sqlx::query(book).bind(amount).bind(owner).execute(context.connection).await?;
        if booked.rows_affected() == 0 {
            // A retry would not help, so the message is parked at once. `Failure::retry`, or a `?` on any error, would
            // be retried with backoff and parked after the maximum number of attempts.
            return Err(Failure::park(ErrorCode::new("NO_SUCH_ACCOUNT"), "there is no account with this owner"));
        }
        Ok(())
    }
}

/// Publishes straight to the broker, as a relay would: this example is about the consumer.
async fn publish(log: &Log, owner: &str, amount: i64) -> Result<()> {
    let message = Message::new(TopicName::new("deposits")?, amount.to_string()).with_key(Key::new(owner)?);
    match log.publisher().publish(&[message]).await.as_slice() {
        [outcome] if outcome.is_accepted() => Ok(()),
        outcomes => Err(format!("the log did not accept the deposit: {outcomes:?}").into()),
    }
}

async fn entries(database: &Sqlite, owner: &str) -> Result<Vec<String>> {
    let entries = sqlx::query_scalar("SELECT amount FROM entry WHERE owner = ? ORDER BY rowid");
    Ok(entries.bind(owner).fetch_all(database.pool()).await?)
}
