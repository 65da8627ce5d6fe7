//! Publishing: hands a batch to librdkafka and waits for the delivery reports.
//!
//! With `acks=all` a batch is handed over whole. As many requests are in flight as Kafka keeps in order for one
//! producer, so a thousand messages cost about one round trip. The order of a key holds for three reasons. The producer
//! is idempotent, and the cluster accepts no request behind a missing one. A permanent refusal stops the producer. A
//! producer that did not deliver everything in time is retired as a whole
//! (`docs/adr/0014-kafka-replace-the-producer-after-unknown.md`). With `acks=1` and `acks=0` producers are not
//! idempotent, so one message of a key is in flight at a time.

pub(crate) mod delivery_reports;
pub(crate) mod fenced;
pub(crate) mod producer;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use landfall_broker_toolkit::{KeySequencer, Pipelining};
use landfall_core::adapter::FencedPublisher;
use landfall_core::{ErrorCode, Holder, Message, Outcome, Publisher, TopicName};

use crate::config::{Acks, Options};
use crate::error::{outcome, unsent};
use crate::topics::Topics;
use crate::wire;
use delivery_reports::DeliveryReports;
use fenced::FencedKafkaPublisher;
use producer::{CurrentProducer, HandOver, Record, RetirableProducer};

/// How long a retired producer may take to report what was in it.
const LAST_REPORTS: Duration = Duration::from_secs(2);

pub(crate) struct KafkaPublisher {
    options: Arc<Options>,
    topics: Arc<Topics>,
    producer: CurrentProducer,
}

/// A topic as the cluster knows it.
pub(crate) struct Target {
    name: String,
    pub(crate) message_bytes: usize,
}

/// Each topic of a batch, or the outcome of its messages if it cannot be used.
pub(crate) type Targets<'a> = HashMap<&'a TopicName, Result<Target, Outcome>>;

impl KafkaPublisher {
    pub(crate) fn new(options: Arc<Options>, topics: Arc<Topics>) -> Self {
        Self { producer: CurrentProducer::new(options.clone()), options, topics }
    }

    pub(crate) async fn targets<'a>(&self, batch: &'a [Message]) -> Targets<'a> {
        let mut targets = Targets::new();
        // A cluster that does not answer is asked once, not once for each topic.
        let mut unreachable = None;
        for topic in batch.iter().map(|message| &message.topic) {
            if targets.contains_key(topic) {
                continue;
            }
            let asked = Instant::now();
            let target = match &unreachable {
                Some(outcome) => Err(Outcome::clone(outcome)),
                None => self.target(topic).await.map_err(|error| {
                    let outcome = unsent(&error);
                    let timed_out = error.is_temporary() && asked.elapsed() >= self.options.connect_timeout;
                    unreachable = timed_out.then(|| outcome.clone());
                    outcome
                }),
            };
            targets.insert(topic, target);
        }
        targets
    }

    async fn target(&self, topic: &TopicName) -> landfall_core::Result<Target> {
        Ok(Target { name: self.topics.name(topic)?, message_bytes: self.topics.ready(topic).await? })
    }

    /// Sends what may be in flight now and waits for its outcomes. Returns an error if nothing can be sent.
    async fn send(&self, sequencer: &mut KeySequencer<'_>, targets: &Targets<'_>) -> landfall_core::Result<()> {
        let reachable = || targets.values().flatten();
        let smallest = reachable().map(|target| target.message_bytes).min().unwrap_or_default();
        let Some(first) = reachable().next() else { return Ok(()) };
        loop {
            let producer = self.producer.get(&first.name, smallest).await?;
            let reports = Arc::new(DeliveryReports::default());
            // A concurrent call may have retired it just now; then there is another.
            if let Some(is_refused) = producer.with(|send| self.hand_over(send, &reports, sequencer, targets)) {
                self.wait(&producer, &reports, is_refused).await;
                for (index, outcome) in reports.take() {
                    sequencer.settle(index, outcome);
                }
                return Ok(());
            }
        }
    }

    /// Hands over everything that the order of keys allows. Returns whether librdkafka refused a message at once.
    pub(crate) fn hand_over(
        &self,
        send: &dyn Fn(Record<'_>) -> HandOver,
        reports: &Arc<DeliveryReports>,
        sequencer: &mut KeySequencer<'_>,
        targets: &Targets<'_>,
    ) -> bool {
        let mut is_refused = false;
        while let Some(index) = sequencer.take_next() {
            let message = sequencer.message(index);
            let Some(Ok(target)) = targets.get(&message.topic) else { continue };
            let (headers, bytes) = wire::headers(message, &self.options.source);
            if bytes > target.message_bytes {
                let reason = format!("the message is {bytes} bytes and the topic accepts {}", target.message_bytes);
                sequencer.settle(index, Outcome::refuse(ErrorCode::TOO_LARGE, reason));
                continue;
            }
            let record = Record::with_opaque_to(&target.name, reports.expect(index)).headers(headers);
            let mut record = record.payload(&message.payload[..]);
            if let Some(key) = &message.key {
                record = record.key(key.as_str());
            }
            if let Err(code) = send(record) {
                is_refused = true;
                sequencer.settle(index, outcome(code));
            }
        }
        is_refused
    }

    /// Waits for the reports. Retires the producer if some are missing, or if librdkafka has stopped it.
    async fn wait(&self, producer: &Arc<RetirableProducer>, reports: &DeliveryReports, is_refused: bool) {
        let in_time = tokio::time::timeout(self.options.timeout, reports.complete()).await.is_ok();
        if !in_time || ((is_refused || reports.has_failures()) && producer.is_broken()) {
            tracing::warn!(in_time, "a producer did not deliver everything, replacing it");
            self.topics.forget();
            self.producer.retire(producer).await;
            // Purging reports the messages that were in it.
            let _reported = tokio::time::timeout(LAST_REPORTS, reports.complete()).await;
        }
    }
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        let targets = self.targets(batch).await;
        let pipelining = match self.options.acks {
            Acks::All => Pipelining::InOrder,
            Acks::Leader | Acks::None => Pipelining::OnePerKey,
        };
        let mut sequencer = KeySequencer::new(batch, pipelining);
        sequencer.refuse_unsent(|message| targets.get(&message.topic)?.as_ref().err().cloned());
        while sequencer.unsent().next().is_some() {
            if let Err(error) = self.send(&mut sequencer, &targets).await {
                sequencer.give_up_unsent(&unsent(&error));
            }
        }
        sequencer.into_outcomes()
    }

    fn fenced(&self, holder: &Holder) -> Option<Arc<dyn FencedPublisher>> {
        let (options, topics) = (self.options.clone(), self.topics.clone());
        self.options.fencing.then(|| Arc::new(FencedKafkaPublisher::new(options, topics, holder.clone())) as _)
    }
}
