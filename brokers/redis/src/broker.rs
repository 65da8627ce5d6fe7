//! The [`Broker`] implementation: its capabilities, and how it creates publishers, subscribers and readers.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use landfall_core::adapter::{BrokerCapabilities, Subscriber};
use landfall_core::{
    Broker, Error, ErrorKind, GroupName, Publisher, Result, StartAt, TopicInfo, TopicName, TopicReader,
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

/// Redis's default of `proto-max-bulk-len`.
const DEFAULT_PAYLOAD_BYTES: usize = 512 * 1024 * 1024;

/// A Redis server whose streams hold topics. Clones share their connections.
///
/// ```no_run
/// # async fn example() -> landfall_core::Result<()> {
/// use landfall_redis::{Redis, Options};
///
/// let broker = Redis::connect(Options::from_url("redis://a:6379/2?replicas=1")?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Redis {
    pub(crate) options: Arc<Options>,
    pub(crate) names: Names,
    /// For publishing only: waiting for replicas blocks the commands behind it.
    publishing: Arc<Link>,
    /// For all other commands.
    pub(crate) link: Arc<Link>,
    pub(crate) topics: Arc<Topics>,
    settings: Settings,
}

impl Redis {
    /// Connects, refuses a cluster node, and reads whether the server is durable.
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

/// A cluster node redirects requests for keys of other nodes, and this adapter does not follow redirects.
async fn refuse_cluster(link: &Link) -> Result<()> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("INFO").arg("cluster");
    let answers = link.ask(&pipeline).await.map_err(error::call_error)?;
    let info = answers.into_iter().next().and_then(|answer| redis::from_redis_value::<String>(answer).ok());
    match info.is_some_and(|info| info.contains("cluster_enabled:1")) {
        true => {
            Err(Error::new(ErrorKind::Unsupported, "this Redis is a cluster node; Landfall does not support clusters"))
        }
        false => Ok(()),
    }
}

/// Server settings that matter to publishers.
#[derive(Debug, Clone, Copy)]
struct Settings {
    /// Whether accepted messages are on disk: the append-only file is synced before every answer.
    durable: bool,
    /// Payload size limit. Redis closes the connection on a larger one.
    payload_bytes: usize,
}

/// Reads the settings. If this account may not read them, assumes a server that is not durable and has default limits.
async fn settings(link: &Link) -> Result<Settings> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("CONFIG").arg("GET").arg("appendonly").arg("appendfsync").arg("proto-max-bulk-len");
    let answers = link.ask(&pipeline).await.map_err(error::call_error)?;
    let settings: HashMap<String, String> = match answers.into_iter().next() {
        Some(Value::ServerError(error)) => {
            tracing::warn!(error = %error::text(&error), "cannot read the durability settings, assuming not durable");
            return Ok(Settings { durable: false, payload_bytes: DEFAULT_PAYLOAD_BYTES });
        }
        answer => answer.and_then(|answer| redis::from_redis_value(answer).ok()).unwrap_or_default(),
    };
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|setting| setting == value);
    let durable = is("appendonly", "yes") && is("appendfsync", "always");
    if !durable {
        tracing::warn!("Redis accepts messages before they are on disk: set appendonly yes and appendfsync always");
    }
    let limit = settings.get("proto-max-bulk-len").and_then(|limit| limit.parse().ok());
    Ok(Settings { durable, payload_bytes: limit.unwrap_or(DEFAULT_PAYLOAD_BYTES) })
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

    async fn ping(&self) -> Result<()> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("PING");
        self.link.ask(&pipeline).await.map(drop).map_err(error::call_error)
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>> {
        let failed = |error: topics::LookupError, topic: &str| {
            TopicName::new(topic).map_or_else(|error| error, |topic| error.into_error(&topic))
        };
        let mut found = Vec::new();
        for (topic, shards) in self.topics.list(&self.link).await.map_err(|error| failed(error, "topics"))? {
            let mut pipeline = redis::pipe();
            for shard in 0..shards {
                let stream = self.names.stream(&topic, shard);
                pipeline.cmd("XLEN").arg(&stream);
                pipeline.cmd("MEMORY").arg("USAGE").arg(&stream);
            }
            let answers = topics::ask(&self.link, &pipeline).await.map_err(|error| failed(error, topic.as_str()))?;
            // A stream without messages does not exist, and counts as empty.
            let sum = |from: usize| answers.iter().skip(from).step_by(2).filter_map(number::<u64>).sum();
            found.push(TopicInfo { topic, partitions: shards, messages: sum(0), bytes: Some(sum(1)) });
        }
        Ok(found)
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        Ok(Box::new(RedisReader::open(self, topic, from).await?))
    }
}
