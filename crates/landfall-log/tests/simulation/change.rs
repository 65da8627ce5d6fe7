//! Calls of a session that concern topics, producers and maintenance.

use std::sync::atomic::{AtomicU64, Ordering};

use landfall_core::{ErrorCode, ErrorKind, Message, Outcome, ProducerName, TopicName};

use crate::events::{Call, CallResult, Event};
use crate::session::{Failure, SOON, Session};

/// Messages removed by retention and by compaction, in all sessions of this process.
pub(crate) static REMOVED: AtomicU64 = AtomicU64::new(0);
pub(crate) static COMPACTED: AtomicU64 = AtomicU64::new(0);

impl Session {
    /// Changes a topic. If the process dies meanwhile, the change may or may not have happened.
    pub(crate) async fn change(&mut self, call: Call) -> Result<(), Failure> {
        self.record(Event::CallStarted(call.clone()))?;
        let changed = match &call {
            Call::Create(topic, partitions, settings) => {
                self.log.create_topic(topic, Some(*partitions), *settings).await.map(drop)
            }
            Call::Grow(topic, partitions) => self.log.grow_topic(topic, *partitions).await.map(drop),
            Call::Configure(topic, settings) => self.log.configure_topic(topic, *settings).await.map(drop),
            Call::Delete(topic) => self.log.delete_topic(topic).await.map(drop),
            Call::Publish(_) | Call::Produce { .. } | Call::Maintain => Ok(()),
        };
        match changed {
            Ok(()) => Ok(self.record(Event::CallReturned(CallResult::Done))?),
            Err(_) if self.disk.has_fault() => Ok(self.record(Event::CallReturned(CallResult::Failed))?),
            // The interrupted call had succeeded before, and the log contradicts that.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::Invalid) => {
                Err(format!("{call:?} was refused: {error}").into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Registers a new instance of the producer: its sequences continue, and the previous instance is fenced.
    pub(crate) async fn register(&mut self, name: &ProducerName) -> Result<(), Failure> {
        match self.log.producer(name).await {
            Ok(producer) => {
                self.record(Event::Registered(name.clone(), producer.id(), producer.epoch()))?;
                self.producers.entry(name.clone()).or_default().push(producer);
                Ok(())
            }
            Err(_) if self.disk.has_fault() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends `messages` with sequences from `first`, which may have been sent before.
    pub(crate) async fn produce(
        &mut self,
        name: &ProducerName,
        topic: &TopicName,
        partition: u32,
        first: u64,
        messages: Vec<Message>,
    ) -> Result<Vec<Outcome>, Failure> {
        let Some(producer) = self.producers.get(name).and_then(|instances| instances.last()).cloned() else {
            return Ok(Vec::new());
        };
        self.record(Event::CallStarted(Call::Produce {
            producer: name.clone(),
            topic: topic.clone(),
            partition,
            first,
            messages: messages.clone(),
        }))?;
        let result = tokio::time::timeout(SOON, producer.publish(topic, partition, first, &messages)).await;
        let outcomes = result.map_err(|_| "a producer never got its outcomes".to_owned())?;
        self.record(Event::CallReturned(CallResult::Outcomes(outcomes.clone())))?;
        Ok(outcomes)
    }

    /// Sends messages that must be refused: behind a gap, and from a replaced instance.
    pub(crate) async fn produce_refused(&mut self, name: &ProducerName, topic: &TopicName) -> Result<(), Failure> {
        let next = self.next_sequence(name, topic, 0);
        let message = [Message::new(topic.clone(), "must not be stored")];
        let instances = self.producers.get(name).map(Vec::as_slice).unwrap_or_default();
        let Some((newest, replaced)) = instances.split_last() else { return Ok(()) };
        let mut attempts = vec![(newest, next + 1, ErrorCode::SEQUENCE_GAP, true)];
        attempts.extend(replaced.last().map(|instance| (instance, next, ErrorCode::FENCED, false)));
        for (instance, first, code, retriable) in attempts {
            let outcomes = instance.publish(topic, 0, first, &message).await;
            let is_expected = matches!(&outcomes[..], [Outcome::Refused(refusal)]
                if refusal.code == code && refusal.retriable == retriable);
            if !is_expected && !self.disk.has_fault() {
                return Err(format!("{name} sent sequence {first} where {next} is next: {outcomes:?}").into());
            }
        }
        Ok(())
    }

    /// The sequence of the producer's next message.
    pub(crate) fn next_sequence(&self, name: &ProducerName, topic: &TopicName, partition: u32) -> u64 {
        let partition = self.reference.topics().get(topic).and_then(|topic| topic.partitions.get(partition as usize));
        partition.and_then(|partition| partition.sequences.get(name)).map_or(0, Vec::len) as u64
    }

    /// The messages that the producer sent with sequences from `first`.
    pub(crate) fn sent(&self, name: &ProducerName, topic: &TopicName, partition: u32, first: u64) -> Vec<Message> {
        let partition = self.reference.topics().get(topic).and_then(|topic| topic.partitions.get(partition as usize));
        let Some(partition) = partition else { return Vec::new() };
        let offsets = partition.sequences.get(name).map(Vec::as_slice).unwrap_or_default();
        offsets.iter().skip(first as usize).map(|offset| partition.messages[*offset as usize].clone()).collect()
    }

    /// Registers every producer again, checks its next sequence, and sends its last message together with a new one.
    pub(crate) async fn resume_producers(&mut self) -> Result<(), Failure> {
        let names: Vec<_> = self.reference.producers().cloned().collect();
        for name in names {
            self.register(&name).await?;
            let used_partitions: Vec<(TopicName, u32)> = self
                .reference
                .topics()
                .iter()
                .flat_map(|(topic, promised)| {
                    let used = promised
                        .partitions
                        .iter()
                        .enumerate()
                        .filter(|(_, partition)| partition.sequences.contains_key(&name));
                    used.map(|(number, _)| (topic.clone(), number as u32)).collect::<Vec<_>>()
                })
                .collect();
            for (topic, partition) in used_partitions {
                let next = self.next_sequence(&name, &topic, partition);
                let Some(producer) = self.producers.get(&name).and_then(|instances| instances.last()) else { continue };
                let reported = producer.next_sequence(&topic, partition).await?;
                if reported != next {
                    return Err(format!(
                        "the log reports {reported} as the next sequence of {name} in {topic}/{partition}, not {next}"
                    )
                    .into());
                }
                let first = next.saturating_sub(1);
                let mut messages = self.sent(&name, &topic, partition, first);
                // Together with a large message it might not fit into a batch.
                if messages.iter().all(|message| message.payload.len() < 500) {
                    messages.push(Message::new(topic.clone(), "after recovery"));
                }
                let outcomes = self.produce(&name, &topic, partition, first, messages).await?;
                if let Some(outcome) = outcomes.iter().find(|outcome| !outcome.is_accepted()) {
                    return Err(format!("the log does not accept a message of the resumed {name}: {outcome:?}").into());
                }
            }
        }
        Ok(())
    }

    /// One round of retention and compaction.
    pub(crate) async fn maintain(&mut self) -> Result<(), Failure> {
        self.record(Event::CallStarted(Call::Maintain))?;
        match self.log.maintain().await {
            Ok(done) => {
                REMOVED.fetch_add(done.removed_messages, Ordering::Relaxed);
                COMPACTED.fetch_add(done.compacted_messages, Ordering::Relaxed);
                let left = self.content().await?;
                self.reference.compare(&left)?;
                Ok(self.record(Event::CallReturned(CallResult::Remaining(left)))?)
            }
            Err(_) if self.disk.has_fault() => Ok(self.record(Event::CallReturned(CallResult::Failed))?),
            Err(error) => Err(error.into()),
        }
    }
}
