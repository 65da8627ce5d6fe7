//! The names of the keys in Redis.
//!
//! Everything of one shard has the same hash tag, `{topic/number}`, and so lies in one slot of a cluster: a script may
//! touch all of it. Different shards may lie on different nodes.

use landfall_core::{GroupName, TopicName};

#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
}

/// A stream, and what publishers keep beside it.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) stream: String,
    /// A hash that says how many shards the topic has.
    pub(crate) hash: String,
    /// Hashes of the ids that were accepted of late, and of those from before that.
    pub(crate) recent: String,
    pub(crate) older: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// A hash of every topic and how many streams it has.
    pub(crate) fn topics(&self) -> String {
        format!("{}topics", self.prefix)
    }

    /// The stream itself.
    pub(crate) fn stream(&self, topic: &TopicName, shard: u32) -> String {
        format!("{}{{{topic}/{shard}}}", self.prefix)
    }

    /// What belongs to the stream.
    pub(crate) fn keys(&self, topic: &TopicName, shard: u32) -> Keys {
        let stream = self.stream(topic, shard);
        let [hash, recent, older] = ["shard", "recent", "older"].map(|name| format!("{stream}:{name}"));
        Keys { stream, hash, recent, older }
    }

    /// Who reads the stream for `group`.
    pub(crate) fn lease(&self, topic: &TopicName, shard: u32, group: &GroupName) -> String {
        format!("{}:lease:{group}", self.stream(topic, shard))
    }

    /// Who is in `group`, by the time of the last sign of life.
    pub(crate) fn members(&self, topic: &TopicName, group: &GroupName) -> String {
        format!("{}{{{topic}}}:members:{group}", self.prefix)
    }
}

/// The shard of a key: always the same for the same key and number of shards. FNV-1a, and MurmurHash3's last steps, since
/// keys that differ only in their last characters would stay close together without.
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
    fn everything_of_a_shard_has_one_hash_tag() {
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
    fn a_key_stays_where_it_is_and_keys_spread_over_all_shards() {
        // Stored data depends on it: a change of this number would break the order of keys.
        assert_eq!(shard_of(b"order-1", 8), 5);
        let mut counts = [0; 8];
        (0..8_000).for_each(|n| counts[shard_of(format!("order-{n}").as_bytes(), 8) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
