//! Consume: every message takes effect once, per key in order (C1, O1, O2).
//!
//! ```text
//!   delivery ─▶ key lane ─▶ batch ─▶ one transaction { inbox rows, handlers' writes } ─▶ commit ─▶ acknowledge
//!                                       │ a message fails
//!                                       ├─▶ the others commit without it
//!                                       └─▶ it is isolated: retried with backoff while its key waits, or moved to the
//!                                           retry lane; after the last attempt a dead letter, its key behind it
//!   delayed and due, redriven dead letters ─▶ the same handler, in order, until the key is free again
//! ```
//!
//! A crash before the commit leaves nothing behind, and the messages are redelivered; after the commit they are
//! redelivered and their inbox rows identify them as duplicates. Messages of one key are handled sequentially,
//! different keys concurrently. A message is acknowledged only after its own transaction has committed.
//!
//! | folder | job |
//! |---|---|
//! | `dispatch` | receives deliveries, key lanes, batches, isolated messages |
//! | `transaction` | the one routine in which messages take effect |
//! | `sequence` | sequence numbers: duplicates, early and stale messages |
//! | `retry` | attempts, pauses, the retry lane and its topic |
//! | `handler` | the user's code and how it is called |
//! | `dedup` | the cache before the inbox, and idempotent handlers without one |

mod builder;
mod dedup;
mod dispatch;
mod handler;
mod options;
mod outcome;
mod retry;
mod sequence;
mod transaction;

use std::sync::Arc;

use landfall_core::{Broker, Database, Inbox, Rehearsals, Result, TopicName};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::dead_letter::{DeadLetterTopic, DeadLetterWriter, Parker, Redriver, Rehearser};
use crate::supervised_task::SupervisedTask;
use dedup::VerifiedCache;
use dispatch::{BatchRunner, Dispatcher, IsolatedRunner};
use handler::HandlerRunner;
use retry::{RetryRouter, RetryTopic, RetryTopicReader};
use sequence::SequenceGuard;

pub use builder::Builder;
#[cfg(feature = "redis-cache")]
pub use dedup::RedisDedupCache;
pub use dedup::{DedupCache, already_done, changed};
pub use handler::{
    BatchContext, BatchHandler, BatchHandlerFn, Context, Handler, HandlerFn, Plain, PlainBatch, StatefulFn, Trace,
    Typed, TypedFn, WithState, handler_fn, parse, plain, plain_batch, typed, with_state,
};
#[cfg(feature = "tower")]
pub use handler::{Failed, HandlerService, Layered, layered};
pub use options::{Idempotence, Options, Order};
pub use retry::RetryLane;
pub use sequence::{Early, SequenceCheck};

pub(crate) use handler::Attempt;
pub(crate) use outcome::Handled;
pub(crate) use retry::{AttemptCount, DatabaseBackoff, MAX_RETRY_AFTER, sleep_unless_stopped};
pub(crate) use transaction::{GroupInbox, Input, MessageTransaction, TransactionError, rehearsal_refusal};

/// Applies the messages of a topic to one database, as one member of a group.
///
/// ```
/// use std::sync::Arc;
///
/// use landfall::log::{self, Log};
/// use landfall::prelude::*;
/// use landfall::sqlite::{self, Sqlite};
/// use tokio_util::sync::CancellationToken;
///
/// async fn reserve(context: Context<'_, Sqlite>) -> Result<(), Failure> {
///     sqlx::query("UPDATE stock SET reserved = reserved + 1").execute(&mut *context.connection).await?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let database = Sqlite::open("sqlite::memory:", sqlite::Options::default()).await?;
/// database.migrate().await?;
/// let broker = Arc::new(Log::open(folder.path(), log::Options::default())?);
/// let consumer = Consumer::builder(database, broker)
///     .topic(TopicName::new("orders")?)
///     .group(GroupName::new("stock")?)
///     .handler(plain(reserve))
///     .build()?;
/// let stop = CancellationToken::new();
/// # stop.cancel();
/// consumer.run(stop).await?;
/// # Ok(())
/// # }
/// ```
pub struct Consumer<D: Database> {
    broker: Arc<dyn Broker>,
    topic: TopicName,
    inbox: GroupInbox<D>,
    handler: Arc<dyn HandlerRunner<D>>,
    sequence: SequenceGuard<D>,
    retry_topic: Option<RetryTopic>,
    dead_letter_topic: Option<Box<dyn DeadLetterTopic<D>>>,
    cache: Option<Arc<dyn VerifiedCache<D>>>,
    rehearsals: Option<Arc<dyn Rehearsals>>,
    options: Options,
}

