//! The messages that are on their way, which tests of single calls use too.

use landfall_core::{GroupName, Key, Message, TopicName};

/// The topic `orders`.
pub fn orders() -> TopicName {
    TopicName::new("orders").unwrap()
}

/// The group `stock`.
pub fn stock() -> GroupName {
    GroupName::new("stock").unwrap()
}

/// Message number `sequence` of `key` on the topic [`orders`]; its payload says which it is.
pub fn keyed(key: &str, sequence: i64) -> Message {
    Message::new(orders(), format!("{key}/{sequence}")).with_key(Key::new(key).unwrap()).with_sequence(sequence)
}
