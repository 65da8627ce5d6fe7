//! The wire format: a CloudEvents 1.0 event in binary mode, on every transport.
//!
//! The payload is unchanged; everything else is a header. Consumers without Landfall find `ce_id`, `ce_type` and the
//! others where they expect them. Messages of other producers are accepted; only the id is mandatory. It need not be
//! a UUID: the message id is then derived from `ce_source` and `ce_id`.

use bytes::Bytes;

use crate::{Error, Headers, Key, Kind, Message, MessageId, Mode, Result, SystemHeader, Timestamp, TopicName};

pub const ID: &str = "ce_id";
pub const TYPE: &str = "ce_type";
pub const SOURCE: &str = "ce_source";
pub const SPEC_VERSION: &str = "ce_specversion";
pub const SUBJECT: &str = "ce_subject";
pub const TIME: &str = "ce_time";
pub const PARTITION_KEY: &str = "ce_partitionkey";
pub const SEQUENCE: &str = "ce_sequence";
pub const MODE: &str = "landfall-mode";

/// Returns the headers of `message` as an event from `source` (a URI reference, such as the service's name).
pub fn headers(message: &Message, source: &str) -> Vec<(String, String)> {
    let mut headers: Vec<(&str, String)> = vec![
        (SPEC_VERSION, "1.0".into()),
        (ID, message.id.to_string()),
        (TYPE, message.kind.as_str().into()),
        (SOURCE, source.into()),
        (TIME, message.time.to_string()),
        (MODE, message.mode.to_string()),
    ];
    if let Some(key) = &message.key {
        headers.push((SUBJECT, key.to_string()));
        headers.push((PARTITION_KEY, key.to_string()));
    }
    if let Some(sequence) = message.sequence {
        headers.push((SEQUENCE, sequence.to_string()));
    }
    headers.extend(message.headers.iter().map(|(name, value)| (name, value.to_owned())));
    headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the id for the broker's own deduplication: the message id, except for a message in a retry lane or `.dlq`
/// topic. Each of its sends needs an id of its own, or the broker would drop it as a duplicate.
pub fn broker_id(message: &Message) -> MessageId {
    broker_id_of(message.id, |header| message.headers.noted(header))
}

/// Like [`broker_id`], for a message given as its id and a lookup of its system headers.
pub fn broker_id_of<'a>(id: MessageId, noted: impl Fn(SystemHeader) -> Option<&'a str>) -> MessageId {
    match (noted(SystemHeader::Attempts), noted(SystemHeader::FailedAt)) {
        (None, None) => id,
        (attempts, failed_at) => {
            // Two groups may have sent it at the same moment.
            let whose = noted(SystemHeader::Group).unwrap_or_default();
            let attempts = attempts.unwrap_or_default();
            id.again(&format!("{whose}/{attempts}"), failed_at.unwrap_or_default())
        }
    }
}

/// Parses an event. `key` is the transport's own key, used without `ce_partitionkey`; `stored` is the transport's time,
/// used without `ce_time`.
pub fn message<'a>(
    topic: &TopicName,
    key: Option<&str>,
    stored: Timestamp,
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    payload: Bytes,
) -> Result<Message> {
    // Built field by field: `Message::new` would generate an id and a time first.
    let (mut id, mut source, mut kind) = (None, "", None);
    let (mut time, mut sequence, mut mode) = (stored, None, Mode::default());
    let mut key = key.map(Key::new).transpose()?;
    let mut own = Headers::default();
    for (name, value) in headers {
        match name {
            ID => id = Some(value),
            SOURCE => source = value,
            TYPE => kind = Some(Kind::new(value)?),
            TIME => time = value.parse()?,
            PARTITION_KEY => key = Some(Key::new(value)?),
            SEQUENCE => sequence = Some(parse_sequence(value)?),
            MODE => mode = value.parse()?,
            SPEC_VERSION | SUBJECT => {}
            _ if SystemHeader::is(name) => own.restore(name, value)?,
            _ if is_reserved(name) => {}
            _ => own.insert(name, value)?,
        }
    }
    let id = id.filter(|id| !id.is_empty()).ok_or_else(|| Error::invalid("the event has no ce_id"))?;
    let id = id.parse().unwrap_or_else(|_| MessageId::from_business(source, id));
    let (topic, kind) = (topic.clone(), kind.unwrap_or_default());
    Ok(Message { id, topic, key, sequence, kind, mode, headers: own, payload, time })
}

