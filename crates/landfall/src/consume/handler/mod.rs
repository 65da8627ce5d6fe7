//! Handlers: the user's code, called inside the inbox transaction.

mod batch;
#[cfg(feature = "tower")]
mod layered;
mod runner;
mod trace;
mod typed;

use std::fmt;

use futures_util::future::BoxFuture;
use landfall_core::{Database, Failure, GroupName, Message, OutboxWriter, Result};

pub use batch::{BatchContext, BatchHandler, BatchHandlerFn, PlainBatch, plain_batch};
#[cfg(feature = "tower")]
pub use layered::{Failed, HandlerService, Layered, layered};
pub(crate) use runner::{BatchFailure, HandlerCall, HandlerRunner, PerBatch, PerMessage};
pub use trace::Trace;
pub use typed::{Typed, TypedFn, parse, typed};

/// Handles one new message. What it writes through [`Context::connection`] commits together with the inbox row; an
/// error rolls both back.
///
/// Implemented by types, by closures that return a boxed future ([`handler_fn`]), and by `async fn`s: [`plain`] for one
/// that takes the context, [`typed`] for one that also takes the payload.
pub trait Handler<D: Database>: Send + Sync + 'static {
    /// Applies the message.
    ///
    /// A failure with the verdict `Retry` is retried with backoff and parked after the last attempt; with the verdict
    /// `Park` the message is parked at once. `?` turns any `std::error::Error` into a retry.
    ///
    /// In a batch the handler may run more often than it fails: the messages before a failed one are rolled back with
    /// it and handled again. Effects outside of the transaction must therefore tolerate duplicates.
    fn handle<'a>(&'a self, context: Context<'a, D>) -> impl Future<Output = Result<(), Failure>> + Send + 'a;
}

/// A function whose future borrows from its context, such as `async fn handle(context: Context<'_, D>)`.
///
/// Implemented for every such function; not meant for other types. It exists because a bound on `Fn` cannot name a
/// future that depends on a lifetime.
pub trait HandlerFn<'a, D: Database>: Send + Sync + 'static {
    type Future: Future<Output = Result<(), Failure>> + Send + 'a;

    fn call(&self, context: Context<'a, D>) -> Self::Future;
}

impl<'a, D, F, R> HandlerFn<'a, D> for F
where
    D: Database,
    F: Fn(Context<'a, D>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'a,
{
    type Future = R;

    fn call(&self, context: Context<'a, D>) -> R {
        self(context)
    }
}

impl<D, F> Handler<D> for F
where
    D: Database,
    F: for<'a> Fn(Context<'a, D>) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync + 'static,
{
    fn handle<'a>(&'a self, context: Context<'a, D>) -> impl Future<Output = Result<(), Failure>> + Send + 'a {
        self(context)
    }
}

/// Makes a handler from an `async fn handle(context: Context<'_, D>) -> Result<(), Failure>`.
pub fn plain<F>(function: F) -> Plain<F> {
    Plain(function)
}

/// The handler that [`plain`] returns.
#[derive(Debug)]
pub struct Plain<F>(F);

impl<D, F> Handler<D> for Plain<F>
where
    D: Database,
    F: for<'a> HandlerFn<'a, D>,
{
    fn handle<'a>(&'a self, context: Context<'a, D>) -> impl Future<Output = Result<(), Failure>> + Send + 'a {
        self.0.call(context)
    }
}

/// Makes a handler from a closure: `handler_fn(|context| Box::pin(async move { …; Ok(()) }))`.
///
/// Returns the closure unchanged. The bound tells the compiler that the future may borrow from the context, which the
/// type of a bare closure does not say.
pub fn handler_fn<D, F>(closure: F) -> F
where
    D: Database,
    F: for<'a> Fn(Context<'a, D>) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync + 'static,
{
    closure
}

/// The message, and the transaction in which a [`Handler`] applies it.
pub struct Context<'a, D: Database> {
    pub message: &'a Message,
    /// The connection of the inbox transaction. The consumer commits it or rolls it back; the handler must not.
    pub connection: &'a mut D::Connection,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    pub(super) database: &'a D,
    pub(super) group: &'a GroupName,
    pub(super) after_commit: &'a mut AfterCommit,
}

impl<'a, D: Database> Context<'a, D> {
    /// The trace of the sender's `traceparent`. The span in which the handler runs carries it too.
    pub fn trace(&self) -> Option<Trace<'a>> {
        Trace::from_message(self.message)
    }

    /// The consumer group.
    pub fn group(&self) -> &'a GroupName {
        self.group
    }
}

/// A function to call after the effect has committed.
pub(crate) type AfterCommit = Option<Box<dyn FnOnce() + Send>>;

impl<D: OutboxWriter> Context<'_, D> {
    /// Enqueues a message in the outbox of the same database: it is published if and only if the effect commits.
    pub async fn enqueue(&mut self, message: &Message) -> Result<()> {
        enqueue(self.database, self.connection, self.after_commit, std::slice::from_ref(message)).await
    }
}

/// Writes to the outbox and arranges for the relay to be woken after the commit.
pub(super) async fn enqueue<D: OutboxWriter>(
    database: &D,
    connection: &mut D::Connection,
    after_commit: &mut AfterCommit,
    messages: &[Message],
) -> Result<()> {
    database.enqueue(connection, messages).await?;
    let database = database.clone();
    *after_commit = Some(Box::new(move || database.wake()));
    Ok(())
}

impl<D: Database> fmt::Debug for Context<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("message", &self.message.id)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
