//! Publishing: calls of ten, side by side, with the order of each key.

use std::collections::BTreeMap;

use async_trait::async_trait;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use landfall_core::{Message, Outcome, Publisher, TopicName, wire::broker_id};

use crate::error::{CallError, Effect};
use crate::plan::{Entry, Plan};
use crate::queues::Queues;
use crate::{names, wire};

#[derive(Debug)]
pub(crate) struct SqsPublisher {
    pub(crate) queues: Queues,
}

#[async_trait]
impl Publisher for SqsPublisher {
    async fn publish(&self, batch: &[Message]) -> Vec<Outcome> {
        let mut topics: BTreeMap<&TopicName, Vec<usize>> = BTreeMap::new();
        for (place, message) in batch.iter().enumerate() {
            topics.entry(&message.topic).or_default().push(place);
        }
        let each = topics.into_iter().map(|(topic, places)| self.publish_topic(topic, batch, places));
        let mut outcomes: Vec<_> = batch.iter().map(|_| CallError::unanswered().outcome()).collect();
        for (place, outcome) in join_all(each).await.into_iter().flatten() {
            outcomes[place] = outcome;
        }
        outcomes
    }
}

impl SqsPublisher {
    async fn publish_topic(&self, topic: &TopicName, batch: &[Message], places: Vec<usize>) -> Vec<(usize, Outcome)> {
        let url = match self.queues.url(topic).await {
            Ok(url) => url,
            Err(trouble) => {
                // Nothing was sent: what may have happened is only the making of the queue.
                let trouble = trouble.before_sending();
                return places.into_iter().map(|place| (place, trouble.clone().outcome())).collect();
            }
        };
        let options = &self.queues.options;
        let mut plan = Plan::new(batch, &places, options.fifo, options.message_bytes);
        let mut calls = FuturesUnordered::new();
        loop {
            while calls.len() < options.connections
                && let Some(entries) = plan.call()
            {
                calls.push(self.send(topic, &url, batch, entries));
            }
            let Some(answers) = calls.next().await else { return plan.outcomes() };
            for (entry, answer) in answers {
                plan.settle(&entry, answer.unwrap_or_else(CallError::outcome));
            }
        }
    }

    /// One call. What refuses it as a whole and for good may be the fault of one entry, so each is tried alone then.
    async fn send(&self, topic: &TopicName, url: &str, batch: &[Message], entries: Vec<Entry>) -> Vec<Answered> {
        let answered = self.send_together(topic, url, batch, entries).await;
        let for_good = |(_, answer): &Answered| matches!(answer, Err(trouble) if trouble.effect == Effect::Permanent);
        if answered.len() < 2 || !answered.iter().all(for_good) {
            return answered;
        }
        let alone = answered.into_iter().map(|(entry, _)| self.send_together(topic, url, batch, vec![entry]));
        join_all(alone).await.into_iter().flatten().collect()
    }

    async fn send_together(
        &self,
        topic: &TopicName,
        url: &str,
        batch: &[Message],
        entries: Vec<Entry>,
    ) -> Vec<Answered> {
        let fifo = self.queues.options.fifo;
        let requests: Result<Vec<_>, _> =
            entries.iter().enumerate().map(|(id, entry)| request(id, entry, &batch[entry.place], fifo)).collect();
        let requests = match requests {
            Ok(requests) => requests,
            Err(trouble) => return entries.into_iter().map(|entry| (entry, Err(trouble.clone()))).collect(),
        };
        let call = self.queues.client.send_message_batch().queue_url(url).set_entries(Some(requests));
        let answer = match call.send().await {
            Ok(answer) => answer,
            Err(error) => {
                let trouble = CallError::from(error);
                if trouble.is_missing() {
                    self.queues.forget(topic);
                }
                return entries.into_iter().map(|entry| (entry, Err(trouble.clone()))).collect();
            }
        };
        let mut answers: Vec<Result<Outcome, CallError>> =
            entries.iter().map(|_| Err(CallError::unanswered())).collect();
        for done in &answer.successful {
            if let Some(place) = done.id.parse().ok().and_then(|id: usize| answers.get_mut(id)) {
                *place = Ok(Outcome::Accepted(wire::position(&done.message_id)));
            }
        }
        for failed in &answer.failed {
            if let Some(place) = failed.id.parse().ok().and_then(|id: usize| answers.get_mut(id)) {
                *place = Err(CallError::from(failed));
            }
        }
        entries.into_iter().zip(answers).collect()
    }
}

type Answered = (Entry, Result<Outcome, CallError>);

/// What one entry of a call looks like. Without a key a message is a group of its own.
fn request(id: usize, entry: &Entry, message: &Message, fifo: bool) -> Result<SendMessageBatchRequestEntry, CallError> {
    let failed = |error: landfall_core::Error| {
        CallError::new(Effect::Permanent, landfall_core::ErrorCode::VALIDATION, error.to_string())
    };
    let mut request =
        SendMessageBatchRequestEntry::builder().id(id.to_string()).message_body(entry.encoded.text.clone());
    for (name, value) in &entry.encoded.attributes {
        request = request.message_attributes(name, wire::attribute(value.clone()).map_err(failed)?);
    }
    if fifo {
        let group = message.key.as_ref().map_or_else(|| message.id.to_string(), names::group);
        request = request.message_group_id(group).message_deduplication_id(broker_id(message).to_string());
    }
    let built = request.build();
    built.map_err(|error| failed(landfall_core::Error::invalid("an entry cannot be made").with_source(error)))
}