/// The tasks of a running consumer.
struct Tasks<D: Database> {
    dispatcher: Dispatcher<D>,
    redriver: Redriver<D>,
    rehearser: Option<Rehearser<D>>,
    retry_reader: RetryTopicReader<D>,
}

impl<D: Inbox> Consumer<D> {
    /// Starts to build a consumer that applies messages of `broker` to `database`.
    pub fn builder(database: D, broker: Arc<dyn Broker>) -> Builder<D> {
        Builder::new(database, broker)
    }

    /// Works until `stop` is cancelled or the broker is closed. Running handlers finish and their messages are
    /// acknowledged; deliveries that were not started are redelivered to another member.
    ///
    /// While the broker is unavailable the consumer backs off and reconnects. Fails only on errors that are not
    /// temporary, such as damaged data.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        let stop = stop.child_token();
        let backoff = self.options.backoff;
        let Tasks { dispatcher, redriver, rehearser, retry_reader } = self.into_tasks();
        let redrive = SupervisedTask::spawn("redrive", &stop, redriver.run(stop.clone()));
        let rehearse = rehearser.map(|rehearser| {
            let run = rehearser.run(stop.clone());
            SupervisedTask::spawn("rehearsal", &stop, run)
        });
        let retry = SupervisedTask::spawn("retry topic", &stop, {
            let stop = stop.clone();
            async move {
                let result = Arc::new(retry_reader).run(stop.clone()).await;
                if result.is_err() {
                    // A permanent error on either topic stops the whole consumer.
                    stop.cancel();
                }
                result
            }
        });
        let result = loop {
            match dispatcher.run(&stop).await {
                Err(error) if error.is_temporary() => {
                    tracing::warn!(%error, "broker unavailable, backing off");
                    sleep_unless_stopped(backoff.first, &stop).await;
                }
                result => break result,
            }
        };
        stop.cancel();
        // An error of the main topic takes precedence.
        let (redrive, retry) = (redrive.join().await, retry.join().await.flatten());
        let rehearse = match rehearse {
            Some(rehearse) => rehearse.join().await,
            None => Ok(()),
        };
        result.and(redrive).and(retry).and(rehearse)
    }

    fn into_tasks(self) -> Tasks<D> {
        let Self {
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
        } = self;
        let router = Arc::new(RetryRouter::new(&options, retry_topic));
        let (backoff, group) = (options.backoff, inbox.group.clone());
        let permits = Arc::new(Semaphore::new(options.concurrency));
        let dead_letters =
            Arc::new(DeadLetterWriter::new(inbox.clone(), dead_letter_topic, options.order, sequence.is_enabled()));
        let sequence = Arc::new(sequence);
        let transaction = Arc::new(MessageTransaction {
            inbox: inbox.clone(),
            handler,
            sequence: sequence.clone(),
            dead_letters: dead_letters.clone(),
        });
        let isolated = Arc::new(IsolatedRunner {
            topic: topic.clone(),
            transaction: transaction.clone(),
            sequence: sequence.clone(),
            parker: Parker { inbox, dead_letters: dead_letters.clone(), backoff, permits: permits.clone() },
            router: router.clone(),
            backoff,
            permits: permits.clone(),
        });
        let batches =
            Arc::new(BatchRunner { transaction: transaction.clone(), cache, backoff, permits: permits.clone() });
        let poll = options.redrive_poll;
        let rehearser = rehearsals.map(|rehearsals| Rehearser { transaction: transaction.clone(), rehearsals, poll });
        let redriver = Redriver::new(transaction, dead_letters, &options);
        let retry_reader = RetryTopicReader {
            broker: broker.clone(),
            group: group.clone(),
            router,
            runner: isolated.clone(),
            options: options.clone(),
        };
        let dispatcher = Dispatcher { broker, topic, group, options, batches, isolated, sequence, permits };
        Tasks { dispatcher, redriver, rehearser, retry_reader }
    }
}

impl<D: Database> std::fmt::Debug for Consumer<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("options", &self.options).finish_non_exhaustive()
    }
}
