//! A message as SQS carries it: a text and at most ten attributes.
//!
//! CloudEvents' own attributes come first, each by its name, so that any consumer finds them. The others follow while
//! there is room; those that find none, or that SQS would refuse (empty, or with letters that are not allowed), stand
//! together as a JSON object in `landfall-headers`. A payload that SQS would refuse as text travels as base64, which
//! `landfall-encoding` says.

use std::collections::BTreeMap;

use aws_sdk_sqs::types::{Message as Stored, MessageAttributeValue, MessageSystemAttributeName};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use landfall_core::{Error, Message, Position, Result, Timestamp, TopicName, wire};

/// What SQS takes beside the text.
const ATTRIBUTES: usize = 10;
/// The headers that have no attribute of their own.
const REST: &str = "landfall-headers";
/// How the text stands for the payload, where it is not the payload itself.
const ENCODING: &str = "landfall-encoding";
const BASE64: &str = "base64";
/// SQS takes no empty text, so another one stands in its place.
const EMPTY: &str = "empty";

/// A message ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) text: String,
    pub(crate) attributes: Vec<(String, String)>,
}

impl Encoded {
    /// As SQS counts: the text, and of each attribute the name, the type and the value.
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
    // Those that nobody can do without first, Landfall's mode last: it is for Landfall only.
    headers.sort_by_key(|(name, _)| match name.as_str() {
        ENCODING => 0,
        wire::MODE => 3,
        name if name.starts_with("ce_") => 1,
        _ => 2,
    });
    let (mut attributes, mut rest): (Vec<_>, Vec<_>) = headers.into_iter().partition(|(name, value)| fits(name, value));
    if attributes.len() + usize::from(!rest.is_empty()) > ATTRIBUTES {
        rest.extend(attributes.split_off(ATTRIBUTES - 1));
    }
    if !rest.is_empty() {
        attributes.push((REST.to_owned(), to_json(rest)));
    }
    Encoded { text, attributes }
}

/// The message behind what was received. A group that is not the message's own id is its key, unless it says another.
pub(crate) fn decode(topic: &TopicName, stored: &Stored) -> Result<Message> {
    let system = |name: &MessageSystemAttributeName| stored.attributes()?.get(name).map(String::as_str);
    let sent = system(&MessageSystemAttributeName::SentTimestamp).and_then(|millis| millis.parse().ok());
    let group = system(&MessageSystemAttributeName::MessageGroupId);
    let attributes = stored.message_attributes().into_iter().flatten();
    let mut headers: BTreeMap<String, String> =
        attributes.filter_map(|(name, value)| Some((name.clone(), value.string_value()?.to_owned()))).collect();
    if let Some(rest) = headers.remove(REST) {
        headers.extend(from_json(&rest)?);
    }
    let text = stored.body().unwrap_or_default();
    let payload = match headers.remove(ENCODING).as_deref() {
        None => Bytes::copy_from_slice(text.as_bytes()),
        Some(EMPTY) => Bytes::new(),
        Some(BASE64) => STANDARD
            .decode(text)
            .map_err(|error| Error::invalid("the text says that it is base64, and is not").with_source(error))?
            .into(),
        Some(other) => return Err(Error::invalid(format!("the text has an unknown encoding {other:?}"))),
    };
    let key = group.filter(|group| headers.get(wire::ID).is_none_or(|id| id != group));
    let stored = sent.map_or_else(Timestamp::now, Timestamp::from_millis);
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    wire::message(topic, key, stored, headers, payload)
}

/// SQS's own id of the message, folded. Its sequence numbers only grow within a group and standard queues have none, so
/// that they could name two messages.
pub(crate) fn position(message_id: &str) -> Position {
    let digits = message_id.chars().filter_map(|letter| letter.to_digit(16));
    let number = digits.fold(0_u128, |number, digit| (number << 4) | u128::from(digit));
    Position { partition: 0, offset: (number >> 64) as u64 ^ number as u64 }
}

pub(crate) fn attribute(value: String) -> Result<MessageAttributeValue> {
    let built = MessageAttributeValue::builder().data_type("String").string_value(value).build();
    built.map_err(|error| Error::invalid("an attribute cannot be made").with_source(error))
}

/// Whether SQS takes all of these letters: those of XML 1.0.
fn is_allowed(text: &str) -> bool {
    text.chars().all(|c| !matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}'))
}

/// Whether SQS takes it as an attribute. Its names have more rules than header names.
fn fits(name: &str, value: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let reserved = lower.starts_with("aws.") || lower.starts_with("amazon.");
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    !reserved && !dots && !value.is_empty() && is_allowed(value)
}

/// Plain ASCII, so that no letter in it can be refused.
fn to_json(headers: Vec<(String, String)>) -> String {
    let object = headers.into_iter().map(|(name, value)| (name, serde_json::Value::from(value))).collect();
    let json = serde_json::Value::Object(object).to_string();
    let mut ascii = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter.is_ascii() && letter != '\x7f' {
            true => ascii.push(letter),
            false => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    ascii
}

fn from_json(text: &str) -> Result<BTreeMap<String, String>> {
    serde_json::from_str(text)
        .map_err(|error| Error::invalid(format!("{REST} is no JSON object of texts")).with_source(error))
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
