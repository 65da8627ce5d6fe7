//! Names of queues, and ids of message groups.
//!
//! A queue's name has at most 80 letters, digits, `-` and `_`, and that of a FIFO queue ends in `.fifo`. A topic's name
//! may also contain dots. A dot becomes `__` and an underscore `_-`, so that queues and topics map one to one.

use landfall_core::{Error, Key, MessageId, Result, TopicName};

const MAX_NAME_LENGTH: usize = 80;
const MAX_GROUP_LENGTH: usize = 128;
const FIFO: &str = ".fifo";

/// Returns the name of the queue of `topic`.
pub(crate) fn queue(prefix: &str, topic: &TopicName, fifo: bool) -> Result<String> {
    let mut name = prefix.to_owned();
    for character in topic.as_str().chars() {
        match character {
            '.' => name.push_str("__"),
            '_' => name.push_str("_-"),
            other => name.push(other),
        }
    }
    if fifo {
        name.push_str(FIFO);
    }
    match name.len() {
        length if length > MAX_NAME_LENGTH => Err(Error::invalid(format!(
            "the queue of topic {topic} would have a name of {length} characters; SQS allows {MAX_NAME_LENGTH}"
        ))),
        _ => Ok(name),
    }
}

/// Returns the topic of `queue`, or `None` if it is not a topic's queue.
pub(crate) fn topic(prefix: &str, queue: &str, fifo: bool) -> Option<TopicName> {
    let name = queue.strip_prefix(prefix)?;
    let name = if fifo { name.strip_suffix(FIFO)? } else { name };
    let mut topic = String::with_capacity(name.len());
    let mut characters = name.chars();
    while let Some(character) = characters.next() {
        topic.push(match character {
            '_' => match characters.next()? {
                '_' => '.',
                '-' => '_',
                _ => return None,
            },
            other => other,
        });
    }
    TopicName::new(topic).ok()
}

/// Returns the message group of a key: the key itself if SQS allows it, else an id derived from it. A collision of two
/// keys would be harmless: they would only wait for each other.
pub(crate) fn group(key: &Key) -> String {
    let key = key.as_str();
    match key.len() <= MAX_GROUP_LENGTH && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => key.to_owned(),
        false => format!("key-{}", MessageId::from_business("key", key)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn topics_and_queues_map_one_to_one(name in "[A-Za-z0-9._-]{1,30}", fifo in any::<bool>()) {
            prop_assume!(name != "." && name != "..");
            let name = TopicName::new(name).unwrap();
            let queue = queue("shop-", &name, fifo).unwrap();
            let plain = queue.strip_suffix(if fifo { FIFO } else { "" }).unwrap();
            prop_assert!(plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'));
            prop_assert_eq!(topic("shop-", &queue, fifo), Some(name));
        }
    }

    #[test]
    fn foreign_queues_are_not_topics() {
        let name = TopicName::new("orders.created").unwrap();
        assert_eq!(queue("shop-", &name, true).unwrap(), "shop-orders__created.fifo");
        for foreign in ["orders.fifo", "shop-orders", "shop-a_b.fifo", "shop-a_.fifo", "shop-.fifo"] {
            assert_eq!(topic("shop-", foreign, true), None, "{foreign}");
        }
        let long = TopicName::new("x".repeat(76)).unwrap();
        assert!(queue("", &long, true).is_err());
        assert!(queue("", &long, false).is_ok());
    }

    #[test]
    fn key_that_sqs_refuses_gets_a_derived_group() {
        let key = |text: &str| Key::new(text).unwrap();
        assert_eq!(group(&key("order-1/eu")), "order-1/eu");
        let (one, other) = (group(&key("客户 1")), group(&key("客户 2")));
        assert_ne!(one, other);
        assert_eq!(one, group(&key("客户 1")));
        for group in [one, group(&key(&"x".repeat(129)))] {
            assert!(group.len() <= MAX_GROUP_LENGTH && group.bytes().all(|byte| byte.is_ascii_graphic()), "{group}");
        }
    }
}
