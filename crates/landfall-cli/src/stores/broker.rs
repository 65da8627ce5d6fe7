//! The brokers, as the command works with them: to publish, or to look.

use std::sync::Arc;

use async_trait::async_trait;
use landfall::log::{GroupDescription, Growth, TopicDescription, TopicSettings};
use landfall::{Broker, GroupName, Publisher, Result as PortResult, StartAt, TopicName, TopicReader};

use super::files::Files;
use super::{Opening, Scheme, log, pick};
use crate::config::{Address, Config};
use crate::error::{Error, Result};

/// A broker that is open for publishing.
#[async_trait]
pub(crate) trait Outlet: Send + Sync {
    fn publisher(&self) -> Arc<dyn Publisher>;

    /// The same broker, to consume from.
    fn broker(&self) -> Arc<dyn Broker>;

    /// An error if nothing will be taken any more until this process is started again; an outage that passes is none.
    fn health(&self) -> PortResult<()>;

    /// Every topic, by name, as this process knows it; empty where only the broker's own tools can tell.
    fn topics(&self) -> PortResult<Vec<TopicDescription>>;

    /// Finishes what was handed over, and lets go of everything.
    async fn close(&self) -> PortResult<()>;
}

/// A broker that is only looked at: takes nothing that one process alone may hold, and writes nothing.
#[async_trait]
pub(crate) trait Window: Send + Sync {
    /// Every topic, by name.
    async fn topics(&self) -> PortResult<Vec<TopicDescription>>;

    async fn describe(&self, topic: &TopicName) -> PortResult<TopicDescription>;

    async fn read(&self, topic: &TopicName, from: StartAt) -> PortResult<Box<dyn TopicReader>>;
}

/// A broker that is open to have its topics changed, each call as often as one likes. The words are those of the
/// embedded log.
#[async_trait]
pub(crate) trait Administration: Send + Sync {
    async fn create_topic(
        &self,
        topic: &TopicName,
        partitions: Option<u32>,
        settings: TopicSettings,
    ) -> PortResult<bool>;

    async fn configure_topic(&self, topic: &TopicName, settings: TopicSettings) -> PortResult<bool>;

    async fn grow_topic(&self, topic: &TopicName, partitions: u32) -> PortResult<Growth>;

    async fn delete_topic(&self, topic: &TopicName) -> PortResult<bool>;

    /// Lets the group go on from another place, and answers with where it stands then.
    async fn seek(&self, topic: &TopicName, group: &GroupName, to: StartAt) -> PortResult<GroupDescription>;

    async fn forget_group(&self, topic: &TopicName, group: &GroupName) -> PortResult<()>;

    fn describe(&self, topic: &TopicName) -> PortResult<TopicDescription>;

    /// Lets go of everything.
    async fn close(&self) -> PortResult<()>;
}

pub(super) struct Adapter {
    scheme: Scheme,
    /// What can be said about a URL without opening anything.
    check: fn(&Address) -> PortResult<()>,
    open: fn(&Config) -> Opening<'_, Arc<dyn Outlet>>,
    open_to_read: fn(&Config) -> Opening<'_, Arc<dyn Window>>,
    open_to_change: fn(&Config) -> Opening<'_, Arc<dyn Administration>>,
    files: fn(&Config) -> PortResult<Box<dyn Files>>,
}

fn adapters() -> Vec<Adapter> {
    let log = Scheme::built_in(&["log"]);
    vec![Adapter {
        scheme: log,
        check: log::check,
        open: log::open,
        open_to_read: log::open_to_read,
        open_to_change: log::open_to_change,
        files: log::files,
    }]
}

/// Refuses a URL that no adapter can open, without opening anything.
pub(super) fn check(config: &Config) -> Result<()> {
    Ok((adapter_for(&config.broker.url)?.check)(&config.broker.url)?)
}

/// Opens the configured broker to publish.
pub(crate) async fn open(config: &Config) -> Result<Arc<dyn Outlet>> {
    Ok((adapter_for(&config.broker.url)?.open)(config).await?)
}

/// Opens the configured broker to look: beside whoever works with it.
pub(crate) async fn open_to_read(config: &Config) -> Result<Arc<dyn Window>> {
    Ok((adapter_for(&config.broker.url)?.open_to_read)(config).await?)
}

/// Describes one topic, beside whoever works with the broker.
pub(crate) async fn describe(config: &Config, topic: &TopicName) -> Result<TopicDescription> {
    Ok(open_to_read(config).await?.describe(topic).await?)
}

/// Opens the configured broker for `change` and closes it behind it.
pub(crate) async fn change<T>(
    config: &Config,
    change: impl AsyncFnOnce(&dyn Administration) -> PortResult<T>,
) -> Result<T> {
    let opened = (adapter_for(&config.broker.url)?.open_to_change)(config).await;
    let broker = opened.map_err(|error| match Error::from(error) {
        Error::InUse(sentence) => Error::InUse(format!(
            "{sentence}; topics are changed while nobody else has it open: stop that process first"
        )),
        error => error,
    })?;
    let changed = change(&*broker).await;
    broker.close().await?;
    Ok(changed?)
}

/// The files of the configured broker.
pub(crate) fn files(config: &Config) -> Result<Box<dyn Files>> {
    Ok((adapter_for(&config.broker.url)?.files)(config)?)
}

fn adapter_for(url: &Address) -> Result<Adapter> {
    let mut adapters = adapters();
    let schemes: Vec<&Scheme> = adapters.iter().map(|adapter| &adapter.scheme).collect();
    let place = pick("broker", url, &schemes)?;
    Ok(adapters.swap_remove(place))
}
