//! What happens to the fresh messages of one transaction: each through a handler, or all through one.

use std::fmt;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use landfall_core::{Database, ErrorCode, Failure, GroupName, Message, Verdict};
use tracing::Instrument;

use super::batch_handler::{BatchContext, BatchHandler};
use super::handler::{AfterCommit, Context, Handler};
use super::trace;

/// The messages of one transaction that are to take effect, in their order.
pub struct Call<'a, D: Database> {
    pub(super) messages: &'a [&'a Message],
    pub(super) connection: &'a mut D::Connection,
    pub(super) attempt: u32,
    pub(super) database: &'a D,
    pub(super) group: &'a GroupName,
    pub(super) after_commit: &'a mut AfterCommit,
}

impl<D: Database> fmt::Debug for Call<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("messages", &self.messages.len()).finish_non_exhaustive()
    }
}

/// Why a transaction has to be rolled back.
#[derive(Debug)]
pub struct Stumble {
    /// The message at which it failed, if that is known.
    pub(super) at: Option<usize>,
    pub(super) failure: Failure,
}

/// A [`Handler`] or a [`BatchHandler`], as the consumer runs it.
pub trait Work<D: Database>: Send + Sync + 'static {
    fn apply<'a>(&'a self, call: Call<'a, D>) -> impl Future<Output = Result<(), Stumble>> + Send + 'a;
}

/// One message after the other.
#[derive(Debug)]
pub struct Each<H>(pub(super) H);

/// All at once.
#[derive(Debug)]
pub struct Together<H>(pub(super) H);

impl<D: Database, H: Handler<D>> Work<D> for Each<H> {
    async fn apply<'a>(&'a self, call: Call<'a, D>) -> Result<(), Stumble> {
        let Call { messages, connection, attempt, database, group, after_commit } = call;
        for (at, message) in messages.iter().enumerate() {
            let context = Context { message, connection, attempt, database, group, after_commit };
            caught(async { self.0.handle(context).await })
                .instrument(trace::span(message, attempt))
                .await
                .map_err(|failure| Stumble { at: Some(at), failure })?;
        }
        Ok(())
    }
}

impl<D: Database, H: BatchHandler<D>> Work<D> for Together<H> {
    async fn apply<'a>(&'a self, call: Call<'a, D>) -> Result<(), Stumble> {
        let Call { messages, connection, attempt, database, after_commit, .. } = call;
        let context = BatchContext { messages, connection, attempt, database, after_commit };
        caught(async { self.0.handle(context).await }).await.map_err(|failure| Stumble { at: None, failure })
    }
}

/// A panic is a failure like any other, so that it cannot take the process down in a loop. The call itself is inside
/// the future: what runs before a handler's first await may panic too.
async fn caught(call: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(Failure::new(ErrorCode::PANIC, text, Verdict::Retry))
        }
    }
}
