//! What every service runs beside its own code: a relay for what it sends, a consumer for what it receives.

use std::sync::Arc;

use landfall::consume::{self, Consumer, Handler};
use landfall::relay::Relay;
use landfall::{Broker, GroupName, TopicName};
use landfall_examples::Result;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::database::ShopDatabase;

/// Starts both; they work until `stop` is cancelled.
pub(crate) fn start<D: ShopDatabase>(
    tasks: &mut JoinSet<landfall::Result<()>>,
    database: &D,
    log: &Arc<dyn Broker>,
    topic: &str,
    handler: impl Handler<D>,
    stop: &CancellationToken,
) -> Result<()> {
    let relay = Relay::builder(database.clone(), log.publisher()).build()?;
    tasks.spawn(relay.run(stop.clone()));

    // A group is one reader of a topic: run as many members of it as you like.
    let (topic, group) = (TopicName::new(topic)?, GroupName::new("shop")?);
    let options = consume::Options::default();
    let consumer = Consumer::builder(database.clone(), log.clone())
        .topic(topic)
        .group(group)
        .handler(handler)
        .options(options)
        .build()?;
    tasks.spawn(consumer.run(stop.clone()));
    Ok(())
}
