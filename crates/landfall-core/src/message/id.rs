use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

use super::name::quoted;
use crate::{Error, Position, Result, TopicName};

/// The identity of a message: broker deduplication, inbox, `Idempotency-Key` and every redrive use the same id.
///
/// New ids are UUIDv7: they sort roughly by time, which keeps index inserts local. A topic can have
/// [`Snowflake`](crate::Snowflake) ids instead, which are embedded in a UUIDv8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

impl MessageId {
    /// Creates an id that is higher than any other of this process.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Derives an id from `position` of `topic`, for a stored record without one. Deterministic.
    pub fn from_position(topic: &TopicName, position: Position) -> Self {
        // FNV-1a hashes the topic into the upper half; the position fills the lower half exactly.
        let spread = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let topic = topic.as_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, spread);
        let position = (u64::from(position.partition) << 44) ^ position.offset;
        Self(Builder::from_custom_bytes(((u128::from(topic) << 64) | u128::from(position)).to_be_bytes()).into_uuid())
    }

    /// Derives an id from a business id, such as an order number. Deterministic.
    pub fn from_business(business_type: &str, business_id: &str) -> Self {
        // The length makes the concatenation unambiguous.
        let name = format!("{}/{business_type}/{business_id}", business_type.len());
        Self(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
    }

    /// Derives the broker id of a repeated send from `attempts` and `failed_at`. Deterministic.
    pub(crate) fn again(&self, attempts: &str, failed_at: &str) -> Self {
        Self(Uuid::new_v5(&self.0, format!("{attempts}/{failed_at}").as_bytes()))
    }

    pub fn as_uuid(&self) -> Uuid {
        self.0
    }

    /// Returns the sixteen bytes in the order of the text form.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

impl From<Uuid> for MessageId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MessageId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Uuid::parse_str(text)
            .map(Self)
            .map_err(|error| Error::invalid(format!("message id {} is not a UUID", quoted(text))).with_source(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_determines_the_id() {
        let topic = |name| TopicName::new(name).unwrap();
        let id = |name, partition, offset| MessageId::from_position(&topic(name), Position { partition, offset });
        assert_eq!(id("a", 1, 7), id("a", 1, 7));
        let others = [id("b", 1, 7), id("a", 2, 7), id("a", 1, 8)];
        assert!(others.iter().all(|other| *other != id("a", 1, 7)));
    }
}
