//! The messages that every measurement uses, so that the rows of the table can be compared with each other.

use landfall::{GroupName, Key, Message, TopicName};

use crate::Result;

/// Bytes of a payload, except where a measurement says otherwise: about a small JSON event.
pub(crate) const PAYLOAD_BYTES: usize = 256;
/// Ordering keys in use: enough that messages of one key rarely meet.
pub(crate) const KEYS: u64 = 1_000;
pub(crate) const TOPIC: &str = "orders";
pub(crate) const GROUP: &str = "stock";

pub(crate) fn topic() -> Result<TopicName> {
    Ok(TopicName::new(TOPIC)?)
}

pub(crate) fn group() -> Result<GroupName> {
    Ok(GroupName::new(GROUP)?)
}

/// The `number`-th message: a new id, a key of its turn and `payload_bytes` of payload.
pub(crate) fn message(number: u64, payload_bytes: usize) -> Result<Message> {
    let key = Key::new(format!("order-{}", number % KEYS))?;
    Ok(Message::new(topic()?, vec![b'x'; payload_bytes]).with_key(key))
}
