//! Names of the keys in Redis.
//!
//! All keys of a shard have the same hash tag, `{topic/number}`, and so belong to one cluster slot: a script can use
//! all of them. Different shards may be on different nodes.

use landfall_core::{GroupName, TopicName};

#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
}

/// The keys of a shard: its stream, and the publishers' state.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) stream: String,
    /// A hash with the topic's number of shards.
    pub(crate) hash: String,
    /// Two hashes of accepted ids: the recent ones, and those before them.
    pub(crate) recent: String,
    pub(crate) older: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The registry: a hash of all topics with their number of streams.
    pub(crate) fn topics(&self) -> String {
        format!("{}topics", self.prefix)
    }

    /// The key of a shard's stream.
    pub(crate) fn stream(&self, topic: &TopicName, shard: u32) -> String {
        format!("{}{{{topic}/{shard}}}", self.prefix)
    }

    /// All keys of a shard.
    pub(crate) fn keys(&self, topic: &TopicName, shard: u32) -> Keys {
        let stream = self.stream(topic, shard);
        let [hash, recent, older] = ["shard", "recent", "older"].map(|name| format!("{stream}:{name}"));
        Keys { stream, hash, recent, older }
    }

    /// The lease of the member that reads the stream for `group`.
    pub(crate) fn lease(&self, topic: &TopicName, shard: u32, group: &GroupName) -> String {
        format!("{}:lease:{group}", self.stream(topic, shard))
    }

    /// The members of `group`, sorted by the time of their last heartbeat.
    pub(crate) fn members(&self, topic: &TopicName, group: &GroupName) -> String {
        format!("{}{{{topic}}}:members:{group}", self.prefix)
    }
}

/// Returns the shard of a key. It is stable for a given number of shards. Uses FNV-1a with the finalizer of
/// MurmurHash3, without which keys that differ only in their last characters would stay close together.
pub(crate) fn shard_of(key: &[u8], shards: u32) -> u32 {
    let spread = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut hash = key.iter().fold(0xcbf2_9ce4_8422_2325, spread);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    ((hash ^ (hash >> 33)) % u64::from(shards.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_shard_share_a_hash_tag() {
        let (names, topic) = (Names::new("shop:"), TopicName::new("orders").unwrap());
        let group = GroupName::new("stock").unwrap();
        assert_eq!(names.stream(&topic, 3), "shop:{orders/3}");
        let Keys { stream, hash, recent, older } = names.keys(&topic, 3);
        assert_eq!(stream, names.stream(&topic, 3));
        for name in [hash, recent, older, names.lease(&topic, 3, &group)] {
            assert!(name.starts_with("shop:{orders/3}:"), "{name}");
        }
    }

    #[test]
    fn shard_of_a_key_is_stable_and_keys_spread_evenly() {
        // Stored data depends on this number: a change would break the order of keys.
        assert_eq!(shard_of(b"order-1", 8), 5);
        let mut counts = [0; 8];
        (0..8_000).for_each(|n| counts[shard_of(format!("order-{n}").as_bytes(), 8) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
