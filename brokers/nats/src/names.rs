//! Names of streams, subjects and consumers for topics and groups.
//!
//! Stream and consumer names may not contain a dot, and subjects no empty token; topics and groups may. A dot becomes
//! `=`, which no topic or group name contains, so two names never collide.

use landfall_core::{Error, GroupName, Result, TopicName};

/// The server's limit of the length of a stream or consumer name.
const MAX_LENGTH: usize = 255;

#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Result<Self> {
        let refused = |why: String| Err(Error::invalid(format!("prefix {prefix:?} {why}")));
        if let Some(c) = prefix.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
            return refused(format!("contains {c:?}; only letters, digits, '.', '_' and '-' are allowed"));
        }
        if prefix.starts_with('.') || prefix.contains("..") || prefix.len() > 100 {
            return refused("must not begin with a dot, contain two dots in a row or exceed 100 characters".into());
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    /// The stream of `topic`.
    pub(crate) fn stream(&self, topic: &TopicName) -> Result<String> {
        bounded(encoded(&format!("{}{topic}", self.prefix)), "stream")
    }

    /// The prefix of the subjects of `topic`. A dot and the shard follow it.
    pub(crate) fn subject(&self, topic: &TopicName) -> String {
        let whole = format!("{}{topic}", self.prefix);
        let tokens = whole.split('.').map(|token| if token.is_empty() { "=" } else { token });
        tokens.collect::<Vec<_>>().join(".")
    }

    /// Returns the topic of a stream, or `None` if its name lacks the prefix.
    pub(crate) fn topic(&self, stream: &str) -> Option<TopicName> {
        let rest = stream.strip_prefix(&encoded(&self.prefix))?;
        TopicName::new(rest.replace('=', ".")).ok()
    }

    /// The subject on which the members of a group announce themselves. It cannot clash with a topic: no token of a
    /// topic's subject begins with `=`.
    pub(crate) fn members(&self, stream: &str, group: &GroupName) -> String {
        format!("{}=members.{stream}.{}", self.prefix, encoded(group.as_str()))
    }
}

/// The name of a group's consumer for `shard` in `epoch`.
pub(crate) fn consumer(group: &GroupName, shard: u32, epoch: u64) -> Result<String> {
    bounded(format!("{}={shard}={epoch}", encoded(group.as_str())), "consumer")
}

/// Returns the shard and epoch of a consumer of `group`, or `None` for any other consumer.
pub(crate) fn shard_and_epoch(group: &GroupName, consumer: &str) -> Option<(u32, u64)> {
    let rest = consumer.strip_prefix(&encoded(group.as_str()))?.strip_prefix('=')?;
    let (shard, epoch) = rest.split_once('=')?;
    Some((shard.parse().ok()?, epoch.parse().ok()?))
}

fn encoded(name: &str) -> String {
    name.replace('.', "=")
}

fn bounded(name: String, what: &str) -> Result<String> {
    match name.len() {
        length if length > MAX_LENGTH => {
            Err(Error::invalid(format!("the name of the {what}, {name}, is longer than {MAX_LENGTH} bytes")))
        }
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn topic(name: &str) -> TopicName {
        TopicName::new(name).unwrap()
    }

    #[test]
    fn topics_have_distinct_streams_and_subjects() {
        let names = Names::new("shop.").unwrap();
        let topics = ["orders", "orders.v2", "orders-v2", "orders_v2", ".orders", "orders.", "a..b", "a.-.b", "..."];
        let streams: BTreeSet<_> = topics.iter().map(|name| names.stream(&topic(name)).unwrap()).collect();
        let subjects: BTreeSet<_> = topics.iter().map(|name| names.subject(&topic(name))).collect();
        assert_eq!((streams.len(), subjects.len()), (topics.len(), topics.len()));
        for name in topics {
            let stream = names.stream(&topic(name)).unwrap();
            assert!(!stream.contains('.'), "{stream}");
            assert!(names.subject(&topic(name)).split('.').all(|token| !token.is_empty()));
            assert_eq!(names.topic(&stream).unwrap().as_str(), name);
        }
    }

    #[test]
    fn consumer_name_encodes_group_shard_and_epoch() {
        let (stock, other) = (GroupName::new("stock").unwrap(), GroupName::new("stock.3").unwrap());
        assert_eq!(shard_and_epoch(&stock, &consumer(&stock, 3, 17).unwrap()), Some((3, 17)));
        assert_eq!(shard_and_epoch(&other, &consumer(&other, 3, 17).unwrap()), Some((3, 17)));
        assert_eq!(shard_and_epoch(&stock, &consumer(&other, 3, 17).unwrap()), None);
        assert_eq!(shard_and_epoch(&stock, "foreign-consumer"), None);
    }

    #[test]
    fn overlong_names_are_refused() {
        let names = Names::new("prefix-of-some-length.").unwrap();
        assert!(names.stream(&topic(&"x".repeat(240))).is_err());
        assert!(consumer(&GroupName::new("g".repeat(249)).unwrap(), 255, 10).is_err());
    }
}
