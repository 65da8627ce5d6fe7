//! Topic metadata: whether a topic exists, and its message size limit. Creates missing topics.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_core::{Error, ErrorKind, Result, TopicName};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;

use crate::client::{ClientErrors, ErrorContext, blocking};
use crate::config::Options;
use crate::error::{error, kind_of};

/// How long a topic's settings stay cached: an operator may change them.
const SETTINGS_TTL: Duration = Duration::from_secs(300);

/// How long the default stays cached if the settings could not be read.
const UNREADABLE_SETTINGS_TTL: Duration = Duration::from_secs(10);

/// How long a failed query waits for librdkafka's error callbacks, which may explain the failure.
const CALLBACK_WAIT: Duration = Duration::from_millis(200);

/// Queries the cluster's metadata and settings, and creates topics.
pub(crate) struct Topics {
    pub(crate) options: Arc<Options>,
    metadata_client: Arc<ReplaceableClient<BaseConsumer<ErrorContext>>>,
    admin: Arc<ReplaceableClient<AdminClient<ErrorContext>>>,
    errors: Arc<ClientErrors>,
    cache: Mutex<HashMap<TopicName, CachedSettings>>,
}

#[derive(Debug, Clone, Copy)]
struct CachedSettings {
    message_bytes: usize,
    expires: Instant,
}

/// A client that is replaced after it could not reach the cluster, because its view of the nodes may be stale.
/// It may keep asking a former controller, or may have lost all nodes (`stall.rs`).
struct ReplaceableClient<C> {
    config: ClientConfig,
    errors: Arc<ClientErrors>,
    client: Mutex<Arc<C>>,
}

impl<C: FromClientConfigAndContext<ErrorContext>> ReplaceableClient<C> {
    fn new(config: ClientConfig, errors: &Arc<ClientErrors>) -> Result<Arc<Self>> {
        let client = C::from_config_and_context(&config, ErrorContext(errors.clone()));
        let client = Mutex::new(Arc::new(client.map_err(|cause| error("the client cannot be created", cause))?));
        Ok(Arc::new(Self { config, errors: errors.clone(), client }))
    }

    fn client(&self) -> Arc<C> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Releases `client`, and replaces it if it could not reach the cluster.
    /// Blocks: destroying a client joins its threads.
    fn release(&self, client: Arc<C>, cause: Option<&KafkaError>) {
        let is_current = || Arc::ptr_eq(&client, &self.client());
        // Keep it if the cluster answered, or if another task has already replaced it.
        if cause.is_none_or(|cause| kind_of(cause) != ErrorKind::Unavailable) || !is_current() {
            return;
        }
        match C::from_config_and_context(&self.config, ErrorContext(self.errors.clone())) {
            Ok(other) => {
                let mut current = self.client.lock().unwrap_or_else(PoisonError::into_inner);
                if Arc::ptr_eq(&current, &client) {
                    *current = Arc::new(other);
                }
            }
            Err(error) => tracing::warn!(%error, "cannot replace the client"),
        }
    }
}

impl Topics {
    pub(crate) fn new(options: Arc<Options>) -> Result<Self> {
        let errors = Arc::new(ClientErrors::default());
        let metadata_client = ReplaceableClient::new(options.reader(), &errors)?;
        let admin = ReplaceableClient::new(options.client(), &errors)?;
        Ok(Self { options, metadata_client, admin, errors, cache: Mutex::default() })
    }

    /// The topic's name on the cluster, with the prefix.
    pub(crate) fn name(&self, topic: &TopicName) -> Result<String> {
        let name = format!("{}{topic}", self.options.prefix);
        match name.len() {
            0..=249 => Ok(name),
            length => {
                Err(Error::invalid(format!("topic {topic} is {length} bytes long with its prefix; Kafka allows 249")))
            }
        }
    }

    /// Creates `topic` if it is missing and `create=true`. Returns its message size limit.
    pub(crate) async fn ready(&self, topic: &TopicName) -> Result<usize> {
        if let Some(cached) = self.cache().get(topic).filter(|cached| Instant::now() < cached.expires) {
            return Ok(cached.message_bytes);
        }
        if self.partitions(topic).await?.is_none() {
            if !self.options.create {
                let reason = format!("topic {topic} does not exist on the cluster, and create=false");
                return Err(Error::new(ErrorKind::NotFound, reason));
            }
            self.create(topic, self.options.partitions).await?;
        }
        // An account may publish without the right to read settings, and the answering node may lag behind.
        // In both cases the cluster refuses messages that are too large.
        let settings = self.settings(ResourceSpecifier::Topic(&self.name(topic)?)).await.ok();
        let limit = settings.as_ref().and_then(|found| found.get("max.message.bytes")?.value.as_ref()?.parse().ok());
        let message_bytes =
            limit.map_or(self.options.message_bytes, |limit: usize| limit.min(self.options.message_bytes));
        let expires = Instant::now() + if limit.is_some() { SETTINGS_TTL } else { UNREADABLE_SETTINGS_TTL };
        self.cache().insert(topic.clone(), CachedSettings { message_bytes, expires });
        Ok(message_bytes)
    }

