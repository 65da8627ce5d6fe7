//! Reads a topic without a consumer group.

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

use crate::client::{ErrorContext, blocking, watermarks};
use crate::config::Options;
use crate::error::error;
use crate::subscriber::record::RecordBuffer;
use crate::topics::Topics;

/// How long a read waits for records after the end-of-partition event.
/// Transaction control records may follow the last message, and they are never delivered.
const CONTROL_RECORD_WAIT: Duration = Duration::from_millis(500);

pub(crate) struct KafkaReader(Arc<Mutex<ReaderState>>);

struct ReaderState {
    config: ClientConfig,
    consumer: BaseConsumer<ErrorContext>,
    topic: TopicName,
    name: String,
    cursors: BTreeMap<i32, PartitionCursor>,
    timeout: Duration,
    buffer: RecordBuffer,
}

/// Read position of one partition.
#[derive(Debug, Clone, Copy)]
struct PartitionCursor {
    /// Records before this offset are skipped.
    from: i64,
    /// Next offset to read.
    next: i64,
    /// High watermark at the last request.
    end: i64,
    /// Whether an end-of-partition event followed the last record.
    at_eof: bool,
}

impl KafkaReader {
    pub(crate) async fn open(options: &Options, topics: &Topics, topic: &TopicName, from: StartAt) -> Result<Self> {
        let missing = || Error::new(ErrorKind::NotFound, format!("topic {topic} does not exist"));
        let partitions = topics.partitions(topic).await?.ok_or_else(missing)?;
        let (name, topic, timeout) = (topics.name(topic)?, topic.clone(), options.connect_timeout);
        let mut config = options.reader();
        // librdkafka requires a group name. The reader never joins the group and commits nothing.
        config.set("group.id", format!("{}landfall-reader", options.prefix)).set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false").set("enable.partition.eof", "true");
        config.set("auto.offset.reset", "earliest");
        let failed = |cause| error("the reader's client cannot be created", cause);
        let consumer = BaseConsumer::from_config_and_context(&config, ErrorContext::default()).map_err(failed)?;
        let (cursors, buffer) = (BTreeMap::new(), RecordBuffer::default());
        let mut state = ReaderState { config, consumer, topic, name, cursors, timeout, buffer };
        blocking(move || {
            state.begin(partitions as i32, from).map_err(|cause| error("reading the topic failed", cause))?;
            Ok(Self(Arc::new(Mutex::new(state))))
        })
        .await?
    }
}

#[async_trait]
impl TopicReader for KafkaReader {
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        let state = self.0.clone();
        let read = blocking(move || {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let read = state.read(limit);
            if read.is_err()
                && let Err(error) = state.reconnect()
            {
                tracing::warn!(%error, "cannot replace the reader's client");
            }
            read
        });
        read.await?.map_err(|cause| error("reading the topic failed", cause))
    }
}

impl ReaderState {
    fn begin(&mut self, partitions: i32, from: StartAt) -> KafkaResult<()> {
        let times = match from {
            StartAt::Time(time) => Some(self.offsets_at(partitions, time.as_millis())?),
            _ => None,
        };
        for partition in 0..partitions {
            let (low, high) = watermarks(&self.consumer, &self.name, partition, self.timeout)?;
            let from = match (from, &times) {
                (StartAt::Beginning, _) => low,
                (StartAt::Offset(offset), _) => i64::try_from(offset).unwrap_or(i64::MAX),
                (StartAt::Time(_), Some(times)) => times.get(&partition).copied().unwrap_or(high),
                (StartAt::End | StartAt::Time(_), _) => high,
            };
            let next = from.clamp(low, high);
            self.cursors.insert(partition, PartitionCursor { from, next, end: high, at_eof: false });
        }
        self.assign()
    }

