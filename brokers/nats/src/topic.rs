//! The stream of a topic: its settings are cached, and it is created if it is missing and `create=true`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy, StorageType};
use landfall_core::{Error, ErrorKind, Message, Result, TopicName};

use crate::config::{MAX_PARTITIONS, Options};
use crate::connection::Connection;
use crate::names::Names;
use crate::pace::Pace;

/// A topic and the settings of its stream.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: TopicName,
    pub(crate) stream: String,
    /// Prefix of its subjects.
    subject: String,
    /// One subject per shard.
    subjects: Vec<Subject>,
    pub(crate) partitions: u32,
    /// Creation time of the stream in nanoseconds. A later stream of the same name is another stream.
    pub(crate) created: i128,
    /// Whether it allows atomic batches.
    pub(crate) is_atomic: bool,
    /// Its message size limit, if it has one.
    pub(crate) message_bytes: Option<usize>,
    /// Measured publish rates.
    pub(crate) pace: Pace,
}

impl Topic {
    /// Returns the topic of a stream, or `None` if the stream is not a topic: it must have one subject per shard and no
    /// other.
    pub(crate) fn from_stream(names: &Names, name: TopicName, info: &stream::Info) -> Option<Self> {
        let subject = names.subject(&name);
        let subjects = &info.config.subjects;
        let is_ours = |(shard, found): (usize, &String)| *found == format!("{subject}.{shard}");
        if subjects.is_empty() || !subjects.iter().enumerate().all(is_ours) {
            return None;
        }
        Some(Self {
            name,
            stream: info.config.name.clone(),
            subject,
            subjects: subjects.iter().map(|subject| Subject::from(subject.as_str())).collect(),
            partitions: u32::try_from(subjects.len()).ok()?,
            created: info.created.unix_timestamp_nanos(),
            is_atomic: info.config.allow_atomic_publish,
            message_bytes: usize::try_from(info.config.max_message_size).ok().filter(|limit| *limit > 0),
            pace: Pace::default(),
        })
    }

    fn has_settings_of(&self, other: &Self) -> bool {
        let settings = |topic: &Self| (topic.created, topic.partitions, topic.is_atomic, topic.message_bytes);
        settings(self) == settings(other)
    }

    pub(crate) fn subject(&self, shard: u32) -> Subject {
        let known = self.subjects.get(shard as usize).cloned();
        known.unwrap_or_else(|| format!("{}.{shard}", self.subject).into())
    }

    /// The shard of a subject of this topic.
    pub(crate) fn shard(&self, subject: &str) -> u32 {
        let shard = subject.strip_prefix(&self.subject).and_then(|rest| rest.strip_prefix('.'));
        shard.and_then(|shard| shard.parse().ok()).unwrap_or_default()
    }

    /// Returns the shard of a message: by its key, or a random one without a key.
    pub(crate) fn shard_of(&self, message: &Message) -> u32 {
        match &message.key {
            Some(key) => key.partition(self.partitions),
            // The last bits of an id are random.
            None => message.id.as_uuid().as_bytes()[15] as u32 % self.partitions,
        }
    }
}

/// Cache of the topics used so far.
#[derive(Debug, Clone)]
pub(crate) struct Topics {
    connection: Connection,
    names: Names,
    options: Arc<Options>,
    known: Arc<Mutex<HashMap<TopicName, Arc<Topic>>>>,
}

impl Topics {
    pub(crate) fn new(connection: Connection, names: Names, options: Arc<Options>) -> Self {
        Self { connection, names, options, known: Arc::default() }
    }

    /// Returns the cached topic. A missing topic is created if `create=true`, else the error is `NotFound`.
    pub(crate) async fn get(&self, name: &TopicName) -> Result<Arc<Topic>> {
        if let Some(topic) = self.known().get(name) {
            return Ok(topic.clone());
        }
        self.find_or_create(name).await
    }

