//! The brokers, and what the command can do with each: publish, read, diagnose, administer.

use std::sync::Arc;

use async_trait::async_trait;
use landfall::{Broker, Diagnose, GroupName, Publisher, Result as PortResult, StartAt, TopicName, TopicReader};

use super::files::Files;
#[allow(unused_imports, reason = "used only by builds with some broker")]
use super::settings;
use super::{Opening, Registration, log, select_adapter};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::topics::{CreatedTopic, GroupProgress, Growth, TopicDetails, TopicSettings, TopicSummary};

/// A broker that is open for publishing and consuming.
#[async_trait]
pub(crate) trait OpenBroker: Send + Sync {
    fn publisher(&self) -> Arc<dyn Publisher>;

    /// Returns the same broker for consumers.
    fn broker(&self) -> Arc<dyn Broker>;

    /// Fails if the broker accepts nothing until this process restarts. An outage that passes is no failure.
    fn health(&self) -> PortResult<()>;

    /// Asks the broker whether it accepts messages now.
    async fn ping(&self) -> PortResult<()>;

    /// Returns every topic by name, without a remote call; empty if only the broker's own tools report them.
    fn topics(&self) -> PortResult<Vec<TopicDetails>>;

    /// Finishes work in flight and releases all resources.
    async fn close(&self) -> PortResult<()>;
}

/// A broker that is open for reading: holds no exclusive lock and writes nothing.
#[async_trait]
pub(crate) trait TopicSource: Send + Sync {
    /// Returns every topic by name.
    async fn topics(&self) -> PortResult<Vec<TopicSummary>>;

    async fn read(&self, topic: &TopicName, from: StartAt) -> PortResult<Box<dyn TopicReader>>;
}

/// Creates and deletes topics, on any broker. Every call is idempotent.
#[async_trait]
pub(crate) trait Administration: Send + Sync {
    /// Creates a topic; `None` takes the number of partitions from the configuration.
    async fn create_topic(&self, topic: &TopicName, partitions: Option<u32>) -> PortResult<CreatedTopic>;

    /// Returns whether the topic existed.
    async fn delete_topic(&self, topic: &TopicName) -> PortResult<bool>;

    /// Releases all resources.
    async fn close(&self) -> PortResult<()>;
}

/// Changes settings, partitions and consumer groups, on brokers that register it. Every call is idempotent.
#[async_trait]
pub(crate) trait TopicManagement: Administration {
    /// Creates a topic with its own settings.
    async fn create_topic_with(
        &self,
        topic: &TopicName,
        partitions: Option<u32>,
        settings: TopicSettings,
    ) -> PortResult<CreatedTopic>;

    fn settings(&self, topic: &TopicName) -> PortResult<TopicSettings>;

    /// Returns whether anything changed.
    async fn configure_topic(&self, topic: &TopicName, settings: TopicSettings) -> PortResult<bool>;

    async fn grow_topic(&self, topic: &TopicName, partitions: u32) -> PortResult<Growth>;

    /// Moves the group and returns its new progress.
    async fn seek(&self, topic: &TopicName, group: &GroupName, to: StartAt) -> PortResult<GroupProgress>;

    async fn forget_group(&self, topic: &TopicName, group: &GroupName) -> PortResult<()>;
}

type OpenManagement = fn(&Config) -> Opening<'_, Arc<dyn TopicManagement>>;
type OpenFiles = fn(&Config) -> PortResult<Box<dyn Files>>;

/// What an adapter can do. A capability that not every broker has is `None` in the adapters without it.
pub(super) struct Adapter {
    /// Validates the URL and the settings without opening anything.
    pub(super) check: fn(&Config) -> PortResult<()>,
    pub(super) open: fn(&Config) -> Opening<'_, Arc<dyn OpenBroker>>,
    pub(super) open_to_read: fn(&Config) -> Opening<'_, Arc<dyn TopicSource>>,
    pub(super) open_to_diagnose: fn(&Config) -> Opening<'_, Arc<dyn Diagnose>>,
    pub(super) administer: fn(&Config) -> Opening<'_, Arc<dyn Administration>>,
    pub(super) manage: Option<OpenManagement>,
    pub(super) describe: Option<for<'a> fn(&'a Config, &'a TopicName) -> Opening<'a, TopicDetails>>,
    pub(super) files: Option<OpenFiles>,
}

