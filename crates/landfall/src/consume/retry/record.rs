//! Records failed deliveries for operators while they wait for their next attempt.

use std::time::Duration;

use landfall_core::adapter::Retry;
use landfall_core::{ErrorCode, Failure, Inbox, Message, Result};

use crate::consume::transaction::GroupInbox;

/// Recording must not delay the next attempt or the shutdown for longer than this.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Failures of attempts that made no call. They must not hide why the last call failed.
const NOT_CALLED: [ErrorCode; 3] = [ErrorCode::CIRCUIT_OPEN, ErrorCode::BUDGET_EXHAUSTED, ErrorCode::BULKHEAD_FULL];

/// The record of one delivery. It informs people only, so its errors change nothing about the delivery.
pub(crate) struct RetryRecord<'a, D> {
    inbox: &'a GroupInbox<D>,
    message: &'a Message,
    /// Whether there may be a row to remove.
    exists: bool,
    /// How the last call failed.
    last_call: Option<Failure>,
}

impl<'a, D: Inbox> RetryRecord<'a, D> {
    /// `exists` if an earlier delivery of the message was recorded.
    pub(crate) fn new(inbox: &'a GroupInbox<D>, message: &'a Message, exists: bool) -> Self {
        Self { inbox, message, exists, last_call: None }
    }

    /// Records that the message failed and is attempted again after a pause.
    pub(crate) async fn failed(&mut self, attempts: u32, failure: &Failure, after: Duration) {
        self.exists = true;
        if !NOT_CALLED.contains(&failure.code) {
            self.last_call = Some(failure.clone());
        }
        let failure = self.last_call.as_ref().unwrap_or(failure);
        let retry = Retry { attempts, failure, after };
        self.log(self.inbox.database.record_retry(&self.inbox.group, self.message, retry)).await;
    }

    /// Removes the record: the message is settled, or is no longer attempted by this consumer.
    pub(crate) async fn clear(&mut self) {
        if std::mem::take(&mut self.exists) {
            self.log(self.inbox.database.clear_retry(&self.inbox.group, self.message)).await;
        }
    }

    /// Leaves the record in place: the message waits in the retry topic.
    pub(crate) fn keep(&mut self) {
        self.exists = false;
    }

    async fn log(&self, call: impl Future<Output = Result<()>>) {
        let message_id = self.message.id;
        match tokio::time::timeout(TIMEOUT, call).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%message_id, %error, "recording a failed delivery failed"),
            Err(_) => tracing::debug!(%message_id, "recording a failed delivery timed out"),
        }
    }
}
