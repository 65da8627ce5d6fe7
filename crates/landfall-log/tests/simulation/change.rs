//! What a session does apart from messages and groups: topics, producers and maintenance.

use std::sync::atomic::{AtomicU64, Ordering};

use landfall_core::{ErrorCode, ErrorKind, Message, Outcome, ProducerName, TopicName};

use crate::marks::{Answer, Call, Mark};
use crate::session::{SOON, Session, Verdict};

/// How many messages retention and compaction have removed, in all sessions of this process.
pub(crate) static REMOVED: AtomicU64 = AtomicU64::new(0);
pub(crate) static COMPACTED: AtomicU64 = AtomicU64::new(0);

impl Session {
    /// Makes a change to a topic. If the process dies meanwhile, nobody knows whether it was made.
    pub(crate) async fn change(&mut self, call: Call) -> Result<(), Verdict> {
        self.tell(Mark::Calling(call.clone()))?;
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
            Ok(()) => Ok(self.tell(Mark::Answered(Answer::Done))?),
            Err(_) if self.disk.is_troubled() => Ok(self.tell(Mark::Answered(Answer::Failed))?),
            // It had been done after all, and something else has come of it.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::Invalid) => {
                Err(format!("{call:?} was refused: {error}").into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A new instance of the producer: its number goes on, and the instance before is out.
    pub(crate) async fn register(&mut self, name: &ProducerName) -> Result<(), Verdict> {
        match self.log.producer(name).await {
            Ok(producer) => {
                self.tell(Mark::Registered(name.clone(), producer.id(), producer.epoch()))?;
                self.producers.entry(name.clone()).or_default().push(producer);
                Ok(())
            }
            Err(_) if self.disk.is_troubled() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends `messages` with the numbers from `first` on, which may have been sent before.
    pub(crate) async fn produce(
        &mut self,
        name: &ProducerName,
        topic: &TopicName,
        partition: u32,
        first: u64,
        messages: Vec<Message>,
    ) -> Result<Vec<Outcome>, Verdict> {
        let Some(producer) = self.producers.get(name).and_then(|instances| instances.last()).cloned() else {
            return Ok(Vec::new());
        };
        self.tell(Mark::Calling(Call::Produce {
            producer: name.clone(),
            topic: topic.clone(),
            partition,
            first,
            messages: messages.clone(),
        }))?;
        let answer = tokio::time::timeout(SOON, producer.publish(topic, partition, first, &messages)).await;
        let outcomes = answer.map_err(|_| "a producer was never answered".to_owned())?;
        self.tell(Mark::Answered(Answer::Outcomes(outcomes.clone())))?;
        Ok(outcomes)
    }

    /// What may not be stored, and is told so: numbers behind a gap, and anything of an instance that was replaced.
    pub(crate) async fn produce_in_vain(&mut self, name: &ProducerName, topic: &TopicName) -> Result<(), Verdict> {
        let next = self.next_number(name, topic, 0);
        let message = [Message::new(topic.clone(), "it must not be stored")];
        let instances = self.producers.get(name).map(Vec::as_slice).unwrap_or_default();
        let Some((newest, replaced)) = instances.split_last() else { return Ok(()) };
        let mut attempts = vec![(newest, next + 1, ErrorCode::SEQUENCE_GAP, true)];
        attempts.extend(replaced.last().map(|instance| (instance, next, ErrorCode::FENCED, false)));
        for (instance, first, code, retriable) in attempts {
            let outcomes = instance.publish(topic, 0, first, &message).await;
            let is_right = matches!(&outcomes[..], [Outcome::Refused(refusal)]
                if refusal.code == code && refusal.retriable == retriable);
            if !is_right && !self.disk.is_troubled() {
                return Err(format!("{name} sent number {first} where {next} is next: {outcomes:?}").into());
            }
        }
        Ok(())
    }

    /// The number that the producer's next message must have.
    pub(crate) fn next_number(&self, name: &ProducerName, topic: &TopicName, partition: u32) -> u64 {
        let partition = self.reference.topics().get(topic).and_then(|topic| topic.partitions.get(partition as usize));
        partition.and_then(|partition| partition.sequences.get(name)).map_or(0, Vec::len) as u64
    }

    /// The messages that the producer sent with the numbers from `first` on.
    pub(crate) fn sent(&self, name: &ProducerName, topic: &TopicName, partition: u32, first: u64) -> Vec<Message> {
        let partition = self.reference.topics().get(topic).and_then(|topic| topic.partitions.get(partition as usize));
        let Some(partition) = partition else { return Vec::new() };
        let offsets = partition.sequences.get(name).map(Vec::as_slice).unwrap_or_default();
        offsets.iter().skip(first as usize).map(|offset| partition.messages[*offset as usize].clone()).collect()
    }

    /// Every producer comes back, is told where it was, and sends its last message again together with a new one.
    pub(crate) async fn producers_go_on(&mut self) -> Result<(), Verdict> {
        let names: Vec<_> = self.reference.producers().cloned().collect();
        for name in names {
            self.register(&name).await?;
            let places: Vec<(TopicName, u32)> = self
                .reference
                .topics()
                .iter()
                .flat_map(|(topic, promised)| {
                    let has_some = promised
                        .partitions
                        .iter()
                        .enumerate()
                        .filter(|(_, partition)| partition.sequences.contains_key(&name));
                    has_some.map(|(number, _)| (topic.clone(), number as u32)).collect::<Vec<_>>()
                })
                .collect();
            for (topic, partition) in places {
                let next = self.next_number(&name, &topic, partition);
                let Some(producer) = self.producers.get(&name).and_then(|instances| instances.last()) else { continue };
                let told = producer.next_sequence(&topic, partition).await?;
                if told != next {
                    return Err(format!(
                        "{name} is told to go on with {told} in {topic}/{partition}, and {next} is next"
                    )
                    .into());
                }
                let first = next.saturating_sub(1);
                let mut messages = self.sent(&name, &topic, partition, first);
                // Together with a large one it might not fit into a batch.
                if messages.iter().all(|message| message.payload.len() < 500) {
                    messages.push(Message::new(topic.clone(), "it goes on"));
                }
                let outcomes = self.produce(&name, &topic, partition, first, messages).await?;
                if let Some(outcome) = outcomes.iter().find(|outcome| !outcome.is_accepted()) {
                    return Err(format!("{name} comes back, and its message is not taken: {outcome:?}").into());
                }
            }
        }
        Ok(())
    }

    /// One round of retention and compaction.
    pub(crate) async fn maintain(&mut self) -> Result<(), Verdict> {
        self.tell(Mark::Calling(Call::Maintain))?;
        match self.log.maintain().await {
            Ok(done) => {
                REMOVED.fetch_add(done.removed_messages, Ordering::Relaxed);
                COMPACTED.fetch_add(done.compacted_messages, Ordering::Relaxed);
                let left = self.content().await?;
                self.reference.compare(&left)?;
                Ok(self.tell(Mark::Answered(Answer::Left(left)))?)
            }
            Err(_) if self.disk.is_troubled() => Ok(self.tell(Mark::Answered(Answer::Failed))?),
            Err(error) => Err(error.into()),
        }
    }
}
