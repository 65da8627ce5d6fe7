//! Making and removing queues.

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result, TopicAdministration, TopicName};

use crate::Sqs;
use crate::error::Trouble;

#[async_trait]
impl TopicAdministration for Sqs {
    /// A queue has no partitions: every key goes its own way.
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool> {
        if partitions.is_some_and(|partitions| partitions != 1) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "a queue of SQS has one partition, in which keys go side by side",
            ));
        }
        let failed = |trouble: Trouble| trouble.error(&format!("the queue of topic {topic} cannot be made"));
        match self.queues.find(topic).await {
            Ok(_) => Ok(false),
            Err(trouble) if trouble.is_missing() => self.queues.create(topic).await.map(|_| true).map_err(failed),
            Err(trouble) => Err(failed(trouble)),
        }
    }

    /// SQS takes up to a minute for it, in which a queue of that name cannot be made again.
    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        let failed = |trouble: Trouble| trouble.error(&format!("the queue of topic {topic} cannot be removed"));
        self.queues.forget(topic);
        let url = match self.queues.find(topic).await {
            Ok(url) => url,
            Err(trouble) if trouble.is_missing() => return Ok(false),
            Err(trouble) => return Err(failed(trouble)),
        };
        self.queues.forget(topic);
        self.queues.client.delete_queue().queue_url(url).send().await.map_err(|error| failed(error.into()))?;
        Ok(true)
    }
}
