use landfall_core::{Headers, Key, Kind};
use proptest::prelude::*;

use super::*;

/// The message that SQS delivers for `encoded`.
fn stored(encoded: &Encoded, group: &str) -> Stored {
    let mut stored = Stored::builder()
        .body(&encoded.text)
        .attributes(MessageSystemAttributeName::MessageGroupId, group)
        .attributes(MessageSystemAttributeName::SentTimestamp, "1700000000000");
    for (name, value) in &encoded.attributes {
        stored = stored.message_attributes(name, attribute(value.clone()).unwrap());
    }
    stored.build()
}

fn topic() -> TopicName {
    TopicName::new("orders").unwrap()
}

proptest! {
    #[test]
    fn message_round_trips_within_sqs_limits(
        key in proptest::option::of("[^\\x00-\\x1f\\x7f-\\x9f]{1,40}"),
        sequence in proptest::option::of(0..=i64::MAX),
        headers in proptest::collection::btree_map("[a-z.]{1,8}", "[^\\r\\n\\x00]{0,20}", 0..14),
        payload in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..50),
            "[ -~\\u{4e00}-\\u{4e20}]{0,50}".prop_map(String::into_bytes),
        ],
    ) {
        let mut message = Message::new(topic(), payload).with_kind(Kind::new("Placed").unwrap());
        message.key = key.map(|key| Key::new(key).unwrap());
        message.sequence = sequence;
        let mut own = Headers::default();
        for (name, value) in headers.iter().filter(|(name, _)| !matches!(name.as_str(), "." | "..")) {
            own.insert(name, value.clone()).unwrap();
        }
        message.headers = own;

        let encoded = encode(&message);
        prop_assert!(encoded.attributes.len() <= MAX_ATTRIBUTES);
        prop_assert!(encoded.attributes.iter().all(|(name, value)| fits(name, value)), "{encoded:?}");
        prop_assert!(!encoded.text.is_empty() && is_allowed(&encoded.text));
        let group = message.key.as_ref().map_or_else(|| message.id.to_string(), crate::names::group);
        prop_assert_eq!(decode(&topic(), &stored(&encoded, &group)).unwrap(), message);
    }
}

#[test]
fn event_attributes_take_precedence_over_headers() {
    let mut message = Message::new(topic(), vec![0]).with_key(Key::new("k").unwrap()).with_sequence(1);
    for number in 0..20 {
        message.headers.insert(&format!("header-{number}"), "value").unwrap();
    }
    let encoded = encode(&message);
    let names: Vec<_> = encoded.attributes.iter().map(|(name, _)| name.as_str()).collect();
    let event = ["id", "type", "source", "specversion", "subject", "time", "partitionkey", "sequence"];
    for name in event.map(|name| format!("ce_{name}")) {
        assert!(names.contains(&name.as_str()), "{name} is missing in {names:?}");
    }
    assert!(names.contains(&ENCODING) && names.contains(&REST), "{names:?}");
}

#[test]
fn text_payload_is_sent_as_is() {
    let encoded = encode(&Message::new(topic(), "{\"total\": 7}\n"));
    assert_eq!(encoded.text, "{\"total\": 7}\n");
    assert!(encoded.attributes.iter().all(|(name, _)| name != ENCODING && name != REST));
}

#[test]
fn foreign_message_needs_an_id_and_its_group_is_its_key() {
    let bare = Encoded { text: "x".into(), attributes: Vec::new() };
    assert_eq!(decode(&topic(), &stored(&bare, "order-1")).unwrap_err().to_string(), "the event has no ce_id");
    let id = landfall_core::MessageId::new();
    let named = Encoded { text: "x".into(), attributes: vec![("ce_id".into(), id.to_string())] };
    let message = decode(&topic(), &stored(&named, "order-1")).unwrap();
    assert_eq!((message.id, message.key.unwrap().as_str()), (id, "order-1"));
    assert_eq!(message.time, Timestamp::from_millis(1_700_000_000_000));
    let wrong = vec![("ce_id".into(), id.to_string()), (ENCODING.into(), BASE64.into())];
    assert!(decode(&topic(), &stored(&Encoded { text: "%".into(), attributes: wrong }, "order-1")).is_err());
}

#[test]
fn positions_differ_like_ids() {
    let one = position("5fea7756-0ea4-451a-a703-a558b933e274");
    assert_ne!(one, position("5fea7756-0ea4-451a-a703-a558b933e275"));
    assert_eq!(one, position("5FEA7756-0EA4-451A-A703-A558B933E274"));
}
