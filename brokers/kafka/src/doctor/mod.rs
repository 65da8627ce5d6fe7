//! Doctor checks: settings of the cluster that can lose, reorder, duplicate or delay messages.

mod cluster;
mod topic;

use async_trait::async_trait;
use landfall_core::adapter::Demands;
use landfall_core::{Diagnose, Error, Finding, Rank, Result, Timestamp, TopicName};
use rdkafka::admin::{ConfigResource, ResourceSpecifier};
use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::Kafka;

/// A record with a timestamp further in the future than this shows that the sender's clock or ours is wrong.
const SKEW_MILLIS: i64 = 60_000;

/// A topic and its partitions, from the cluster's metadata.
struct TopicMetadata {
    name: String,
    partitions: Vec<Partition>,
}

struct Partition {
    leader: i32,
    replicas: usize,
    in_sync: usize,
}

#[async_trait]
impl Diagnose for Kafka {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let mut findings = cluster::options(self.options());
        let metadata = self.topics().metadata(None).await?;
        let nodes: Vec<i32> = metadata.brokers().iter().map(|node| node.id()).collect();
        let topics: Vec<TopicMetadata> = metadata.topics().iter().map(TopicMetadata::from).collect();
        drop(metadata);
        for node in nodes {
            match self.topics().settings(ResourceSpecifier::Broker(node)).await {
                Ok(settings) => findings.extend(cluster::node(node, &settings, demands)),
                Err(error) => findings.push(hidden(format!("node {node}"), &error)),
            }
        }
        for topic in &topics {
            findings.extend(cluster::group_offsets(topic));
            if self.is_ours(&topic.name) {
                findings.extend(self.check_topic(topic, demands).await);
            }
        }
        findings.sort_by(|one, other| (one.rank, one.check, &one.about).cmp(&(other.rank, other.check, &other.about)));
        Ok(findings)
    }
}

impl Kafka {
    fn is_ours(&self, name: &str) -> bool {
        let prefix = &self.options().prefix;
        name.strip_prefix(prefix).is_some_and(|rest| TopicName::new(rest).is_ok()) && !name.starts_with("__")
    }

    async fn check_topic(&self, topic: &TopicMetadata, demands: &Demands) -> Vec<Finding> {
        let mut findings = topic::replicas(topic);
        match self.topics().settings(ResourceSpecifier::Topic(&topic.name)).await {
            Ok(settings) => findings.extend(topic::settings(topic, &settings, demands)),
            Err(error) => findings.push(hidden(format!("topic {}", topic.name), &error)),
        }
        match self.has_future_timestamp(topic).await {
            Ok(is_ahead) => findings.extend(is_ahead.then(|| topic::clock(topic))),
            Err(error) => findings.push(hidden(format!("the records of topic {}", topic.name), &error)),
        }
        findings
    }

    /// Whether a record has a timestamp in the future.
    async fn has_future_timestamp(&self, topic: &TopicMetadata) -> Result<bool> {
        let ahead = Timestamp::now().as_millis() + SKEW_MILLIS;
        let (name, timeout) = (topic.name.clone(), self.options().connect_timeout);
        // A partition without a leader cannot answer.
        let has_leader = |partition: &usize| topic.partitions[*partition].leader >= 0;
        let led: Vec<usize> = (0..topic.partitions.len()).filter(has_leader).collect();
        self.topics()
            .query(move |client| {
                let mut times = TopicPartitionList::new();
                for partition in led {
                    times.add_partition_offset(&name, partition as i32, Offset::Offset(ahead))?;
                }
                let offsets = client.offsets_for_times(times, timeout)?;
                Ok(offsets.elements().iter().any(|element| matches!(element.offset(), Offset::Offset(_))))
            })
            .await
    }
}

impl From<&rdkafka::metadata::MetadataTopic> for TopicMetadata {
    fn from(topic: &rdkafka::metadata::MetadataTopic) -> Self {
        let partition = |partition: &rdkafka::metadata::MetadataPartition| Partition {
            leader: partition.leader(),
            replicas: partition.replicas().len(),
            in_sync: partition.isr().len(),
        };
        Self { name: topic.name().to_owned(), partitions: topic.partitions().iter().map(partition).collect() }
    }
}

/// Reports settings that this account may not read.
fn hidden(about: String, error: &Error) -> Finding {
    Finding {
        check: "kafka.hidden",
        rank: Rank::Loss,
        about,
        what: format!("the settings cannot be read and may be unsafe: {error}"),
        mend: "allow this account DescribeConfigs on the cluster and its topics, and Describe on the topics".into(),
    }
}

/// Returns the parsed value of a setting, or `None` if it is absent or invalid.
fn value<T: std::str::FromStr>(settings: &ConfigResource, name: &str) -> Option<T> {
    settings.get(name)?.value.as_ref()?.parse().ok()
}
