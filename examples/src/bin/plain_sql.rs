//! A service that only knows one table of Landfall: from any language, one `INSERT` in its own transaction is enough. A
//! relay (here in the same process; usually `landfall serve`) does the rest.
//!
//! ```text
//! cargo run -p landfall-examples --bin plain_sql
//! ```

use landfall::log::{self, Log};
use landfall::relay::Relay;
use landfall::sqlite::{self, Sqlite};
use landfall::{Broker, OutboxView, Schema, StartAt, TopicName};
use landfall_examples::{Result, until};
use sqlx::{Connection, Executor, SqliteConnection};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let database = Sqlite::open(&file.display().to_string(), sqlite::Options::default()).await?;
    // Run once at deployment: `landfall migrate`, or `landfall migrate --print` for your own migrations.
    database.migrate().await?;
    database.pool().execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER NOT NULL)").await?;

    service_in_plain_sql(&file.display().to_string()).await?;
    println!("pending after the service: {}", database.stats().await?.pending);

    let log = Log::open(folder.path().join("log"), log::Options::default())?;
    let stop = CancellationToken::new();
    let relay = Relay::builder(database.clone(), log.publisher()).build()?;
    let relay = tokio::spawn(relay.run(stop.clone()));
    until("the outbox is empty", async || Ok(database.stats().await?.pending == 0)).await?;
    stop.cancel();
    relay.await??;

    // The messages in the broker. Columns that the service did not name have their defaults.
    let mut topic = log.read(&TopicName::new("orders")?, StartAt::Beginning).await?;
    for stored in topic.read(10).await? {
        let message = stored.message?;
        let key = message.key.map(|key| key.to_string()).unwrap_or_default();
        println!("{key}: {} ({}, {})", String::from_utf8_lossy(&message.payload), message.kind.as_str(), message.mode);
    }
    Ok(())
}

/// Stands for a service in Python, Go or a stored procedure: it only uses SQL.
async fn service_in_plain_sql(file: &str) -> Result<()> {
    let mut connection = SqliteConnection::connect(file).await?;
    let transactions = [
        "BEGIN;
        INSERT INTO orders VALUES (1, 250);
        INSERT INTO landfall_outbox (topic, key, payload_text) VALUES ('orders', 'order-1', '{\"total\":250}');
        COMMIT",
        "BEGIN;
        INSERT INTO orders VALUES (2, 990);
        INSERT INTO landfall_outbox (topic, key, payload_text) VALUES ('orders', 'order-2', '{\"total\":990}');
        ROLLBACK",
        "BEGIN;
        UPDATE orders SET total = 200 WHERE id = 1;
        INSERT INTO landfall_outbox (topic, key, payload_text) VALUES ('orders', 'order-1', '{\"total\":200}');
        COMMIT",
    ];
    for transaction in transactions {
        connection.execute(transaction).await?;
    }
    // The table itself refuses what can never be a message, before anything is committed.
    let invalid = "INSERT INTO landfall_outbox (topic, payload_text) VALUES ('no spaces please', '')";
    println!("an invalid topic is refused: {}", connection.execute(invalid).await.is_err());
    Ok(connection.close().await?)
}
