//! Names of exchanges and queues, and the slot of a message.
//!
//! `shop.orders` is a topic's exchange, `shop.orders:stock` that of the group `stock`, `shop.orders:stock:3` its fourth
//! queue. Topic and group names contain no colon, so these names are unambiguous.

use landfall_core::{Error, GroupName, Message, Result, TopicName};
use lapin::types::ShortString;

/// Number of slots of the key space. Each group distributes them over its queues. Publishers and groups must agree on
/// this number, so it never changes.
pub const SLOTS: u32 = 32;

pub(crate) const SEPARATOR: char = ':';

/// The name of a topic's exchange. AMQP limits names to 255 bytes.
pub(crate) fn topic(prefix: &str, topic: &TopicName) -> Result<ShortString> {
    short(format!("{prefix}{topic}"))
}

/// The names of one group on one topic.
#[derive(Debug, Clone)]
pub(crate) struct GroupNames {
    pub(crate) topic: ShortString,
    pub(crate) exchange: ShortString,
    /// The alternate exchange, for routing keys that are not a slot. Its name contains the number of queues, so the
    /// server refuses to declare the group's exchange again with another number.
    pub(crate) unrouted: ShortString,
    pub(crate) queues: Vec<ShortString>,
}

impl GroupNames {
    pub(crate) fn new(prefix: &str, name: &TopicName, group: &GroupName, partitions: u32) -> Result<Self> {
        let exchange = format!("{prefix}{name}{SEPARATOR}{group}");
        let queue = |number: u32| short(format!("{exchange}{SEPARATOR}{number}"));
        Ok(Self {
            topic: topic(prefix, name)?,
            unrouted: short(format!("{exchange}{SEPARATOR}of{SEPARATOR}{partitions}"))?,
            queues: (0..partitions).map(queue).collect::<Result<_>>()?,
            exchange: short(exchange)?,
        })
    }

    /// Returns the queue of `slot`.
    pub(crate) fn queue_of(&self, slot: u32) -> &ShortString {
        &self.queues[slot as usize % self.queues.len()]
    }
}

/// Returns the slot of a message: by its key, or by its id without a key.
pub(crate) fn slot(message: &Message) -> u32 {
    match &message.key {
        Some(key) => key.partition(SLOTS),
        None => u32::from(message.id.as_bytes()[15]) % SLOTS,
    }
}

/// Returns the topic of an exchange, or `None` if it is not a topic's exchange.
pub(crate) fn topic_of(prefix: &str, exchange: &str) -> Option<TopicName> {
    let name = exchange.strip_prefix(prefix)?;
    if name.is_empty() || name.contains(SEPARATOR) || (prefix.is_empty() && name.starts_with("amq.")) {
        return None;
    }
    TopicName::new(name).ok()
}

/// Returns the topic and group of a queue or a group's exchange, or `None` for other names.
pub(crate) fn group_of(prefix: &str, name: &str) -> Option<(TopicName, GroupName)> {
    let mut parts = name.strip_prefix(prefix)?.split(SEPARATOR);
    Some((TopicName::new(parts.next()?).ok()?, GroupName::new(parts.next()?).ok()?))
}

fn short(name: String) -> Result<ShortString> {
    let length = name.len();
    ShortString::try_new(name)
        .map_err(|_| Error::invalid(format!("a name on the server has {length} bytes; the limit is 255")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let (orders, stock) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
        let names = GroupNames::new("shop.", &orders, &stock, 4).unwrap();
        assert_eq!((names.topic.as_str(), names.exchange.as_str()), ("shop.orders", "shop.orders:stock"));
        assert_eq!(
            (names.queues[3].as_str(), names.unrouted.as_str()),
            ("shop.orders:stock:3", "shop.orders:stock:of:4")
        );
        assert_eq!(topic_of("shop.", "shop.orders"), Some(orders.clone()));
        assert_eq!(group_of("shop.", "shop.orders:stock:3"), Some((orders, stock)));
        for other in ["shop.", "orders", "shop.orders:stock", "elsewhere.orders"] {
            assert_eq!(topic_of("shop.", other), None, "{other}");
        }
        assert_eq!(topic_of("", "amq.direct"), None);
    }

    #[test]
    fn every_slot_has_one_queue_and_every_queue_a_slot() {
        let names = GroupNames::new("", &TopicName::new("t").unwrap(), &GroupName::new("g").unwrap(), 5).unwrap();
        let mut used: Vec<_> = (0..SLOTS).map(|slot| names.queue_of(slot).as_str()).collect();
        used.sort();
        used.dedup();
        assert_eq!(used, ["t:g:0", "t:g:1", "t:g:2", "t:g:3", "t:g:4"]);
    }

    #[test]
    fn overlong_names_are_refused() {
        let long = TopicName::new("x".repeat(249)).unwrap();
        assert!(topic("shop.", &long).is_ok());
        assert!(topic("shop.eu.", &long).is_err());
    }
}
