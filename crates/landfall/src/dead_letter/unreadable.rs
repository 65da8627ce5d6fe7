//! Deliveries that are no messages. A dead letter records such a delivery by its position; its content stays in the
//! broker.

use landfall_core::{ErrorCode, Failure, Kind, Message, MessageId, Position, TopicName};

/// The kind of the empty message that takes its place.
const KIND: &str = "landfall.unreadable";

/// Returns the message that takes the place of the delivery at `position`. Its id is derived from the position, so that
/// a redelivery is a duplicate.
pub(crate) fn placeholder(topic: &TopicName, position: Position) -> Message {
    let id = MessageId::from_position(topic, position);
    // The kind is valid.
    Message::new(topic.clone(), "").with_id(id).with_kind(Kind::new(KIND).unwrap_or_default())
}

/// Refuses a redriven placeholder: the handler must not see a message that was never sent.
pub(super) fn refusal(message: &Message) -> Option<Failure> {
    let is_placeholder = message.kind.as_str() == KIND && message.key.is_none() && message.payload.is_empty();
    let error = "not a message when it arrived, so there is nothing to redrive; its content is in the broker";
    is_placeholder.then(|| Failure::park(ErrorCode::VALIDATION, error))
}
