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
pub(crate) use runner::{Attempt, BatchFailure, HandlerCall, HandlerRunner, PerBatch, PerMessage};
pub use trace::Trace;
pub use typed::{Typed, TypedFn, parse, typed};

/// Handles one new message. What it writes through [`Context::connection`] commits together with the inbox row; an
/// error rolls both back.
///
/// Implemented by types; by `async fn`s and async closures in [`plain`], in [`typed`] with the payload, or in
/// [`with_state`] with shared state; and by closures that return a boxed future ([`handler_fn`]).
///
/// ```
/// use landfall::prelude::*;
/// use landfall::sqlite::Sqlite;
///
/// struct Reserve;
///
/// impl Handler<Sqlite> for Reserve {
///     async fn handle(&self, context: Context<'_, Sqlite>) -> Result<(), Failure> {
///         let update = "UPDATE stock SET reserved = reserved + 1 WHERE sku = ?";
///         let sku = context.message.key.as_ref().map(|key| key.as_str());
///         sqlx::query(update).bind(sku).execute(&mut *context.connection).await?;
///         Ok(())
///     }
/// }
/// ```
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

/// Makes a handler from an `async fn handle(context: Context<'_, D>) -> Result<(), Failure>`, or from an async closure
/// that captures nothing. For shared state use [`with_state`].
///
/// ```
/// use landfall::prelude::*;
/// use landfall::sqlite::Sqlite;
///
/// let handler = plain(async |context: Context<'_, Sqlite>| {
///     sqlx::query("UPDATE counter SET n = n + 1").execute(&mut *context.connection).await?;
///     Ok(())
/// });
/// # fn check(_: impl Handler<Sqlite>) {}
/// # check(handler);
/// ```
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

/// Makes a handler from a closure that returns a boxed future: `handler_fn(|context| Box::pin(async move { … }))`.
///
/// Returns the closure unchanged. The bound tells the compiler that the future may borrow from the context, which the
/// type of a bare closure does not say. Prefer [`plain`] or [`with_state`], which need no box.
///
/// ```
/// use landfall::prelude::*;
/// use landfall::sqlite::Sqlite;
///
/// let handler = handler_fn::<Sqlite, _>(|context| {
///     Box::pin(async move {
///         tracing::info!(id = %context.message.id, "handled");
///         Ok(())
///     })
/// });
/// ```
//
// Why this takes a boxed future and not `AsyncFn(Context<'_, D>) -> Result<(), Failure>` (Rust 1.95):
//
// A handler's future must be `Send`, because the consumer spawns it. The future of an `AsyncFn` bound is
// `F::CallRefFuture<'_>`, and a bound on it needs return-type notation (`F(..): Send`, rust-lang/rust#109417), which is
// unstable. Without that bound the compiler rejects `Handler::handle`: "`CallRefFuture<'_>` cannot be sent between
// threads safely".
//
// An async closure that captures nothing also implements `Fn(Context<'a, D>) -> impl Future`. `HandlerFn` can name and
// bound that future, so `plain` accepts it. One that captures lends its captures to its future and does not implement
// `Fn`; `with_state` passes the state as an argument instead. `Outbox::execute` needs no such bound, because it awaits
// the closure inside its own future, and takes `AsyncFnOnce`.
//
// Once return-type notation is stable, `plain`, `with_state` and this function become one blanket implementation.
pub fn handler_fn<D, F>(closure: F) -> F
where
    D: Database,
    F: for<'a> Fn(Context<'a, D>) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync + 'static,
{
    closure
}

/// Makes a handler from a function of shared state and the context: an `async fn`, or an async closure that captures
/// nothing.
///
/// ```
/// use landfall::prelude::*;
/// use landfall::consume::with_state;
/// use landfall::retry::{self, Dependency};
/// use landfall::sqlite::Sqlite;
///
/// let gateway = Dependency::new("gateway", retry::Options::default())?;
/// let handler = with_state(gateway, async |gateway: &Dependency, context: Context<'_, Sqlite>| {
///     gateway.attempt(context.attempt_since_redrive, async || Ok::<_, Failure>(())).await
/// });
/// # fn check(_: impl Handler<Sqlite>) {}
/// # check(handler);
/// # Ok::<_, landfall::Error>(())
/// ```
pub fn with_state<S, F>(state: S, function: F) -> WithState<S, F> {
    WithState { state, function }
}

/// The handler that [`with_state`] returns.
#[derive(Debug)]
pub struct WithState<S, F> {
    state: S,
    function: F,
}

/// A function of shared state and a context, whose future borrows from both; see [`HandlerFn`].
pub trait StatefulFn<'a, S, D: Database>: Send + Sync + 'static {
    type Future: Future<Output = Result<(), Failure>> + Send + 'a;

    fn call(&self, state: &'a S, context: Context<'a, D>) -> Self::Future;
}

impl<'a, S, D, F, R> StatefulFn<'a, S, D> for F
where
    S: 'a,
    D: Database,
    F: Fn(&'a S, Context<'a, D>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Failure>> + Send + 'a,
{
    type Future = R;

    fn call(&self, state: &'a S, context: Context<'a, D>) -> R {
        self(state, context)
    }
}

impl<S, D, F> Handler<D> for WithState<S, F>
where
    S: Send + Sync + 'static,
    D: Database,
    F: for<'a> StatefulFn<'a, S, D>,
{
    fn handle<'a>(&'a self, context: Context<'a, D>) -> impl Future<Output = Result<(), Failure>> + Send + 'a {
        self.function.call(&self.state, context)
    }
}

/// The message, and the transaction in which a [`Handler`] applies it.
///
/// ```
/// use landfall::prelude::*;
/// use landfall::sqlite::Sqlite;
///
/// async fn ship(mut context: Context<'_, Sqlite>) -> Result<(), Failure> {
///     let insert = "INSERT INTO shipment (order_id) VALUES (?)";
///     sqlx::query(insert).bind(context.message.id.to_string()).execute(&mut *context.connection).await?;
///     // Published if and only if the shipment commits.
///     context.enqueue(&Message::new(TopicName::new("shipments")?, "shipped")).await?;
///     Ok(())
/// }
/// # fn check(_: impl Handler<Sqlite>) {}
/// # check(plain(ship));
/// ```
pub struct Context<'a, D: Database> {
    pub message: &'a Message,
    /// The connection of the inbox transaction. The consumer commits it or rolls it back; the handler must not.
    pub connection: &'a mut D::Connection,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The number of this attempt since the message was last redriven by hand, from 1; equal to `attempt` if it never
    /// was. Pass it to [`Dependency::attempt`](crate::retry::Dependency::attempt): the first attempt after a redrive
    /// takes nothing from the retry budget.
    pub attempt_since_redrive: u32,
    /// Whether this is a [rehearsal](crate::consume::Builder::rehearsals): the transaction is rolled back whatever the
    /// handler returns. A handler that acts outside of it must not do so now.
    pub is_rehearsal: bool,
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
