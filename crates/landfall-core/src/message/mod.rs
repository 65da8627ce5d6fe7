//! A message: its parts, their limits, and its form on the wire.

pub(crate) mod id;
pub(crate) mod limits;
pub(crate) mod mode;
pub(crate) mod name;
pub(crate) mod snowflake;
pub(crate) mod system_header;
pub mod wire;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use name::quoted;

use crate::{Error, HeaderName, Key, MessageId, Mode, Result, SystemHeader, Timestamp, TopicName};

/// A message, from the transaction that enqueues it to its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    pub topic: TopicName,
    /// The ordering key. A message without one has no order and blocks no other.
    pub key: Option<Key>,
    /// The number within its key, if the sender assigns numbers.
    pub sequence: Option<i64>,
    pub kind: Kind,
    pub mode: Mode,
    pub headers: Headers,
    pub payload: Bytes,
    /// When it was enqueued.
    pub time: Timestamp,
}

impl Message {
    /// Creates a message with a new id, the current time and the default mode. The `with_…` methods set the rest.
    pub fn new(topic: TopicName, payload: impl Into<Bytes>) -> Self {
        Self {
            id: MessageId::new(),
            topic,
            key: None,
            sequence: None,
            kind: Kind::default(),
            mode: Mode::default(),
            headers: Headers::default(),
            payload: payload.into(),
            time: Timestamp::now(),
        }
    }

    #[must_use]
    pub fn with_id(mut self, id: MessageId) -> Self {
        self.id = id;
        self
    }

    #[must_use]
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    #[must_use]
    pub fn with_sequence(mut self, sequence: i64) -> Self {
        self.sequence = Some(sequence);
        self
    }

    #[must_use]
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    #[must_use]
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }
}

/// The event type (`OrderPlaced`, CloudEvents' `type`): 1 to 255 bytes of text without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Kind(Box<str>);

impl Kind {
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
            let text = quoted(text);
            return Err(Error::invalid(format!("kind {text} must be 1 to 255 bytes without control characters")));
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Kind {
    fn default() -> Self {
        Self("message".into())
    }
}

impl TryFrom<String> for Kind {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Self::new(text)
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> String {
        kind.0.into()
    }
}

/// The headers of a message: valid names, values without CR, LF or NUL. Senders cannot set the reserved names of
/// Landfall (`landfall-…`) and CloudEvents (`ce_…`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "UniqueNames")]
pub struct Headers {
    values: BTreeMap<HeaderName, String>,
    /// Bytes of the sender's names and values. Summing them on each insert would take quadratic time.
    own_bytes: usize,
}

/// Bytes of one value, and of all names and values together: what every supported broker can carry.
const VALUE_LIMIT: usize = 4 * 1024;
const TOTAL_LIMIT: usize = 32 * 1024;

/// The stored header of an imported row that is not a valid message: the reason. Only `import` writes it; reading the
/// row returns the reason as an error.
pub(crate) const REFUSED_HEADER: &str = "landfall-refused";

impl Headers {
    /// Sets `name`, replacing an earlier value. Refuses reserved names, and names and values that no broker could
    /// carry.
    pub fn insert(&mut self, name: &str, value: impl Into<String>) -> Result<()> {
        let (name, value) = (HeaderName::new(name)?, value.into());
        let lower = name.as_str().to_ascii_lowercase();
        if lower.starts_with("landfall-") || lower.starts_with("ce_") || lower.starts_with("ce-") {
            return Err(Error::invalid(format!("header {name} is reserved: landfall- and ce_ belong to the system")));
        }
        if let Some(c) = value.chars().find(|c| matches!(c, '\r' | '\n' | '\0')) {
            return Err(Error::invalid(format!("header {name} contains {c:?}; CR, LF and NUL are not allowed")));
        }
        if value.len() > VALUE_LIMIT {
            let length = value.len();
            return Err(Error::invalid(format!("header {name} is {length} bytes long; the limit is {VALUE_LIMIT}")));
        }
        let bytes = |value: &String| name.as_str().len() + value.len();
        let total = self.own_bytes - self.values.get(&name).map_or(0, bytes) + bytes(&value);
        if total > TOTAL_LIMIT {
            return Err(Error::invalid(format!("the headers are {total} bytes together; the limit is {TOTAL_LIMIT}")));
        }
        self.own_bytes = total;
        self.values.insert(name, value);
        Ok(())
    }

    /// Sets a system header. Invalid characters are replaced, and an over-long value is truncated.
    pub fn note(&mut self, header: SystemHeader, value: impl std::fmt::Display) {
        let Ok(name) = HeaderName::new(header.as_str()) else { return };
        let mut text = value.to_string().replace(['\r', '\n', '\0'], " ");
        text.truncate(text.floor_char_boundary(VALUE_LIMIT));
        self.values.insert(name, text);
    }

