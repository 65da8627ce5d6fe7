//! What the settings of `[broker]` become on a broker that is reached over the network: a parameter of its URL, or an
//! error that names the broker's own setting. A setting with its default value changes nothing.
//!
//! `docs/reference/configuration.md` has the same table.

use landfall::{Error, Result};

use crate::config::{Acknowledge, Broker, Flush};

/// What one setting becomes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mapping {
    /// A parameter of the URL, with the value of the setting.
    Parameter(&'static str),
    /// A parameter of the URL with a fixed value.
    Value(&'static str, &'static str),
    /// Nothing: the broker always does this.
    Always,
    /// An error with this reason.
    Refused(&'static str),
}

/// What each setting that differs from its default becomes.
#[derive(Debug)]
pub(super) struct Mappings {
    partitions: Mapping,
    acknowledge_none: Mapping,
    acknowledge_leader: Mapping,
    flush_messages: Mapping,
    flush_interval: Mapping,
    retention: Mapping,
    retention_bytes: Mapping,
    may_drop_unread: Mapping,
    no_deduplication: Mapping,
}

use Mapping::{Always, Parameter, Refused, Value};

#[allow(dead_code, reason = "used only by builds with this broker")]
pub(super) const KAFKA: Mappings = Mappings {
    partitions: Parameter("partitions"),
    acknowledge_none: Value("acks", "0"),
    acknowledge_leader: Value("acks", "1"),
    flush_messages: Parameter("flush_messages"),
    flush_interval: Parameter("flush_interval"),
    retention: Parameter("retention"),
    retention_bytes: Refused("set retention.bytes on the topic"),
    may_drop_unread: Always,
    no_deduplication: Always,
};

#[allow(dead_code, reason = "used only by builds with this broker")]
pub(super) const NATS: Mappings = Mappings {
    partitions: Parameter("partitions"),
    acknowledge_none: Refused("NATS confirms every message; send single messages with the mode at-most-once"),
    acknowledge_leader: Refused("a stream confirms when most of its replicas have the message; use replicas=1"),
    flush_messages: Refused("the server flushes by time; set sync_interval in its configuration"),
    flush_interval: Refused("set sync_interval in the configuration of the server"),
    retention: Parameter("retention"),
    retention_bytes: Refused("use max_bytes in the URL; a full topic then refuses messages"),
    may_drop_unread: Always,
    no_deduplication: Refused("a stream always remembers message ids; use dedup in the URL to change for how long"),
};

#[allow(dead_code, reason = "used only by builds with this broker")]
pub(super) const RABBITMQ: Mappings = Mappings {
    partitions: Parameter("partitions"),
    acknowledge_none: Refused("every message is confirmed; send single messages with the mode at-most-once"),
    acknowledge_leader: Refused("a quorum queue confirms when most of its replicas have the message"),
    flush_messages: Refused("a quorum queue flushes before it confirms"),
    flush_interval: Refused("a quorum queue flushes before it confirms"),
    retention: Refused("a queue keeps a message until it is acknowledged"),
    retention_bytes: Refused("set max-length-bytes in a policy of the server"),
    may_drop_unread: Refused("a queue keeps a message until it is acknowledged"),
    no_deduplication: Always,
};

#[allow(dead_code, reason = "used only by builds with this broker")]
pub(super) const REDIS: Mappings = Mappings {
    partitions: Parameter("partitions"),
    acknowledge_none: Refused("Redis answers every command; send single messages with the mode at-most-once"),
    acknowledge_leader: Value("replicas", "0"),
    flush_messages: Refused("Redis flushes always or by time; set appendfsync in its configuration"),
    flush_interval: Refused("set appendfsync in the configuration of the server"),
    retention: Parameter("retention"),
    retention_bytes: Refused("Redis has no size limit per stream that spares unread messages"),
    may_drop_unread: Refused("only messages that every group has acknowledged are removed"),
    no_deduplication: Value("dedup", "0s"),
};

#[allow(dead_code, reason = "used only by builds with this broker")]
pub(super) const SQS: Mappings = Mappings {
    partitions: Refused("SQS distributes by message group and has no partitions"),
    acknowledge_none: Refused("SQS confirms every message; send single messages with the mode at-most-once"),
    acknowledge_leader: Refused("SQS confirms when several data centres have the message"),
    flush_messages: Refused("SQS flushes before it confirms"),
    flush_interval: Refused("SQS flushes before it confirms"),
    retention: Refused("set MessageRetentionPeriod on the queue"),
    retention_bytes: Refused("SQS has no size limit"),
    may_drop_unread: Always,
    no_deduplication: Refused("a FIFO queue always deduplicates; use fifo=false for a standard queue"),
};

/// Returns the URL with a parameter for every setting.
#[allow(dead_code, reason = "used only by builds with some broker")]
pub(super) fn url(broker: &Broker, mappings: &Mappings) -> Result<String> {
    let mut url = broker.url.expose().to_owned();
    let given: Vec<String> = given_parameters(&url);
    for (key, mapping, value) in settings(broker, mappings) {
        let (name, value) = match mapping {
            Always => continue,
            Parameter(name) => (name, value),
            Value(name, value) => (name, value.to_owned()),
            Refused(why) => {
                let scheme = broker.url.scheme();
                return Err(Error::invalid(format!("{key} = {value:?} has no effect on {scheme}: {why}")));
            }
        };
        if given.iter().any(|given| given == name) {
            return Err(Error::invalid(format!("{key} and {name}= in the broker URL are both set; remove one")));
        }
        url.push(if url.contains('?') { '&' } else { '?' });
        url += &format!("{name}={value}");
    }
    Ok(url)
}

fn given_parameters(url: &str) -> Vec<String> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    query.split('&').map(|pair| pair.split('=').next().unwrap_or_default().to_owned()).collect()
}