    /// Clears the cache, after an answer that contradicts it.
    pub(crate) fn forget(&self) {
        self.cache().clear();
    }

    /// Returns the number of partitions of `topic`, or `None` if it does not exist.
    pub(crate) async fn partitions(&self, topic: &TopicName) -> Result<Option<u32>> {
        let name = self.name(topic)?;
        let metadata = self.metadata(Some(name.clone())).await?;
        let Some(found) = metadata.topics().iter().find(|found| found.name() == name) else { return Ok(None) };
        match found.error().map(RDKafkaErrorCode::from) {
            None => Ok(Some(found.partitions().len() as u32)),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(None),
            // The topic exists; a leader election is in progress.
            Some(RDKafkaErrorCode::LeaderNotAvailable) => Ok(Some(found.partitions().len() as u32)),
            Some(code) => {
                let cause = rdkafka::error::KafkaError::MetadataFetch(code);
                Err(error(format!("the cluster returned no metadata of topic {topic}"), cause))
            }
        }
    }

    /// Fetches the metadata of `topic`, or of all topics.
    pub(crate) async fn metadata(&self, topic: Option<String>) -> Result<Metadata> {
        let timeout = self.options.connect_timeout;
        self.query(move |client| client.fetch_metadata(topic.as_deref(), timeout)).await
    }

    /// Runs a request against the cluster. Reports failed authentication as [`ErrorKind::Conflict`].
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        request: impl FnOnce(&BaseConsumer<ErrorContext>) -> rdkafka::error::KafkaResult<T> + Send + 'static,
    ) -> Result<T> {
        let replaceable = self.metadata_client.clone();
        self.errors.clear();
        let errors = self.errors.clone();
        let answer = blocking(move || {
            let client = replaceable.client();
            let answer = request(&client);
            // Error callbacks wait in the client's queue until it is polled.
            let failed = Instant::now();
            while answer.is_err() && errors.denied().is_none() && failed.elapsed() < CALLBACK_WAIT {
                let _event = client.poll(CALLBACK_WAIT / 10);
            }
            replaceable.release(client, answer.as_ref().err());
            answer
        });
        let denied = |why: String| {
            let reason = format!("the cluster rejected the credentials: {why}; check user and password in the URL");
            Error::new(ErrorKind::Conflict, reason)
        };
        answer.await?.map_err(|cause| match self.errors.denied() {
            Some(why) => denied(why),
            None => error("the cluster does not answer", cause),
        })
    }

    /// Reads the settings of a topic or a node.
    pub(crate) async fn settings(&self, of: ResourceSpecifier<'_>) -> Result<ConfigResource> {
        let failed = |cause| error("the cluster did not return its settings", cause);
        let found = self.administer(async |admin, options| admin.describe_configs([&of], options).await).await;
        let found = found.map_err(failed)?;
        let found = found
            .into_iter()
            .next()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the cluster's answer has no settings"))?;
        let found = found.map_err(|code| failed(rdkafka::error::KafkaError::AdminOp(code)))?;
        // Every topic and node has settings. An empty answer means that the account may not read them; the client
        // does not expose the error code.
        match found.entries.is_empty() {
            true => Err(Error::new(ErrorKind::Conflict, "this account may not read the cluster's settings")),
            false => Ok(found),
        }
    }

    /// Runs an admin request against the cluster's controller.
    pub(crate) async fn administer<T>(
        &self,
        work: impl AsyncFnOnce(&AdminClient<ErrorContext>, &AdminOptions) -> KafkaResult<T>,
    ) -> KafkaResult<T> {
        let timeout = self.options.connect_timeout;
        let options = AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout));
        let (replaceable, admin) = (self.admin.clone(), self.admin.client());
        let answer = work(&admin, &options).await;
        let cause = answer.as_ref().err().cloned();
        if let Err(error) = blocking(move || replaceable.release(admin, cause.as_ref())).await {
            tracing::warn!(%error, "releasing the admin client failed");
        }
        answer
    }

    fn cache(&self) -> MutexGuard<'_, HashMap<TopicName, CachedSettings>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unreachable_client_is_replaced() {
        // No server listens on this port.
        let options = Options::from_url("kafka://127.0.0.1:1?connect_timeout=200ms").unwrap();
        let topics = Topics::new(Arc::new(options)).unwrap();
        let (metadata, admin) = (topics.metadata_client.client(), topics.admin.client());
        let answered = || topics.query(|_| Err::<(), _>(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopic)));
        assert_eq!(answered().await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(Arc::ptr_eq(&metadata, &topics.metadata_client.client()), "the cluster answered, so the client stays");
        topics.metadata(None).await.unwrap_err();
        assert!(!Arc::ptr_eq(&metadata, &topics.metadata_client.client()));
        topics.settings(ResourceSpecifier::Broker(1)).await.unwrap_err();
        assert!(!Arc::ptr_eq(&admin, &topics.admin.client()));
    }
}
