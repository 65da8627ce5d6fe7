//! The messages that every measurement uses, so that the rows of the table are comparable.

use landfall::{GroupName, Key, Message, TopicName};

use crate::Result;

/// Payload size unless a measurement says otherwise: about that of a small JSON event.
pub(crate) const PAYLOAD_BYTES: usize = 256;
/// Number of ordering keys: enough that two messages of one key are rarely in flight together.
pub(crate) const KEYS: u64 = 1_000;
pub(crate) const TOPIC: &str = "orders";
pub(crate) const GROUP: &str = "stock";

pub(crate) fn topic() -> Result<TopicName> {
    Ok(TopicName::new(TOPIC)?)
}

pub(crate) fn group() -> Result<GroupName> {
    Ok(GroupName::new(GROUP)?)
}

/// The `number`-th message: a new id, a key derived from `number`, and `payload_bytes` of payload.
pub(crate) fn message(number: u64, payload_bytes: usize) -> Result<Message> {
    let key = Key::new(format!("order-{}", number % KEYS))?;
    Ok(Message::new(topic()?, vec![b'x'; payload_bytes]).with_key(key))
}
