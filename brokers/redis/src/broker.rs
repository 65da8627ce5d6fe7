//! The broker as a whole.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::{
    Broker, BrokerCapabilities, Error, ErrorKind, GroupName, Publisher, Result, StartAt, Subscriber, TopicInfo,
    TopicName, TopicReader,
};
use redis::Value;

use crate::config::Options;
use crate::error;
use crate::link::Link;
use crate::names::Names;
use crate::publisher::RedisPublisher;
use crate::reader::RedisReader;
use crate::subscriber::RedisSubscriber;
use crate::topics::{self, Topics, number};

/// What Redis takes in one piece unless it is told otherwise.
const USUAL_PAYLOAD_BYTES: usize = 512 * 1024 * 1024;

/// A Redis server whose streams hold topics. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Redis {
    pub(crate) options: Arc<Options>,
    pub(crate) names: Names,
    /// For publishing alone: whoever waits for replicas holds up what is sent behind it.
    publishing: Arc<Link>,
    /// For everything else that is asked now and then.
    pub(crate) link: Arc<Link>,
    pub(crate) topics: Arc<Topics>,
    settings: Settings,
}

impl Redis {
    /// Connects, and looks whether the server keeps what it accepts.
    pub async fn connect(options: Options) -> Result<Self> {
        options.check()?;
        let options = Arc::new(options);
        let link = Arc::new(Link::new(Arc::clone(&options)));
        refuse_cluster(&link).await?;
        let settings = settings(&link).await?;
        Ok(Self {
            names: Names::new(&options.prefix),
            publishing: Arc::new(Link::new(Arc::clone(&options))),
            topics: Arc::new(Topics::new(Arc::clone(&options))),
            link,
            settings,
            options,
        })
    }
}

/// A node of a cluster sends those who ask for the keys of another node away, and nobody here follows.
async fn refuse_cluster(link: &Link) -> Result<()> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("INFO").arg("cluster");
    let answers = link.ask(&pipeline).await.map_err(error::of_call)?;
    let told = answers.into_iter().next().and_then(|answer| redis::from_redis_value::<String>(answer).ok());
    match told.is_some_and(|told| told.contains("cluster_enabled:1")) {
        true => {
            Err(Error::new(ErrorKind::Unsupported, "this Redis is a node of a cluster, which Landfall cannot use yet"))
        }
        false => Ok(()),
    }
}

/// What the server's settings mean for whoever publishes.
#[derive(Debug, Clone, Copy)]
struct Settings {
    /// What is accepted is on disk: an append-only file is synced before every answer.
    durable: bool,
    /// The longest payload that it takes; a longer one makes it close the connection.
    payload_bytes: usize,
}

/// A server that does not let this account look is taken to keep nothing, and to be otherwise as it comes.
async fn settings(link: &Link) -> Result<Settings> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("CONFIG").arg("GET").arg("appendonly").arg("appendfsync").arg("proto-max-bulk-len");
    let answers = link.ask(&pipeline).await.map_err(error::of_call)?;
    let told: HashMap<String, String> = match answers.into_iter().next() {
        Some(Value::ServerError(error)) => {
            tracing::warn!(error = %error::text(&error), "whether Redis keeps what it accepts cannot be seen");
            return Ok(Settings { durable: false, payload_bytes: USUAL_PAYLOAD_BYTES });
        }
        answer => answer.and_then(|answer| redis::from_redis_value(answer).ok()).unwrap_or_default(),
    };
    let is = |name: &str, value: &str| told.get(name).is_some_and(|told| told == value);
    let durable = is("appendonly", "yes") && is("appendfsync", "always");
    if !durable {
        tracing::warn!("Redis answers before what it accepted is on disk: set appendonly yes and appendfsync always");
    }
    let limit = told.get("proto-max-bulk-len").and_then(|limit| limit.parse().ok());
    Ok(Settings { durable, payload_bytes: limit.unwrap_or(USUAL_PAYLOAD_BYTES) })
}

#[async_trait]
impl Broker for Redis {
    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities {
            durable: self.settings.durable,
            deduplicates: !self.options.dedup.is_zero(),
            ..BrokerCapabilities::ALL
        }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(RedisPublisher {
            options: Arc::clone(&self.options),
            link: Arc::clone(&self.publishing),
            topics: Arc::clone(&self.topics),
            payload_bytes: self.settings.payload_bytes,
        })
    }

    async fn subscribe(&self, topic: &TopicName, group: &GroupName) -> Result<Box<dyn Subscriber>> {
        Ok(Box::new(RedisSubscriber::join(self, topic, group).await?))
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        let failed = |missing: topics::Missing, topic: &str| {
            TopicName::new(topic).map_or_else(|error| error, |topic| missing.error(&topic))
        };
        let mut found = Vec::new();
        for (topic, shards) in self.topics.list(&self.link).await.map_err(|missing| failed(missing, "topics"))? {
            let mut pipeline = redis::pipe();
            for shard in 0..shards {
                let stream = self.names.stream(&topic, shard);
                pipeline.cmd("XLEN").arg(&stream);
                pipeline.cmd("MEMORY").arg("USAGE").arg(&stream);
            }
            let answers =
                topics::ask(&self.link, &pipeline).await.map_err(|missing| failed(missing, topic.as_str()))?;
            // A stream that nobody wrote to is not there, and counts as empty.
            let sum = |from: usize| answers.iter().skip(from).step_by(2).filter_map(number::<u64>).sum();
            found.push(TopicInfo { topic, partitions: shards, messages: sum(0), bytes: Some(sum(1)) });
        }
        Ok(found)
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        Ok(Box::new(RedisReader::open(self, topic, from).await?))
    }
}
