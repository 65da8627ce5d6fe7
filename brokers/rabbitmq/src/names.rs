//! What things are called on the server, and which slot a message belongs to.
//!
//! `shop.orders` is a topic's exchange, `shop.orders:stock` that of the group `stock`, `shop.orders:stock:3` its fourth
//! queue. A colon cannot stand in a topic or a group, so that nothing is mistaken for anything else.

use landfall_core::{Error, GroupName, Message, Result, TopicName};
use lapin::types::ShortString;

/// The key space is cut into so many slots; each group spreads them over its queues. Part of what publishers and
/// groups agree on, so never changed.
pub const SLOTS: u32 = 32;

pub(crate) const SEPARATOR: char = ':';

/// The exchange of `topic`. AMQP's names end at 255 bytes.
pub(crate) fn topic(prefix: &str, topic: &TopicName) -> Result<ShortString> {
    short(format!("{prefix}{topic}"))
}

/// The names of one group on one topic.
#[derive(Debug, Clone)]
pub(crate) struct GroupNames {
    pub(crate) topic: ShortString,
    pub(crate) exchange: ShortString,
    /// Where that exchange sends what has no slot. Its name says how many queues there are: the server refuses to
    /// declare the group's exchange again with another.
    pub(crate) others: ShortString,
    pub(crate) queues: Vec<ShortString>,
}

impl GroupNames {
    pub(crate) fn new(prefix: &str, name: &TopicName, group: &GroupName, partitions: u32) -> Result<Self> {
        let exchange = format!("{prefix}{name}{SEPARATOR}{group}");
        let queue = |number: u32| short(format!("{exchange}{SEPARATOR}{number}"));
        Ok(Self {
            topic: topic(prefix, name)?,
            others: short(format!("{exchange}{SEPARATOR}of{SEPARATOR}{partitions}"))?,
            queues: (0..partitions).map(queue).collect::<Result<_>>()?,
            exchange: short(exchange)?,
        })
    }

    /// Which queue has `slot`.
    pub(crate) fn queue_of(&self, slot: u32) -> &ShortString {
        &self.queues[slot as usize % self.queues.len()]
    }
}

/// The slot of a message with a key; one without goes wherever its id falls.
pub(crate) fn slot(message: &Message) -> u32 {
    match &message.key {
        Some(key) => key.partition(SLOTS),
        None => u32::from(message.id.as_bytes()[15]) % SLOTS,
    }
}

/// The topic behind the name of an exchange, if it is one of ours.
pub(crate) fn topic_of(prefix: &str, exchange: &str) -> Option<TopicName> {
    let name = exchange.strip_prefix(prefix)?;
    if name.is_empty() || name.contains(SEPARATOR) || (prefix.is_empty() && name.starts_with("amq.")) {
        return None;
    }
    TopicName::new(name).ok()
}

/// The topic and the group behind the name of a queue or of a group's exchange, if it is one of ours.
pub(crate) fn group_of(prefix: &str, name: &str) -> Option<(TopicName, GroupName)> {
    let mut parts = name.strip_prefix(prefix)?.split(SEPARATOR);
    Some((TopicName::new(parts.next()?).ok()?, GroupName::new(parts.next()?).ok()?))
}

fn short(name: String) -> Result<ShortString> {
    let length = name.len();
    ShortString::try_new(name)
        .map_err(|_| Error::invalid(format!("the name on the server would be {length} bytes long; the limit is 255")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        let (orders, stock) = (TopicName::new("orders").unwrap(), GroupName::new("stock").unwrap());
        let names = GroupNames::new("shop.", &orders, &stock, 4).unwrap();
        assert_eq!((names.topic.as_str(), names.exchange.as_str()), ("shop.orders", "shop.orders:stock"));
        assert_eq!(
            (names.queues[3].as_str(), names.others.as_str()),
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
    fn a_name_that_is_too_long_is_refused() {
        let long = TopicName::new("x".repeat(249)).unwrap();
        assert!(topic("shop.", &long).is_ok());
        assert!(topic("shop.eu.", &long).is_err());
    }
}
