//! Maps messages to the fields of a stream entry: the CloudEvents headers by name, and the payload as `ce_data`.
//!
//! The prefix `ce_` is reserved, so no header of a message clashes with `ce_data`.

use bytes::Bytes;
use landfall_core::adapter::wire;
use landfall_core::{Error, Message, Result, TopicName};

use crate::entry::Entry;

/// The field that holds the payload.
pub(crate) const DATA: &str = "ce_data";

/// Returns the headers of `message` in the order of writing. The payload follows them.
pub(crate) fn headers(message: &Message, source: &str) -> Vec<(String, String)> {
    wire::headers(message, source)
}

/// Parses an entry into a message. An entry without `ce_id`, or with a header that is not UTF-8, is an error.
pub(crate) fn message(topic: &TopicName, entry: &Entry) -> Result<Message> {
    parse(topic, entry).map_err(|error| {
        let payload = entry.fields.iter().find(|(name, _)| name == DATA).map(|(_, value)| value.clone());
        error.with_payload(payload.unwrap_or_default())
    })
}

fn parse(topic: &TopicName, entry: &Entry) -> Result<Message> {
    let mut payload = Bytes::new();
    let mut headers = Vec::with_capacity(entry.fields.len());
    for (name, value) in &entry.fields {
        if name == DATA {
            payload = value.clone();
            continue;
        }
        let text = |bytes| std::str::from_utf8(bytes).map_err(|error| not_utf8(entry, error));
        headers.push((text(name)?, text(value)?));
    }
    wire::message(topic, None, entry.id.time(), headers, payload)
}

fn not_utf8(entry: &Entry, error: std::str::Utf8Error) -> Error {
    Error::invalid(format!("a field of entry {} is not UTF-8", entry.id)).with_source(error)
}

#[cfg(test)]
mod tests {
    use landfall_core::Key;

    use super::*;
    use crate::entry::EntryId;

    fn entry(message: &Message) -> Entry {
        let headers = headers(message, "shop").into_iter().map(|(name, value)| (name.into(), value.into()));
        let data = (Bytes::from_static(DATA.as_bytes()), message.payload.clone());
        Entry { id: EntryId { millis: 7, sequence: 0 }, fields: headers.chain([data]).collect() }
    }

    #[test]
    fn message_round_trips() {
        let topic = TopicName::new("orders").unwrap();
        let mut sent = Message::new(topic.clone(), vec![0, 255, 10]).with_key(Key::new("客户 1").unwrap());
        sent.headers.insert("data", "not the payload").unwrap();
        assert_eq!(message(&topic, &entry(&sent)).unwrap(), sent);
    }

    #[test]
    fn foreign_entry_is_an_error() {
        let topic = TopicName::new("orders").unwrap();
        let mut foreign = entry(&Message::new(topic.clone(), "x"));
        foreign.fields.retain(|(name, _)| name != wire::ID);
        assert_eq!(message(&topic, &foreign).unwrap_err().to_string(), "the event has no ce_id");
        foreign.fields.push((Bytes::from_static(b"x"), Bytes::from_static(&[255])));
        assert!(message(&topic, &foreign).unwrap_err().to_string().starts_with("a field of entry 7-0 is not UTF-8"));
    }
}
