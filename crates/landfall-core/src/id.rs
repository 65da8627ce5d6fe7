use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::{Builder, Uuid};

use crate::{Error, Position, Result, TopicName};

/// A message's one identity: the broker's dedup id, the inbox row, the `Idempotency-Key` and every redrive use it.
///
/// New ids are UUIDv7, so that they sort roughly by time and are kind to indexes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

impl MessageId {
    /// A new id, later than any this process made before.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id of something without one that stands at `position` of `topic`: always the same for the same place.
    pub fn from_position(topic: &TopicName, position: Position) -> Self {
        // FNV-1a spreads the topic over the upper half; the place fills the lower one exactly.
        let spread = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let topic = topic.as_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, spread);
        let place = (u64::from(position.partition) << 44) ^ position.offset;
        Self(Builder::from_custom_bytes(((u128::from(topic) << 64) | u128::from(place)).to_be_bytes()).into_uuid())
    }

    /// The id that stands for a business id, such as an order's number: always the same for the same two texts.
    pub fn from_business(business_type: &str, business_id: &str) -> Self {
        // The length keeps two texts from being taken for two others that read the same one after the other.
        let name = format!("{}/{business_type}/{business_id}", business_type.len());
        Self(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
    }

    /// Another id for another send of the same message: always the same for the same `attempts` and `failed_at`.
    pub(crate) fn again(&self, attempts: &str, failed_at: &str) -> Self {
        Self(Uuid::new_v5(&self.0, format!("{attempts}/{failed_at}").as_bytes()))
    }

    pub fn as_uuid(&self) -> Uuid {
        self.0
    }

    /// The sixteen bytes, in the order in which they are written as text.
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
            .map_err(|error| Error::invalid(format!("message id {text:?} is not a UUID")).with_source(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_id_and_two_places_have_two() {
        let topic = |name| TopicName::new(name).unwrap();
        let id = |name, partition, offset| MessageId::from_position(&topic(name), Position { partition, offset });
        assert_eq!(id("a", 1, 7), id("a", 1, 7));
        let others = [id("b", 1, 7), id("a", 2, 7), id("a", 1, 8)];
        assert!(others.iter().all(|other| *other != id("a", 1, 7)));
    }
}