/// Registers a broker that is reached over the network: its schemes, its Cargo feature, and its type.
macro_rules! remote {
    ($schemes:expr, $feature:literal, $module:ident::$adapter:ident, $mappings:ident) => {{
        #[cfg(feature = $feature)]
        {
            use landfall::$module as module;
            fn options(config: &Config) -> PortResult<module::Options> {
                module::Options::from_url(&settings::url(&config.broker, &settings::$mappings)?)
            }
            async fn connect(config: &Config) -> PortResult<module::$adapter> {
                module::$adapter::connect(options(config)?).await
            }
            let adapter = Adapter {
                check: |config| options(config).map(drop),
                open: |config| Box::pin(async move { Ok(super::remote::open(connect(config).await?)) }),
                open_to_read: |config| Box::pin(async move { Ok(super::remote::source(connect(config).await?)) }),
                open_to_diagnose: |config| {
                    Box::pin(async move { Ok(Arc::new(connect(config).await?) as Arc<dyn Diagnose>) })
                },
                administer: |config| Box::pin(async move { Ok(super::remote::administration(connect(config).await?)) }),
                manage: None,
                describe: None,
                files: None,
            };
            Registration::built_in($schemes, adapter)
        }
        #[cfg(not(feature = $feature))]
        Registration::missing($schemes, $feature)
    }};
}

fn registrations() -> Vec<Registration<Adapter>> {
    vec![
        Registration::built_in(&["log"], log::ADAPTER),
        remote!(&["kafka"], "kafka", kafka::Kafka, KAFKA),
        remote!(&["nats"], "nats", nats::Nats, NATS),
        remote!(&["amqp", "amqps"], "rabbitmq", rabbitmq::RabbitMq, RABBITMQ),
        remote!(&["redis", "rediss"], "redis", redis::Redis, REDIS),
        remote!(&["sqs"], "sqs", sqs::Sqs, SQS),
    ]
}

fn adapter(config: &Config) -> Result<Adapter> {
    select_adapter("broker", &config.broker.url, registrations())
}

/// Returns a capability that the adapter may lack.
fn capability<T>(registered: Option<T>, what: &str) -> Result<T> {
    registered.ok_or_else(|| {
        Error::usage(format!("{what} needs the embedded log (log:PATH); use the tools of the broker instead"))
    })
}

/// Refuses a URL that no adapter can open, without opening anything.
pub(super) fn check(config: &Config) -> Result<()> {
    Ok((adapter(config)?.check)(config)?)
}

/// Whether the broker is a server. What is missing of a local folder does not appear by waiting.
pub(crate) fn is_remote(config: &Config) -> bool {
    adapter(config).is_ok_and(|adapter| adapter.files.is_none())
}

/// Opens the configured broker for publishing.
pub(crate) async fn open(config: &Config) -> Result<Arc<dyn OpenBroker>> {
    Ok((adapter(config)?.open)(config).await?)
}

/// Opens the configured broker for reading, beside other processes that use it.
pub(crate) async fn open_to_read(config: &Config) -> Result<Arc<dyn TopicSource>> {
    Ok((adapter(config)?.open_to_read)(config).await?)
}

/// Opens the configured broker for the doctor, beside other processes that use it.
pub(crate) async fn open_to_diagnose(config: &Config) -> Result<Arc<dyn Diagnose>> {
    Ok((adapter(config)?.open_to_diagnose)(config).await?)
}

/// Describes one topic, beside other processes that use the broker.
pub(crate) async fn describe(config: &Config, topic: &TopicName) -> Result<TopicDetails> {
    let describe = capability(adapter(config)?.describe, "the description of a topic")?;
    Ok(describe(config, topic).await?)
}

/// Opens the configured broker for `change`, and closes it afterwards.
pub(crate) async fn administer<T>(
    config: &Config,
    change: impl AsyncFnOnce(&dyn Administration) -> PortResult<T>,
) -> Result<T> {
    let broker = (adapter(config)?.administer)(config).await.map_err(locked)?;
    let changed = change(&*broker).await;
    broker.close().await?;
    Ok(changed?)
}

/// Like [`administer`], for changes that only some brokers support; `what` names the change in the error of the others.
pub(crate) async fn manage<T>(
    config: &Config,
    what: &str,
    change: impl AsyncFnOnce(&dyn TopicManagement) -> PortResult<T>,
) -> Result<T> {
    let open = capability(adapter(config)?.manage, what)?;
    let broker = open(config).await.map_err(locked)?;
    let changed = change(&*broker).await;
    broker.close().await?;
    Ok(changed?)
}

/// Adds advice to the error of a broker that another process holds.
fn locked(error: landfall::Error) -> Error {
    match Error::from(error) {
        Error::InUse(text) => {
            Error::InUse(format!("{text}; topics can change only with exclusive access: stop that process first"))
        }
        error => error,
    }
}

/// Returns the files of the configured broker.
pub(crate) fn files(config: &Config) -> Result<Box<dyn Files>> {
    let files = capability(adapter(config)?.files, "the verification of files")?;
    Ok(files(config)?)
}
