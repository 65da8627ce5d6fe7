//! The exchanges, queues and bindings of a topic and its groups.
//!
//! ```text
//! orders (fanout) ─┬─ orders:stock (direct) ── slots 0, 4, 8… ── orders:stock:0 (quorum queue, one active consumer)
//!                  │                        └─ slots 1, 5, 9… ── orders:stock:1 …
//!                  └─ orders:payment (direct) ── …
//! ```
//!
//! Every slot is bound to its queue explicitly. The consistent-hash exchange would reassign its queues when the server
//! starts, and so move keys that still have messages in their former queue.

use landfall_core::{Error, ErrorKind, Result, TopicName};
use lapin::options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};

use crate::error;
use crate::names::{GroupNames, SLOTS};
use crate::publisher::confirm::start;

/// Number of redeliveries before the server drops a message. RabbitMQ 4 drops it after 20 by default, but only Landfall
/// may give up on a message. Every version accepts this number; not all accept one that means "never".
const DELIVERY_LIMIT: i32 = 1_000_000_000;

/// Creates the exchange of a topic, or with `passive` checks that it exists.
pub(crate) async fn declare_topic(channel: &Channel, name: &ShortString, passive: bool) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions { passive, durable: true, ..Default::default() };
    channel.exchange_declare(name.clone(), ExchangeKind::Fanout, options, FieldTable::default()).await
}

/// Creates what a group lacks: exchanges, queues and bindings. The last step binds all slots to the topic at once.
pub(crate) async fn declare_group(channel: &Channel, topic: &TopicName, names: &GroupNames) -> Result<()> {
    let partitions = names.queues.len();
    declare(channel, names).await.map_err(|error| match error::classify(&error) {
        error::ServerError::Mismatch => {
            let text = format!("{} exists with other settings than {partitions} partitions", names.exchange);
            Error::new(ErrorKind::Conflict, text).with_source(error)
        }
        _ => error::error(format!("the queues of topic {topic} cannot be created"), error),
    })
}

async fn declare(channel: &Channel, names: &GroupNames) -> lapin::Result<()> {
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    declare_topic(channel, &names.topic, false).await?;
    let mut arguments = FieldTable::default();
    let unrouted = AMQPValue::LongString(names.unrouted.as_str().into());
    arguments.insert("alternate-exchange".into(), unrouted);
    channel.exchange_declare(names.exchange.clone(), ExchangeKind::Direct, durable, arguments).await?;
    channel.exchange_declare(names.unrouted.clone(), ExchangeKind::Fanout, durable, FieldTable::default()).await?;

    let mut queues = Vec::with_capacity(names.queues.len());
    for queue in &names.queues {
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        queues.push(start(channel.queue_declare(queue.clone(), options, queue_arguments())).await);
    }
    for queue in queues {
        queue.await?;
    }
    let slots = (0..SLOTS).map(|slot| (names.queue_of(slot), &names.exchange, slot.to_string()));
    let mut bindings = Vec::with_capacity(SLOTS as usize + 1);
    for (queue, exchange, key) in slots.chain([(&names.queues[0], &names.unrouted, String::new())]) {
        let options = QueueBindOptions::default();
        let binding = channel.queue_bind(queue.clone(), exchange.clone(), key.into(), options, FieldTable::default());
        bindings.push(start(binding).await);
    }
    for binding in bindings {
        binding.await?;
    }
    let (to, from) = (names.exchange.clone(), names.topic.clone());
    channel.exchange_bind(to, from, "".into(), ExchangeBindOptions::default(), FieldTable::default()).await
}

fn queue_arguments() -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(DELIVERY_LIMIT));
    arguments
}
