//! Maps messages to SQS: a text body and at most ten attributes.
//!
//! The CloudEvents attributes come first, each by its name, so that any consumer finds them. Other headers follow while
//! there is space. Headers beyond that, and those that SQS refuses (empty values, forbidden characters), are stored as
//! one JSON object in `landfall-headers`. A payload that SQS refuses as text is sent as base64, which
//! `landfall-encoding` records.

use std::collections::BTreeMap;

use aws_sdk_sqs::types::{Message as Stored, MessageAttributeValue, MessageSystemAttributeName};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use landfall_core::adapter::wire;
use landfall_core::{Error, Message, Position, Result, Timestamp, TopicName};

/// SQS's limit of the number of attributes.
const MAX_ATTRIBUTES: usize = 10;
/// Attribute with the headers that have no attribute of their own, as JSON.
const REST: &str = "landfall-headers";
/// Attribute with the encoding of the body, if it is not the payload itself.
const ENCODING: &str = "landfall-encoding";
const BASE64: &str = "base64";
/// Encoding, and placeholder body, of an empty payload: SQS refuses an empty body.
const EMPTY: &str = "empty";

/// A message encoded for SQS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) text: String,
    pub(crate) attributes: Vec<(String, String)>,
}

impl Encoded {
    /// Size as SQS counts it: the body, and name, type and value of each attribute.
    pub(crate) fn bytes(&self) -> usize {
        let attribute = |(name, value): &(String, String)| name.len() + "String".len() + value.len();
        self.text.len() + self.attributes.iter().map(attribute).sum::<usize>()
    }
}

pub(crate) fn encode(message: &Message) -> Encoded {
    let (text, encoding) = match std::str::from_utf8(&message.payload) {
        Ok("") => (EMPTY.to_owned(), Some(EMPTY)),
        Ok(text) if is_allowed(text) => (text.to_owned(), None),
        _ => (STANDARD.encode(&message.payload), Some(BASE64)),
    };
    let mut headers = wire::headers(message, &format!("landfall/{}", message.topic));
    headers.extend(encoding.map(|encoding| (ENCODING.to_owned(), encoding.to_owned())));
    // The encoding is indispensable and comes first. Landfall's mode comes last: only Landfall uses it.
    headers.sort_by_key(|(name, _)| match name.as_str() {
        ENCODING => 0,
        wire::MODE => 3,
        name if name.starts_with("ce_") => 1,
        _ => 2,
    });
    let (mut attributes, mut rest): (Vec<_>, Vec<_>) = headers.into_iter().partition(|(name, value)| fits(name, value));
    if attributes.len() + usize::from(!rest.is_empty()) > MAX_ATTRIBUTES {
        rest.extend(attributes.split_off(MAX_ATTRIBUTES - 1));
    }
    if !rest.is_empty() {
        attributes.push((REST.to_owned(), to_json(rest)));
    }
    Encoded { text, attributes }
}

/// Parses a received message. Its group is its key, unless the group is its own id or a header names another key.
/// An error carries the body.
pub(crate) fn decode(topic: &TopicName, stored: &Stored) -> Result<Message> {
    let body = || Bytes::copy_from_slice(stored.body().unwrap_or_default().as_bytes());
    parse(topic, stored).map_err(|error| error.with_payload(body()))
}

fn parse(topic: &TopicName, stored: &Stored) -> Result<Message> {
    let system = |name: &MessageSystemAttributeName| stored.attributes()?.get(name).map(String::as_str);
    let sent = system(&MessageSystemAttributeName::SentTimestamp).and_then(|millis| millis.parse().ok());
    let group = system(&MessageSystemAttributeName::MessageGroupId);
    let mut headers = BTreeMap::new();
    for (name, value) in stored.message_attributes().into_iter().flatten() {
        match value.string_value() {
            Some(value) => drop(headers.insert(name.clone(), value.to_owned())),
            None if wire::is_reserved(name) => return Err(Error::invalid(format!("attribute {name} is not text"))),
            None => {}
        }
    }
    if let Some(rest) = headers.remove(REST) {
        headers.extend(from_json(&rest)?);
    }
    let text = stored.body().unwrap_or_default();
    let payload = match headers.remove(ENCODING).as_deref() {
        None => Bytes::copy_from_slice(text.as_bytes()),
        Some(EMPTY) => Bytes::new(),
        Some(BASE64) => STANDARD
            .decode(text)
            .map_err(|error| {
                Error::invalid("the body is marked as base64, but is not valid base64").with_source(error)
            })?
            .into(),
        Some(other) => return Err(Error::invalid(format!("the body has the unknown encoding {other:?}"))),
    };
    let key = group.filter(|group| headers.get(wire::ID).is_none_or(|id| id != group));
    let stored = sent.map_or_else(Timestamp::now, Timestamp::from_millis);
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    wire::message(topic, key, stored, headers, payload)
}

/// Returns a position from SQS's message id, folded to 64 bits. Sequence numbers are not unique: they only increase
/// within a group, and standard queues have none.
pub(crate) fn position(message_id: &str) -> Position {
    let digits = message_id.chars().filter_map(|character| character.to_digit(16));
    let number = digits.fold(0_u128, |number, digit| (number << 4) | u128::from(digit));
    Position { partition: 0, offset: (number >> 64) as u64 ^ number as u64 }
}

pub(crate) fn attribute(value: String) -> Result<MessageAttributeValue> {
    let built = MessageAttributeValue::builder().data_type("String").string_value(value).build();
    built.map_err(|error| Error::invalid("an attribute cannot be built").with_source(error))
}

/// Whether SQS allows all characters: those of XML 1.0.
fn is_allowed(text: &str) -> bool {
    text.chars().all(|c| !matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}'))
}

/// Whether SQS allows it as an attribute. Attribute names have more rules than header names.
fn fits(name: &str, value: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let reserved = lower.starts_with("aws.") || lower.starts_with("amazon.");
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    !reserved && !dots && !value.is_empty() && is_allowed(value)
}

/// Encodes headers as ASCII JSON, so that SQS refuses no character.
fn to_json(headers: Vec<(String, String)>) -> String {
    let object = headers.into_iter().map(|(name, value)| (name, serde_json::Value::from(value))).collect();
    let json = serde_json::Value::Object(object).to_string();
    let mut ascii = String::with_capacity(json.len());
    for character in json.chars() {
        match character.is_ascii() && character != '\x7f' {
            true => ascii.push(character),
            false => {
                character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}")))
            }
        }
    }
    ascii
}

fn from_json(text: &str) -> Result<BTreeMap<String, String>> {
    serde_json::from_str(text)
        .map_err(|error| Error::invalid(format!("{REST} is not a JSON object of strings")).with_source(error))
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
