//! What a service writes when one statement can do the work of many messages.

use std::fmt;

use landfall_core::{Database, Failure, Message, OutboxWriter, Result};

use super::handler::{AfterCommit, enqueue};

/// Called with all new messages of one transaction. An error rolls all of them back; they are then tried in halves,
/// until the one that cannot be handled is alone, is retried by itself and in the end parked. The others commit.
pub trait BatchHandler<D: Database>: Send + Sync + 'static {
    /// The slice is never empty. Messages of one key stand in it in their order.
    fn handle<'a>(&'a self, context: BatchContext<'a, D>) -> impl Future<Output = Result<(), Failure>> + Send + 'a;
}

/// A function whose future may borrow from its context, as [`HandlerFn`](super::HandlerFn).
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

/// A set-based handler from a plain `async fn handle(context: BatchContext<'_, D>) -> Result<(), Failure>`.
pub fn plain_batch<F>(function: F) -> PlainBatch<F> {
    PlainBatch(function)
}

/// What [`plain_batch`] makes.
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

/// What a set-based handler works with.
pub struct BatchContext<'a, D: Database> {
    pub messages: &'a [&'a Message],
    /// The inbox transaction. Never commit or roll it back yourself.
    pub connection: &'a mut D::Connection,
    /// This try, counted from 1. Tries together with others do not count.
    pub attempt: u32,
    pub(super) database: &'a D,
    pub(super) after_commit: &'a mut AfterCommit,
}

impl<D: OutboxWriter> BatchContext<'_, D> {
    /// Sends messages as part of the effect, through the outbox of the same database.
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
