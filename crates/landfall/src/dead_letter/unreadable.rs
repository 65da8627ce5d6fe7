//! Deliveries that are no messages. A dead letter records such a delivery by its position and keeps its payload: some
//! brokers delete the content with the acknowledgement.

use bytes::Bytes;
use landfall_core::{ErrorCode, Failure, Kind, Message, MessageId, Position, TopicName};

/// The kind of the message that takes its place.
const KIND: &str = "landfall.unreadable";

/// Returns the message that takes the place of the delivery at `position`. Its id is derived from the position, so that
/// a redelivery is a duplicate.
pub(crate) fn placeholder(topic: &TopicName, position: Position, payload: Bytes) -> Message {
    let id = MessageId::from_position(topic, position);
    // The kind is valid.
    Message::new(topic.clone(), payload).with_id(id).with_kind(Kind::new(KIND).unwrap_or_default())
}

/// Refuses a redriven placeholder: the handler must not see a message that was never sent.
pub(super) fn refusal(message: &Message) -> Option<Failure> {
    let is_placeholder = message.kind.as_str() == KIND && message.key.is_none();
    let error = "not a message when it arrived, so it cannot be redriven; `landfall dlq show` prints its payload";
    is_placeholder.then(|| Failure::park(ErrorCode::VALIDATION, error))
}
