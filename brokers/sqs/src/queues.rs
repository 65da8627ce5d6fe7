//! Cache of the topics' queue URLs. Creates missing queues.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use landfall_core::{ErrorCode, TopicName};

use crate::error::{CallError, Effect};
use crate::{Options, names};

/// SQS's limit of retention: 14 days.
pub(crate) const MAX_RETENTION_SECONDS: u64 = 14 * 24 * 3600;

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

    /// Returns the URL of the topic's queue. A missing queue is created if `create=true`.
    pub(crate) async fn url(&self, topic: &TopicName) -> Result<String, CallError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(topic).cloned();
        if let Some(url) = known {
            return Ok(url);
        }
        match self.find(topic).await {
            Ok(url) => Ok(url),
            Err(error) if error.is_missing() && self.options.create => self.create(topic).await,
            Err(error) => Err(error),
        }
    }

    /// Looks up the URL of an existing queue.
    pub(crate) async fn find(&self, topic: &TopicName) -> Result<String, CallError> {
        let request = self.client.get_queue_url().queue_name(self.name(topic)?);
        let answer = request.set_queue_owner_aws_account_id(self.options.account.clone()).send().await?;
        self.remember(topic, answer.queue_url)
    }

    /// Creates the queue with safe settings and the highest throughput. Succeeds if it exists with the same settings.
    pub(crate) async fn create(&self, topic: &TopicName) -> Result<String, CallError> {
        let options = &self.options;
        let mut queue = self
            .client
            .create_queue()
            .queue_name(self.name(topic)?)
            .attributes(Name::MessageRetentionPeriod, MAX_RETENTION_SECONDS.to_string())
            .attributes(Name::MaximumMessageSize, options.message_bytes.to_string())
            .attributes(Name::VisibilityTimeout, options.visibility.as_secs().to_string())
            .attributes(Name::ReceiveMessageWaitTimeSeconds, options.wait.as_secs().to_string());
        if options.fifo {
            // High-throughput mode. Both ids are unique per key, so deduplication across the queue is not needed.
            queue = queue
                .attributes(Name::FifoQueue, "true")
                .attributes(Name::ContentBasedDeduplication, "false")
                .attributes(Name::DeduplicationScope, "messageGroup")
                .attributes(Name::FifoThroughputLimit, "perMessageGroupId");
        }
        let answer = queue.send().await?;
        tracing::info!(%topic, url = answer.queue_url(), "queue created");
        self.remember(topic, answer.queue_url)
    }

    /// Removes a queue from the cache, after it turned out to be deleted.
    pub(crate) fn forget(&self, topic: &TopicName) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(topic);
    }

    fn remember(&self, topic: &TopicName, url: Option<String>) -> Result<String, CallError> {
        let missing =
            || CallError::new(Effect::Retriable, ErrorCode::UNAVAILABLE, "SQS answered without the queue's URL");
        let url = url.ok_or_else(missing)?;
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(topic.clone(), url.clone());
        Ok(url)
    }

    fn name(&self, topic: &TopicName) -> Result<String, CallError> {
        let name = names::queue(&self.options.prefix, topic, self.options.fifo);
        name.map_err(|error| CallError::new(Effect::Permanent, ErrorCode::VALIDATION, error.to_string()))
    }
}
