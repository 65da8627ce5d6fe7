//! Detects an assigned partition whose records stop arriving while its member still reaches the cluster.
//!
//! librdkafka may stop fetching a partition for good, without an error, after leaders or connections changed in the
//! wrong moment: <https://github.com/confluentinc/librdkafka/issues/5593>. So a member compares, partition by
//! partition, what has arrived with the end of the partition. If another client can read the next record and the
//! member does not get it, the member is replaced.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::client::ErrorContext;
use crate::config::Options;
use crate::subscriber::member::Member;

/// Pause between two looks, each at one partition. The member does not poll meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// A partition is behind for this long before it counts as stalled. A healthy client takes milliseconds.
const STALLED_AFTER: Duration = Duration::from_secs(15);
/// Timeout of each request.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long the reference client may take to connect and to read one record.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Finds partitions that have stalled.
pub(crate) struct LaggingPartitions<'a> {
    options: &'a Options,
    next_look: Instant,
    /// The partition that was looked at last.
    last: i32,
    behind: BTreeMap<i32, Behind>,
    /// Ends of partitions up to which there is nothing to deliver, such as the markers of transactions.
    empty_to: BTreeMap<i32, i64>,
    reading: Option<Reading>,
}

/// A read by another client, in a thread of its own: it may take seconds.
struct Reading {
    partition: i32,
    next: i64,
    end: i64,
    /// Whether there was a record.
    result: Receiver<bool>,
}

/// A partition that has more records than arrived.
struct Behind {
    /// Where its next record was expected.
    next: i64,
    since: Instant,
}

impl<'a> LaggingPartitions<'a> {
    pub(crate) fn new(options: &'a Options) -> Self {
        let next_look = Instant::now() + LOOK_INTERVAL;
        Self { options, next_look, last: i32::MIN, behind: BTreeMap::new(), empty_to: BTreeMap::new(), reading: None }
    }

    /// Whether `member` must be replaced. Call it only while the member has no event left: then what the client has
    /// fetched has arrived. Looks at one partition at most, and blocks while it does.
    pub(crate) fn has_stalled(&mut self, member: &Member) -> bool {
        if Instant::now() < self.next_look {
            return false;
        }
        self.next_look = Instant::now() + LOOK_INTERVAL;
        if let Some(reading) = self.reading.take() {
            return self.finish(reading, member);
        }
        let Some((partition, arrived_to)) = self.choose(member) else { return false };
        let Some((next, end)) = expected_and_end(member, partition, arrived_to) else { return false };
        if next >= end || self.empty_to.get(&partition) == Some(&end) {
            self.behind.remove(&partition);
            return false;
        }
        let now = Instant::now();
        let behind = self.behind.entry(partition).or_insert(Behind { next, since: now });
        if behind.next != next {
            *behind = Behind { next, since: now };
        }
        if behind.since.elapsed() >= STALLED_AFTER {
            self.behind.remove(&partition);
            let result = self.read(&member.context().topic, partition, next);
            self.reading = Some(Reading { partition, next, end, result });
        }
        false
    }

    /// Whether another client has read a record that has still not arrived.
    fn finish(&mut self, reading: Reading, member: &Member) -> bool {
        let Reading { partition, next, end, .. } = reading;
        match reading.result.try_recv() {
            Ok(true) => {
                let membership = member.context();
                let arrived_to = membership.deliveries.running().get(&partition).copied();
                let is_missing = arrived_to.is_some_and(|arrived_to| arrived_to.is_none_or(|to| to == next));
                if is_missing {
                    let topic = &membership.topic;
                    tracing::warn!(topic, partition, next, end, "records of an assigned partition do not arrive");
                }
                return is_missing;
            }
            Ok(false) => drop(self.empty_to.insert(partition, end)),
            Err(TryRecvError::Empty) => self.reading = Some(reading),
            // The cluster did not answer.
            Err(TryRecvError::Disconnected) => {}
        }
        false
    }

    /// A partition that is behind, else the one after the last. With the offset behind its last record.
    fn choose(&mut self, member: &Member) -> Option<(i32, Option<i64>)> {
        let running = member.context().deliveries.running();
        self.behind.retain(|partition, _| running.contains_key(partition));
        let due = self.behind.iter().find(|(_, behind)| behind.since.elapsed() >= STALLED_AFTER);
        let following = || running.keys().find(|partition| **partition > self.last).or(running.keys().next());
        let partition = *due.map(|(partition, _)| partition).or_else(following)?;
        self.last = partition;
        Some((partition, running[&partition]))
    }

