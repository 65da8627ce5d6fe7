//! Names that reach a broker, a header or SQL, validated once at the edge.
//!
//! A value of these types is safe to pass on: no CR, LF or NUL, a bounded length, and for table prefixes nothing that
//! could end an SQL identifier.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            pub fn new(text: impl AsRef<str>) -> Result<Self> {
                let text = text.as_ref();
                let check: fn(&str) -> std::result::Result<(), String> = $check;
                match check(text) {
                    Ok(()) => Ok(Self(text.into())),
                    Err(why) => Err(Error::invalid(format!("{} {} {why}", $what, quoted(text)))),
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.into()
            }
        }
    };
}

name! {
    /// A topic: 1 to 249 of `A-Z a-z 0-9 . _ -`, but not `.` or `..`. Every broker accepts such a name.
    TopicName, "topic", |text| plain(text, 249)
}

name! {
    /// A consumer group: the same alphabet as a topic. Each group sees every message once.
    GroupName, "group", |text| plain(text, 249)
}

name! {
    /// A numbered producer that the log remembers over restarts: the same alphabet as a topic.
    ProducerName, "producer", |text| plain(text, 249)
}

name! {
    /// The ordering key, usually the aggregate's id: 1 to 512 bytes of text without control characters.
    ///
    /// Messages with the same topic and key take effect in commit order.
    Key, "key", |text| printable(text, 512)
}

name! {
    /// A header's name: 1 to 128 of `a-z A-Z 0-9 _ . -`.
    HeaderName, "header name", |text| plain(text, 128)
}

name! {
    /// The prefix of every table name: a lower-case SQL identifier of at most 32 characters, with an optional schema
    /// (`billing.landfall_`). It is the only text that is ever inserted into SQL.
    TablePrefix, "table prefix", |text| {
        let (schema, prefix) = text.split_once('.').map_or((None, text), |(s, p)| (Some(s), p));
        let identifier = |part: &str| {
            part.len() <= 32
                && part.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        if identifier(prefix) && schema.is_none_or(identifier) {
            Ok(())
        } else {
            Err("must be a lower-case identifier of at most 32 characters, with an optional schema before a dot".into())
        }
    }
}

impl Default for TablePrefix {
    fn default() -> Self {
        Self("landfall_".into())
    }
}

impl TablePrefix {
    /// Returns the schema, if any.
    pub fn schema(&self) -> Option<&str> {
        self.0.split_once('.').map(|(schema, _)| schema)
    }

    /// Returns the prefix without its schema, for names that SQL does not qualify (indexes, constraints).
    pub fn bare(&self) -> &str {
        self.0.split_once('.').map_or(&self.0, |(_, prefix)| prefix)
    }
}

impl Key {
    /// Returns the partition of this key among `partitions`. Uses the hash of Kafka's clients (murmur2), so that any
    /// Kafka producer picks the same one.
    pub fn partition(&self, partitions: u32) -> u32 {
        (murmur2(self.0.as_bytes()) & 0x7fff_ffff) % partitions.max(1)
    }
}

/// Escapes and truncates refused text for an error message: it may be megabytes long and of any sender.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(60).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

fn plain(text: &str, limit: usize) -> std::result::Result<(), String> {
    bounded(text, limit)?;
    if matches!(text, "." | "..") {
        return Err("is reserved".into());
    }
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        Some(c) => Err(format!("contains {c:?}; only letters, digits, '.', '_' and '-' are allowed")),
        None => Ok(()),
    }
}

fn printable(text: &str, limit: usize) -> std::result::Result<(), String> {
    bounded(text, limit)?;
    match text.chars().find(|c| c.is_control()) {
        Some(c) => Err(format!("contains the control character {c:?}")),
        None => Ok(()),
    }
}

fn bounded(text: &str, limit: usize) -> std::result::Result<(), String> {
    match text.len() {
        0 => Err("is empty".into()),
        length if length > limit => Err(format!("is {length} bytes long; the limit is {limit}")),
        _ => Ok(()),
    }
}

/// MurmurHash2 with Kafka's seed.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mix = |word: u32| {
        let word = word.wrapping_mul(M);
        (word ^ (word >> 24)).wrapping_mul(M)
    };
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        hash = hash.wrapping_mul(M) ^ mix(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_accepts_what_every_broker_accepts() {
        for good in ["orders", "a", "orders.v2_retry-1", &"x".repeat(249)] {
            assert_eq!(TopicName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a b", "a/b", "a\nb", "a\0", "größe", "a'; drop", &"x".repeat(250)] {
            assert!(TopicName::new(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn error_text_contains_no_line_break() {
        let error = TopicName::new("or\r\nders").unwrap_err().to_string();
        assert_eq!(error, r#"topic "or\r\nders" contains '\r'; only letters, digits, '.', '_' and '-' are allowed"#);
    }

    #[test]
    fn key_is_text_without_control_characters() {
        assert!(Key::new("客户 42/eu").is_ok());
        for bad in ["", "a\rb", "a\0", &"k".repeat(513)] {
            assert!(Key::new(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn table_prefix_cannot_escape_its_identifier() {
        for good in ["landfall_", "lf", "billing.landfall_"] {
            assert!(TablePrefix::new(good).is_ok(), "{good:?} was refused");
        }
        for bad in ["", "a b", "A", "1a", "a;--", "a\"", "a.b.c", ".a", "a."] {
            assert!(TablePrefix::new(bad).is_err(), "{bad:?} was accepted");
        }
    }

    /// Values computed by Kafka's own `Utils.murmur2` (from its unit tests).
    #[test]
    fn hash_equals_kafkas_murmur2() {
        let hashes = [("21", -973_932_308), ("foobar", -790_332_482), ("a-little-bit-long-string", -985_981_536)];
        for (text, expected) in hashes {
            assert_eq!(murmur2(text.as_bytes()) as i32, expected, "{text}");
        }
    }
}