    /// Sets a header of a stored message. Like [`Headers::insert`], but accepts system headers.
    pub fn restore(&mut self, name: &str, value: impl Into<String>) -> Result<()> {
        match SystemHeader::ALL.into_iter().find(|header| header.as_str() == name) {
            Some(header) => self.note(header, value.into()),
            None => self.insert(name, value)?,
        }
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the JSON object that the databases store.
    pub fn to_json(&self) -> String {
        let object: serde_json::Map<_, _> =
            self.iter().map(|(name, value)| (name.to_owned(), serde_json::Value::from(value))).collect();
        serde_json::Value::Object(object).to_string()
    }

    /// Parses and validates the JSON object that a writer in any language stored.
    pub fn from_json(text: &str) -> Result<Self> {
        let broken = |error| Error::invalid("headers are not a JSON object of text values").with_source(error);
        let UniqueNames(mut map) = serde_json::from_str(text).map_err(broken)?;
        match map.remove(REFUSED_HEADER) {
            Some(reason) => Err(Error::invalid(reason)),
            None => {
                let mut headers = Headers::default();
                for (name, value) in map {
                    headers.restore(&name, value)?;
                }
                Ok(headers)
            }
        }
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.values.serialize(serializer)
    }
}

impl TryFrom<UniqueNames> for Headers {
    type Error = Error;

    fn try_from(UniqueNames(map): UniqueNames) -> Result<Self> {
        map.try_into()
    }
}

/// An object of text values. Refuses a repeated name, of which a plain map would silently keep the last.
struct UniqueNames(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = UniqueNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of text values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> std::result::Result<UniqueNames, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((name, value)) = object.next_entry::<String, String>()? {
                    if map.contains_key(&name) {
                        return Err(serde::de::Error::custom(format!("the header {} is repeated", quoted(&name))));
                    }
                    map.insert(name, value);
                }
                Ok(UniqueNames(map))
            }
        }

        deserializer.deserialize_map(Names)
    }
}

impl TryFrom<BTreeMap<String, String>> for Headers {
    type Error = Error;

    fn try_from(map: BTreeMap<String, String>) -> Result<Self> {
        let mut headers = Headers::default();
        for (name, value) in map {
            headers.insert(&name, value)?;
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_refuse_request_splitting() {
        let mut headers = Headers::default();
        for (name, value) in [("x", "a\r\nb"), ("x", "a\0"), ("x y", "a"), ("landfall-attempts", "1"), ("CE_id", "1")] {
            assert!(headers.insert(name, value).is_err(), "{name}: {value:?} was accepted");
        }
        assert!(headers.insert("x", "v".repeat(4097)).is_err());
        assert!(headers.is_empty());
    }

    #[test]
    fn headers_are_limited_in_sum() {
        let mut headers = Headers::default();
        for number in 0..8 {
            headers.insert(&format!("h{number}"), "v".repeat(4094)).unwrap();
        }
        let before = headers.clone();
        assert!(headers.insert("one-too-many", "").is_err());
        assert!(headers.insert("h0", "v".repeat(4095)).is_err());
        assert_eq!(headers, before, "a refused header changes nothing");
        headers.note(SystemHeader::Error, "not counted");
        headers.insert("h0", "").unwrap();
        headers.insert("h8", "v".repeat(4092)).unwrap();
    }

    /// A sender can fill the limit with thousands of names. At quadratic cost, one message takes seconds.
    #[test]
    fn many_small_headers_are_cheap() {
        let (mut headers, started) = (Headers::default(), std::time::Instant::now());
        let refused = (0..).find(|number| headers.insert(&format!("{number:x}"), "").is_err());
        assert!(refused.is_some_and(|count| count > 8_000), "{refused:?}");
        assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
    }

    #[test]
    fn error_about_long_text_is_short() {
        let long = "x".repeat(1_000_000);
        let errors = [
            Kind::new(&long).unwrap_err(),
            long.parse::<MessageId>().unwrap_err(),
            long.parse::<Mode>().unwrap_err(),
            long.parse::<Timestamp>().unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().len() < 200, "{} bytes", error.to_string().len());
        }
    }

    #[test]
    fn system_headers_are_restored_but_never_inserted() {
        let mut headers = Headers::default();
        headers.note(SystemHeader::Error, format!("line\r\nbreak {}", "x".repeat(5000)));
        headers.note(SystemHeader::Attempts, 3);
        assert_eq!(headers.get("landfall-error").map(str::len), Some(VALUE_LIMIT));
        assert_eq!(Headers::from_json(&headers.to_json()).unwrap(), headers);
        let map = BTreeMap::from([("landfall-attempts".to_owned(), "3".to_owned())]);
        assert!(Headers::try_from(map).is_err(), "not from a sender");
        assert!(headers.restore("landfall-unknown", "1").is_err());
    }

    #[test]
    fn headers_round_trip_through_json() {
        let mut headers = Headers::default();
        headers.insert("tenant", "北京 \"1\"").unwrap();
        assert_eq!(Headers::from_json(&headers.to_json()).unwrap(), headers);
        assert!(Headers::from_json(r#"{"x": "a\nb"}"#).is_err());
        assert!(Headers::from_json("[]").is_err());
        let repeated = Headers::from_json(r#"{"x": "1", "y": "2", "x": "3"}"#).unwrap_err();
        assert!(std::error::Error::source(&repeated).unwrap().to_string().contains(r#"the header "x" is repeated"#));
    }
}
