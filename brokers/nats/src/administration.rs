//! Creating and deleting topics.

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
            Some(requested) if requested != found => {
                let reason =
                    format!("topic {topic} has {found} partitions, not {requested}; the number cannot be changed");
                Err(Error::new(ErrorKind::Conflict, reason))
            }
            _ => Ok(is_new),
        }
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        match self.topics.find(topic).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            // `find` refuses a stream that is not a topic, so this never deletes one.
            found => found?,
        };
        self.topics.forget(topic);
        self.connection.delete_stream(&self.names.stream(topic)?).await
    }
}
