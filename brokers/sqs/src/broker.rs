//! The [`Broker`] implementation: its capabilities, and how it creates publishers and subscribers.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use futures_util::{StreamExt, TryStreamExt, stream};
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{
    Broker, Error, ErrorCode, ErrorKind, GroupName, Publisher, Result, StartAt, TopicInfo, TopicName, TopicReader,
};

use crate::error::CallError;
use crate::publisher::SqsPublisher;
use crate::queues::Queues;
use crate::subscriber::SqsSubscriber;
use crate::{Options, client, names};

/// Part of the message size limit that is reserved for headers.
const HEADERS_BYTES: usize = 8 * 1024;
/// Concurrent calls of administrative requests.
const CONCURRENT_CALLS: usize = 8;

/// The queues of one account, region and prefix.
///
/// ```no_run
/// # async fn example() -> landfall_core::Result<()> {
/// use landfall_sqs::{Sqs, Options};
///
/// let broker = Sqs::connect(Options::from_url("sqs://eu-central-1?prefix=shop-")?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Sqs {
    pub(crate) queues: Queues,
}

impl Sqs {
    /// Resolves credentials and region. It sends no request, so an unavailable service is not an error here.
    pub async fn connect(options: Options) -> Result<Self> {
        options.check()?;
        let client = client::connect(&options).await?;
        Ok(Self { queues: Queues::new(client, options) })
    }

    /// Returns all queues with the prefix that belong to a topic.
    pub(crate) async fn queues(&self) -> Result<Vec<(TopicName, String)>, CallError> {
        let options = &self.queues.options;
        let prefix = Some(options.prefix.clone()).filter(|prefix| !prefix.is_empty());
        let list = self.queues.client.list_queues().set_queue_name_prefix(prefix).max_results(1_000);
        let mut pages = list.into_paginator().send();
        let mut queues = Vec::new();
        while let Some(page) = pages.next().await {
            for url in page?.queue_urls.unwrap_or_default() {
                let name = url.rsplit('/').next().unwrap_or_default();
                queues.extend(names::topic(&options.prefix, name, options.fifo).map(|topic| (topic, url.clone())));
            }
        }
        queues.sort();
        Ok(queues)
    }

    /// Returns the number of messages in a queue, including those in flight. `None` if the queue was just deleted.
    async fn size(&self, url: String) -> Result<Option<u64>, CallError> {
        let counts = [
            Name::ApproximateNumberOfMessages,
            Name::ApproximateNumberOfMessagesNotVisible,
            Name::ApproximateNumberOfMessagesDelayed,
        ];
        let request = self.queues.client.get_queue_attributes().queue_url(url);
        match request.set_attribute_names(Some(counts.to_vec())).send().await.map_err(CallError::from) {
            Ok(answer) => {
                let found = answer.attributes.unwrap_or_default();
                let count = |name| found.get(name).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
                Ok(Some(counts.iter().map(count).sum()))
            }
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Broker for Sqs {
    fn capabilities(&self) -> BrokerCapabilities {
        let options = &self.queues.options;
        BrokerCapabilities {
            ordered_by_key: options.fifo,
            durable: true,
            delayed_redelivery: true,
            replay: false,
            groups: false,
            deduplicates: options.fifo,
            // In the worst case the payload is sent as base64.
            payload_bytes: Some(options.message_bytes.saturating_sub(HEADERS_BYTES) / 4 * 3),
        }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(SqsPublisher { queues: self.queues.clone() })
    }

    /// All groups share the queue.
    async fn subscribe(&self, topic: &TopicName, _group: &GroupName) -> Result<Box<dyn Subscriber>> {
        let found = self.queues.url(topic).await;
        found.map_err(|error| error.into_error(&format!("cannot subscribe to the queue of topic {topic}")))?;
        Ok(Box::new(SqsSubscriber::start(self.queues.clone(), topic.clone())))
    }

    async fn ping(&self) -> Result<()> {
        match self.queues.client.list_queues().max_results(1).send().await.map_err(CallError::from) {
            // An account may publish without the right to list queues: SQS has answered.
            Err(error) if error.code != ErrorCode::DENIED => Err(error.into_error("SQS did not answer")),
            _ => Ok(()),
        }
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        let failed = |error: CallError| error.into_error("listing the queues failed");
        let queues = self.queues().await.map_err(failed)?;
        let sizes = queues.into_iter().map(async |(topic, url)| {
            let messages = self.size(url).await?;
            Ok(messages.map(|messages| TopicInfo { topic, partitions: 1, messages, bytes: None }))
        });
        let topics: Vec<_> = stream::iter(sizes).buffered(CONCURRENT_CALLS).try_collect().await.map_err(failed)?;
        Ok(topics.into_iter().flatten().collect())
    }

    async fn read(&self, _topic: &TopicName, _from: StartAt) -> Result<Box<dyn TopicReader>> {
        Err(Error::new(ErrorKind::Unsupported, "SQS cannot replay a topic: it deletes acknowledged messages"))
    }
}
