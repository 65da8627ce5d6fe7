//! The topic, group and messages of the load, also used by tests of single calls.

use landfall_core::{GroupName, Key, Message, TopicName};

/// Returns the topic `orders`.
pub fn orders() -> TopicName {
    TopicName::new("orders").unwrap()
}

/// Returns the group `stock`.
pub fn stock() -> GroupName {
    GroupName::new("stock").unwrap()
}

/// Returns message `sequence` of `key` on the topic [`orders`], with the payload `key/sequence`.
pub fn keyed(key: &str, sequence: i64) -> Message {
    Message::new(orders(), format!("{key}/{sequence}")).with_key(Key::new(key).unwrap()).with_sequence(sequence)
}
