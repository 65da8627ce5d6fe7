//! The brokers, as the command works with them: to publish, or to look.

use std::sync::Arc;

use async_trait::async_trait;
use landfall::log::{GroupDescription, Growth, TopicDescription, TopicSettings};
use landfall::{Broker, Diagnose, GroupName, Publisher, Result as PortResult, StartAt, TopicName, TopicReader};
use serde::Serialize;

use super::files::Files;
use super::{Opening, Scheme, log, pick, remote};
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
    async fn topics(&self) -> PortResult<Vec<Listed>>;

    async fn describe(&self, topic: &TopicName) -> PortResult<TopicDescription>;

    async fn read(&self, topic: &TopicName, from: StartAt) -> PortResult<Box<dyn TopicReader>>;
}

/// A topic in a list. What is `None` the broker does not tell.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    pub(crate) topic: TopicName,
    pub(crate) partitions: u32,
    pub(crate) messages: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skew: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<TopicSettings>,
}

/// A topic that is there now.
#[derive(Debug)]
pub(crate) struct Made {
    /// By this call.
    pub(crate) created: bool,
    pub(crate) partitions: u32,
    pub(crate) settings: Option<TopicSettings>,
}

/// A broker that is open to have its topics changed, each call as often as one likes. The words are those of the
/// embedded log; other brokers make and remove topics, and leave the rest to their own tools.
#[async_trait]
pub(crate) trait Administration: Send + Sync {
    /// What is `None` is as the configuration says.
    async fn create_topic(
        &self,
        topic: &TopicName,
        partitions: Option<u32>,
        settings: Option<TopicSettings>,
    ) -> PortResult<Made>;

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
    open_to_diagnose: fn(&Config) -> Opening<'_, Arc<dyn Diagnose>>,
    files: fn(&Config) -> PortResult<Box<dyn Files>>,
}

/// The line of a broker that is reached over the network: its schemes, the feature that brings it, its module and its
/// name there.
macro_rules! remote {
    ($names:expr, $feature:literal, $module:ident::$adapter:ident) => {{
        #[cfg(feature = $feature)]
        {
            use landfall::$module as module;
            async fn connect(url: &Address) -> PortResult<module::$adapter> {
                module::$adapter::connect(module::Options::from_url(url.expose())?).await
            }
            Adapter {
                scheme: Scheme::built_in($names),
                check: |url| module::Options::from_url(url.expose()).map(drop),
                open: |config| Box::pin(async { Ok(remote::outlet(connect(&config.broker.url).await?)) }),
                open_to_read: |config| Box::pin(async { Ok(remote::window(connect(&config.broker.url).await?)) }),
                open_to_change: |config| {
                    Box::pin(async { Ok(remote::administration(connect(&config.broker.url).await?)) })
                },
                open_to_diagnose: |config| {
                    Box::pin(async { Ok(Arc::new(connect(&config.broker.url).await?) as Arc<dyn Diagnose>) })
                },
                files: |_| Err(remote::has_no_files()),
            }
        }
        #[cfg(not(feature = $feature))]
        Adapter {
            scheme: Scheme { names: $names, missing_feature: Some($feature) },
            check: |_| Err(remote::not_built($feature)),
            open: |_| Box::pin(std::future::ready(Err(remote::not_built($feature)))),
            open_to_read: |_| Box::pin(std::future::ready(Err(remote::not_built($feature)))),
            open_to_change: |_| Box::pin(std::future::ready(Err(remote::not_built($feature)))),
            open_to_diagnose: |_| Box::pin(std::future::ready(Err(remote::not_built($feature)))),
            files: |_| Err(remote::not_built($feature)),
        }
    }};
}

fn adapters() -> Vec<Adapter> {
    let log = Scheme::built_in(&["log"]);
    vec![
        Adapter {
            scheme: log,
            check: log::check,
            open: log::open,
            open_to_read: log::open_to_read,
            open_to_change: log::open_to_change,
            open_to_diagnose: log::open_to_diagnose,
            files: log::files,
        },
        remote!(&["kafka"], "kafka", kafka::Kafka),
        remote!(&["nats"], "nats", nats::Nats),
        remote!(&["amqp", "amqps"], "rabbitmq", rabbitmq::RabbitMq),
        remote!(&["redis", "rediss"], "redis", redis::Redis),
        remote!(&["sqs"], "sqs", sqs::Sqs),
    ]
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

/// Opens the configured broker for the doctor: beside whoever works with it.
pub(crate) async fn open_to_diagnose(config: &Config) -> Result<Arc<dyn Diagnose>> {
    Ok((adapter_for(&config.broker.url)?.open_to_diagnose)(config).await?)
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
