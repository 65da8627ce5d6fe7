//! Handlers that apply many messages with one statement.

use std::fmt;

use landfall_core::{Database, Failure, Message, OutboxWriter, Result};

use super::{AfterCommit, enqueue};

/// Handles all new messages of one transaction.
///
/// ```
/// use landfall::prelude::*;
/// use landfall::sqlite::Sqlite;
///
/// struct Count;
///
/// impl BatchHandler<Sqlite> for Count {
///     async fn handle(&self, context: BatchContext<'_, Sqlite>) -> Result<(), Failure> {
///         let count = context.messages.len() as i64;
///         sqlx::query("UPDATE counter SET n = n + ?").bind(count).execute(&mut *context.connection).await?;
///         Ok(())
///     }
/// }
/// ```
///
/// An error rolls all of them back. The batch is then split in halves until the message that fails is alone; it is
/// retried alone and finally parked, and the others commit.
pub trait BatchHandler<D: Database>: Send + Sync + 'static {
    /// Applies the messages. The slice is never empty; messages of one key are in order.
    fn handle<'a>(&'a self, context: BatchContext<'a, D>) -> impl Future<Output = Result<(), Failure>> + Send + 'a;
}

/// A function whose future borrows from its context; see [`HandlerFn`](super::HandlerFn).
pub trait BatchHandlerFn<'a, D: Database>: Send + Sync + 'static {
    type Future: Future<Output = Result<(), Failure>> + Send + 'a;

    fn call(&self, context: BatchContext<'a, D>) -> Self::Future;
}

impl<'a, D, F, R> BatchHandlerFn<'a, D> for F
where
    D: Database,
    F: Fn(BatchContext<'a, D>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'a,
{
    type Future = R;

    fn call(&self, context: BatchContext<'a, D>) -> R {
        self(context)
    }
}

/// Makes a batch handler from an `async fn handle(context: BatchContext<'_, D>) -> Result<(), Failure>`.
///
/// ```
/// use landfall::prelude::*;
/// use landfall::sqlite::Sqlite;
///
/// let handler = plain_batch(async |context: BatchContext<'_, Sqlite>| {
///     tracing::info!(messages = context.messages.len(), "handled");
///     Ok(())
/// });
/// # fn check(_: impl BatchHandler<Sqlite>) {}
/// # check(handler);
/// ```
pub fn plain_batch<F>(function: F) -> PlainBatch<F> {
    PlainBatch(function)
}

/// The handler that [`plain_batch`] returns.
#[derive(Debug)]
pub struct PlainBatch<F>(F);

impl<D, F> BatchHandler<D> for PlainBatch<F>
where
    D: Database,
    F: for<'a> BatchHandlerFn<'a, D>,
{
    fn handle<'a>(&'a self, context: BatchContext<'a, D>) -> impl Future<Output = Result<(), Failure>> + Send + 'a {
        self.0.call(context)
    }
}

/// The messages, and the transaction in which a [`BatchHandler`] applies them.
pub struct BatchContext<'a, D: Database> {
    pub messages: &'a [&'a Message],
    /// The connection of the inbox transaction. The consumer commits it or rolls it back; the handler must not.
    pub connection: &'a mut D::Connection,
    /// The number of this attempt, from 1. Attempts made as part of a batch are not counted.
    pub attempt: u32,
    /// Whether the transaction is rolled back whatever the handler returns; see [`Context::is_rehearsal`].
    ///
    /// [`Context::is_rehearsal`]: crate::consume::Context::is_rehearsal
    pub is_rehearsal: bool,
    pub(super) database: &'a D,
    pub(super) after_commit: &'a mut AfterCommit,
}

impl<D: OutboxWriter> BatchContext<'_, D> {
    /// Enqueues messages in the outbox of the same database: they are published if and only if the effect commits.
    pub async fn enqueue(&mut self, messages: &[Message]) -> Result<()> {
        enqueue(self.database, self.connection, self.after_commit, messages).await
    }
}

impl<D: Database> fmt::Debug for BatchContext<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchContext")
            .field("messages", &self.messages.len())
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
