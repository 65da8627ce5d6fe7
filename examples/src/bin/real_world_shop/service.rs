//! The background tasks of every service: a relay for outgoing messages and a consumer for incoming ones.

use std::sync::Arc;

use landfall::consume::{self, Consumer, Handler};
use landfall::relay::{self, Relay};
use landfall::{Broker, GroupName, TopicName};
use landfall_examples::Result;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::database::ShopDatabase;

/// Starts both; they run until `stop` is cancelled.
pub(crate) fn start<D: ShopDatabase>(
    tasks: &mut JoinSet<landfall::Result<()>>,
    database: &D,
    log: &Arc<dyn Broker>,
    topic: &str,
    handler: impl Handler<D>,
    stop: &CancellationToken,
) -> Result<()> {
    let queue = Arc::new(database.clone());
    let relay = Relay::new(queue.clone(), queue, log.publisher(), relay::Options::default());
    tasks.spawn(relay.run(stop.clone()));

    // A group reads a topic once; it can have any number of members.
    let (topic, group) = (TopicName::new(topic)?, GroupName::new("shop")?);
    let options = consume::Options::default();
    let consumer = Consumer::new(database.clone(), log.clone(), topic, group, handler, options);
    tasks.spawn(consumer.run(stop.clone()));
    Ok(())
}
