//! Maps messages to AMQP: CloudEvents attributes in the headers, the payload as the body.

use bytes::Bytes;
use landfall_core::adapter::wire;
use landfall_core::{Error, Message, Result, Timestamp, TopicName};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::names::SLOTS;

/// Delivery mode: written to disk before the confirm. Quorum queues do so anyway; other bound queues may not.
const PERSISTENT: u8 = 2;

/// Returns the properties of `message`, and a lower bound of their size.
pub(crate) fn properties(message: &Message, source: &str) -> (BasicProperties, usize) {
    let mut table = FieldTable::default();
    let mut bytes = 0;
    for (name, value) in wire::headers(message, source) {
        bytes += name.len() + value.len() + 6;
        // Header names are at most 128 bytes long.
        if let Ok(name) = ShortString::try_new(name) {
            table.insert(name, AMQPValue::LongString(value.into()));
        }
    }
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_message_id(message.id.to_string().into())
        .with_headers(table);
    (properties, bytes)
}

/// Parses a delivery into a message. The routing key of other producers is the message's key; Landfall's is a slot.
pub(crate) fn message(
    topic: &TopicName,
    routing_key: &str,
    properties: &BasicProperties,
    payload: Bytes,
) -> Result<Message> {
    let stored = properties.timestamp().and_then(|seconds| i64::try_from(seconds).ok());
    let stored = stored.map_or_else(Timestamp::now, |seconds| Timestamp::from_millis(seconds.saturating_mul(1000)));
    let is_slot = routing_key.parse().is_ok_and(|slot: u32| slot < SLOTS);
    let key = (!is_slot && !routing_key.is_empty()).then_some(routing_key);
    let table = properties.headers().as_ref().map(FieldTable::inner);
    let mut headers: Vec<(&str, String)> = Vec::new();
    for (name, value) in table.into_iter().flatten() {
        match text(value) {
            Some(text) => headers.push((name.as_str(), text)),
            None if wire::is_reserved(name.as_str()) => {
                return Err(Error::invalid(format!("header {name} is neither text nor a number")));
            }
            None => {}
        }
    }
    wire::message(topic, key, stored, headers.iter().map(|(name, value)| (*name, value.as_str())), payload)
}

/// Returns a header value as text; other clients send numbers as numbers. Tables and lists, such as the server's
/// `x-death`, are not Landfall's headers and are skipped.
fn text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok().map(str::to_owned),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        AMQPValue::Boolean(value) => Some(value.to_string()),
        AMQPValue::ShortShortInt(number) => Some(number.to_string()),
        AMQPValue::ShortShortUInt(number) => Some(number.to_string()),
        AMQPValue::ShortInt(number) => Some(number.to_string()),
        AMQPValue::ShortUInt(number) => Some(number.to_string()),
        AMQPValue::LongInt(number) => Some(number.to_string()),
        AMQPValue::LongUInt(number) => Some(number.to_string()),
        AMQPValue::LongLongInt(number) => Some(number.to_string()),
        AMQPValue::Float(number) => Some(number.to_string()),
        AMQPValue::Double(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use landfall_core::{Key, MessageId};

    use super::*;

    fn orders() -> TopicName {
        TopicName::new("orders").unwrap()
    }

    #[test]
    fn message_round_trips() {
        let sent = Message::new(orders(), "payload").with_key(Key::new("北京").unwrap()).with_sequence(7);
        let (properties, bytes) = properties(&sent, "shop");
        assert!(bytes > 100, "{bytes}");
        assert_eq!(properties.delivery_mode(), &Some(2));
        assert_eq!(message(&orders(), "17", &properties, sent.payload.clone()).unwrap(), sent);
    }

    #[test]
    fn foreign_message_is_parsed() {
        let id = MessageId::new();
        let mut headers = FieldTable::default();
        headers.insert("ce_id".into(), AMQPValue::LongString(id.to_string().into()));
        headers.insert("ce_sequence".into(), AMQPValue::LongInt(4));
        headers.insert("x-death".into(), AMQPValue::FieldArray(Default::default()));
        let properties = BasicProperties::default().with_headers(headers).with_timestamp(1_700_000_000);
        let arrived = message(&orders(), "order-7", &properties, "x".into()).unwrap();
        assert_eq!((arrived.id, arrived.sequence), (id, Some(4)));
        assert_eq!(arrived.key.unwrap().as_str(), "order-7");
        assert_eq!(arrived.time, Timestamp::from_millis(1_700_000_000_000));
        assert!(message(&orders(), "", &BasicProperties::default(), "x".into()).is_err());
    }
}
