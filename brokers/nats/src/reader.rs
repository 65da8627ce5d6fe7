//! Reading a topic without a group: a consumer that remembers nothing and asks for no acknowledgements.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_trait::async_trait;
use futures_util::StreamExt;
use landfall_core::{Error, ErrorKind, Position, Result, StartAt, StoredMessage, Timestamp, TopicReader};

use crate::api::PullConsumer;
use crate::connection::Connection;
use crate::topic::Topic;
use crate::unreadable::{self, Unreadable};
use crate::wire;

/// The server forgets a reader that asked for nothing for so long; it is then made again where it stood.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// How long a consumer may take to hear of what its stream has.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Reader {
    connection: Connection,
    topic: Arc<Topic>,
    consumer: PullConsumer,
    /// The next sequence in the stream.
    next: u64,
    /// What the consumer has sent so far, counted by itself.
    received: u64,
    /// Up to here nothing came although it was waited for: it was removed.
    removed: u64,
    /// The consumer stands elsewhere by now: the next one is made before anything is read.
    is_elsewhere: bool,
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
        let next = consumer.info().delivered.stream_sequence + 1;
        Ok(Self { connection, topic, consumer, next, received: 0, removed: 0, is_elsewhere: false })
    }

    /// What was read from there on is read again; or what stands before it is not read any more.
    fn stand_at(&mut self, next: u64) {
        self.next = next;
        self.is_elsewhere = true;
    }

    /// Begins again where it stands.
    async fn resume(&mut self) -> Result<()> {
        let policy = DeliverPolicy::ByStartSequence { start_sequence: self.next };
        self.consumer = create(&self.connection, &self.topic, policy).await?;
        self.received = 0;
        self.is_elsewhere = false;
        Ok(())
    }

    /// What the server sends before it says that there is no more, or an error if it says nothing.
    async fn fetch(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        if self.is_elsewhere {
            self.resume().await?;
        }
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
            // Nothing also comes if it is what cuts the connection.
            if unreadable::find(&self.connection, &self.consumer, self.next.saturating_sub(1), 1).await?.is_some() {
                return Err(Error::new(ErrorKind::Unavailable, "something was lost on the way"));
            }
            self.removed = end;
        }
        Ok(stored)
    }

    /// One message that the client cannot read may be what keeps it from reading on: what stands before it, and then it.
    async fn fetch_up_to_the_unreadable(&mut self, limit: usize) -> Result<Option<Vec<StoredMessage>>> {
        let found = unreadable::find(&self.connection, &self.consumer, self.next.saturating_sub(1), limit).await?;
        let Some(Unreadable { before, subject, sequence, why, .. }) = found else { return Ok(None) };
        let mut stored = if before == 0 { Vec::new() } else { self.fetch(before).await? };
        if stored.len() != before {
            return Ok(None);
        }
        let position = Position { partition: self.topic.shard(&subject), offset: sequence };
        stored.push(StoredMessage { position, message: Err(Error::invalid(why)) });
        self.stand_at(sequence + 1);
        Ok(Some(stored))
    }

    async fn fetch_within(&mut self, limit: usize, wait: Duration) -> Result<Vec<StoredMessage>> {
        let patience = self.connection.patience() + wait;
        let late = |_| Error::new(ErrorKind::Unavailable, "the server does not say what is in the topic");
        tokio::time::timeout(patience, self.fetch_now(limit, wait)).await.map_err(late)?
    }

    async fn fetch_now(&mut self, limit: usize, wait: Duration) -> Result<Vec<StoredMessage>> {
        let failed = |error| Error::new(ErrorKind::Unavailable, "the topic cannot be read").with_source(error);
        let consumer = self.consumer.over(&self.connection);
        let fetch = consumer.fetch().max_messages(limit);
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

async fn create(connection: &Connection, topic: &Topic, deliver_policy: DeliverPolicy) -> Result<PullConsumer> {
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
        if let Ok(stored) = self.fetch(limit).await {
            return Ok(stored);
        }
        // The consumer is gone, or the connection was: once more, from where the caller stands.
        self.stand_at(before);
        let error = match self.fetch(limit).await {
            Ok(stored) => return Ok(stored),
            Err(error) => error,
        };
        self.stand_at(before);
        if let Ok(Some(stored)) = self.fetch_up_to_the_unreadable(limit).await {
            return Ok(stored);
        }
        self.stand_at(before);
        Err(error)
    }
}
