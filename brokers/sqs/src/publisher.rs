//! Publishing: concurrent calls of up to ten messages, with the order of each key.
//!
//! SQS may accept some messages of a call and refuse others. So a call never has two messages of one key. The next
//! message of a key is sent only after the one before was accepted
//! (`docs/adr/0018-sqs-one-message-per-key-per-call.md`).

use std::collections::BTreeMap;

use async_trait::async_trait;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use landfall_broker_toolkit::{KeySequencer, Pipelining};
use landfall_core::adapter::wire::broker_id;
use landfall_core::{ErrorCode, Message, Outcome, Publisher, TopicName};

use crate::error::{CallError, Effect};
use crate::names;
use crate::queues::Queues;
use crate::wire::{self, Encoded};

/// The most entries SQS accepts in a call.
pub(crate) const CALL_ENTRIES: usize = 10;

#[derive(Debug)]
pub(crate) struct SqsPublisher {
    pub(crate) queues: Queues,
}

#[async_trait]
impl Publisher for SqsPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut topics: BTreeMap<&TopicName, Vec<usize>> = BTreeMap::new();
        for (index, message) in batch.iter().enumerate() {
            topics.entry(&message.topic).or_default().push(index);
        }
        let each = topics.into_iter().map(async |(topic, indexes)| {
            let messages = indexes.iter().map(|index| &batch[*index]).collect();
            indexes.into_iter().zip(self.publish_topic(topic, messages).await)
        });
        let mut outcomes: Vec<_> = batch.iter().map(|_| CallError::unanswered().outcome()).collect();
        for (index, outcome) in join_all(each).await.into_iter().flatten() {
            outcomes[index] = outcome;
        }
        outcomes
    }
}

impl SqsPublisher {
    async fn publish_topic(&self, topic: &TopicName, messages: Vec<&Message>) -> Vec<Outcome> {
        let url = match self.queues.url(topic).await {
            Ok(url) => url,
            Err(error) => {
                // No message was sent: at most the queue was created.
                return vec![error.before_sending().outcome(); messages.len()];
            }
        };
        let options = &self.queues.options;
        let pipelining = if options.fifo { Pipelining::OnePerKey } else { Pipelining::Unordered };
        let mut sequencer = KeySequencer::new(messages, pipelining);
        let mut calls = FuturesUnordered::new();
        loop {
            while calls.len() < options.connections
                && let Some(entries) = next_call(&mut sequencer, options.message_bytes)
            {
                calls.push(self.send(topic, &url, entries));
            }
            let Some(answers) = calls.next().await else { return sequencer.into_outcomes() };
            for (entry, answer) in answers {
                sequencer.settle(entry.index, answer.unwrap_or_else(CallError::outcome));
            }
        }
    }

    /// Makes one call. SQS may permanently refuse a whole call because of one entry, so each entry is then sent alone.
    async fn send<'a>(&self, topic: &TopicName, url: &str, entries: Vec<Entry<'a>>) -> Vec<Answered<'a>> {
        let answered = self.send_together(topic, url, entries).await;
        let is_permanent =
            |(_, answer): &Answered<'_>| matches!(answer, Err(error) if error.effect == Effect::Permanent);
        if answered.len() < 2 || !answered.iter().all(is_permanent) {
            return answered;
        }
        let alone = answered.into_iter().map(|(entry, _)| self.send_together(topic, url, vec![entry]));
        join_all(alone).await.into_iter().flatten().collect()
    }

    async fn send_together<'a>(&self, topic: &TopicName, url: &str, entries: Vec<Entry<'a>>) -> Vec<Answered<'a>> {
        let fifo = self.queues.options.fifo;
        let requests: Result<Vec<_>, _> =
            entries.iter().enumerate().map(|(id, entry)| request(id, entry, fifo)).collect();
        let requests = match requests {
            Ok(requests) => requests,
            Err(error) => return entries.into_iter().map(|entry| (entry, Err(error.clone()))).collect(),
        };
        let call = self.queues.client.send_message_batch().queue_url(url).set_entries(Some(requests));
        let answer = match call.send().await {
            Ok(answer) => answer,
            Err(error) => {
                let error = CallError::from(error);
                if error.is_missing() {
                    self.queues.forget(topic);
                }
                return entries.into_iter().map(|entry| (entry, Err(error.clone()))).collect();
            }
        };
        let mut answers: Vec<Result<Outcome, CallError>> =
            entries.iter().map(|_| Err(CallError::unanswered())).collect();
        for done in &answer.successful {
            if let Some(answer) = done.id.parse().ok().and_then(|id: usize| answers.get_mut(id)) {
                *answer = Ok(Outcome::Accepted(wire::position(&done.message_id)));
            }
        }
        for failed in &answer.failed {
            if let Some(answer) = failed.id.parse().ok().and_then(|id: usize| answers.get_mut(id)) {
                *answer = Err(CallError::from(failed));
            }
        }
        entries.into_iter().zip(answers).collect()
    }
}