/// Returns whether a header belongs to CloudEvents or Landfall. An adapter that skips headers it cannot represent must
/// refuse the message if it would skip one of these: the key, say, decides about the order.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with("ce_") || name.starts_with("landfall-")
}

/// Refuses a negative number: a check of consecutive numbers would discard it as a duplicate.
fn parse_sequence(text: &str) -> Result<i64> {
    let number: i64 = text.parse().map_err(|e| Error::invalid("ce_sequence is no number").with_source(e))?;
    if number < 0 {
        return Err(Error::invalid("ce_sequence is negative; sequences count from 0"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn message_round_trips_through_headers(
            key in proptest::option::of("[^\\x00-\\x1f\\x7f-\\x9f]{1,40}"),
            sequence in proptest::option::of(0..=i64::MAX),
            value in "[^\\r\\n\\x00]{0,60}",
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            mode in proptest::sample::select(Mode::ALL.to_vec()),
        ) {
            let topic = TopicName::new("orders").unwrap();
            let mut sent = Message::new(topic.clone(), payload).with_kind(Kind::new("Placed").unwrap()).with_mode(mode);
            sent.key = key.map(|key| Key::new(key).unwrap());
            sent.sequence = sequence;
            sent.headers.insert("tenant", value).unwrap();

            let headers = headers(&sent, "shop");
            let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let arrived = message(&topic, None, Timestamp::from_millis(0), pairs, sent.payload.clone()).unwrap();
            prop_assert_eq!(arrived, sent);
        }
    }

    #[test]
    fn event_without_an_id_is_refused() {
        let topic = TopicName::new("orders").unwrap();
        let error = message(&topic, Some("k"), Timestamp::now(), [(TYPE, "x")], Bytes::new()).unwrap_err();
        assert_eq!(error.to_string(), "the event has no ce_id");
    }

    #[test]
    fn foreign_id_and_source_determine_the_message_id() {
        let id = |headers: &[(&'static str, &'static str)]| {
            let topic = TopicName::new("orders").unwrap();
            message(&topic, None, Timestamp::now(), headers.iter().copied(), Bytes::new()).map(|message| message.id)
        };
        let derived = id(&[(ID, "order-7"), (SOURCE, "/shop")]).unwrap();
        assert_eq!(id(&[(SOURCE, "/shop"), (ID, "order-7")]).unwrap(), derived, "the order of headers counts");
        assert_ne!(id(&[(ID, "order-7"), (SOURCE, "/crm")]).unwrap(), derived);
        assert_ne!(id(&[(ID, "order-8"), (SOURCE, "/shop")]).unwrap(), derived);
        assert!(id(&[(ID, "order-7")]).is_ok(), "an event without a source is refused");
        let uuid = "0190d2a7-6a4e-7bbb-8a6d-3c1f0a9b1c2d";
        assert_eq!(id(&[(ID, uuid), (SOURCE, "/shop")]).unwrap().to_string(), uuid);
        assert_eq!(id(&[(ID, ""), (SOURCE, "/shop")]).unwrap_err().to_string(), "the event has no ce_id");
    }

    #[test]
    fn garbage_in_headers_of_the_system_is_refused() {
        let topic = TopicName::new("orders").unwrap();
        let id = MessageId::new().to_string();
        let parse =
            |name, value| message(&topic, None, Timestamp::now(), [(ID, id.as_str()), (name, value)], "x".into());
        for (name, value) in [
            (ID, ""),
            (TIME, "yesterday"),
            (SEQUENCE, "seven"),
            (SEQUENCE, "-1"),
            (SEQUENCE, "9223372036854775808"),
            (MODE, "thrice"),
            (TYPE, ""),
            (PARTITION_KEY, "a\0b"),
            ("CE_ID", "x"),
            ("Landfall-Attempts", "1"),
        ] {
            assert!(parse(name, value).is_err(), "{name}: {value:?} was accepted");
        }
        // These say nothing on a main topic; a retry topic reads them with care.
        assert!(parse("landfall-attempts", "-7").is_ok() && parse("landfall-unknown", "x").is_ok());
    }

    #[test]
    fn each_retry_lane_send_has_its_own_broker_id() {
        let message = Message::new(TopicName::new("orders").unwrap(), Vec::new());
        assert_eq!(broker_id(&message), message.id);
        let moved = |attempts: &str| {
            let mut moved = message.clone();
            moved.headers.restore(SystemHeader::Attempts.as_str(), attempts).unwrap();
            broker_id(&moved)
        };
        assert_eq!(moved("1"), moved("1"));
        assert_ne!(moved("1"), moved("2"));
        assert_ne!(moved("1"), message.id);
    }
}
