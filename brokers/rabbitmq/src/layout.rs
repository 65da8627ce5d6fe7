//! What stands on the server for a topic and for a group of it.
//!
//! ```text
//! orders (fanout) ─┬─ orders:stock (direct) ── slots 0, 4, 8… ── orders:stock:0 (quorum queue, one active consumer)
//!                  │                        └─ slots 1, 5, 9… ── orders:stock:1 …
//!                  └─ orders:payment (direct) ── …
//! ```
//!
//! Every slot is bound to its queue by name. The exchange type that hashes keys by itself deals its queues out anew
//! when the server starts, and so moves keys that still have messages in the queue of before.

use landfall_core::{Error, ErrorKind, Result, TopicName};
use lapin::options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};

use crate::confirm::start;
use crate::error;
use crate::names::{GroupNames, SLOTS};

/// So many returns to its queue survives a message. RabbitMQ 4 drops it after 20 unless told otherwise, and what gives
/// up on a message is Landfall. Servers of every version take this number; not all of them take one for "never".
const DELIVERY_LIMIT: i32 = 1_000_000_000;

/// Makes the exchange of a topic, or checks that it is there.
pub(crate) async fn declare_topic(channel: &Channel, name: &ShortString, passive: bool) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions { passive, durable: true, ..Default::default() };
    channel.exchange_declare(name.clone(), ExchangeKind::Fanout, options, FieldTable::default()).await
}

/// Makes everything that a group needs and is not there yet. Messages reach it from the last step on, all slots at once.
pub(crate) async fn declare_group(channel: &Channel, topic: &TopicName, names: &GroupNames) -> Result<()> {
    let partitions = names.queues.len();
    declare(channel, names).await.map_err(|error| match error::trouble(&error) {
        error::Trouble::Different => {
            let text = format!("{} is there with other settings than {partitions} partitions", names.exchange);
            Error::new(ErrorKind::Conflict, text).with_source(error)
        }
        _ => error::error(format!("the queues of topic {topic} cannot be made"), error),
    })
}

async fn declare(channel: &Channel, names: &GroupNames) -> lapin::Result<()> {
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    declare_topic(channel, &names.topic, false).await?;
    let mut arguments = FieldTable::default();
    let others = AMQPValue::LongString(names.others.as_str().into());
    arguments.insert("alternate-exchange".into(), others);
    channel.exchange_declare(names.exchange.clone(), ExchangeKind::Direct, durable, arguments).await?;
    channel.exchange_declare(names.others.clone(), ExchangeKind::Fanout, durable, FieldTable::default()).await?;

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
    for (queue, exchange, key) in slots.chain([(&names.queues[0], &names.others, String::new())]) {
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
