//! What is known of the cluster's topics: whether they are there, and how large a message they take.

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

use crate::client::{Listening, Rumours, blocking};
use crate::config::Options;
use crate::error::{error, kind_of};

/// After this somebody may have changed a topic's settings.
const FRESH_FOR: Duration = Duration::from_secs(300);

/// After this somebody may tell what nobody told before.
const UNTOLD_FOR: Duration = Duration::from_secs(10);

/// How long what the client heard may take to be told.
const HEARSAY: Duration = Duration::from_millis(200);

/// The client that only asks, and makes topics.
pub(crate) struct Topics {
    pub(crate) options: Arc<Options>,
    asking: Arc<Renewable<BaseConsumer<Listening>>>,
    admin: Arc<Renewable<AdminClient<Listening>>>,
    rumours: Arc<Rumours>,
    known: Mutex<HashMap<TopicName, Known>>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    message_bytes: usize,
    until: Instant,
}

/// A client that is replaced after it could not reach the cluster: what it knows of the nodes may be what keeps it away. It
/// goes on asking the one that it once took for the controller, or has forgotten all of them (`lifeline.rs`).
struct Renewable<C> {
    config: ClientConfig,
    rumours: Arc<Rumours>,
    client: Mutex<Arc<C>>,
}

impl<C: FromClientConfigAndContext<Listening>> Renewable<C> {
    fn new(config: ClientConfig, rumours: &Arc<Rumours>) -> Result<Arc<Self>> {
        let client = C::from_config_and_context(&config, Listening(rumours.clone()));
        let client = Mutex::new(Arc::new(client.map_err(|cause| error("the client of Kafka cannot be made", cause))?));
        Ok(Arc::new(Self { config, rumours: rumours.clone(), client }))
    }

    fn client(&self) -> Arc<C> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets go of `client`, for another one if it could not reach the cluster. Blocks: to take one down waits for threads.
    fn give_back(&self, client: Arc<C>, cause: Option<&KafkaError>) {
        let is_current = || Arc::ptr_eq(&client, &self.client());
        // Unless it was answered, or somebody else was quicker.
        if cause.is_none_or(|cause| kind_of(cause) != ErrorKind::Unavailable) || !is_current() {
            return;
        }
        match C::from_config_and_context(&self.config, Listening(self.rumours.clone())) {
            Ok(other) => {
                let mut current = self.client.lock().unwrap_or_else(PoisonError::into_inner);
                if Arc::ptr_eq(&current, &client) {
                    *current = Arc::new(other);
                }
            }
            Err(error) => tracing::warn!(%error, "the client of Kafka cannot be made anew"),
        }
    }
}

impl Topics {
    pub(crate) fn new(options: Arc<Options>) -> Result<Self> {
        let rumours = Arc::new(Rumours::default());
        let asking = Renewable::new(options.reader(), &rumours)?;
        let admin = Renewable::new(options.client(), &rumours)?;
        Ok(Self { options, asking, admin, rumours, known: Mutex::default() })
    }

    /// As it is called on the cluster.
    pub(crate) fn name(&self, topic: &TopicName) -> Result<String> {
        let name = format!("{}{topic}", self.options.prefix);
        match name.len() {
            0..=249 => Ok(name),
            length => {
                Err(Error::invalid(format!("topic {topic} is {length} bytes long with its prefix; Kafka takes 249")))
            }
        }
    }

    /// The largest message that `topic` takes, after it was made if need be.
    pub(crate) async fn ready(&self, topic: &TopicName) -> Result<usize> {
        if let Some(known) = self.known().get(topic).filter(|known| Instant::now() < known.until) {
            return Ok(known.message_bytes);
        }
        if self.partitions(topic).await?.is_none() {
            if !self.options.create {
                let sentence = format!("there is no topic {topic} on the cluster, and create=false");
                return Err(Error::new(ErrorKind::NotFound, sentence));
            }
            self.create(topic, self.options.partitions).await?;
        }
        // An account that may publish need not be allowed to see settings, and who is asked may be late; the cluster refuses
        // what is too large then.
        let told = self.settings(ResourceSpecifier::Topic(&self.name(topic)?)).await.ok();
        let told = told.as_ref().and_then(|settings| settings.get("max.message.bytes")?.value.as_ref()?.parse().ok());
        let message_bytes = told.map_or(self.options.message_bytes, |told: usize| told.min(self.options.message_bytes));
        let until = Instant::now() + if told.is_some() { FRESH_FOR } else { UNTOLD_FOR };
        self.known().insert(topic.clone(), Known { message_bytes, until });
        Ok(message_bytes)
    }