    /// Reads from `offset` on with a client of its own.
    fn read(&self, topic: &str, partition: i32, offset: i64) -> Receiver<bool> {
        let mut config = self.options.reader();
        // librdkafka requires a group name. This client never joins the group and commits nothing.
        config.set("group.id", format!("{}landfall-reader", self.options.prefix)).set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true");
        let (sender, result) = channel();
        let topic = topic.to_owned();
        let read = move || {
            if let Some(is_readable) = is_readable(&config, &topic, partition, offset) {
                // The member may have been dropped meanwhile.
                let _ = sender.send(is_readable);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("landfall-kafka-read".into()).spawn(read) {
            tracing::warn!(%error, "cannot look for a stalled partition");
        }
        result
    }
}

/// Whether there is a record from `offset` on; `None` if the cluster did not answer in time.
fn is_readable(config: &ClientConfig, topic: &str, partition: i32, offset: i64) -> Option<bool> {
    let client: BaseConsumer<ErrorContext> =
        BaseConsumer::from_config_and_context(config, ErrorContext::default()).ok()?;
    let mut start = TopicPartitionList::new();
    start.add_partition_offset(topic, partition, Offset::Offset(offset)).ok()?;
    client.assign(&start).ok()?;
    let started = Instant::now();
    while started.elapsed() < READ_TIMEOUT {
        match client.poll(TIMEOUT) {
            Some(Ok(_)) => return Some(true),
            Some(Err(KafkaError::PartitionEOF(_))) => return Some(false),
            _ => {}
        }
    }
    None
}

/// Returns where the next record is expected, and the end of the partition. `None` if the cluster does not answer.
fn expected_and_end(member: &Member, partition: i32, arrived_to: Option<i64>) -> Option<(i64, i64)> {
    let topic = &member.context().topic;
    let (beginning, end) = member.fetch_watermarks(topic, partition, TIMEOUT).ok()?;
    if let Some(next) = arrived_to {
        return Some((next, end));
    }
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, partition);
    let committed = member.committed_offsets(list, TIMEOUT).ok()?;
    let next = committed.elements_for_topic(topic).first().and_then(|element| element.offset().to_raw());
    Some((next.filter(|next| *next >= 0).unwrap_or(beginning), end))
}

#[cfg(test)]
mod tests {
    use landfall_core::{Broker, Message, TopicAdministration};
    use landfall_testkit::servers::{KafkaOptions, KafkaServer};
    use landfall_testkit::traffic::orders;
    use landfall_testkit::{current_test, eventually};
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

    use super::*;
    use crate::Kafka;
    use crate::subscriber::member::Joining;
    use crate::subscriber::record::RecordBuffer;

    const SOON: Duration = Duration::from_secs(60);

    /// A partition that is paused without Landfall's knowledge looks like one that the client has forgotten.
    #[tokio::test(flavor = "multi_thread")]
    async fn member_with_a_stalled_partition_is_replaced() {
        let Some(server) = KafkaServer::start(&current_test(), KafkaOptions::default()).await else { return };
        // A static member rejoins at once, however long its predecessor's session timeout is.
        let joining = Joining::for_stock(&format!("{}?session_timeout=5m&instance=one", server.url().await));
        let kafka = Kafka::connect(joining.options.clone()).await.unwrap();
        let created = async || kafka.create_topic(&orders(), Some(1)).await.is_ok();
        eventually(SOON, "the topic is created", created).await;
        let published = async || kafka.publisher().publish(&[Message::new(orders(), "paid")]).await[0].is_accepted();
        eventually(SOON, "a message is published", published).await;
        let member = joining.join().unwrap();
        let receives = async || match member.poll(TIMEOUT) {
            Some(Ok(record)) => {
                joining.deliveries.arrive(vec![RecordBuffer::default().copy(&record)]);
                true
            }
            _ => false,
        };
        eventually(SOON, "the first message arrives", receives).await;
        let first = joining.deliveries.try_next().expect("a message is in flight");
        landfall_broker_toolkit::Settle::ack(&*joining.deliveries, first).unwrap();
        let assignment = member.assignment().unwrap();
        member.pause(&assignment).unwrap();
        eventually(SOON, "another message is published", published).await;
        joining.receives(member).await;
    }

    /// The end of a partition is behind the marker of a transaction, which no client delivers.
    #[tokio::test(flavor = "multi_thread")]
    async fn marker_of_a_transaction_is_no_missing_record() {
        let Some(server) = KafkaServer::start(&current_test(), KafkaOptions::default()).await else { return };
        let joining = Joining::for_stock(&server.url().await);
        let kafka = Kafka::connect(joining.options.clone()).await.unwrap();
        let created = async || kafka.create_topic(&orders(), Some(1)).await.is_ok();
        eventually(SOON, "the topic is created", created).await;
        let producer: BaseProducer = joining.options.reader().set("transactional.id", "one").create().unwrap();
        producer.init_transactions(SOON).unwrap();
        producer.begin_transaction().unwrap();
        producer.send(BaseRecord::to(&joining.name).key("a").payload("paid")).unwrap();
        producer.commit_transaction(SOON).unwrap();

        let member = joining.join().unwrap();
        let mut lagging = LaggingPartitions::new(&joining.options);
        let found_empty = async || {
            if let Some(Ok(record)) = member.poll(Duration::from_millis(100)) {
                joining.deliveries.arrive(vec![RecordBuffer::default().copy(&record)]);
            }
            assert!(!lagging.has_stalled(&member), "there is nothing to deliver");
            !lagging.empty_to.is_empty()
        };
        eventually(SOON, "another client has found nothing either", found_empty).await;
        assert!(joining.deliveries.try_next().is_some(), "the message has arrived");
        assert_eq!(lagging.empty_to.get(&0), Some(&2), "the message and its marker");
    }
}