/// One message of a call.
#[derive(Debug)]
struct Entry<'a> {
    /// Its index in the sequencer.
    index: usize,
    message: &'a Message,
    encoded: Encoded,
}

type Answered<'a> = (Entry<'a>, Result<Outcome, CallError>);

/// Fills the next call; `None` if everything unsent waits for a call in flight.
fn next_call<'a>(sequencer: &mut KeySequencer<'a>, limit_bytes: usize) -> Option<Vec<Entry<'a>>> {
    let (mut entries, mut bytes) = (Vec::with_capacity(CALL_ENTRIES), 0);
    while entries.len() < CALL_ENTRIES
        && let Some(index) = sequencer.take_next()
    {
        let message = sequencer.message(index);
        let encoded = wire::encode(message);
        let size = encoded.bytes();
        if size > limit_bytes {
            let reason = format!("the message is {size} bytes with its attributes, and {limit_bytes} are accepted");
            sequencer.settle(index, Outcome::refuse(ErrorCode::TOO_LARGE, reason));
        } else if bytes + size > limit_bytes {
            sequencer.put_back(index);
            break;
        } else {
            bytes += size;
            entries.push(Entry { index, message, encoded });
        }
    }
    (!entries.is_empty()).then_some(entries)
}

/// Builds one entry of a call. A message without a key is a group of its own.
fn request(id: usize, entry: &Entry<'_>, fifo: bool) -> Result<SendMessageBatchRequestEntry, CallError> {
    let failed =
        |error: landfall_core::Error| CallError::new(Effect::Permanent, ErrorCode::VALIDATION, error.to_string());
    let mut request =
        SendMessageBatchRequestEntry::builder().id(id.to_string()).message_body(entry.encoded.text.clone());
    for (name, value) in &entry.encoded.attributes {
        request = request.message_attributes(name, wire::attribute(value.clone()).map_err(failed)?);
    }
    if fifo {
        let message = entry.message;
        let group = message.key.as_ref().map_or_else(|| message.id.to_string(), names::group);
        request = request.message_group_id(group).message_deduplication_id(broker_id(message).to_string());
    }
    let built = request.build();
    built.map_err(|error| failed(landfall_core::Error::invalid("an entry cannot be built").with_source(error)))
}

#[cfg(test)]
mod tests {
    use landfall_core::Key;

    use super::*;

    fn message(key: Option<&str>, bytes: usize) -> Message {
        let mut message = Message::new(TopicName::new("orders").unwrap(), "x".repeat(bytes));
        message.key = key.map(|key| Key::new(key).unwrap());
        message
    }

    fn indexes(call: &[Entry<'_>]) -> Vec<usize> {
        call.iter().map(|entry| entry.index).collect()
    }

    #[test]
    fn calls_are_full_and_not_too_large_and_oversized_messages_are_refused() {
        let mut batch: Vec<_> = (0..12).map(|_| message(None, 10)).collect();
        batch.extend([message(None, 6_000), message(None, 6_000), message(Some("a"), 20_000), message(Some("a"), 1)]);
        let mut sequencer = KeySequencer::new(&batch, Pipelining::OnePerKey);
        let calls: Vec<_> = std::iter::from_fn(|| next_call(&mut sequencer, 10_000)).collect();
        let calls: Vec<_> = calls.iter().map(|call| indexes(call)).collect();
        assert_eq!(calls, [(0..10).collect::<Vec<_>>(), vec![10, 11, 12], vec![13]]);
        let outcomes = sequencer.into_outcomes();
        assert!(matches!(&outcomes[14], Outcome::Refused(refusal) if refusal.code == ErrorCode::TOO_LARGE));
        assert_eq!(outcomes[15], Outcome::behind_predecessor());
    }

    #[test]
    fn without_order_the_messages_of_a_key_share_a_call() {
        let batch: Vec<_> = (0..3).map(|_| message(Some("a"), 1)).collect();
        let mut sequencer = KeySequencer::new(&batch, Pipelining::Unordered);
        assert_eq!(indexes(&next_call(&mut sequencer, 10_000).unwrap()), [0, 1, 2]);
        let batch = [message(Some("a"), 20_000), message(Some("a"), 1), message(Some("b"), 1)];
        let mut sequencer = KeySequencer::new(&batch, Pipelining::Unordered);
        assert_eq!(indexes(&next_call(&mut sequencer, 10_000).unwrap()), [2], "a refused message holds back its key");
    }
}
