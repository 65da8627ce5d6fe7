//! The port for senders that retry: a message is enqueued once per id.

use async_trait::async_trait;

use crate::{Message, Result};

/// The hash of everything that makes two messages equal, chosen by the caller.
pub type Fingerprint = [u8; 32];

/// Enqueues messages of senders that may send the same one again.
#[async_trait]
pub trait IdempotentAppend: Send + Sync {
    /// Commits `message` together with its id and wakes the relay, unless its id is remembered. The id outlives the
    /// message: it is remembered until [`Expiring::EnqueuedIds`](crate::Expiring::EnqueuedIds) are removed.
    ///
    /// Concurrent calls under one id enqueue one message; the others wait for its commit. When this returns, the
    /// message that is remembered survives a crash of the server.
    async fn append_once(&self, message: &Message, fingerprint: &Fingerprint) -> Result<Appended>;

    /// Does the same for several messages in one transaction, in their order, and returns what became of each. A
    /// message without a fingerprint cannot have been sent before: its id is neither compared nor remembered.
    ///
    /// Of several messages under one id the first counts. Concurrent batches do not deadlock, whatever the order of
    /// their ids. An error means that no message was enqueued, except with kind `Unknown`: all of them or none.
    async fn append_batch_once(&self, sends: &[(Message, Option<Fingerprint>)]) -> Result<Vec<Appended>>;
}

/// What became of a message that may have been enqueued before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    /// It was enqueued now.
    Fresh,
    /// It was enqueued before, with the same fingerprint. Nothing was written.
    Repeated,
    /// Another message was enqueued under this id. Nothing was written.
    Conflict,
}
