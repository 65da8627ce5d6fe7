//! `log:PATH`: the embedded log in a folder.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use landfall::adapter::Demands;
use landfall::log::{self, Log, Options, ReadOnlyLog};
use landfall::{
    Broker, Diagnose, Error, ErrorKind, Finding, GroupName, Publisher, Result, StartAt, TopicName, TopicReader,
};

use super::Opening;
use super::broker::{Adapter, Administration, OpenBroker, TopicManagement, TopicSource};
use super::files::LogFolder;
use crate::config::{self, Acknowledge, Address, Config, Flush};
use crate::topics::{
    CreatedTopic, GroupProgress, Growth, PartitionDetails, PartitionProgress, TopicDetails, TopicSettings, TopicSummary,
};

pub(super) const ADAPTER: Adapter = Adapter {
    check: |config| folder(&config.broker.url).map(drop),
    open: |config| Box::pin(async move { Ok(Arc::new(open(config).await?) as Arc<dyn OpenBroker>) }),
    open_to_read: |config| Box::pin(async move { Ok(Arc::new(open_read_only(config).await?) as Arc<dyn TopicSource>) }),
    open_to_diagnose: |config| Box::pin(async move { Ok(Arc::new(doctor(config).await?) as Arc<dyn Diagnose>) }),
    administer: |config| Box::pin(async move { Ok(Arc::new(open(config).await?) as Arc<dyn Administration>) }),
    manage: Some(|config| Box::pin(async move { Ok(Arc::new(open(config).await?) as Arc<dyn TopicManagement>) })),
    describe: Some(describe),
    files: Some(|config| Ok(Box::new(LogFolder(folder(&config.broker.url)?)))),
};

async fn open(config: &Config) -> Result<Log> {
    let folder = folder(&config.broker.url)?;
    let options = options(&config.broker);
    blocking(move || Log::open(folder, options)).await
}

async fn open_read_only(config: &Config) -> Result<ReadOnlyLog> {
    let folder = folder(&config.broker.url)?;
    blocking(move || Log::open_read_only(folder)).await
}

fn options(broker: &config::Broker) -> Options {
    let defaults = Options::default();
    let acknowledge = match broker.acknowledge {
        Acknowledge::None => log::Acknowledge::None,
        Acknowledge::Leader => log::Acknowledge::Written,
        Acknowledge::All => log::Acknowledge::Synced,
    };
    let flush = match broker.flush {
        Flush::Batch => log::Flush::EveryBatch,
        Flush::Messages(count) => log::Flush::EveryMessages(count),
        Flush::Interval(time) => log::Flush::Every(time),
    };
    let partitions = broker.partitions.unwrap_or(defaults.partitions);
    Options { partitions, acknowledge, flush, topic: broker.topic.into(), ..defaults }
}

fn describe<'a>(config: &'a Config, topic: &'a TopicName) -> Opening<'a, TopicDetails> {
    Box::pin(async move { Ok(open_read_only(config).await?.describe(topic).await?.into()) })
}

/// The log on disk, and the options with which the daemon opens it.
struct LogDoctor {
    /// `None` if the log does not exist yet, which is no finding.
    log: Option<ReadOnlyLog>,
    options: Options,
}

async fn doctor(config: &Config) -> Result<LogDoctor> {
    let exists = folder(&config.broker.url)?.exists();
    let log = if exists { Some(open_read_only(config).await?) } else { None };
    Ok(LogDoctor { log, options: options(&config.broker) })
}

#[async_trait]
impl Diagnose for LogDoctor {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let mut findings = self.options.diagnose(demands);
        if let Some(log) = &self.log {
            findings.extend(log.diagnose(demands).await?);
        }
        Ok(findings)
    }
}

/// Returns the folder of `log:PATH` or `log://PATH`.
fn folder(url: &Address) -> Result<PathBuf> {
    let path = url.rest().strip_prefix("//").unwrap_or(url.rest());
    if path.is_empty() {
        return Err(Error::invalid("the broker URL names no folder; write log:PATH"));
    }
    Ok(PathBuf::from(path))
}

/// Runs `open` on a blocking thread: opening reads files, and recovery may read many.
pub(super) async fn blocking<T: Send + 'static>(open: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(open).await;
    joined
        .map_err(|error| Error::new(ErrorKind::Internal, "the task that opens the log panicked").with_source(error))?
}

#[async_trait]
impl OpenBroker for Log {
    fn publisher(&self) -> Arc<dyn Publisher> {
        Broker::publisher(self)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.clone())
    }

    fn health(&self) -> Result<()> {
        Log::health(self)
    }

    async fn ping(&self) -> Result<()> {
        Broker::ping(self).await
    }

    fn topics(&self) -> Result<Vec<TopicDetails>> {
        Ok(self.describe_all()?.into_iter().map(TopicDetails::from).collect())
    }

    async fn close(&self) -> Result<()> {
        Log::close(self).await
    }
}

