//! What a service writes: the effect of one message, inside the inbox transaction.

use std::fmt;

use futures_util::future::BoxFuture;
use landfall_core::{Database, Failure, GroupName, Message, OutboxWriter, Result};

use super::trace::Trace;

/// Called once the transaction knows that the message is new. Whatever it writes through
/// [`Context::connection`] commits together with the inbox row; an error rolls both back.
///
/// Implemented by types, by functions that return a boxed future and closures of that kind ([`handler_fn`]), and by plain
/// `async fn`s: [`plain`] takes the context, [`typed`](super::typed) the payload besides.
pub trait Handler<D: Database>: Send + Sync + 'static {
    /// `Err(Failure)` with the verdict `Retry` is tried again with backoff and parked after the maximum; with the
    /// verdict `Park` it is parked at once. Any `std::error::Error` becomes a retry through `?`.
    ///
    /// In a batch it may run more often than it fails: what ran before a message that failed is rolled back with it
    /// and runs again. So it must not keep anything outside of the transaction.
    fn handle<'a>(&'a self, context: Context<'a, D>) -> impl Future<Output = Result<(), Failure>> + Send + 'a;
}

/// A function whose future may borrow from its context: what an `async fn handle(context: Context<'_, D>)` is.
///
/// Only there to be implemented for functions. A bound on `Fn` cannot name a future that depends on a lifetime.
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

/// A handler from a plain `async fn handle(context: Context<'_, D>) -> Result<(), Failure>`.
pub fn plain<F>(function: F) -> Plain<F> {
    Plain(function)
}

/// What [`plain`] makes.
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

/// A handler from a closure: `handler_fn(|context| Box::pin(async move { …; Ok(()) }))`.
///
/// It only tells the compiler that the future may borrow from the context, which a bare closure cannot say.
pub fn handler_fn<D, F>(closure: F) -> F
where
    D: Database,
    F: for<'a> Fn(Context<'a, D>) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync + 'static,
{
    closure
}

/// What a handler works with.
pub struct Context<'a, D: Database> {
    pub message: &'a Message,
    /// The inbox transaction. Never commit or roll it back yourself.
    pub connection: &'a mut D::Connection,
    /// This try, counted from 1.
    pub attempt: u32,
    pub(super) database: &'a D,
    pub(super) group: &'a GroupName,
    pub(super) after_commit: &'a mut AfterCommit,
}

impl<'a, D: Database> Context<'a, D> {
    /// The trace that the sender's `traceparent` names. The handler runs in a span that has it too.
    pub fn trace(&self) -> Option<Trace<'a>> {
        Trace::of(self.message)
    }

    /// The group that this consumer is a member of.
    pub fn group(&self) -> &'a GroupName {
        self.group
    }
}

/// Runs once the effect has committed.
pub(super) type AfterCommit = Option<Box<dyn FnOnce() + Send>>;

impl<D: OutboxWriter> Context<'_, D> {
    /// Sends a message as part of the effect, through the outbox of the same database: it goes out if and only if
    /// the effect commits.
    pub async fn enqueue(&mut self, message: &Message) -> Result<()> {
        enqueue(self.database, self.connection, self.after_commit, std::slice::from_ref(message)).await
    }
}

/// Into the outbox, with the relay to be woken after the commit.
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
