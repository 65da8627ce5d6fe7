//! The brokers, as the command works with them: to publish, or to look.

use std::sync::Arc;

use async_trait::async_trait;
use landfall::{Publisher, Result as PortResult, StartAt, TopicInfo, TopicName, TopicReader};

use super::files::Files;
use super::{Opening, Scheme, log, pick};
use crate::config::{Address, Config};
use crate::error::Result;

/// A broker that is open for publishing.
#[async_trait]
pub(crate) trait Outlet: Send + Sync {
    fn publisher(&self) -> Arc<dyn Publisher>;

    /// An error if nothing will be taken any more until this process is started again; an outage that passes is none.
    fn health(&self) -> PortResult<()>;

    /// Finishes what was handed over, and lets go of everything.
    async fn close(&self) -> PortResult<()>;
}

/// A broker that is only looked at: takes nothing that one process alone may hold, and writes nothing.
#[async_trait]
pub(crate) trait Window: Send + Sync {
    async fn topics(&self) -> PortResult<Vec<TopicInfo>>;

    async fn read(&self, topic: &TopicName, from: StartAt) -> PortResult<Box<dyn TopicReader>>;
}

pub(super) struct Adapter {
    scheme: Scheme,
    /// What can be said about a URL without opening anything.
    check: fn(&Address) -> PortResult<()>,
    open: fn(&Config) -> Opening<'_, Arc<dyn Outlet>>,
    open_to_read: fn(&Config) -> Opening<'_, Arc<dyn Window>>,
    files: fn(&Config) -> PortResult<Box<dyn Files>>,
}

fn adapters() -> Vec<Adapter> {
    let log = Scheme::built_in(&["log"]);
    vec![Adapter {
        scheme: log,
        check: log::check,
        open: log::open,
        open_to_read: log::open_to_read,
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