#[async_trait]
impl TopicSource for ReadOnlyLog {
    async fn topics(&self) -> Result<Vec<TopicSummary>> {
        Ok(self.describe_all().await?.into_iter().map(TopicSummary::from).collect())
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        ReadOnlyLog::read(self, topic, from).await
    }
}

#[async_trait]
impl Administration for Log {
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> Result<CreatedTopic> {
        self.create_topic_with(topic, partitions, self.default_settings().into()).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        Log::delete_topic(self, topic).await
    }

    async fn close(&self) -> Result<()> {
        Log::close(self).await
    }
}

#[async_trait]
impl TopicManagement for Log {
    async fn create_topic_with(
        &self,
        topic: &TopicName,
        partitions: Option<u32>,
        settings: TopicSettings,
    ) -> Result<CreatedTopic> {
        let created = Log::create_topic(self, topic, partitions, settings.into()).await?;
        let described = Log::describe(self, topic)?;
        let partitions = described.partitions.len() as u32;
        Ok(CreatedTopic { created, partitions, settings: Some(described.settings.into()) })
    }

    fn settings(&self, topic: &TopicName) -> Result<TopicSettings> {
        Ok(Log::describe(self, topic)?.settings.into())
    }

    async fn configure_topic(&self, topic: &TopicName, settings: TopicSettings) -> Result<bool> {
        Log::configure_topic(self, topic, settings.into()).await
    }

    async fn grow_topic(&self, topic: &TopicName, partitions: u32) -> Result<Growth> {
        let log::Growth { topic, before, after, .. } = Log::grow_topic(self, topic, partitions).await?;
        Ok(Growth { topic, before, after })
    }

    async fn seek(&self, topic: &TopicName, group: &GroupName, to: StartAt) -> Result<GroupProgress> {
        Log::seek(self, topic, group, to).await?;
        let found = self.groups(topic)?.into_iter().find(|found| found.group == *group);
        let missing = || Error::new(ErrorKind::Internal, format!("group {group} does not exist after its seek"));
        Ok(found.ok_or_else(missing)?.into())
    }

    async fn forget_group(&self, topic: &TopicName, group: &GroupName) -> Result<()> {
        self.delete_group(topic, group).await
    }
}

impl From<log::TopicSettings> for TopicSettings {
    fn from(settings: log::TopicSettings) -> Self {
        let log::TopicSettings { retention_time, retention_bytes, may_drop_unread, compact, deduplicate } = settings;
        Self { retention_time, retention_bytes, may_drop_unread, compact, deduplicate }
    }
}

impl From<TopicSettings> for log::TopicSettings {
    fn from(settings: TopicSettings) -> Self {
        let TopicSettings { retention_time, retention_bytes, may_drop_unread, compact, deduplicate } = settings;
        Self { retention_time, retention_bytes, may_drop_unread, compact, deduplicate }
    }
}

impl From<log::TopicDescription> for TopicSummary {
    fn from(described: log::TopicDescription) -> Self {
        Self {
            topic: described.topic,
            partitions: described.partitions.len() as u32,
            messages: described.messages,
            bytes: Some(described.bytes),
            skew: Some(described.skew),
            settings: Some(described.settings.into()),
        }
    }
}

impl From<log::TopicDescription> for TopicDetails {
    fn from(described: log::TopicDescription) -> Self {
        let partition = |found: log::PartitionDescription| PartitionDetails {
            partition: found.partition,
            start: found.start,
            end: found.end,
            messages: found.messages,
            bytes: found.bytes,
            segments: found.segments,
            share: found.share,
        };
        Self {
            topic: described.topic,
            settings: described.settings.into(),
            messages: described.messages,
            bytes: described.bytes,
            skew: described.skew,
            partitions: described.partitions.into_iter().map(partition).collect(),
            groups: described.groups.into_iter().map(GroupProgress::from).collect(),
        }
    }
}

impl From<log::GroupDescription> for GroupProgress {
    fn from(described: log::GroupDescription) -> Self {
        let partition = |found: log::PartitionLag| PartitionProgress {
            partition: found.partition,
            finished: found.finished,
            end: found.end,
            lag: found.lag,
        };
        Self {
            group: described.group,
            members: described.members,
            partitions: described.partitions.into_iter().map(partition).collect(),
            lag: described.lag,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_are_those_of_the_log() {
        assert_eq!(TopicSettings::default(), log::TopicSettings::default().into());
    }
}
