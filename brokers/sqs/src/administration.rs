//! Creating and deleting queues.

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result, TopicAdministration, TopicName};

use crate::Sqs;
use crate::error::CallError;

#[async_trait]
impl TopicAdministration for Sqs {
    /// A queue has no partitions: keys are independent of each other.
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool> {
        if partitions.is_some_and(|partitions| partitions != 1) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "an SQS queue has one partition, in which keys are independent",
            ));
        }
        let failed = |error: CallError| error.into_error(&format!("the queue of topic {topic} cannot be created"));
        match self.queues.find(topic).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_missing() => self.queues.create(topic).await.map(|_| true).map_err(failed),
            Err(error) => Err(failed(error)),
        }
    }

    /// Deletes the queue. SQS needs up to a minute, during which a queue of that name cannot be created.
    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        let failed = |error: CallError| error.into_error(&format!("the queue of topic {topic} cannot be deleted"));
        self.queues.forget(topic);
        let url = match self.queues.find(topic).await {
            Ok(url) => url,
            Err(error) if error.is_missing() => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        self.queues.forget(topic);
        self.queues.client.delete_queue().queue_url(url).send().await.map_err(|error| failed(error.into()))?;
        Ok(true)
    }
}
