//! Where each topic's queue is, found once and made where it is missing.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use landfall_core::{ErrorCode, TopicName};

use crate::error::{Fate, Trouble};
use crate::{Options, names};

/// The longest that SQS keeps a message: 14 days.
pub(crate) const LONGEST_RETENTION_SECONDS: u64 = 14 * 24 * 3600;

#[derive(Debug, Clone)]
pub(crate) struct Queues {
    pub(crate) client: Client,
    pub(crate) options: Arc<Options>,
    known: Arc<RwLock<HashMap<TopicName, String>>>,
}

impl Queues {
    pub(crate) fn new(client: Client, options: Options) -> Self {
        Self { client, options: Arc::new(options), known: Arc::default() }
    }

    /// The URL of the topic's queue, which is made if it is missing and may be made.
    pub(crate) async fn url(&self, topic: &TopicName) -> Result<String, Trouble> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(topic).cloned();
        if let Some(url) = known {
            return Ok(url);
        }
        match self.find(topic).await {
            Ok(url) => Ok(url),
            Err(trouble) if trouble.is_missing() && self.options.create => self.create(topic).await,
            Err(trouble) => Err(trouble),
        }
    }

    /// The URL of a queue that is there.
    pub(crate) async fn find(&self, topic: &TopicName) -> Result<String, Trouble> {
        let asked = self.client.get_queue_url().queue_name(self.name(topic)?);
        let answer = asked.set_queue_owner_aws_account_id(self.options.account.clone()).send().await?;
        self.remember(topic, answer.queue_url)
    }

    /// Makes the queue with the settings that lose nothing and are fastest; one that is there with the same is left.
    pub(crate) async fn create(&self, topic: &TopicName) -> Result<String, Trouble> {
        let options = &self.options;
        let mut queue = self
            .client
            .create_queue()
            .queue_name(self.name(topic)?)
            .attributes(Name::MessageRetentionPeriod, LONGEST_RETENTION_SECONDS.to_string())
            .attributes(Name::MaximumMessageSize, options.message_bytes.to_string())
            .attributes(Name::VisibilityTimeout, options.visibility.as_secs().to_string())
            .attributes(Name::ReceiveMessageWaitTimeSeconds, options.wait.as_secs().to_string());
        if options.fifo {
            // The key is in both ids, so that nothing needs to be compared over the whole queue.
            queue = queue
                .attributes(Name::FifoQueue, "true")
                .attributes(Name::ContentBasedDeduplication, "false")
                .attributes(Name::DeduplicationScope, "messageGroup")
                .attributes(Name::FifoThroughputLimit, "perMessageGroupId");
        }
        let answer = queue.send().await?;
        tracing::info!(%topic, url = answer.queue_url(), "made a queue");
        self.remember(topic, answer.queue_url)
    }

    /// For a queue that turned out not to be there any more.
    pub(crate) fn forget(&self, topic: &TopicName) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }

    fn remember(&self, topic: &TopicName, url: Option<String>) -> Result<String, Trouble> {
        let nothing = || Trouble::new(Fate::Later, ErrorCode::UNAVAILABLE, "SQS answered without the queue's URL");
        let url = url.ok_or_else(nothing)?;
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(topic.clone(), url.clone());
        Ok(url)
    }

    fn name(&self, topic: &TopicName) -> Result<String, Trouble> {
        let name = names::queue(&self.options.prefix, topic, self.options.fifo);
        name.map_err(|error| Trouble::new(Fate::Never, ErrorCode::VALIDATION, error.to_string()))
    }
}
