//! A stand-in for `landfall serve`: it stops once the outbox is empty, and prints what arrived.

use std::sync::Arc;

use landfall::log::{self, Log};
use landfall::relay::{self, Relay};
use landfall::{Broker, Leases, OutboxQueue, OutboxView, StartAt, TopicName};
use tokio_util::sync::CancellationToken;

use crate::{Result, until};

/// Publishes everything in the outbox to an embedded log, and prints the messages of `topic`.
pub async fn deliver<D>(database: D, topic: &str) -> Result<()>
where
    D: OutboxQueue + OutboxView + Leases + 'static,
{
    let folder = tempfile::tempdir()?;
    let log = Log::open(folder.path().join("log"), log::Options::default())?;
    let database = Arc::new(database);
    let stop = CancellationToken::new();
    let relay = Relay::new(database.clone(), database.clone(), log.publisher(), relay::Options::default());
    let relay = tokio::spawn(relay.run(stop.clone()));
    until("the outbox is empty", async || Ok(database.stats().await?.pending == 0)).await?;
    stop.cancel();
    relay.await??;

    let mut reader = log.read(&TopicName::new(topic)?, StartAt::Beginning).await?;
    for stored in reader.read(100).await? {
        let message = stored.message?;
        let key = message.key.map(|key| key.to_string()).unwrap_or_default();
        println!("arrived: {key} {} {}", message.kind.as_str(), String::from_utf8_lossy(&message.payload));
    }
    Ok(())
}
