//! Builds a consumer and checks its options.

use std::sync::Arc;

use landfall_core::{
    Broker, Database, Error, GroupName, Inbox, InboxView, OutboxWriter, Rehearsals, Result, Sequences, TopicName,
};

use super::Consumer;
use super::dedup::{DedupCache, VerifiedCache};
use super::handler::{BatchHandler, Handler, HandlerRunner, PerBatch, PerMessage};
use super::options::Options;
use super::retry::{RetryLane, RetryTopic};
use super::sequence::{SequenceCheck, SequenceGuard};
use super::transaction::GroupInbox;
use crate::dead_letter::{DeadLetterTopic, OutboxTopic};

/// Collects the parts of a [`Consumer`]. Made by [`Consumer::builder`].
///
/// A topic, a group and a handler are required.
///
/// ```
/// # use std::sync::Arc;
/// use landfall::consume::{self, Early, SequenceCheck};
/// use landfall::prelude::*;
/// # use landfall::log::{self, Log};
/// # use landfall::sqlite::{self, Sqlite};
/// # async fn handle(_: Context<'_, Sqlite>) -> Result<(), Failure> { Ok(()) }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let broker = Arc::new(Log::open(folder.path(), log::Options::default())?);
/// # let database = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// let early = Early::Wait(std::time::Duration::from_secs(60));
/// let consumer = Consumer::builder(database.clone(), broker.clone())
///     .topic(TopicName::new("orders")?)
///     .group(GroupName::new("stock")?)
///     .handler(plain(handle))
///     .options(consume::Options { batch: 100, ..Default::default() })
///     .sequence_check(SequenceCheck::Consecutive { first: Some(1), early })
///     .dead_letter_topic()
///     .build()?;
///
/// let error = Consumer::builder(database, broker).build().unwrap_err();
/// assert_eq!(error.kind(), landfall::ErrorKind::Invalid);
/// # drop(consumer);
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<D: Database> {
    database: D,
    broker: Arc<dyn Broker>,
    topic: Option<TopicName>,
    group: Option<GroupName>,
    handler: Option<Arc<dyn HandlerRunner<D>>>,
    sequence: SequenceGuard<D>,
    dead_letter_topic: Option<MakeDeadLetterTopic<D>>,
    cache: Option<Arc<dyn VerifiedCache<D>>>,
    rehearsals: Option<Arc<dyn Rehearsals>>,
    options: Options,
}

/// Derives the dead-letter topic from the main topic, whose name is known only in [`Builder::build`].
type MakeDeadLetterTopic<D> = fn(&TopicName) -> Result<Box<dyn DeadLetterTopic<D>>>;

impl<D: Inbox> Builder<D> {
    pub(super) fn new(database: D, broker: Arc<dyn Broker>) -> Self {
        Self {
            database,
            broker,
            topic: None,
            group: None,
            handler: None,
            sequence: SequenceGuard::disabled(),
            dead_letter_topic: None,
            cache: None,
            rehearsals: None,
            options: Options::default(),
        }
    }

    /// The topic to consume.
    pub fn topic(mut self, topic: TopicName) -> Self {
        self.topic = Some(topic);
        self
    }

    /// The group that this consumer joins.
    pub fn group(mut self, group: GroupName) -> Self {
        self.group = Some(group);
        self
    }

    /// Calls `handler` for one message at a time.
    pub fn handler(mut self, handler: impl Handler<D>) -> Self {
        self.handler = Some(Arc::new(PerMessage(handler)));
        self
    }

    /// Calls `handler` once for all messages of a transaction, of which there are up to [`Options::batch`].
    pub fn batch_handler(mut self, handler: impl BatchHandler<D>) -> Self {
        self.handler = Some(Arc::new(PerBatch(handler)));
        self
    }

    /// Replaces the default options.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Checks the sequence numbers of messages in addition to their ids.
    pub fn sequence_check(mut self, check: SequenceCheck) -> Self
    where
        D: Sequences,
    {
        self.sequence = SequenceGuard::new(check);
        self
    }

    /// Publishes parked messages to `<topic>.dlq` too, through the outbox of the same transaction.
    pub fn dead_letter_topic(mut self) -> Self
    where
        D: OutboxWriter,
    {
        self.dead_letter_topic = Some(|main| Ok(Box::new(OutboxTopic::new(main)?)));
        self
    }

    /// Checks `cache` before the inbox, so that most duplicates are discarded without a transaction.
    pub fn dedup_cache(mut self, cache: impl DedupCache) -> Self
    where
        D: InboxView,
    {
        self.cache = Some(Arc::new(cache));
        self
    }

    /// Answers requests for rehearsals of this group's dead letters: runs the handler in a transaction, rolls it back,
    /// and reports what would happen. Polls for them as often as for redriven letters.
    ///
    /// Only for handlers that do nothing outside of their transaction, or check [`Context::is_rehearsal`] before they
    /// do.
    ///
    /// [`Context::is_rehearsal`]: super::Context::is_rehearsal
    pub fn rehearsals(mut self) -> Self
    where
        D: Rehearsals,
    {
        self.rehearsals = Some(Arc::new(self.database.clone()));
        self
    }

    /// Checks the parts and returns the consumer. Connects to nothing.
    ///
    /// Fails with kind `Invalid` if a required part is missing or an option is out of range. It also fails if the name
    /// of the retry topic or the dead-letter topic would be too long.
    pub fn build(self) -> Result<Consumer<D>> {
        let Self { database, broker, topic, group, handler, sequence, dead_letter_topic, cache, rehearsals, options } =
            self;
        let topic = topic.ok_or_else(|| missing("topic", "topic"))?;
        let group = group.ok_or_else(|| missing("group", "group"))?;
        let handler = handler.ok_or_else(|| missing("handler", "handler` or `batch_handler"))?;
        options.check()?;
        let retry_topic = match options.retry_lane {
            RetryLane::Topic => Some(RetryTopic::new(&topic, &*broker)?),
            RetryLane::Broker | RetryLane::Database => None,
        };
        let dead_letter_topic = dead_letter_topic.map(|make| make(&topic)).transpose()?;
        let inbox = GroupInbox { database, group, idempotence: options.idempotence };
        Ok(Consumer {
            broker,
            topic,
            inbox,
            handler,
            sequence,
            retry_topic,
            dead_letter_topic,
            cache,
            rehearsals,
            options,
        })
    }
}

fn missing(part: &str, method: &str) -> Error {
    Error::invalid(format!("the consumer has no {part}; call `{method}` on its builder"))
}

impl<D: Database> std::fmt::Debug for Builder<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("topic", &self.topic)
            .field("group", &self.group)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
