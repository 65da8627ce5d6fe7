//! Reading a topic without a group.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Position, Result, StartAt, StoredMessage, TopicName, TopicReader};
use rdkafka::ClientConfig;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::client::{Listening, blocking};
use crate::config::Options;
use crate::error::error;
use crate::record::Copies;
use crate::topics::Topics;

/// Behind the last message of a partition there may be marks of transactions, which are never delivered. Once the
/// cluster has said that this is the end, nothing more is waited for than this.
const MARKS: Duration = Duration::from_millis(500);

pub(crate) struct KafkaReader(Arc<Mutex<Reading>>);

struct Reading {
    config: ClientConfig,
    consumer: BaseConsumer<Listening>,
    topic: TopicName,
    name: String,
    places: BTreeMap<i32, Place>,
    timeout: Duration,
    copies: Copies,
}

/// Where one partition stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Records before this are not wanted.
    from: i64,
    /// The next offset.
    next: i64,
    /// Where the partition ended when it was last asked.
    end: i64,
    /// Whether the cluster said so after the last record.
    ended: bool,
}

impl KafkaReader {
    pub(crate) async fn open(options: &Options, topics: &Topics, topic: &TopicName, from: StartAt) -> Result<Self> {
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no topic {topic}"));
        let partitions = topics.partitions(topic).await?.ok_or_else(missing)?;
        let (name, topic, timeout) = (topics.name(topic)?, topic.clone(), options.connect_timeout);
        let mut config = options.reader();
        // A group is named because librdkafka wants one; it is never joined and nothing is saved under it.
        config.set("group.id", format!("{}landfall-reader", options.prefix)).set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false").set("enable.partition.eof", "true");
        config.set("auto.offset.reset", "earliest");
        let failed = |cause| error("the reader cannot be made", cause);
        let consumer = BaseConsumer::from_config_and_context(&config, Listening::default()).map_err(failed)?;
        let (places, copies) = (BTreeMap::new(), Copies::default());
        let mut reading = Reading { config, consumer, topic, name, places, timeout, copies };
        blocking(move || {
            reading.begin(partitions as i32, from).map_err(|cause| error("the topic cannot be read", cause))?;
            Ok(Self(Arc::new(Mutex::new(reading))))
        })
        .await?
    }
}

#[async_trait]
impl TopicReader for KafkaReader {
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        let reading = self.0.clone();
        let read = blocking(move || {
            let mut reading = reading.lock().unwrap_or_else(PoisonError::into_inner);
            let read = reading.read(limit);
            if read.is_err()
                && let Err(error) = reading.renew()
            {
                tracing::warn!(%error, "a reader of Kafka cannot be made anew");
            }
            read
        });
        read.await?.map_err(|cause| error("the topic cannot be read", cause))
    }
}

impl Reading {
    fn begin(&mut self, partitions: i32, from: StartAt) -> KafkaResult<()> {
        let times = match from {
            StartAt::Time(time) => Some(self.offsets_at(partitions, time.as_millis())?),
            _ => None,
        };
        for partition in 0..partitions {
            let (low, high) = self.consumer.fetch_watermarks(&self.name, partition, self.timeout)?;
            let from = match (from, &times) {
                (StartAt::Beginning, _) => low,
                (StartAt::Offset(offset), _) => i64::try_from(offset).unwrap_or(i64::MAX),
                (StartAt::Time(_), Some(times)) => times.get(&partition).copied().unwrap_or(high),
                (StartAt::End | StartAt::Time(_), _) => high,
            };
            let next = from.clamp(low, high);
            self.places.insert(partition, Place { from, next, end: high, ended: false });
        }
        self.assign()
    }

    fn assign(&self) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for (partition, place) in &self.places {
            list.add_partition_offset(&self.name, *partition, Offset::Offset(place.next))?;
        }
        self.consumer.assign(&list)
    }

    /// Goes on with another client: this one may have forgotten where the cluster is (`lifeline.rs`).
    fn renew(&mut self) -> KafkaResult<()> {
        self.consumer = BaseConsumer::from_config_and_context(&self.config, Listening::default())?;
        for place in self.places.values_mut() {
            place.ended = false;
        }
        self.assign()
    }

    /// For each partition that has one, the first offset that was taken at `millis` or later.
    fn offsets_at(&self, partitions: i32, millis: i64) -> KafkaResult<BTreeMap<i32, i64>> {
        let mut asked = TopicPartitionList::new();
        for partition in 0..partitions {
            asked.add_partition_offset(&self.name, partition, Offset::Offset(millis))?;
        }
        let found = self.consumer.offsets_for_times(asked, self.timeout)?;
        let offset = |offset: Offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
        Ok(found.elements().iter().filter_map(|found| Some((found.partition(), offset(found.offset())?))).collect())
    }

    fn read(&mut self, limit: usize) -> KafkaResult<Vec<StoredMessage>> {
        let mut stored = Vec::new();
        let (mut quiet_since, began) = (Instant::now(), Instant::now());
        let mut is_at_the_end = self.places.values().all(|place| place.next >= place.end);
        while stored.len() < limit {
            // What was said about the old end is heard before a new one is asked for.
            let patience = if is_at_the_end { Duration::ZERO } else { Duration::from_millis(50) };
            match self.consumer.poll(patience) {
                Some(Ok(record)) => {
                    quiet_since = Instant::now();
                    let Some(place) = self.places.get_mut(&record.partition()) else { continue };
                    (place.next, place.ended) = (record.offset() + 1, false);
                    if record.offset() >= place.from {
                        let position =
                            Position { partition: record.partition() as u32, offset: record.offset() as u64 };
                        let message = self.copies.copy(&record).message(&self.topic);
                        stored.push(StoredMessage { position, message });
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    quiet_since = Instant::now();
                    if let Some(place) = self.places.get_mut(&partition) {
                        place.ended = true;
                    }
                }
                // It reconnects by itself; whoever reads is not kept waiting for longer than any other question takes.
                Some(Err(error)) if began.elapsed() > self.timeout => return so_far(stored, error),
                Some(Err(error)) => tracing::debug!(%error, "a read waits for Kafka"),
                None if is_at_the_end => {
                    is_at_the_end = false;
                    if let Err(error) = self.look_for_the_end() {
                        return so_far(stored, error);
                    }
                }
                None if began.elapsed() > self.timeout => {
                    return so_far(stored, KafkaError::MetadataFetch(RDKafkaErrorCode::OperationTimedOut));
                }
                None => {}
            }
            if !is_at_the_end && !self.places.values().any(|place| place.is_open(quiet_since)) {
                break;
            }
        }
        // What was behind a mark was behind the end.
        for place in self.places.values_mut().filter(|place| stored.len() < limit && place.next < place.end) {
            place.next = place.end;
        }
        Ok(stored)
    }

    fn look_for_the_end(&mut self) -> KafkaResult<()> {
        for (partition, place) in &mut self.places {
            let end = self.consumer.fetch_watermarks(&self.name, *partition, self.timeout)?.1;
            place.ended &= end <= place.end;
            place.end = end;
        }
        Ok(())
    }
}

/// What was read is handed on; the next read meets the same trouble.
fn so_far(stored: Vec<StoredMessage>, error: KafkaError) -> KafkaResult<Vec<StoredMessage>> {
    if stored.is_empty() { Err(error) } else { Ok(stored) }
}

impl Place {
    /// Whether there may be more before its end.
    fn is_open(&self, quiet_since: Instant) -> bool {
        self.next < self.end && !(self.ended && quiet_since.elapsed() > MARKS)
    }
}
