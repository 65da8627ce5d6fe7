//! Reads a topic without a group, through an ephemeral consumer without acknowledgements.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_trait::async_trait;
use futures_util::StreamExt;
use landfall_core::{Error, ErrorKind, Position, Result, StartAt, StoredMessage, Timestamp, TopicReader};

use crate::api::PullConsumer;
use crate::connection::Connection;
use crate::subscriber::unreadable::{self, Unreadable};
use crate::topic::Topic;
use crate::wire;

/// The server deletes the consumer after this idle time. The reader then creates another at its position.
const INACTIVE_THRESHOLD: Duration = Duration::from_secs(300);

/// How long a consumer may take to see a message that its stream has accepted.
const CONSUMER_LAG: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Reader {
    connection: Connection,
    topic: Arc<Topic>,
    consumer: PullConsumer,
    /// Next stream sequence to read.
    next: u64,
    /// Consumer sequence of the last message.
    received: u64,
    /// Up to this sequence a fetch with a wait returned nothing: the messages were removed.
    removed: u64,
    /// Whether the consumer's position differs from `next`. The next fetch creates another consumer first.
    needs_consumer: bool,
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
        Ok(Self { connection, topic, consumer, next, received: 0, removed: 0, needs_consumer: false })
    }

    /// Moves the reader to `next`, forwards or backwards.
    fn seek(&mut self, next: u64) {
        self.next = next;
        self.needs_consumer = true;
    }

    /// Creates another consumer at the reader's position.
    async fn resume(&mut self) -> Result<()> {
        let policy = DeliverPolicy::ByStartSequence { start_sequence: self.next };
        self.consumer = create(&self.connection, &self.topic, policy).await?;
        self.received = 0;
        self.needs_consumer = false;
        Ok(())
    }

    /// Fetches messages until the limit or the end of the stream. Returns an error if the server does not answer.
    async fn fetch(&mut self, limit: usize) -> Result<Vec<StoredMessage>> {
        if self.needs_consumer {
            self.resume().await?;
        }
        let stored = self.fetch_within(limit, Duration::ZERO).await?;
        if !stored.is_empty() {
            return Ok(stored);
        }
        // The fetch asks the consumer, which sees a message shortly after the stream has accepted it.
        let end = self.connection.stream(&self.topic.stream).await?.state.last_sequence;
        if end < self.next || end <= self.removed {
            return Ok(stored);
        }
        let stored = self.fetch_within(limit, CONSUMER_LAG).await?;
        if stored.is_empty() {
            // An unreadable message also looks like an empty fetch, because it breaks the connection.
            if unreadable::find(&self.connection, &self.consumer, self.next.saturating_sub(1), 1).await?.is_some() {
                return Err(Error::new(ErrorKind::Unavailable, "a message was lost between server and client"));
            }
            self.removed = end;
        }
        Ok(stored)
    }

    /// Fetches the messages up to and including the first one that the client cannot parse.
    /// Returns `None` if there is no such message.
    async fn fetch_through_unreadable(&mut self, limit: usize) -> Result<Option<Vec<StoredMessage>>> {
        let found = unreadable::find(&self.connection, &self.consumer, self.next.saturating_sub(1), limit).await?;
        let Some(Unreadable { before, subject, sequence, why, .. }) = found else { return Ok(None) };
        let mut stored = if before == 0 { Vec::new() } else { self.fetch(before).await? };
        if stored.len() != before {
            return Ok(None);
        }
        let position = Position { partition: self.topic.shard(&subject), offset: sequence };
        stored.push(StoredMessage { position, message: Err(Error::invalid(why)) });
        self.seek(sequence + 1);
        Ok(Some(stored))
    }

    async fn fetch_within(&mut self, limit: usize, wait: Duration) -> Result<Vec<StoredMessage>> {
        let timeout = self.connection.timeout() + wait;
        let late = |_| Error::new(ErrorKind::Unavailable, "the server did not answer a fetch in time");
        tokio::time::timeout(timeout, self.fetch_now(limit, wait)).await.map_err(late)?
    }

    async fn fetch_now(&mut self, limit: usize, wait: Duration) -> Result<Vec<StoredMessage>> {
        let failed = |error| Error::new(ErrorKind::Unavailable, "reading the topic failed").with_source(error);
        let consumer = self.consumer.bind(&self.connection);
        let fetch = consumer.fetch().max_messages(limit);
        let fetch = if wait.is_zero() { fetch } else { fetch.expires(wait) };
        let mut messages = fetch.messages().await.map_err(|e| failed(e.into()))?;
        let mut stored = Vec::new();
        while let Some(message) = messages.next().await {
            let message = message.map_err(failed)?;
            let info = message.info().map_err(failed)?;
            if info.consumer_sequence != self.received + 1 {
                return Err(Error::new(ErrorKind::Unavailable, "a message was lost between server and client"));
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
        inactive_threshold: INACTIVE_THRESHOLD,
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
        // The consumer was deleted or the connection was lost: retry from the caller's position.
        self.seek(before);
        let error = match self.fetch(limit).await {
            Ok(stored) => return Ok(stored),
            Err(error) => error,
        };
        self.seek(before);
        if let Ok(Some(stored)) = self.fetch_through_unreadable(limit).await {
            return Ok(stored);
        }
        self.seek(before);
        Err(error)
    }
}