    fn assign(&self) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for (partition, cursor) in &self.cursors {
            list.add_partition_offset(&self.name, *partition, Offset::Offset(cursor.next))?;
        }
        self.consumer.assign(&list)
    }

    /// Replaces the client: it may have lost all knowledge of the cluster's nodes (`stall.rs`).
    fn reconnect(&mut self) -> KafkaResult<()> {
        self.consumer = BaseConsumer::from_config_and_context(&self.config, ErrorContext::default())?;
        for cursor in self.cursors.values_mut() {
            cursor.at_eof = false;
        }
        self.assign()
    }

    /// Returns the first offset with a timestamp of `millis` or later, for each partition that has one.
    fn offsets_at(&self, partitions: i32, millis: i64) -> KafkaResult<BTreeMap<i32, i64>> {
        let mut times = TopicPartitionList::new();
        for partition in 0..partitions {
            times.add_partition_offset(&self.name, partition, Offset::Offset(millis))?;
        }
        let found = self.consumer.offsets_for_times(times, self.timeout)?;
        let offset = |offset: Offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
        Ok(found.elements().iter().filter_map(|found| Some((found.partition(), offset(found.offset())?))).collect())
    }

    fn read(&mut self, limit: usize) -> KafkaResult<Vec<StoredMessage>> {
        let mut stored = Vec::new();
        let (mut quiet_since, began) = (Instant::now(), Instant::now());
        let mut reached_end = self.cursors.values().all(|cursor| cursor.next >= cursor.end);
        while stored.len() < limit {
            // Drain the events about the old end before requesting the new one.
            let poll_timeout = if reached_end { Duration::ZERO } else { Duration::from_millis(50) };
            match self.consumer.poll(poll_timeout) {
                Some(Ok(record)) => {
                    quiet_since = Instant::now();
                    let Some(cursor) = self.cursors.get_mut(&record.partition()) else { continue };
                    (cursor.next, cursor.at_eof) = (record.offset() + 1, false);
                    if record.offset() >= cursor.from {
                        let position =
                            Position { partition: record.partition() as u32, offset: record.offset() as u64 };
                        let message = self.buffer.copy(&record).message(&self.topic);
                        stored.push(StoredMessage { position, message });
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    quiet_since = Instant::now();
                    if let Some(cursor) = self.cursors.get_mut(&partition) {
                        cursor.at_eof = true;
                    }
                }
                // The client reconnects automatically. The caller waits no longer than for any other request.
                Some(Err(error)) if began.elapsed() > self.timeout => return partial_or_error(stored, error),
                Some(Err(error)) => tracing::debug!(%error, "read waits for Kafka"),
                None if reached_end => {
                    reached_end = false;
                    if let Err(error) = self.refresh_ends() {
                        return partial_or_error(stored, error);
                    }
                }
                None if began.elapsed() > self.timeout => {
                    return partial_or_error(stored, KafkaError::MetadataFetch(RDKafkaErrorCode::OperationTimedOut));
                }
                None => {}
            }
            if !reached_end && !self.cursors.values().any(|cursor| cursor.is_open(quiet_since)) {
                break;
            }
        }
        // Only control records remained before the end: skip them.
        for cursor in self.cursors.values_mut().filter(|cursor| stored.len() < limit && cursor.next < cursor.end) {
            cursor.next = cursor.end;
        }
        Ok(stored)
    }

    fn refresh_ends(&mut self) -> KafkaResult<()> {
        for (partition, cursor) in &mut self.cursors {
            let end = watermarks(&self.consumer, &self.name, *partition, self.timeout)?.1;
            cursor.at_eof &= end <= cursor.end;
            cursor.end = end;
        }
        Ok(())
    }
}

/// Returns what was read so far. With nothing read, returns the error; otherwise the next read meets it again.
fn partial_or_error(stored: Vec<StoredMessage>, error: KafkaError) -> KafkaResult<Vec<StoredMessage>> {
    if stored.is_empty() { Err(error) } else { Ok(stored) }
}

impl PartitionCursor {
    /// Whether more records may follow before the end.
    fn is_open(&self, quiet_since: Instant) -> bool {
        self.next < self.end && !(self.at_eof && quiet_since.elapsed() > CONTROL_RECORD_WAIT)
    }
}