/// Returns each setting that differs from its default: its key, what it becomes, and its value.
fn settings(broker: &Broker, mappings: &Mappings) -> Vec<(&'static str, Mapping, String)> {
    let mut settings = Vec::new();
    let mut add = |key, mapping, value: Option<String>| settings.extend(value.map(|value| (key, mapping, value)));
    add("broker.partitions", mappings.partitions, broker.partitions.map(|count| count.to_string()));
    match broker.acknowledge {
        Acknowledge::All => {}
        Acknowledge::Leader => add("broker.acknowledge", mappings.acknowledge_leader, Some("leader".into())),
        Acknowledge::None => add("broker.acknowledge", mappings.acknowledge_none, Some("none".into())),
    }
    match broker.flush {
        Flush::Batch => {}
        Flush::Messages(count) => add("broker.flush", mappings.flush_messages, Some(count.to_string())),
        Flush::Interval(time) => {
            add("broker.flush", mappings.flush_interval, Some(format!("{}ms", time.as_millis().max(1))));
        }
    }
    let topic = &broker.topic;
    let retention = topic.retention_time.map(|time| format!("{}s", time.as_secs().max(1)));
    add("broker.retention", mappings.retention, retention);
    let bytes = topic.retention_bytes.map(|bytes| bytes.to_string());
    add("broker.retention_bytes", mappings.retention_bytes, bytes);
    add("broker.may_drop_unread", mappings.may_drop_unread, topic.may_drop_unread.then(|| "true".into()));
    add("broker.deduplicate", mappings.no_deduplication, (!topic.deduplicate).then(|| "false".into()));
    settings
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Address;

    fn broker(url: &str) -> Broker {
        Broker { url: Address::new(url), ..Broker::default() }
    }

    #[test]
    fn defaults_leave_the_url_as_it_is() {
        for (url_given, mappings) in [
            ("kafka://a", &KAFKA),
            ("nats://a", &NATS),
            ("amqp://a", &RABBITMQ),
            ("redis://a", &REDIS),
            ("sqs://a", &SQS),
        ] {
            assert_eq!(url(&broker(url_given), mappings).unwrap(), url_given);
        }
    }

    #[test]
    fn settings_become_parameters() {
        let mut broker = broker("kafka://a?prefix=shop.");
        broker.partitions = Some(3);
        broker.acknowledge = Acknowledge::Leader;
        broker.flush = Flush::Messages(500);
        broker.topic.retention_time = Some(Duration::from_secs(3600));
        broker.topic.may_drop_unread = true;
        let expected = "kafka://a?prefix=shop.&partitions=3&acks=1&flush_messages=500&retention=3600s";
        assert_eq!(url(&broker, &KAFKA).unwrap(), expected);
        broker.url = Address::new("kafka://a");
        broker.flush = Flush::Interval(Duration::from_millis(20));
        let expected = "kafka://a?partitions=3&acks=1&flush_interval=20ms&retention=3600s";
        assert_eq!(url(&broker, &KAFKA).unwrap(), expected);
    }

    #[test]
    fn setting_without_effect_is_refused_with_the_brokers_own() {
        let mut broker = broker("nats://a");
        broker.flush = Flush::Interval(Duration::from_millis(20));
        let error = url(&broker, &NATS).unwrap_err().to_string();
        let expected =
            "broker.flush = \"20ms\" has no effect on nats: set sync_interval in the configuration of the server";
        assert_eq!(error, expected);
    }

    #[test]
    fn setting_that_the_url_repeats_is_refused() {
        let mut broker = broker("redis://a?partitions=8");
        broker.partitions = Some(4);
        let error = url(&broker, &REDIS).unwrap_err().to_string();
        assert_eq!(error, "broker.partitions and partitions= in the broker URL are both set; remove one");
    }

    /// The adapters accept every parameter that a mapping produces.
    #[cfg(all(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
    #[test]
    fn adapters_know_every_parameter() {
        let every = |url: &str, mappings: &Mappings| {
            let mut broker = broker(url);
            let keeps = |mapping| !matches!(mapping, Refused(_));
            broker.partitions = keeps(mappings.partitions).then_some(3);
            if keeps(mappings.acknowledge_leader) {
                broker.acknowledge = Acknowledge::Leader;
            }
            if keeps(mappings.flush_interval) {
                broker.flush = Flush::Interval(Duration::from_millis(20));
            }
            broker.topic.retention_time = keeps(mappings.retention).then_some(Duration::from_secs(3600));
            broker.topic.deduplicate = !keeps(mappings.no_deduplication);
            super::url(&broker, mappings).unwrap()
        };
        let kafka = landfall::kafka::Options::from_url(&every("kafka://a", &KAFKA)).unwrap();
        assert_eq!((kafka.partitions, kafka.flush_interval), (3, Some(Duration::from_millis(20))));
        assert_eq!(kafka.acks, landfall::kafka::Acks::Leader);
        assert_eq!(landfall::nats::Options::from_url(&every("nats://a", &NATS)).unwrap().partitions, 3);
        assert_eq!(landfall::rabbitmq::Options::from_url(&every("amqp://a", &RABBITMQ)).unwrap().partitions, 3);
        let redis = landfall::redis::Options::from_url(&every("redis://a", &REDIS)).unwrap();
        assert_eq!((redis.partitions, redis.replicas, redis.dedup), (3, 0, Duration::ZERO));
    }
}
