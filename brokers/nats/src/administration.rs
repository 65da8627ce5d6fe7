//! Making and removing topics on purpose.

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result, TopicAdministration, TopicName};

use crate::broker::Nats;

#[async_trait]
impl TopicAdministration for Nats {
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool> {
        let is_new = match self.topics.find(topic).await {
            Ok(_) => false,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.topics.create(topic, partitions).await?;
                true
            }
            Err(error) => return Err(error),
        };
        let found = self.topics.find(topic).await?.partitions;
        match partitions {
            Some(asked) if asked != found => {
                let sentence = format!("topic {topic} has {found} partitions and not {asked}; they cannot be changed");
                Err(Error::new(ErrorKind::Conflict, sentence))
            }
            _ => Ok(is_new),
        }
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        match self.topics.find(topic).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            // A foreign stream is not ours to remove.
            found => found?,
        };
        self.topics.forget(topic);
        self.connection.delete_stream(&self.names.stream(topic)?).await
    }
}
