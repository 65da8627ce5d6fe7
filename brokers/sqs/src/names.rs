//! The names of queues, and the ids of groups.
//!
//! A queue's name has at most 80 letters, digits, `-` and `_`, and a FIFO queue's ends in `.fifo`. A topic's name has
//! dots besides: a dot is written `__` and an underscore `_-`, so that every queue belongs to one topic and the other
//! way round.

use landfall_core::{Error, Key, MessageId, Result, TopicName};

const LONGEST_NAME: usize = 80;
const LONGEST_GROUP: usize = 128;
const FIFO: &str = ".fifo";

/// The queue of `topic`.
pub(crate) fn queue(prefix: &str, topic: &TopicName, fifo: bool) -> Result<String> {
    let mut name = prefix.to_owned();
    for letter in topic.as_str().chars() {
        match letter {
            '.' => name.push_str("__"),
            '_' => name.push_str("_-"),
            other => name.push(other),
        }
    }
    if fifo {
        name.push_str(FIFO);
    }
    match name.len() {
        length if length > LONGEST_NAME => Err(Error::invalid(format!(
            "topic {topic} makes a queue's name of {length} letters, and SQS takes {LONGEST_NAME}"
        ))),
        _ => Ok(name),
    }
}

/// The topic of `queue`; `None` if it is none of ours.
pub(crate) fn topic(prefix: &str, queue: &str, fifo: bool) -> Option<TopicName> {
    let name = queue.strip_prefix(prefix)?;
    let name = if fifo { name.strip_suffix(FIFO)? } else { name };
    let mut topic = String::with_capacity(name.len());
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        topic.push(match letter {
            '_' => match letters.next()? {
                '_' => '.',
                '-' => '_',
                _ => return None,
            },
            other => other,
        });
    }
    TopicName::new(topic).ok()
}

/// The message group of a key: the key itself where SQS takes it, else an id made from it. Two keys that shared a group
/// would be no worse than one key: they would wait for each other.
pub(crate) fn group(key: &Key) -> String {
    let key = key.as_str();
    match key.len() <= LONGEST_GROUP && key.bytes().all(|byte| byte.is_ascii_graphic()) {
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
        fn every_topic_has_a_queue_of_its_own(name in "[A-Za-z0-9._-]{1,30}", fifo in any::<bool>()) {
            prop_assume!(name != "." && name != "..");
            let name = TopicName::new(name).unwrap();
            let queue = queue("shop-", &name, fifo).unwrap();
            let plain = queue.strip_suffix(if fifo { FIFO } else { "" }).unwrap();
            prop_assert!(plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'));
            prop_assert_eq!(topic("shop-", &queue, fifo), Some(name));
        }
    }

    #[test]
    fn names_read_well_and_strangers_are_left_alone() {
        let name = TopicName::new("orders.created").unwrap();
        assert_eq!(queue("shop-", &name, true).unwrap(), "shop-orders__created.fifo");
        for stranger in ["orders.fifo", "shop-orders", "shop-a_b.fifo", "shop-a_.fifo", "shop-.fifo"] {
            assert_eq!(topic("shop-", stranger, true), None, "{stranger}");
        }
        let long = TopicName::new("x".repeat(76)).unwrap();
        assert!(queue("", &long, true).is_err());
        assert!(queue("", &long, false).is_ok());
    }

    #[test]
    fn a_key_that_sqs_would_refuse_has_a_group_of_its_own() {
        let key = |text: &str| Key::new(text).unwrap();
        assert_eq!(group(&key("order-1/eu")), "order-1/eu");
        let (one, other) = (group(&key("客户 1")), group(&key("客户 2")));
        assert_ne!(one, other);
        assert_eq!(one, group(&key("客户 1")));
        for made in [one, group(&key(&"x".repeat(129)))] {
            assert!(made.len() <= LONGEST_GROUP && made.bytes().all(|byte| byte.is_ascii_graphic()), "{made}");
        }
    }
}
