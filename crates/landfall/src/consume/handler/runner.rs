//! Calls the handler for the messages of one transaction: once for each, or once for all.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use landfall_core::{Database, ErrorCode, Failure, GroupName, Message, Verdict};
use tracing::Instrument;

use super::batch::{BatchContext, BatchHandler};
use super::{AfterCommit, Context, Handler, trace};

/// The messages of one transaction that are to take effect, in order.
pub(crate) struct HandlerCall<'a, D: Database> {
    pub(crate) messages: &'a [&'a Message],
    pub(crate) connection: &'a mut D::Connection,
    pub(crate) attempt: Attempt,
    pub(crate) database: &'a D,
    pub(crate) group: &'a GroupName,
    pub(crate) after_commit: &'a mut AfterCommit,
}

/// Which attempt of a message this is, from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    /// Counted from the last manual redrive.
    pub(crate) since_redrive: u32,
    /// Whether the transaction is rolled back whatever the handler returns.
    pub(crate) is_rehearsal: bool,
}

/// A failure that rolls a transaction back.
#[derive(Debug)]
pub(crate) struct BatchFailure {
    /// The index of the message that failed, if it is known.
    pub(crate) index: Option<usize>,
    pub(crate) failure: Failure,
}

/// A [`Handler`] or a [`BatchHandler`], as the consumer calls it. An object, so that the consumer's type does not name
/// the handler; its allocation is small beside the transaction around the call.
pub(crate) trait HandlerRunner<D: Database>: Send + Sync {
    fn run<'a>(&'a self, call: HandlerCall<'a, D>) -> BoxFuture<'a, Result<(), BatchFailure>>;
}

/// Calls a [`Handler`] for each message in order.
pub(crate) struct PerMessage<H>(pub(crate) H);

/// Calls a [`BatchHandler`] once for all messages.
pub(crate) struct PerBatch<H>(pub(crate) H);

impl<D: Database, H: Handler<D>> HandlerRunner<D> for PerMessage<H> {
    fn run<'a>(&'a self, call: HandlerCall<'a, D>) -> BoxFuture<'a, Result<(), BatchFailure>> {
        Box::pin(async move {
            let HandlerCall { messages, connection, attempt, database, group, after_commit } = call;
            let Attempt { number: attempt, since_redrive: attempt_since_redrive, is_rehearsal } = attempt;
            for (index, message) in messages.iter().enumerate() {
                let context = Context {
                    message,
                    connection,
                    attempt,
                    attempt_since_redrive,
                    is_rehearsal,
                    database,
                    group,
                    after_commit,
                };
                catch_panic(async { self.0.handle(context).await })
                    .instrument(trace::span(message, attempt))
                    .await
                    .map_err(|failure| BatchFailure { index: Some(index), failure })?;
            }
            Ok(())
        })
    }
}

impl<D: Database, H: BatchHandler<D>> HandlerRunner<D> for PerBatch<H> {
    fn run<'a>(&'a self, call: HandlerCall<'a, D>) -> BoxFuture<'a, Result<(), BatchFailure>> {
        Box::pin(async move {
            let HandlerCall { messages, connection, attempt, database, after_commit, .. } = call;
            let Attempt { number: attempt, is_rehearsal, .. } = attempt;
            let context = BatchContext { messages, connection, attempt, is_rehearsal, database, after_commit };
            catch_panic(async { self.0.handle(context).await })
                .await
                .map_err(|failure| BatchFailure { index: None, failure })
        })
    }
}

/// Turns a panic into a failure, so that a message cannot crash the process again and again.
///
/// The handler is called inside the future: code before its first await may panic too.
async fn catch_panic(call: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(Failure::new(ErrorCode::PANIC, text, Verdict::Retry))
        }
    }
}
