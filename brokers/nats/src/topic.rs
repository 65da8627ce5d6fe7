//! The stream behind a topic: looked up once, made where it is missing and may be made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy, StorageType};
use landfall_core::{Error, ErrorKind, Message, Result, TopicName};

use crate::config::{MOST_PARTITIONS, Options};
use crate::connection::Connection;
use crate::names::Names;

/// What is known of a topic's stream.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: TopicName,
    pub(crate) stream: String,
    /// What its subjects begin with.
    subject: String,
    /// One for each shard.
    subjects: Vec<Subject>,
    pub(crate) partitions: u32,
    /// When its stream was made, in nanoseconds: one of the same name that was made later is another one.
    pub(crate) created: i128,
    /// The largest message it takes, if it has a limit of its own.
    pub(crate) message_bytes: Option<usize>,
}

impl Topic {
    /// The topic behind `info`; `None` if that is no stream of Landfall's: one subject per shard and nothing else.
    pub(crate) fn of(names: &Names, name: TopicName, info: &stream::Info) -> Option<Self> {
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
            message_bytes: usize::try_from(info.config.max_message_size).ok().filter(|limit| *limit > 0),
        })
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

    /// Where a message goes: by its key, or anywhere.
    pub(crate) fn shard_of(&self, message: &Message) -> u32 {
        match &message.key {
            Some(key) => key.partition(self.partitions),
            // The last bits of an id are random.
            None => message.id.as_uuid().as_bytes()[15] as u32 % self.partitions,
        }
    }
}

/// The topics that were used so far.
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

    /// The topic, made if it is missing and topics come to be with their first use; else kind `NotFound`.
    pub(crate) async fn get(&self, name: &TopicName) -> Result<Arc<Topic>> {
        if let Some(topic) = self.known().get(name) {
            return Ok(topic.clone());
        }
        self.find_or_make(name).await
    }

    /// As the server has it now, made if it is missing as [`Topics::get`] does it.
    pub(crate) async fn find_or_make(&self, name: &TopicName) -> Result<Arc<Topic>> {
        match self.find(name).await {
            Err(error) if error.kind() == ErrorKind::NotFound && self.options.create => {
                self.create(name, None).await?;
                self.find(name).await
            }
            found => found,
        }
    }

    /// As the server has it now.
    pub(crate) async fn find(&self, name: &TopicName) -> Result<Arc<Topic>> {
        let info = self.connection.stream(&self.names.stream(name)?).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                self.forget(name);
                Error::new(ErrorKind::NotFound, format!("there is no topic {name}"))
            }
            _ => error,
        })?;
        let foreign = || {
            let sentence = format!("stream {} is there and is no topic: its subjects are others", info.config.name);
            Error::new(ErrorKind::Conflict, sentence)
        };
        let topic = Topic::of(&self.names, name.clone(), &info).ok_or_else(foreign)?;
        let topic = Arc::new(topic);
        self.known().insert(name.clone(), topic.clone());
        Ok(topic)
    }

    /// The server may have lost or changed it: the next use looks again.
    pub(crate) fn forget(&self, name: &TopicName) {
        self.known().remove(name);
    }

    /// Makes the stream with the safe settings. One that somebody made in the meantime is left as it is.
    pub(crate) async fn create(&self, name: &TopicName, partitions: Option<u32>) -> Result<()> {
        let partitions = partitions.unwrap_or(self.options.partitions);
        if partitions == 0 || partitions > MOST_PARTITIONS {
            return Err(Error::invalid(format!("a topic has 1 to {MOST_PARTITIONS} partitions, not {partitions}")));
        }
        let mut config = self.config(name, partitions)?;
        let made = match self.connection.create_stream(&config).await {
            // Nobody said how many copies there must be, and this server stands alone.
            Err(error) if error.kind() == ErrorKind::Unsupported && self.options.replicas.is_none() => {
                config.num_replicas = 1;
                self.connection.create_stream(&config).await
            }
            made => made,
        };
        match made {
            Ok(info) => {
                let stream = &info.config.name;
                tracing::info!(topic = %name, %stream, partitions, replicas = info.config.num_replicas, "topic made");
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
        // The server takes no window beyond the age.
        if !max_age.is_zero() {
            duplicate_window = duplicate_window.min(max_age);
        }
        Ok(stream::Config {
            name: self.names.stream(name)?,
            subjects: (0..partitions).map(|shard| format!("{subject}.{shard}")).collect(),
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            // Full means refused, never that old messages give way unread.
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

    /// Every topic with the prefix.
    pub(crate) async fn all(&self) -> Result<Vec<(Topic, stream::Info)>> {
        let streams = self.connection.streams().await?;
        let topics = streams.into_iter().filter_map(|info| {
            let topic = Topic::of(&self.names, self.names.topic(&info.config.name)?, &info)?;
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