    /// Reads the topic from the server. A missing topic is created as in [`Topics::get`].
    pub(crate) async fn find_or_create(&self, name: &TopicName) -> Result<Arc<Topic>> {
        match self.find(name).await {
            Err(error) if error.kind() == ErrorKind::NotFound && self.options.create => {
                self.create(name, None).await?;
                self.find(name).await
            }
            found => found,
        }
    }

    /// Reads the topic from the server.
    pub(crate) async fn find(&self, name: &TopicName) -> Result<Arc<Topic>> {
        let info = self.connection.stream(&self.names.stream(name)?).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                self.forget(name);
                Error::new(ErrorKind::NotFound, format!("topic {name} does not exist"))
            }
            _ => error,
        })?;
        let foreign = || {
            let reason = format!("stream {} exists but is not a topic: it has other subjects", info.config.name);
            Error::new(ErrorKind::Conflict, reason)
        };
        let topic = Topic::from_stream(&self.names, name.clone(), &info).ok_or_else(foreign)?;
        let mut known = self.known();
        // An unchanged topic stays cached, with its measured publish rates.
        if let Some(cached) = known.get(name).filter(|cached| cached.has_settings_of(&topic)) {
            return Ok(cached.clone());
        }
        let topic = Arc::new(topic);
        known.insert(name.clone(), topic.clone());
        Ok(topic)
    }

    /// Removes a topic from the cache, after a sign that the server has lost or changed it.
    pub(crate) fn forget(&self, name: &TopicName) {
        self.known().remove(name);
    }

    /// Creates the stream with safe settings. A stream that exists by now is left unchanged.
    pub(crate) async fn create(&self, name: &TopicName, partitions: Option<u32>) -> Result<()> {
        let partitions = partitions.unwrap_or(self.options.partitions);
        if partitions == 0 || partitions > MAX_PARTITIONS {
            return Err(Error::invalid(format!("a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}")));
        }
        let mut config = self.config(name, partitions)?;
        let created = match self.connection.create_stream(&config).await {
            // The URL does not set `replicas`, and this server is not in a cluster.
            Err(error) if error.kind() == ErrorKind::Unsupported && self.options.replicas.is_none() => {
                config.num_replicas = 1;
                self.connection.create_stream(&config).await
            }
            created => created,
        };
        match created {
            Ok(info) => {
                let stream = &info.config.name;
                let replicas = info.config.num_replicas;
                tracing::info!(topic = %name, %stream, partitions, replicas, "topic created");
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn config(&self, name: &TopicName, partitions: u32) -> Result<stream::Config> {
        let subject = self.names.subject(name);
        let max_age = self.options.retention.time().unwrap_or(Duration::ZERO);
        let mut duplicate_window = self.options.dedup;
        // The server refuses a window that exceeds the age limit.
        if !max_age.is_zero() {
            duplicate_window = duplicate_window.min(max_age);
        }
        Ok(stream::Config {
            name: self.names.stream(name)?,
            subjects: (0..partitions).map(|shard| format!("{subject}.{shard}")).collect(),
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            // A full topic refuses messages; it never drops old ones unread.
            discard: DiscardPolicy::New,
            max_age,
            max_bytes: self.options.max_bytes.unwrap_or(-1),
            max_messages: -1,
            max_messages_per_subject: -1,
            max_consumers: -1,
            num_replicas: self.options.replicas.unwrap_or(3),
            duplicate_window,
            allow_direct: true,
            allow_atomic_publish: self.options.atomic && self.connection.client().is_server_compatible(2, 12, 0),
            ..stream::Config::default()
        })
    }

    /// Returns all topics with the prefix.
    pub(crate) async fn all(&self) -> Result<Vec<(Topic, stream::Info)>> {
        let streams = self.connection.streams().await?;
        let topics = streams.into_iter().filter_map(|info| {
            let topic = Topic::from_stream(&self.names, self.names.topic(&info.config.name)?, &info)?;
            Some((topic, info))
        });
        let mut topics: Vec<_> = topics.collect();
        topics.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        Ok(topics)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<TopicName, Arc<Topic>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
