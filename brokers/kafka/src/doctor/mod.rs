//! The doctor's part: every way in which this cluster's settings can lose, reorder or double messages.

mod cluster;
mod topic;

use async_trait::async_trait;
use landfall_core::{Demands, Diagnose, Error, Finding, Rank, Result, Timestamp, TopicName};
use rdkafka::admin::{ConfigResource, ResourceSpecifier};
use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::Kafka;

/// A record that lies further ahead of our clock than this was stamped by a clock that is wrong, or ours is.
const SKEW_MILLIS: i64 = 60_000;

/// The partitions of a topic, as the cluster tells them.
struct Partitions {
    name: String,
    each: Vec<Partition>,
}

struct Partition {
    leader: i32,
    copies: usize,
    in_step: usize,
}

#[async_trait]
impl Diagnose for Kafka {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let mut found = cluster::options(self.options());
        let metadata = self.topics().metadata(None).await?;
        let nodes: Vec<i32> = metadata.brokers().iter().map(|node| node.id()).collect();
        let topics: Vec<Partitions> = metadata.topics().iter().map(Partitions::from).collect();
        drop(metadata);
        for node in nodes {
            match self.topics().settings(ResourceSpecifier::Broker(node)).await {
                Ok(settings) => found.extend(cluster::node(node, &settings, demands)),
                Err(error) => found.push(hidden(format!("node {node}"), &error)),
            }
        }
        for topic in &topics {
            found.extend(cluster::progress_of_groups(topic));
            if self.is_ours(&topic.name) {
                found.extend(self.examine_topic(topic, demands).await);
            }
        }
        found.sort_by(|one, other| (one.rank, one.check, &one.about).cmp(&(other.rank, other.check, &other.about)));
        Ok(found)
    }
}

impl Kafka {
    fn is_ours(&self, name: &str) -> bool {
        let prefix = &self.options().prefix;
        name.strip_prefix(prefix).is_some_and(|rest| TopicName::new(rest).is_ok()) && !name.starts_with("__")
    }

    async fn examine_topic(&self, topic: &Partitions, demands: &Demands) -> Vec<Finding> {
        let mut found = topic::copies(topic);
        match self.topics().settings(ResourceSpecifier::Topic(&topic.name)).await {
            Ok(settings) => found.extend(topic::settings(topic, &settings, demands)),
            Err(error) => found.push(hidden(format!("topic {}", topic.name), &error)),
        }
        match self.newest_ahead(topic).await {
            Ok(is_ahead) => found.extend(is_ahead.then(|| topic::clock(topic))),
            Err(error) => found.push(hidden(format!("the records of topic {}", topic.name), &error)),
        }
        found
    }

    /// Whether a record was stamped with a time that has not come yet.
    async fn newest_ahead(&self, topic: &Partitions) -> Result<bool> {
        let ahead = Timestamp::now().as_millis() + SKEW_MILLIS;
        let (name, timeout) = (topic.name.clone(), self.options().connect_timeout);
        // Of a partition without a leader nobody can ask.
        let led: Vec<usize> = (0..topic.each.len()).filter(|partition| topic.each[*partition].leader >= 0).collect();
        self.topics()
            .ask(move |asking| {
                let mut asked = TopicPartitionList::new();
                for partition in led {
                    asked.add_partition_offset(&name, partition as i32, Offset::Offset(ahead))?;
                }
                let found = asking.offsets_for_times(asked, timeout)?;
                Ok(found.elements().iter().any(|found| matches!(found.offset(), Offset::Offset(_))))
            })
            .await
    }
}

impl From<&rdkafka::metadata::MetadataTopic> for Partitions {
    fn from(topic: &rdkafka::metadata::MetadataTopic) -> Self {
        let partition = |partition: &rdkafka::metadata::MetadataPartition| Partition {
            leader: partition.leader(),
            copies: partition.replicas().len(),
            in_step: partition.isr().len(),
        };
        Self { name: topic.name().to_owned(), each: topic.partitions().iter().map(partition).collect() }
    }
}

/// What this account may not see.
fn hidden(about: String, error: &Error) -> Finding {
    Finding {
        check: "kafka.hidden",
        rank: Rank::Loss,
        about,
        what: format!("what is set here cannot be seen, and so may be anything: {error}"),
        mend: "allow this account DescribeConfigs on the cluster and on its topics, and Describe on the topics".into(),
    }
}

/// A setting's value as whatever it should be.
fn value<T: std::str::FromStr>(settings: &ConfigResource, name: &str) -> Option<T> {
    settings.get(name)?.value.as_ref()?.parse().ok()
}