    /// Something was not as it was known to be.
    pub(crate) fn forget(&self) {
        self.known().clear();
    }

    /// How many partitions `topic` has; `None` if there is no such topic.
    pub(crate) async fn partitions(&self, topic: &TopicName) -> Result<Option<u32>> {
        let name = self.name(topic)?;
        let metadata = self.metadata(Some(name.clone())).await?;
        let Some(found) = metadata.topics().iter().find(|found| found.name() == name) else { return Ok(None) };
        match found.error().map(RDKafkaErrorCode::from) {
            None => Ok(Some(found.partitions().len() as u32)),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(None),
            // It is there, and is electing.
            Some(RDKafkaErrorCode::LeaderNotAvailable) => Ok(Some(found.partitions().len() as u32)),
            Some(code) => {
                let cause = rdkafka::error::KafkaError::MetadataFetch(code);
                Err(error(format!("the cluster tells nothing about topic {topic}"), cause))
            }
        }
    }

    /// What the cluster tells about `topic`, or about all of them.
    pub(crate) async fn metadata(&self, topic: Option<String>) -> Result<Metadata> {
        let timeout = self.options.connect_timeout;
        self.ask(move |asking| asking.fetch_metadata(topic.as_deref(), timeout)).await
    }

    /// Asks the cluster, and says it by name if we are turned away.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&BaseConsumer<Listening>) -> rdkafka::error::KafkaResult<T> + Send + 'static,
    ) -> Result<T> {
        let renewable = self.asking.clone();
        self.rumours.forget();
        let rumours = self.rumours.clone();
        let answer = blocking(move || {
            let asking = renewable.client();
            let answer = question(&asking);
            // What it heard meanwhile waits in its queue.
            let asked = Instant::now();
            while answer.is_err() && rumours.denied().is_none() && asked.elapsed() < HEARSAY {
                let _heard = asking.poll(HEARSAY / 10);
            }
            renewable.give_back(asking, answer.as_ref().err());
            answer
        });
        let turned_away = |why: String| Error::new(ErrorKind::Conflict, format!("the cluster turns us away: {why}"));
        answer.await?.map_err(|cause| match self.rumours.denied() {
            Some(why) => turned_away(why),
            None => error("the cluster does not answer", cause),
        })
    }

    /// The settings of a topic or a node.
    pub(crate) async fn settings(&self, of: ResourceSpecifier<'_>) -> Result<ConfigResource> {
        let failed = |cause| error("the cluster does not tell its settings", cause);
        let found = self.administer(async |admin, options| admin.describe_configs([&of], options).await).await;
        let found = found.map_err(failed)?;
        let found = found.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Internal, "no settings were told"))?;
        let found = found.map_err(|code| failed(rdkafka::error::KafkaError::AdminOp(code)))?;
        // The client keeps to itself why it was told nothing; there is no topic and no node without settings.
        match found.entries.is_empty() {
            true => Err(Error::new(ErrorKind::Conflict, "the cluster does not tell its settings to this account")),
            false => Ok(found),
        }
    }

    /// Has something done by the controller of the cluster.
    pub(crate) async fn administer<T>(
        &self,
        work: impl AsyncFnOnce(&AdminClient<Listening>, &AdminOptions) -> KafkaResult<T>,
    ) -> KafkaResult<T> {
        let timeout = self.options.connect_timeout;
        let options = AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout));
        let (renewable, admin) = (self.admin.clone(), self.admin.client());
        let answer = work(&admin, &options).await;
        let cause = answer.as_ref().err().cloned();
        if let Err(error) = blocking(move || renewable.give_back(admin, cause.as_ref())).await {
            tracing::warn!(%error, "a client was not given back in order");
        }
        answer
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TopicName, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_that_could_not_reach_the_cluster_is_not_asked_again() {
        // Nobody listens there.
        let options = Options::from_url("kafka://127.0.0.1:1?connect_timeout=200ms").unwrap();
        let topics = Topics::new(Arc::new(options)).unwrap();
        let (asking, admin) = (topics.asking.client(), topics.admin.client());
        let kept = || topics.ask(|_| Err::<(), _>(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopic)));
        assert_eq!(kept().await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(Arc::ptr_eq(&asking, &topics.asking.client()), "it was answered");
        topics.metadata(None).await.unwrap_err();
        assert!(!Arc::ptr_eq(&asking, &topics.asking.client()));
        topics.settings(ResourceSpecifier::Broker(1)).await.unwrap_err();
        assert!(!Arc::ptr_eq(&admin, &topics.admin.client()));
    }
}
