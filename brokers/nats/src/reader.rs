//! Reading a topic without a group: a consumer that remembers nothing and asks for no acknowledgements.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use async_trait::async_trait;
use futures_util::StreamExt;
use landfall_core::{Error, ErrorKind, Position, Result, StartAt, StoredMessage, Timestamp, TopicReader};

use crate::connection::Connection;
use crate::topic::Topic;
use crate::wire;

/// The server forgets a reader that asked for nothing for so long; it is then made again where it stood.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// How long a consumer may take to hear of what its stream has.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Reader {
    connection: Connection,
    topic: Arc<Topic>,
    consumer: Consumer<pull::Config>,
    /// The next sequence in the stream.
    next: u64,
    /// What the consumer has sent so far, counted by itself.
    received: u64,
    /// Up to here nothing came although it was waited for: it was removed.
    removed: u64,
}

impl Reader {
    pub(crate) async fn open(connection: Connection, topic: Arc<Topic>, from: StartAt) -> Result<Self> {
        let policy = match from {
            StartAt::Beginning => DeliverPolicy::All,
            StartAt::End => DeliverPolicy::New,
            StartAt::Offset(offset) => DeliverPolicy::ByStartSequence { start_sequence: offset.max(1) },
            StartAt::Time(time) => {
                let since = Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or_default());
                DeliverPolicy::ByStartTime { start_time: (SystemTime::UNIX_EPOCH + since).into() }
            }
        };
        let consumer = create(&connection, &topic, policy).await?;
        let next = consumer.cached_info().delivered.stream_sequence + 1;
        Ok(Self { connection, topic, consumer, next, received: 0, removed: 0 })
    }

    /// Begins again where it stands.
    async fn resume(&mut self) -> Result<()> {
        let policy = DeliverPolicy::ByStartSequence { start_sequence: self.next };
        self.consumer = create(&self.connection, &self.topic, policy).await?;
        self.received = 0;
        Ok(())
    }

    /// What the server sends before it says that there is no more, or an error if it says nothing.
    async fn fetch(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        let stored = self.fetch_within(limit, Duration::ZERO).await?;
        if !stored.is_empty() {
            return Ok(stored);
        }
        // A message is accepted a moment before its consumers hear of it, and the consumer is asked, not the stream.
        let end = self.connection.stream(&self.topic.stream).await?.state.last_sequence;
        if end < self.next || end <= self.removed {
            return Ok(stored);
        }
        let stored = self.fetch_within(limit, HEARD_WITHIN).await?;
        if stored.is_empty() {
            self.removed = end;
        }
        Ok(stored)
    }

    async fn fetch_within(&mut self, limit: usize, wait: Duration) -> Result<Vec<StoredMessage>> {
        let patience = self.connection.client.timeout().unwrap_or(FORGOTTEN_AFTER) + wait;
        let late = |_| Error::new(ErrorKind::Unavailable, "the server does not say what is in the topic");
        tokio::time::timeout(patience, self.fetch_now(limit, wait)).await.map_err(late)?
    }

    async fn fetch_now(&mut self, limit: usize, wait: Duration) -> Result<Vec<StoredMessage>> {
        let failed = |error| Error::new(ErrorKind::Unavailable, "the topic cannot be read").with_source(error);
        let fetch = self.consumer.fetch().max_messages(limit);
        let fetch = if wait.is_zero() { fetch } else { fetch.expires(wait) };
        let mut messages = fetch.messages().await.map_err(|e| failed(e.into()))?;
        let mut stored = Vec::new();
        while let Some(message) = messages.next().await {
            let message = message.map_err(failed)?;
            let info = message.info().map_err(failed)?;
            if info.consumer_sequence != self.received + 1 {
                return Err(Error::new(ErrorKind::Unavailable, "something was lost on the way"));
            }
            self.received += 1;
            let time = Timestamp::from_millis(millis(&info));
            let position = Position { partition: self.topic.shard(&message.subject), offset: info.stream_sequence };
            self.next = info.stream_sequence + 1;
            let headers = message.headers.as_ref();
            let read = wire::message(&self.topic.name, time, headers, message.payload.clone());
            stored.push(StoredMessage { position, message: read });
        }
        Ok(stored)
    }
}

async fn create(
    connection: &Connection,
    topic: &Topic,
    deliver_policy: DeliverPolicy,
) -> Result<Consumer<pull::Config>> {
    let config = pull::Config {
        name: Some(format!("landfall-reader-{}", uuid::Uuid::now_v7().simple())),
        deliver_policy,
        ack_policy: AckPolicy::None,
        inactive_threshold: FORGOTTEN_AFTER,
        num_replicas: 1,
        memory_storage: true,
        ..pull::Config::default()
    };
    connection.create_consumer(&topic.stream, config).await
}

pub(crate) fn millis(info: &async_nats::jetstream::message::Info<'_>) -> i64 {
    i64::try_from(info.published.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

#[async_trait]
impl TopicReader for Reader {
    async fn read(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        let before = self.next;
        match self.fetch(limit).await {
            Ok(stored) => Ok(stored),
            // The consumer is gone, or the connection was: once more, from where the caller stands.
            Err(_) => {
                self.next = before;
                self.resume().await?;
                self.fetch(limit).await
            }
        }
    }
}
