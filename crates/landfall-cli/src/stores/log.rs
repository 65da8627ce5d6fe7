//! `log:PATH`, the embedded log in a folder.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use landfall::adapter::Demands;
use landfall::log::{GroupDescription, Growth, Log, Options, ReadOnlyLog, TopicDescription, TopicSettings};
use landfall::{
    Broker, Diagnose, Error, ErrorKind, Finding, GroupName, Publisher, Result, StartAt, TopicName, TopicReader,
};

use super::Opening;
use super::broker::{Administration, Listed, Made, Outlet, Window};
use super::files::{Files, LogFolder};
use crate::config::{self, Address, Config};

pub(super) fn check(url: &Address) -> Result<()> {
    folder(url).map(drop)
}

pub(super) fn open(config: &Config) -> Opening<'_, Arc<dyn Outlet>> {
    Box::pin(async { Ok(Arc::new(open_log(config).await?) as Arc<dyn Outlet>) })
}

pub(super) fn open_to_change(config: &Config) -> Opening<'_, Arc<dyn Administration>> {
    Box::pin(async { Ok(Arc::new(open_log(config).await?) as Arc<dyn Administration>) })
}

async fn open_log(config: &Config) -> Result<Log> {
    let folder = folder(&config.broker.url)?;
    let options = options(&config.broker);
    blocking(move || Log::open(folder, options)).await
}

fn options(broker: &config::Broker) -> Options {
    Options {
        partitions: broker.partitions,
        acknowledge: broker.acknowledge,
        flush: broker.flush,
        topic: broker.topic,
        ..Options::default()
    }
}

pub(super) fn open_to_read(config: &Config) -> Opening<'_, Arc<dyn Window>> {
    let folder = folder(&config.broker.url);
    Box::pin(async move {
        let folder = folder?;
        let log = blocking(move || Log::open_read_only(folder)).await?;
        Ok(Arc::new(log) as Arc<dyn Window>)
    })
}

pub(super) fn open_to_diagnose(config: &Config) -> Opening<'_, Arc<dyn Diagnose>> {
    Box::pin(async {
        let folder = folder(&config.broker.url)?;
        // One that nobody has made yet has nothing wrong with it.
        let log = if folder.exists() { Some(blocking(move || Log::open_read_only(folder)).await?) } else { None };
        Ok(Arc::new(Examined { log, options: options(&config.broker) }) as Arc<dyn Diagnose>)
    })
}

/// The files, and how the daemon opens them.
struct Examined {
    log: Option<ReadOnlyLog>,
    options: Options,
}

#[async_trait]
impl Diagnose for Examined {
    async fn diagnose(&self, demands: &Demands) -> Result<Vec<Finding>> {
        let mut findings = self.options.diagnose(demands);
        if let Some(log) = &self.log {
            findings.extend(log.diagnose(demands).await?);
        }
        Ok(findings)
    }
}

pub(super) fn files(config: &Config) -> Result<Box<dyn Files>> {
    Ok(Box::new(LogFolder(folder(&config.broker.url)?)))
}

/// `log:PATH`, and `log://PATH` for those who always write two slashes.
fn folder(url: &Address) -> Result<PathBuf> {
    let path = url.rest().strip_prefix("//").unwrap_or(url.rest());
    if path.is_empty() {
        return Err(Error::invalid("the broker URL names no folder; write log:PATH"));
    }
    Ok(PathBuf::from(path))
}

/// Opening reads files, and recovery may read many.
pub(super) async fn blocking<T: Send + 'static>(open: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(open).await;
    joined.map_err(|error| Error::new(ErrorKind::Internal, "the log could not be opened").with_source(error))?
}

impl From<TopicDescription> for Listed {
    fn from(described: TopicDescription) -> Self {
        let TopicDescription { topic, settings, messages, bytes, skew, partitions, .. } = described;
        let partitions = partitions.len() as u32;
        Self { topic, partitions, messages, bytes: Some(bytes), skew: Some(skew), settings: Some(settings) }
    }
}

#[async_trait]
impl Outlet for Log {
    fn publisher(&self) -> Arc<dyn Publisher> {
        Broker::publisher(self)
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(self.clone())
    }

    fn health(&self) -> Result<()> {
        Log::health(self)
    }

    fn topics(&self) -> Result<Vec<TopicDescription>> {
        self.describe_all()
    }

    async fn close(&self) -> Result<()> {
        Log::close(self).await
    }
}

#[async_trait]
impl Window for ReadOnlyLog {
    async fn topics(&self) -> Result<Vec<Listed>> {
        Ok(self.describe_all().await?.into_iter().map(Listed::from).collect())
    }

    async fn describe(&self, topic: &TopicName) -> Result<TopicDescription> {
        ReadOnlyLog::describe(self, topic).await
    }

    async fn read(&self, topic: &TopicName, from: StartAt) -> Result<Box<dyn TopicReader>> {
        ReadOnlyLog::read(self, topic, from).await
    }
}

#[async_trait]
impl Administration for Log {
    async fn create_topic(
        &self,
        topic: &TopicName,
        partitions: Option<u32>,
        settings: Option<TopicSettings>,
    ) -> Result<Made> {
        let settings = settings.unwrap_or(self.default_settings());
        let created = Log::create_topic(self, topic, partitions, settings).await?;
        let TopicDescription { partitions, settings, .. } = Log::describe(self, topic)?;
        Ok(Made { created, partitions: partitions.len() as u32, settings: Some(settings) })
    }

    async fn configure_topic(&self, topic: &TopicName, settings: TopicSettings) -> Result<bool> {
        Log::configure_topic(self, topic, settings).await
    }

    async fn grow_topic(&self, topic: &TopicName, partitions: u32) -> Result<Growth> {
        Log::grow_topic(self, topic, partitions).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool> {
        Log::delete_topic(self, topic).await
    }

    async fn seek(&self, topic: &TopicName, group: &GroupName, to: StartAt) -> Result<GroupDescription> {
        Log::seek(self, topic, group, to).await?;
        let found = self.groups(topic)?.into_iter().find(|found| found.group == *group);
        found.ok_or_else(|| Error::new(ErrorKind::Internal, format!("group {group} is gone right after its seek")))
    }

    async fn forget_group(&self, topic: &TopicName, group: &GroupName) -> Result<()> {
        self.delete_group(topic, group).await
    }

    fn describe(&self, topic: &TopicName) -> Result<TopicDescription> {
        Log::describe(self, topic)
    }

    async fn close(&self) -> Result<()> {
        Log::close(self).await
    }
}
