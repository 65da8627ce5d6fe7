//! The port that the daemon picks by URL.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use futures_util::{StreamExt, TryStreamExt, stream};
use landfall_core::{
    Broker, BrokerCapabilities, Error, ErrorKind, GroupName, Publisher, Result, StartAt, Subscriber, TopicInfo,
    TopicName, TopicReader,
};

use crate::error::Trouble;
use crate::publisher::SqsPublisher;
use crate::queues::Queues;
use crate::subscriber::SqsSubscriber;
use crate::{Options, client, names};

/// What a message's attributes may need beside its payload: a few headers.
const ROOM_FOR_HEADERS: usize = 8 * 1024;
/// Calls at once for what people ask.
const QUESTIONS: usize = 8;

/// The queues of one account, region and prefix.
#[derive(Debug, Clone)]
pub struct Sqs {
    pub(crate) queues: Queues,
}

impl Sqs {
    /// Finds credentials and region. Nothing is sent before it is needed, so a service that is down is no error here.
    pub async fn connect(options: Options) -> Result<Self> {
        options.check()?;
        let client = client::connect(&options).await?;
        Ok(Self { queues: Queues::new(client, options) })
    }

    /// Every queue with the prefix that is some topic's.
    pub(crate) async fn queues(&self) -> Result<Vec<(TopicName, String)>, Trouble> {
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

    /// How many messages are in a queue, those that somebody holds included; `None` if it has just gone.
    async fn size(&self, url: String) -> Result<Option<u64>, Trouble> {
        let counts = [
            Name::ApproximateNumberOfMessages,
            Name::ApproximateNumberOfMessagesNotVisible,
            Name::ApproximateNumberOfMessagesDelayed,
        ];
        let asked = self.queues.client.get_queue_attributes().queue_url(url);
        match asked.set_attribute_names(Some(counts.to_vec())).send().await.map_err(Trouble::from) {
            Ok(answer) => {
                let found = answer.attributes.unwrap_or_default();
                let count = |name| found.get(name).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
                Ok(Some(counts.iter().map(count).sum()))
            }
            Err(trouble) if trouble.is_missing() => Ok(None),
            Err(trouble) => Err(trouble),
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
            // Whatever the payload is: in the worst case it travels as base64.
            payload_bytes: Some(options.message_bytes.saturating_sub(ROOM_FOR_HEADERS) / 4 * 3),
        }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(SqsPublisher { queues: self.queues.clone() })
    }

    /// All groups share the queue.
    async fn subscribe(&self, topic: &TopicName, _group: &GroupName) -> Result<Box<dyn Subscriber>> {
        let found = self.queues.url(topic).await;
        found.map_err(|trouble| trouble.error(&format!("the queue of topic {topic} cannot be subscribed to")))?;
        Ok(Box::new(SqsSubscriber::start(self.queues.clone(), topic.clone())))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        let failed = |trouble: Trouble| trouble.error("the queues cannot be listed");
        let queues = self.queues().await.map_err(failed)?;
        let sizes = queues.into_iter().map(async |(topic, url)| {
            let messages = self.size(url).await?;
            Ok(messages.map(|messages| TopicInfo { topic, partitions: 1, messages, bytes: None }))
        });
        let topics: Vec<_> = stream::iter(sizes).buffered(QUESTIONS).try_collect().await.map_err(failed)?;
        Ok(topics.into_iter().flatten().collect())
    }

    async fn read(&self, _topic: &TopicName, _from: StartAt) -> Result<Box<dyn TopicReader>> {
        Err(Error::new(ErrorKind::Unsupported, "SQS keeps nothing to read: a message is gone once it was handled"))
    }
}
