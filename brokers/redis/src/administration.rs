//! Creating and deleting topics.

use async_trait::async_trait;
use landfall_core::{Error, ErrorKind, Result, TopicAdministration, TopicName};
use redis::Value;

use crate::broker::Redis;
use crate::topics::{self, number};

#[async_trait]
impl TopicAdministration for Redis {
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<bool> {
        let wanted = partitions.unwrap_or(self.options.partitions);
        if !(1..=1024).contains(&wanted) {
            return Err(Error::invalid(format!(
                "topic {topic} cannot have {wanted} partitions; the limit is 1 to 1024"
            )));
        }
        let (found, created) =
            self.topics.create(&self.link, topic, wanted).await.map_err(|error| error.into_error(topic))?;
        match partitions {
            Some(wanted) if wanted != found => {
                let reason =
                    format!("topic {topic} already exists with {found} partitions, not the requested {wanted}");
                Err(Error::new(ErrorKind::Conflict, reason))
            }
            _ => Ok(created),
        }
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        let failed = |error: topics::LookupError| error.into_error(topic);
        let mut pipeline = redis::pipe();
        pipeline.cmd("HGET").arg(self.names.topics()).arg(topic.as_str());
        pipeline.cmd("HDEL").arg(self.names.topics()).arg(topic.as_str());
        let answers = topics::ask(&self.link, &pipeline).await.map_err(failed)?;
        self.topics.forget(topic);
        let shards = answers.first().and_then(number::<u32>).unwrap_or(0);
        let mut pipeline = redis::pipe();
        for shard in 0..shards {
            // The hash with the number of shards goes first: without it publishers cannot append.
            let keys = self.names.keys(topic, shard);
            pipeline.cmd("UNLINK").arg(keys.hash).arg(keys.stream).arg(keys.recent).arg(keys.older);
        }
        if shards > 0 {
            topics::ask(&self.link, &pipeline).await.map_err(failed)?;
        }
        Ok(answers.get(1) == Some(&Value::Int(1)))
    }
}
