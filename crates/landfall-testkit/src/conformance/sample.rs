//! Sample messages, groups and failures.

use landfall_core::{ErrorCode, Failure, GroupName, Headers, Key, Kind, Message, MessageId, TopicName};

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName::new(name).unwrap()
}

pub(crate) fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Message `sequence` of the key `name` on the topic `orders`.
pub(crate) fn keyed(name: &str, sequence: i64) -> Message {
    Message::new(topic("orders"), format!("{name}/{sequence}")).with_key(key(name)).with_sequence(sequence)
}

/// Messages `1..=count` of the key `name`.
pub(crate) fn series(name: &str, count: i64) -> Vec<Message> {
    (1..=count).map(|sequence| keyed(name, sequence)).collect()
}

pub(crate) fn keyless() -> Message {
    Message::new(topic("orders"), "without a key")
}

/// A message that uses every field, with characters that need escaping.
pub(crate) fn elaborate() -> Message {
    let mut headers = Headers::default();
    headers.insert("tenant", "北京 \"quoted\" \\ 'single' $1 ?").unwrap();
    headers.insert("empty", "").unwrap();
    Message::new(topic("orders.v2_retry-1"), vec![0, 255, 10, 13, 0, 128, 39, 92])
        .with_key(key("客户 42/eu 'x' \"y\" \\ %_"))
        .with_sequence(i64::MAX)
        .with_kind(Kind::new("Order placed: ö").unwrap())
        .with_headers(headers)
}

pub(crate) fn failure() -> Failure {
    Failure::park(ErrorCode::new("OUT_OF_STOCK"), "the item is out of stock")
}

pub(crate) fn ids(messages: &[Message]) -> Vec<MessageId> {
    messages.iter().map(|message| message.id).collect()
}

pub(crate) fn sorted(mut ids: Vec<MessageId>) -> Vec<MessageId> {
    ids.sort();
    ids
}
